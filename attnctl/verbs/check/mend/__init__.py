"""Mends a program: changes of its text are tried, and one is believed after the changed program agreed.

Each changed program runs, in a process of its own, and every attention in it is judged as those of the
program were. Its files stay as they are until `Mending.write`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.evidence.walk import Verdict
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math import Array
from attnctl.math.names import BIAS, MASK, MASKED, WEIGHTS
from attnctl.sources.program import RecordedProgram
from attnctl.sources.program.named import Steps
from attnctl.sources.program.place import path_of
from attnctl.sources.program.run import SECONDS
from attnctl.sources.program.text import NOTEBOOK
from attnctl.verbs.check.check import check
from attnctl.verbs.check.exercise import strictness_of
from attnctl.verbs.check.mend.candidates import WrongPlace, candidates
from attnctl.verbs.check.mend.file import ProgramFile, read_file
from attnctl.verbs.check.mend.text import ProgramText
from attnctl.verbs.check.program import Accusation, AttentionJudgement, ProgramJudge
from attnctl.verbs.check.report import ENDS, Report

BUDGET = 60.0
"""Seconds in which changes are tried."""

MORE = 6
"""Changes that are tried after one agrees: another one may, too, with other numbers."""

Texts = Mapping[str, str]
"""What files of the program read instead, by their full paths."""


class JudgedProgram(NamedTuple):
    """A program, as it is or changed, and what is said of each of its attentions."""

    texts: Texts
    program: RecordedProgram
    judgements: list[AttentionJudgement | None]
    """None of those that cannot be compared."""

    @property
    def accusations(self) -> Iterator[Accusation]:
        for judgement in self.judgements:
            if judgement is not None:
                yield from judgement.accusations

    @property
    def wrong(self) -> set[tuple[int, str, str | None]]:
        """The wrong steps, each with the number of its attention and its mistake."""
        out: set[tuple[int, str, str | None]] = set()
        for number, judgement in enumerate(self.judgements):
            for finding in judgement.report.findings if judgement else ():
                out.add((number, finding.step, finding.mistake))
        return out

    @property
    def agrees(self) -> bool:
        """True if each attention was judged by what it gives, and is right."""
        return all(
            judgement is not None and judgement.report.agrees is True and decides(steps, judgement)
            for steps, judgement in zip(self.program.steps, self.judgements, strict=True)
        )

    def right_steps(self) -> list[dict[str, Array]]:
        """What is right before the first wrong step, of each attention until then.

        What comes after it, a next layer, may be made of what is wrong.
        """
        out: list[dict[str, Array]] = []
        for steps, judgement in zip(self.program.steps, self.judgements, strict=True):
            right: dict[str, Array] = {}
            out.append(right)
            for name, checked in judgement.report.steps.items() if judgement else ():
                if checked.verdict is Verdict.WRONG:
                    return out
                if name in shown(steps):
                    right[name] = steps.arrays[name]
        return out

    def results(self) -> list[Array]:
        """What its attentions give."""
        return [steps.arrays[name] for steps in self.program.steps for name in ENDS if name in steps.arrays]


class Mending(NamedTuple):
    """What came of trying."""

    agreeing: list[Texts]
    """Changed files with which everything agrees; more than one only where they give different numbers."""
    files: Mapping[str, ProgramFile]
    names: Mapping[str, str]
    """What the person calls these files."""
    tried: int
    reason: str
    """Why there is none, or none that is sure; "" where there is."""

    def diffs(self) -> Iterator[str]:
        """What each of them changes, as `patch` takes it."""
        for texts in self.agreeing:
            for path, text in texts.items():
                yield self.files[path].diff_to(text, self.names[path])

    def write(self) -> None:
        """Put the change into its files. Raises AttnError where one cannot be written."""
        (texts,) = self.agreeing
        for path, text in texts.items():
            self.files[path].write(text)


class Round(NamedTuple):
    """What changes of a program came to."""

    agreeing: list[JudgedProgram]
    better: JudgedProgram | None
    """The first in which less is wrong, and nothing that was right."""


class Mender:
    """Tries changes of one program."""

    def __init__(self, judge: ProgramJudge, strictness: Mapping[str, Any]) -> None:
        self.judge = judge
        self.program = judge.program
        self.strictness = strictness
        """How far off numbers may be: rtol, atol and decimals."""
        self.ends = time.monotonic() + BUDGET
        self.files: dict[str, ProgramFile] = {}
        self.tried = 0
        self.moved = False
        """True if a change agreed, and what was right before is not as it was."""

    def mend(self) -> Mending:
        """Try changes at what is accused; of several mistakes one after the other."""
        if self.program.recording.path.endswith(NOTEBOOK):
            return self.mending([], "a notebook is mended by hand")
        now: JudgedProgram | None = judge_attentions({}, self.judge)
        last = Round([], None)
        while now is not None and not last.agreeing:
            last = self.improve(now)
            now = last.better
        self.leave_files_as_it_stands()

        agreeing = different(last.agreeing)
        reason = ""
        if len(agreeing) > 1:
            reason = "these give different numbers; choose"
        elif not agreeing:
            reason = self.why_none()
        return self.mending([judged.texts for judged in agreeing], reason)

    def mending(self, agreeing: list[Texts], reason: str) -> Mending:
        names = {path: path_of(self.program.graph, path) for path in self.files}
        return Mending(agreeing=agreeing, files=self.files, names=names, tried=self.tried, reason=reason)

    def why_none(self) -> str:
        if not self.tried:
            return "no change of the text is known for what is wrong"
        if self.moved and not self.is_steady():
            return "its numbers are others each time it runs; give its random numbers a seed"
        if time.monotonic() > self.ends:
            return (
                f"none of those tried in {BUDGET:.0f} s makes it agree and leaves as it is what was right"
            )
        return "none of them makes it agree and leaves as it is what was right"

    # --- rounds ---

    def improve(self, now: JudgedProgram) -> Round:
        """Try changes of a program at what is wrong of it."""
        agreeing: list[JudgedProgram] = []
        better: JudgedProgram | None = None
        right = now.right_steps()
        for path, places in self.places(now).items():
            text = now.texts.get(path) or self.file(path).text
            changes = candidates(ProgramText(text), places)
            last = len(changes)
            for number, change in enumerate(changes):
                if number > last or time.monotonic() > self.ends:
                    break
                after = self.attempt(now, {**now.texts, path: change.applied(text)}, right)
                if after is None:
                    continue
                if after.agrees:
                    agreeing.append(after)
                    last = min(last, number + MORE)
                elif better is None and after.wrong < now.wrong:
                    better = after
            if agreeing:
                break
        return Round(agreeing, better)

    def places(self, now: JudgedProgram) -> dict[str, list[WrongPlace]]:
        """What is accused, and the lines that led there, by files of the program's own."""
        graph = now.program.graph
        folder = Path(self.program.recording.path).resolve().parent
        out: dict[str, list[WrongPlace]] = {}
        for accusation in now.accusations:
            site = graph.site(accusation.event)
            inside = range(site.line, site.end_line + 1)
            is_call_blamed = accusation.place.line not in inside
            if accusation.finding.option is not None and not is_call_blamed:
                continue  # it may be meant, and an option says so

            lines: dict[str, list[int]] = {site.file: [*inside, accusation.place.line]}
            for caller in graph.events[accusation.event].callers:
                lines.setdefault(caller.file, []).append(caller.line)
            for file, wrong in lines.items():
                if Path(file).parent == folder:
                    place = WrongPlace(tuple(wrong), accusation.finding.step, accusation.finding.mistake)
                    out.setdefault(file, []).append(place)
        return out

    def file(self, path: str) -> ProgramFile:
        if path not in self.files:
            self.files[path] = read_file(path)
        return self.files[path]

    # --- one change ---

    def attempt(
        self, now: JudgedProgram, texts: Texts, right: Sequence[Mapping[str, Array]]
    ) -> JudgedProgram | None:
        """A changed program, judged; None where it fails, shows less, or changes what was right."""
        self.tried += 1
        seconds = min(SECONDS, max(self.ends - time.monotonic(), 1))
        try:
            program = self.program.run_again(texts, seconds)
            if shows_less(now.program, program):
                return None
            after = self.judge_changed(now, texts, program)
        except AttnError:
            return None
        if not keeps(program, right):
            self.moved = self.moved or after.agrees
            return None
        return after

    def judge_changed(self, now: JudgedProgram, texts: Texts, program: RecordedProgram) -> JudgedProgram:
        """A changed program, judged; what is wrong of it is named where it may be less than before.

        To name it takes longer than all the rest.
        """
        without_names = self.judged(texts, program, named=False)
        if without_names.agrees or len(now.wrong) == 1:
            return without_names
        return self.judged(texts, program, named=True)

    def judged(self, texts: Texts, program: RecordedProgram, *, named: bool) -> JudgedProgram:
        check_each = partial(check_arrays, strictness=self.strictness, named=named)
        return judge_attentions(texts, ProgramJudge(program, check_each, self.judge.make_settings))

    def is_steady(self) -> bool:
        """True if the program, carried out once more as it is, computes the same numbers."""
        with suppress(AttnError):
            program = self.program.run_again({}, SECONDS)
            return keeps(program, judge_attentions({}, self.judge).right_steps())
        return False

    def leave_files_as_it_stands(self) -> None:
        """Carry out the program as its file is now: what it writes is what this one writes."""
        if self.tried:
            with suppress(AttnError):
                self.program.run_again({}, SECONDS)


