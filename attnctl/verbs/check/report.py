"""The findings of a check, as values: for people, for scripts, for Python."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import lru_cache
from math import isfinite
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import number_text
from attnctl.evidence.blocks import stretch
from attnctl.evidence.judge import Gap, wrong_numbers
from attnctl.evidence.walk import Checked, Verdict, Walk
from attnctl.math import Array, Progress
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, OUTPUT
from attnctl.math.ops import Given, Unstated
from attnctl.record import ATTENTION, CALL, DROPPED, Trace, numbers_of
from attnctl.record.cells import spell_cell
from attnctl.verbs.check.readings import Reading

if TYPE_CHECKING:
    from attnctl.mistakes.mistake import Mistake, Plant

OPTION = re.compile("(?:.*; or )?say (--.*) if it is meant")
"""What is to be written instead, where everything is right once an option says so."""

ENDS = (OUTPUT, CONCAT, HEAD_OUTPUTS)
"""What comes out, the last first."""

FINDING_KEYS = ("step", "mistake", "largest_difference", "at", "cell", "words", "fix", "also", "hint")


@dataclass(frozen=True)
class Finding:
    step: str
    gap: Gap
    mistake: str | None = None
    words: str = ""
    """Completes "It is what you get when …"."""
    fix: str = ""
    also: tuple[str, ...] = ()
    """Other mistakes that would give the same numbers."""
    otherwise: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """The words and the fix of each of these."""
    hint: str = ""
    """What else can be said: where no mistake is known, or nothing was computed from the step."""
    planted: tuple[Mistake, Plant] | None = field(default=None, compare=False, repr=False)
    """The mistake, and the program in which it was found."""

    @property
    def option(self) -> str | None:
        """The option that would have asked for it, where one would."""
        asked = OPTION.fullmatch(self.fix)
        return asked[1] if asked else None


@dataclass(frozen=True)
class StepPlace:
    """Where a step is made, homework.py:9:12, and how the program reads there."""

    text: str
    lines: tuple[str, ...] = ()
    """The line with a caret under the expression, and who called it."""
    span: Mapping[str, str | int] = field(default_factory=dict)
    """file, line, column, end_line and end_column, counted from 1."""


@dataclass(frozen=True)
class ProgramListing:
    """The text of a program, and which of its lines make which step."""

    files: Mapping[str, str]
    """The text of each file, by the name that the person calls it."""
    made: Mapping[str, tuple[str, int]]
    """By step the file and the line that make it, where a line does."""
    mended: Mapping[str, str] = field(default_factory=dict)
    """What files read instead, with which every attention agreed; only where that was asked for."""
    is_written: bool = False
    """True if the files read so now."""


class BrokenLaw(NamedTuple):
    """A law that two calls of a module break, or what is wrong beside an attention of a program."""

    words: str
    fix: str = ""
    place: StepPlace | None = None
    """Where in a program."""

    def __str__(self) -> str:
        where = "" if self.place is None else self.place.text
        parts = [part for part in (where, self.words, self.fix) if part]
        return f"{': '.join(parts)}."


@dataclass(frozen=True)
class Unjudged:
    """A recorded step that could not be judged: why, and which steps to record too."""

    step: str
    words: str
    record: tuple[str, ...]
    otherwise: str = ""
    """What would help where no other step does."""


@dataclass(frozen=True)
class Report(Displayed):
    """Every step of a dump, checked; the wrong ones in order, each with the mistake that explains it."""

    walk: Walk = field(repr=False, compare=False)
    """What was found of each step, and of which record."""
    steps: dict[str, Checked]
    findings: tuple[Finding, ...]
    allowance: str = "rounding"
    """What a number may be off by, in words."""
    unknown: tuple[str, ...] = ()
    """Recorded arrays under names that attnctl does not know."""
    cannot_tell: tuple[Unjudged, ...] = ()
    notes: tuple[str, ...] = ()
    """How the numbers had to be read for it."""
    reading: str = ""
    """How the arrays had to be read to agree, where they do not as their names and sizes say."""
    presumed: tuple[str, ...] = ()
    """The options that were not given, and with which it was judged: the numbers show them."""
    broken: tuple[BrokenLaw, ...] = ()
    """What is wrong where each number by itself is right."""
    places: Mapping[str, StepPlace] = field(default_factory=dict)
    """Where a wrong step is made: the call of a captured one, the expression of a program."""
    program: ProgramListing | None = field(default=None, repr=False, compare=False)
    """The program that made it, where one was read."""

    @property
    def trace(self) -> Trace:
        return self.walk.record.trace

    def with_header(self, more: Mapping[str, Any]) -> Report:
        """The same with more said of its trace: where in a program it stands."""
        record = self.walk.record
        trace = replace(record.trace, header={**record.trace.header, **more})
        return replace(self, walk=replace(self.walk, record=replace(record, trace=trace)))

    @property
    def unasked(self) -> str | None:
        """The options with which everything agrees, where they were not given."""
        options = [finding.option for finding in self.findings]
        known = [option for option in options if option is not None]
        is_all = bool(known) and len(known) == len(options) and not self.cannot_tell
        return " ".join(known) if is_all else None

    @property
    def agrees(self) -> bool | None:
        """True if every recorded step is right; None where none is wrong and some could not be judged.

        An exercise with blanks that are not filled in does not agree.
        """
        if self.findings or self.not_filled or self.broken:
            return False
        return None if self.cannot_tell else True

    @property
    def is_proven(self) -> bool:
        """True if, with what is wrong put right, what comes out is right as well.

        Each step is judged by the operands that it read: where those behind the wrong ones agree, down to
        the last, only the wrong ones keep the end from being right.
        """
        ends = [self.steps[name].verdict for name in ENDS if name in self.steps]
        judged = {Verdict.AGREES, Verdict.WRONG}
        return not self.cannot_tell and any(verdict in judged for verdict in ends)

    @property
    def not_filled(self) -> list[str]:
        names = []
        for name, step in self.steps.items():
            is_partly_filled = step.gap and step.gap.filled < step.gap.of
            if step.verdict is Verdict.NOT_FILLED or is_partly_filled:
                names.append(name)
        return names

    @property
    def first(self) -> str | None:
        return self.findings[0].step if self.findings else None

    @property
    def mistake(self) -> str | None:
        return self.findings[0].mistake if self.findings else None

    @property
    def gap(self) -> Gap | None:
        """The largest difference of the first wrong step, or of all steps where none is wrong."""
        if self.findings:
            return self.findings[0].gap
        gaps = [step.gap for step in self.steps.values() if step.gap]
        return max(gaps, key=lambda gap: gap.largest, default=None)

    def wrong_cells(self) -> dict[str, tuple[Array, Array]]:
        """By wrong step: which numbers are wrong, and what they should be."""
        cells = {}
        for name in self.walk.wrong:
            expected = self.walk.expect(name)
            if expected is not None:
                cells[name] = wrong_numbers(self.walk.record, name, expected), expected.value
        return cells

    def to_dict(self) -> dict[str, Any]:
        if self.findings:
            first, *then = [self.finding_dict(finding) for finding in self.findings]
        else:
            largest = self.gap and strict_number(self.gap.largest)
            first = dict.fromkeys(FINDING_KEYS) | {"largest_difference": largest, "also": []}
            then = []

        cannot_tell = []
        for unjudged in self.cannot_tell:
            said = {"record": list(unjudged.record), "otherwise": unjudged.otherwise or None}
            cannot_tell.append(asdict(unjudged) | said)

        # Where a trace was captured, or stands in a program, it says so first.
        header = self.trace.header
        plain: dict[str, Any] = {name: header[name] for name in (CALL, ATTENTION) if name in header}
        plain |= {
            "agrees": self.agrees,
            "first": first.pop("step"),
            **first,
            "then": then,
            "steps": {name: self.step_dict(step) for name, step in self.steps.items()},
            "unknown": list(self.unknown),
            "cannot_tell": cannot_tell,
            "not_filled": self.not_filled,
            "notes": list(self.notes),
            "reading": self.reading or None,
            "unasked": self.unasked,
            "presumed": " ".join(self.presumed) or None,
        }
        if self.broken:
            plain["broken"] = [str(law) for law in self.broken]
        if self.program is not None and self.findings:
            plain["proven"] = self.is_proven
        return plain

    def finding_dict(self, finding: Finding) -> dict[str, Any]:
        """A finding under the keys of `FINDING_KEYS`, with its place in a program."""
        gap = finding.gap
        row: dict[str, Any] = {
            "step": finding.step,
            "mistake": finding.mistake,
            "largest_difference": strict_number(gap.largest),
            "at": list(gap.at),
            "cell": spell_cell(self.trace, finding.step, gap.at),
            "words": finding.words or None,
            "fix": finding.fix or None,
            "also": list(finding.also),
            "hint": finding.hint or None,
        }
        place = self.places.get(finding.step)
        if place is not None:
            row |= {"place": place.text, **place.span}
        return row

    def step_dict(self, step: Checked) -> dict[str, Any]:
        gap = step.gap
        if gap is None:
            return {"verdict": step.verdict.value}
        plain: dict[str, Any] = {
            "verdict": step.verdict.value,
            "largest_difference": strict_number(gap.largest),
            "allowed": strict_number(gap.allowed),
            "at": list(gap.at),
            "differing": gap.differing,
            "of": gap.filled,
        }
        if step.broken:
            plain["rows"] = str(step.broken)
        if step.verdict is Verdict.WRONG:
            plain["found"] = strict_number(gap.found)
            plain["expected"] = strict_number(gap.expected)
        return plain


def strict_number(value: float) -> float | str:
    """A number as strict JSON has it."""
    return value if isfinite(value) else number_text(value)


def find_unjudged(walk: Walk, steps: Mapping[str, Checked], reading: Reading) -> Iterator[Unjudged]:
    for name, checked in steps.items():
        is_given = name not in walk.derivation or isinstance(walk.derivation[name].op, Given)
        if is_given or name in reading.taken:
            continue
        if name in reading.shown:
            why = "nothing says which keys it should hide; the others were judged"
            yield Unjudged(name, why, (), "Give the mask, or say --causal or --window")
        elif checked.verdict is Verdict.CANNOT_TELL:
            yield why_blurred(walk, name, checked)
        elif checked.verdict is Verdict.NOT_CHECKABLE:
            yield why_unfounded(walk, name)

    for name, option in reading.left_out.items():
        if name in reading.doubtful and name not in walk.derivation:
            yield why_left_out(name, option)


def why_blurred(walk: Walk, name: str, checked: Checked) -> Unjudged:
    """Rounding on the way to a step may put it off by as much as its numbers vary."""
    record = walk.record
    if np.isinf(checked.blurred):
        why = "what it is computed from is NaN or has overflowed, so its numbers could be anything"
        return Unjudged(name, why, (), "Record it from inputs whose numbers are finite")

    # The first steps on the way that nobody recorded: with them less rounding would add up.
    steps = stretch(walk.derivation, record, name)[:-1]
    unrecorded = {step.name for step in steps}
    first = tuple(step.name for step in steps if unrecorded.isdisjoint(step.inputs))

    allowance = str(record.strictness)
    if record.strictness.decimals is None:
        precision = record.unrecorded if steps else record.precision(name)
        allowance += f" in {precision.name}"
    why = f"{allowance} may put it off by {checked.blurred:.0%} of how far its numbers vary"
    return Unjudged(name, why, first, "Record it and what it is computed from in more digits")


def why_left_out(name: str, option: str) -> Unjudged:
    why = "nothing asks for it, and what follows does not come of it"
    return Unjudged(name, why, (), f"Say {option} if that is meant, or leave it out")


def why_unfounded(walk: Walk, name: str) -> Unjudged:
    """Nothing says how a step came about, or what it is computed from is not there."""
    step = walk.derivation[name]
    record = walk.record
    if isinstance(step.op, Unstated):
        why = "nothing says how it came about"
        if step.op.option:
            why += f"; {step.op.option} would, and was not given"
        return Unjudged(name, why, (), "Say so by the options, or leave it out")
    missing = tuple(read for read in step.inputs if read not in record and walk.values.get(read) is None)
    return Unjudged(name, "what it is computed from is not recorded", missing)


# --- the traces of one file, each checked ---


@dataclass(frozen=True, eq=False)
class CheckedTrace:
    """One of several traces; no report where nothing of it could be compared."""

    number: int
    trace: Trace
    report: Report | None
    again: str = ""
    """The command that explains its first wrong number; or why there is no report."""
    summary: Summary | None = None
    """What is known of one whose report is not kept."""

    @property
    def agrees(self) -> bool | None:
        """As its report has it; of one's own function nothing says what was meant but its numbers."""
        if self.summary is not None:
            return self.summary.agrees
        if self.report is None:
            return None
        return True if self.trace.is_own_call and self.report.unasked else self.report.agrees

    @property
    def kind(self) -> str:
        for name in (CALL, ATTENTION):
            if name in self.trace.header:
                return name
        return "trace"

    @property
    def where(self) -> list[str]:
        """Where a call was made, and in which module; or the sentence."""
        call = self.trace.header.get(CALL) or self.trace.header.get(ATTENTION, {})
        return [call.get("at", self.trace.sentence or ""), call.get("module", "")]

    @property
    def words(self) -> str:
        if self.summary is not None:
            return self.summary.words
        if self.report is None:
            # Why there is no report, without what to do about it.
            return "its output is after dropout" if DROPPED in self.trace else self.again.partition(" (")[0]
        if self.report.unasked:
            return f"agrees with {self.report.unasked}"
        if not self.report.findings:
            if self.report.broken:
                return self.report.broken[0].words
            return "" if self.report.agrees else "cannot tell"
        first = self.report.findings[0]
        return f"{first.step}: {first.words}" if first.words else f"{first.step} is wrong"

    def to_dict(self) -> dict[str, Any]:
        if self.summary is not None:
            told: dict[str, Any] = json.loads(zlib.decompress(self.summary.told))
            return told
        if self.report is None:
            plain = {CALL: self.trace.header.get(CALL), "why": self.words}
        else:
            plain = self.report.to_dict()
        return {"number": self.number, **plain, "agrees": self.agrees}

    def summarize(self, *, tell: bool) -> CheckedTrace:
        """The same without arrays and report, which of 100,000 calls would fill the memory.

        Without `tell` it has no `to_dict` either.
        """
        told = zlib.compress(json.dumps(self.to_dict()).encode(), 1) if tell else b""
        summary = Summary(self.agrees, intern(self.words), told)
        return CheckedTrace(self.number, name_trace(self.kind, *self.where), None, summary=summary)


