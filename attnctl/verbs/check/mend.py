"""Mends a program: changes of its text are tried, and one is believed after the changed program agreed.

Each changed program runs, in a process of its own, and every attention in it is judged as those of the
program were. Its files stay as they are until one is written with `write`.
"""

from __future__ import annotations

import difflib
import io
import time
import tokenize
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.files import open_own
from attnctl.evidence.walk import Checked, Verdict
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.sources.program import RecordedProgram
from attnctl.sources.program.place import path_of
from attnctl.sources.program.run import SECONDS, record_program
from attnctl.sources.program.text import NOTEBOOK
from attnctl.store.files import replacing
from attnctl.verbs.check.program import ENDS, Accusation, ProgramJudge
from attnctl.verbs.check.report import Report
from attnctl.verbs.check.rewrite import Candidate, candidates
from attnctl.verbs.check.text import LINE_ENDS, ProgramText

BUDGET = 60.0
"""Seconds in which changes are tried."""

MORE = 12
"""Changes that are tried after one agrees: another one may, too, with other numbers."""

JudgeOf = Callable[[RecordedProgram], ProgramJudge]


@dataclass(frozen=True)
class FileText:
    """What a file holds, and how it is written."""

    path: str
    text: str
    encoding: str

    def write(self, text: str) -> None:
        """Put another text there, in the same encoding, all at once."""
        with replacing(self.path) as stream:
            stream.write(text.encode(self.encoding))

    def diff_to(self, text: str, shown: str) -> str:
        """What changes, as `patch` takes it."""
        before, after = (lines_of(one) for one in (self.text, text))
        changed = difflib.unified_diff(before, after, shown, shown, n=1)
        whole = (
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changed
        )
        return "".join(whole)