def check_arrays(
    arrays: Mapping[str, Array], settings: Settings, strictness: Mapping[str, Any], *, named: bool
) -> Report:
    trace = trace_of_arrays(arrays)
    return check(trace, settings, strictness_of(trace, **strictness), pairs=False, named=named)


def judge_attentions(texts: Texts, judge: ProgramJudge) -> JudgedProgram:
    judgements: list[AttentionJudgement | None] = []
    for steps in judge.program.steps:
        try:
            judgements.append(judge.judge(steps))
        except AttnError:  # said with the report
            judgements.append(None)
    return JudgedProgram(texts, judge.program, judgements)


def decides(steps: Steps, judgement: AttentionJudgement) -> bool:
    """True if what the attention gives was judged, and not only what came before."""
    end = next((name for name in (*ENDS, WEIGHTS) if name in steps.arrays), WEIGHTS)
    checked = judgement.report.steps.get(end)
    return checked is not None and checked.verdict is Verdict.AGREES


def shows_less(before: RecordedProgram, after: RecordedProgram) -> bool:
    """True if an attention is gone, or one of its ends; or nothing asks any more for what was asked for.

    A change that hides an attention's output from its reader would agree, too.
    """
    if len(after.steps) < len(before.steps) or len(after.left) > len(before.left):
        return True
    if after.recording.ending not in {"", before.recording.ending}:
        return True
    for steps, changed in zip(before.steps, after.steps, strict=False):
        needed = shown(steps) & {WEIGHTS, *ENDS, *steps.given}
        if MASK in {*changed.arrays} - {*steps.arrays}:
            needed.discard(BIAS)  # numbers that were to hide, and are now what hides
        if not needed <= {*changed.arrays} or not {*steps.options} <= {*changed.options}:
            return True
    return False


def shown(steps: Steps) -> set[str]:
    """The steps that a program shows, without a mask that is told by weights of 0 alone.

    Scores that are not scaled make some of these, too.
    """
    out = {*steps.arrays}
    if MASKED not in out:
        out.discard(MASK)
    return out


def keeps(program: RecordedProgram, right: Sequence[Mapping[str, Array]]) -> bool:
    """True if what was right is as it was, or as it was without zeros: without empty slots of a cache."""
    for steps, arrays in zip(program.steps, right, strict=False):
        for name, before in arrays.items():
            after = steps.arrays.get(name, before)
            if not are_same([without_end(before, after.shape)], [after]):
                return False
    return True


def without_end(array: Array, shape: tuple[int, ...]) -> Array:
    """An array cut to a shape that is smaller along some axes, where zeros alone are cut off."""
    if array.ndim != len(shape):
        return array
    kept = array[tuple(slice(size) for size in shape)]
    if np.count_nonzero(kept) == np.count_nonzero(array):
        return kept
    return array


def different(agreeing: Sequence[JudgedProgram]) -> list[JudgedProgram]:
    """The first of those that give the same numbers."""
    out: list[JudgedProgram] = []
    for judged in agreeing:
        if not any(are_same(judged.results(), other.results()) for other in out):
            out.append(judged)
    return out


def are_same(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    if len(arrays) != len(others):
        return False
    return all(
        array.shape == other.shape and np.allclose(array, other, rtol=1e-4, atol=1e-6, equal_nan=True)
        for array, other in zip(arrays, others, strict=True)
    )