class Summary(NamedTuple):
    agrees: bool | None
    words: str
    told: bytes
    """What a script is told, compressed; nothing where no script asks."""


@lru_cache(maxsize=1000)  # most calls are made in a few places
def name_trace(kind: str, at: str, module: str) -> Trace:
    """A trace of which only that is known which a table shows."""
    header: dict[str, Any] = {"sentence": at}
    if kind in {CALL, ATTENTION}:
        header = {kind: {"at": at, "module": module}}
    return Trace({}, {}, header)


Judge = Callable[[Trace, str], tuple[Report, str]]
"""Makes the report of a trace, and the command that explains it; takes which of several it is: [3]."""


def check_each(
    traces: Sequence[Trace], judge: Judge, moved: Progress, *, keep: bool = True, tell: bool = True
) -> list[CheckedTrace]:
    """Check one after the other. Raises AttnError where nothing of the only one can be compared.

    Without `keep` the report of the first that is wrong stays, and with `tell` what scripts are told.
    """
    found: list[CheckedTrace] = []
    is_shown = False  # the first that is wrong is there, with its report
    for at, number in enumerate(numbers_of(traces)):
        moved(at, len(traces))
        checked = check_one(traces, at, number, judge)
        is_first_wrong = checked.agrees is False and not is_shown
        is_shown = is_shown or is_first_wrong
        if len(traces) > 1 and not (keep or is_first_wrong):
            checked = checked.summarize(tell=tell)
        found.append(checked)
    return found


def check_one(traces: Sequence[Trace], index: int, number: int, judge: Judge) -> CheckedTrace:
    """Check one of these; it is judged by itself, and so is one that cannot be read."""
    trace = Trace({}, {}, {CALL: {"number": number, "at": "", "module": ""}})
    is_only = len(traces) == 1
    try:
        trace = traces[index]
        report, again = judge(trace, "" if is_only else f"[{number}]")
        return CheckedTrace(number, trace, report, again)
    except AttnError as error:
        if is_only:
            raise
        return CheckedTrace(number, trace, None, error.problems[0])


def agree(found: Sequence[CheckedTrace]) -> bool | None:
    """True if all do, False if one does not; None where none is wrong, and some could not be judged."""
    verdicts = {checked.agrees for checked in found}
    if False in verdicts:
        return False
    return None if None in verdicts else True