def lines_of(text: str) -> list[str]:
    ends = [0, *(found.end() for found in LINE_ENDS.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(ends) if a < b]


def read_file(path: str) -> FileText:
    """A file of Python, in the encoding that its first lines name."""
    with open_own(path) as stream:
        data = stream.read()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return FileText(path=path, text=data.decode(encoding), encoding=encoding)


class ChangedOutcome(NamedTuple):
    """What a changed program computes, where all of it is right."""

    outputs: tuple[Array, ...]
    keeps: bool
    """True if what was right before what is wrong is as it was."""


class AgreedChange(NamedTuple):
    """A change with which the program agrees."""

    file: FileText
    text: str
    shown: str
    """What the person calls the file."""
    outcome: ChangedOutcome

    def diff(self) -> str:
        return self.file.diff_to(self.text, self.shown)


class Mending(NamedTuple):
    """What came of trying."""

    changes: list[AgreedChange]
    """Those that agree; more than one only where they give different numbers."""
    tried: int
    out_of: int
    reason: str
    """Why there is none, or none that is sure; "" where there is."""


class Mender:
    """Tries changes of one program."""

    def __init__(
        self, program: RecordedProgram, asked: dict[str, object], judge_of: JudgeOf, answers: str = ""
    ) -> None:
        self.program = program
        self.asked = asked
        self.judge_of = judge_of
        self.answers = answers
        self.ends = time.monotonic() + BUDGET

    def mend(self, accusations: Sequence[Accusation]) -> Mending:
        """Try changes at what is accused."""
        if not accusations:
            return Mending([], 0, 0, "no expression is accused")
        if self.program.recording.path.endswith(NOTEBOOK):
            return Mending([], 0, 0, "a notebook is mended by hand")

        found: list[AgreedChange] = []
        tried = out_of = 0
        for path, lines in self.places(accusations).items():
            file = read_file(path)
            mistakes = [one.finding.mistake or one.finding.step for one in accusations]
            several = candidates(ProgramText(file.text), lines, mistakes)
            out_of += len(several)
            last = len(several)
            for number, candidate in enumerate(several):
                if time.monotonic() > self.ends or number > last:
                    break
                tried += 1
                outcome = self.outcome_if_right(file, candidate)
                if outcome is not None:
                    shown = path_of(self.program.graph, path)
                    found.append(AgreedChange(file, candidate.applied(file.text), shown, outcome))
                    last = min(last, number + MORE)
            if found:
                break

        found = apart([change for change in found if change.outcome.keeps])
        reason = ""
        if len(found) > 1:
            reason = "they give different numbers; choose"
        elif not found:
            reason = "none of them makes it agree and leaves as it is what was right"
        return Mending(found, tried, out_of, reason)

    def places(self, accusations: Sequence[Accusation]) -> dict[str, list[int]]:
        """The lines that are accused and those that call them, by their files, the nearest first."""
        graph = self.program.graph
        folder = Path(self.program.recording.path).resolve().parent
        out: dict[str, list[int]] = {}
        for accusation in accusations:
            site = graph.site(accusation.event)
            inside = range(site.line, site.end_line + 1)
            callers = [(caller.file, caller.line) for caller in graph.events[accusation.event].callers]
            shown = [(site.file, line) for line in (*inside, accusation.place.line)]
            for file, line in (*shown, *callers):
                if Path(file).parent == folder:
                    out.setdefault(file, []).append(line)
        return out

    def outcome_if_right(self, file: FileText, candidate: Candidate) -> ChangedOutcome | None:
        """What the attentions of the changed program give; None unless each of them is right."""
        texts = {file.path: candidate.applied(file.text)}
        seconds = min(SECONDS, max(self.ends - time.monotonic(), 1))
        before = self.program
        try:
            recording = record_program(before.recording.path, seconds, texts=texts, answers=self.answers)
            program = RecordedProgram(recording, self.asked)
            is_short = len(program.steps) < len(before.steps) or len(program.left) > len(before.left)
            if is_short or (recording.ending and recording.ending != before.recording.ending):
                return None
            judge = self.judge_of(program)
            reports = [judge.judge(steps).report for steps in program.steps]
            if any(report.agrees is not True for report in reports) or self.is_judged_less(
                program, reports
            ):
                return None
        except AttnError:
            return None
        with np.errstate(all="ignore"):
            outputs = tuple(
                np.asarray(steps.arrays[name], float)
                for steps in program.steps
                for name in ENDS
                if name in steps.arrays
            )
            return ChangedOutcome(outputs, self.keeps_what_is_right(program))

    def is_judged_less(self, program: RecordedProgram, reports: Sequence[Report]) -> bool:
        """True if something that was judged is not, or nothing asks any more for what was asked for.

        A change that hides an attention's output from its reader would agree, too.
        """
        for before, after, report in zip(self.program.steps, program.steps, reports, strict=False):
            if {*before.options} - {*after.options}:
                return True
            ends = [name for name in (WEIGHTS, *ENDS) if name in before.arrays]
            if not {*ends, *before.given} <= {*after.arrays, *after.given}:
                return True
            judged = report.steps.get(next((name for name in ENDS if name in ends), WEIGHTS))
            if judged is None or judged.verdict is not Verdict.AGREES:
                return True
        return False

    @cached_property
    def right(self) -> list[dict[str, Array]]:
        """Of each attention what is right before its first wrong step."""
        judge = self.judge_of(self.program)
        out: list[dict[str, Array]] = []
        for steps in self.program.steps:
            verdicts: dict[str, Checked] = {}
            with suppress(AttnError):
                verdicts = judge.judge(steps).report.steps
            before = takewhile(lambda item: item[1].verdict is not Verdict.WRONG, verdicts.items())
            out.append({name: steps.arrays[name] for name, _ in before if name in steps.arrays})
        return out

    def keeps_what_is_right(self, program: RecordedProgram) -> bool:
        for steps, right in zip(program.steps, self.right, strict=False):
            for name, array in right.items():
                if name in steps.arrays and not are_same([steps.arrays[name]], [array]):
                    return False
        return True


def apart(changes: Sequence[AgreedChange]) -> list[AgreedChange]:
    """The first of those that give the same numbers."""
    out: list[AgreedChange] = []
    for change in changes:
        if not any(are_same(change.outcome.outputs, one.outcome.outputs) for one in out):
            out.append(change)
    return out


def are_same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    if len(one) != len(other):
        return False
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )
