"""A hand-in graded: each blank step by `check`, what was given held to what was handed out."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, dims, plural
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.walk import Verdict
from attnctl.inputs.config.settings import FromFile, Settings
from attnctl.inputs.plan.intended import plan_as_stated, settings_of
from attnctl.inputs.plan.sentence import prepare
from attnctl.math import Array
from attnctl.math.engine.cost import limit_memory
from attnctl.math.names import TABLE
from attnctl.math.ops import Given
from attnctl.record import Trace, names_of_steps
from attnctl.record.cells import Speller
from attnctl.sources import open_dump
from attnctl.sources.sentence import Arguments
from attnctl.verbs.check.check import check
from attnctl.verbs.check.exercise import handed_out, read_unfinished
from attnctl.verbs.check.report import Report
from attnctl.verbs.exercise import (
    DECIMALS,
    MOST_POINTS,
    Student,
    following,
    points_of_steps,
    round_given,
)

RIGHT = "right"
WRONG = "wrong"
BLANK = "not filled in"
UNTOLD = "cannot tell"
COARSE = "too few decimals"
"""What a step may be marked."""

DOUBTED = {WRONG, UNTOLD}
"""Marks of steps that are looked at again, number by number."""

MOST_MEMORY = 2**28  # bytes that a hand-in, and a run of its own config, may take
MOST_DECIMALS = 15
MOST_SLIPS = 3  # wrong cells of a step that are named, each with what it should be


@dataclass(frozen=True)
class Assignment:
    """The task as the teacher states it, so that a hand-in need not be believed."""

    settings: Settings | None = None
    blank: tuple[str, ...] = ()
    decimals: int | None = None
    points: Mapping[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """The run and its blanks are both stated: nothing is taken from the sheet."""
        return self.settings is not None and bool(self.blank)


NOTHING_ASKED = Assignment()


@dataclass(frozen=True)
class Mark:
    step: str
    verdict: str
    mistake: str | None = None
    words: str = ""
    also: tuple[str, ...] = ()  # other mistakes that would give the same numbers
    part: float = 0.0  # how much of its numbers is right, 0 to 1
    worth: int = 1  # the points that it has where it is right
    slips: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where no mistake is known the cells that are wrong, if they are few: what they hold, and should."""


@dataclass(frozen=True)
class HandIn:
    file: str
    student: Student
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""  # why it could not be read

    @property
    def right(self) -> bool:
        if not self.marks or self.notes:
            return False
        return all(mark.verdict == RIGHT for mark in self.marks)

    @property
    def doubts(self) -> list[str]:
        """Why it could not be read, or else what is to be said of it."""
        return [self.error] if self.error else list(self.notes)


def hand_ins(paths: Sequence[str]) -> Iterator[str]:
    """The files that these paths name, each .json of a folder. Raises AttnError for one without any."""
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        files = sorted(str(file) for file in Path(path).glob("*.json"))
        if not files:
            raise AttnError(f"{path}: no .json in this folder; give the files that were handed in")
        yield from files


def absent_students(sheets: Sequence[HandIn], roster: Sequence[Student]) -> list[HandIn]:
    handed_in = {sheet.student.key for sheet in sheets}
    absent = [student for student in roster if handed_in.isdisjoint({student.key, str(student)})]
    return [HandIn("", student, error="nothing handed in") for student in absent]


def grade_hand_in(file: str, asked: Assignment = NOTHING_ASKED) -> HandIn:
    """The hand-in of a file, graded; an `error` in it where that cannot be done."""
    try:
        with np.errstate(all="ignore"), limit_memory(MOST_MEMORY):
            source = open_dump(file, Arguments())
            if not source.is_file:
                return grade_program(file, source.trace(), asked)
            exercise = read_unfinished(file, {})
            return grade_sheet(file, exercise, student_of(exercise), asked)
    except AttnError as error:
        why = "; ".join(error.problems)
        if file.endswith(".html"):
            why = "a page: open it, press Save to hand in, and give the .json that it saves"
        return HandIn(file, Student(Path(file).stem), error=why)


def grade_program(file: str, trace: Trace, asked: Assignment) -> HandIn:
    """What a program computed, graded as if it stood on its sheet.

    A program need not assign what it was given; what it does is as it was handed out, unless it took
    other numbers. What lies between two blanks is not looked at, as it would not stand there.
    """
    reference = run_of_exercise(trace, None, asked.settings)
    if reference is None or not asked.blank:
        raise AttnError(
            "a program does not say what was asked; give the config with -c, and --blank STEP,…"
        )
    blank = names_of_steps(asked.blank, tuple(reference))
    unseen = following(reference, blank)
    on_sheet = {name: step for name, step in reference.steps.items() if name not in unseen}
    given = {name: reference[name] for name in on_sheet if name not in blank}
    comparable = {name for name in given if is_comparable(name, trace, given)}

    taken = [name for name in trace if name in comparable or name in blank]
    arrays = given | {name: trace[name] for name in taken}
    steps = {name: step for name, step in on_sheet.items() if name in arrays}
    graded = grade_sheet(file, Trace(steps, arrays, trace.header), None, asked)

    decimals = DECIMALS if asked.decimals is None else asked.decimals
    changed = []
    for name, right in given.items():
        if name not in comparable:
            continue
        slack = 10.0**-decimals * (1 + np.abs(right).max())
        if not np.allclose(trace[name], right, rtol=0, atol=slack):
            changed.append(name)
    return replace(graded, notes=tuple(said_of_changes(changed)))


def is_comparable(name: str, trace: Trace, given: Mapping[str, Array]) -> bool:
    """True for an array of the program that stands for one it was given, changed or not."""
    if name not in trace or trace[name].shape != given[name].shape:
        return False
    return not is_mixed_up(name, trace[name], given)


def is_mixed_up(name: str, array: Array, given: Mapping[str, Array]) -> bool:
    """True if a program reads another array in its place, or its transpose: a mistake, not a change."""

    def is_like(other: Array) -> bool:
        # A sheet has rounded numbers.
        slack = 10.0**-DECIMALS * (1 + float(np.abs(other).max(initial=0.0)))
        return other.shape == array.shape and np.allclose(array, other, rtol=0, atol=slack)

    right = given[name]
    if is_like(right):
        return False
    if right.ndim == 2 and is_like(right.T):
        return True
    return any(is_like(given[other]) for other in given if other != name)


def student_of(exercise: Trace) -> Student | None:
    name = exercise.header.get("student")
    id_ = exercise.header.get("student_id")
    if not isinstance(name, str) or not name.strip():
        return None
    return Student(name, id_.strip() if isinstance(id_, str) else "")


def grade_sheet(file: str, trace: Trace, student: Student | None, asked: Assignment) -> HandIn:
    decimals = decimals_of(trace, asked)
    run = run_of_exercise(trace, student, asked.settings)
    reference = as_handed_out(run, trace.header, asked, decimals)
    fitting = steps_that_fit(trace, reference)
    strictness = Strictness(decimals=decimals, by_hand=decimals is not None, handed_out=handed_out(trace))

    written = decimals_in(fitting.trace, trace.header.get("blank"))
    is_coarse = decimals is not None and 0 < written < decimals
    # On a coarse sheet nearly all is off a little, so that pairs of mistakes would be tried in vain.
    report = check_sheet(fitting.trace, reference, strictness, pairs=not is_coarse)
    blank = steps_to_mark(trace, reference, report, asked.blank)
    marks = [mark_of(name, report) for name in blank]

    if is_coarse and any(mark.verdict == WRONG for mark in marks):
        coarse = check_sheet(fitting.trace, reference, replace(strictness, decimals=written))
        marks = [allow_for(mark, mark_of(mark.step, coarse), written, decimals) for mark in marks]

    if decimals is not None and any(mark.verdict in DOUBTED for mark in marks):
        right = right_as_written(fitting.trace, reference, decimals)
        marks = [Mark(mark.step, RIGHT, part=1.0) if is_settled(mark, right) else mark for mark in marks]

    for number, mark in enumerate(marks):
        if mark.step in fitting.unfit:
            marks[number] = Mark(mark.step, WRONG, words=fitting.unfit[mark.step])

    worth = points_of_sheet(trace.header, asked, blank)
    marks = [replace(mark, worth=worth.get(mark.step, 1)) for mark in marks]

    notes = find_changes(trace, reference, blank)
    stated = trace.header.get("decimals", decimals)
    if asked.whole and stated != decimals:
        notes.append(f"it says {stated!r} decimals, and is held to {decimals} (--decimals)")
    return HandIn(file, student or Student(Path(file).stem), tuple(marks), tuple(notes))


def points_of_sheet(
    header: Mapping[str, Any], asked: Assignment, blank: Sequence[str]
) -> Mapping[str, int]:
    """What each step is worth: as the teacher states it, else as the sheet does where that is believed."""
    if asked.points:
        return points_of_steps(asked.points, blank, [*TABLE])
    stated = header.get("points")
    if asked.whole or not isinstance(stated, dict):
        return {}
    # A sheet may say anything: `type(…) is int` keeps out true, which is an int.
    return {
        name: number
        for name, number in stated.items()
        if type(number) is int and 0 <= number <= MOST_POINTS
    }


def run_of_exercise(trace: Trace, student: Student | None, asked: Settings | None) -> Trace | None:
    """The run that the exercise was made of; None for a dump that does not say what it was.

    A hand-in's own config opens no files. Raises AttnError where the exercise should say it.
    """
    if asked is not None:
        settings = asked if student is None else asked.with_(seed=student.seed)
        return prepare(settings).run()
    if "blank" not in trace.header:
        return None
    try:
        settings = settings_of(trace).with_(max_memory=MOST_MEMORY)
        if student is not None and "seed" not in trace.config:
            settings = settings.with_(seed=student.seed)
        refuse_files(settings)
        return prepare(settings, trace.sentence).run()
    except AttnError as error:
        raise AttnError(f"it cannot be run again: {'; '.join(error.problems)}") from None


def refuse_files(settings: Settings) -> None:
    if names_files(settings):
        raise AttnError("its config names files; give the config with -c")


def names_files(settings: Settings) -> bool:
    weights = settings.weights
    if weights.file is not None or settings.edits:
        return True
    tensors = [settings.embeddings, *weights.tensors.values()]
    for head in weights.heads:
        tensors += head.values()
    return any(isinstance(tensor, FromFile) for tensor in tensors)


def steps_to_mark(
    exercise: Trace, reference: Trace | None, report: Report | None, asked: Sequence[str]
) -> list[str]:
    """The steps to mark: asked for, named, or all that are checked. Raises AttnError for unknown ones."""
    known = () if reference is None else tuple(reference)
    named = names_of_steps(asked, known) or exercise.header.get("blank")
    if named is None:
        return checked_steps(report) or [
            name for name in TABLE if name in exercise.unfilled | exercise.begun
        ]
    if not isinstance(named, list) or not named or not all(name in known for name in named):
        raise AttnError("$.blank: not a list of steps of this run")
    return [name for name in known if name in named]


def checked_steps(report: Report | None) -> list[str]:
    if report is None:
        return []
    not_filled_in = {Verdict.GIVEN, Verdict.EDITED, Verdict.NOT_RECORDED}
    return [name for name, step in report.steps.items() if step.verdict not in not_filled_in]


def as_handed_out(
    reference: Trace | None, header: Mapping[str, Any], asked: Assignment, decimals: int | None
) -> Trace | None:
    """The run with the numbers that were handed out: rounded as the sheet says, to no less than asked."""
    rounded = header.get("rounded")
    blank = asked.blank or header.get("blank")
    # A sheet may say anything: `type(…) is not int` keeps out true, which is an int.
    if reference is None or type(rounded) is not int or not isinstance(blank, list | tuple):
        return reference
    if not 0 <= rounded <= MOST_DECIMALS:
        return reference
    if asked.whole and rounded < (decimals or 0):
        return reference
    names = [name for name in reference if name in blank]
    return Trace(reference.steps, round_given(reference, names, rounded), reference.header)


def decimals_of(trace: Trace, asked: Assignment) -> int | None:
    """To how many decimals a hand-in is filled in. Raises AttnError where it says nonsense."""
    stated = DECIMALS if asked.whole else trace.header.get("decimals")
    decimals = stated if asked.decimals is None else asked.decimals
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= MOST_DECIMALS):
        raise AttnError(f"$.decimals: {decimals!r} is not a number of decimals; use 0 to {MOST_DECIMALS}")
    return decimals


class FittingSteps(NamedTuple):
    """The recorded steps that could be right by shape and numbers, and what is said of the others."""

    trace: Trace
    unfit: dict[str, str]


def steps_that_fit(trace: Trace, reference: Trace | None) -> FittingSteps:
    if reference is None:
        return FittingSteps(trace, {})

    may_hold_nan = "empty_rows" in reference.header  # rows that see nothing are NaN where they are right
    unfit = {}
    for name in trace:
        if name not in reference:
            continue
        array = trace[name]
        lost = int(np.isnan(array).sum())
        if array.shape != reference[name].shape:
            unfit[name] = f"{dims(array.shape)} numbers, expected {dims(reference[name].shape)}"
        elif lost and name not in trace.begun and not may_hold_nan:
            unfit[name] = f"{lost} of {plural(array.size, 'number')} are NaN"

    kept = [name for name in reference if name in trace and name not in unfit]
    steps = {name: reference.steps[name] for name in kept}
    arrays = {name: trace[name].astype(reference[name].dtype, copy=False) for name in kept}
    return FittingSteps(replace(trace, steps=steps, arrays=arrays, header=reference.header), unfit)


def check_sheet(
    trace: Trace, reference: Trace | None, strictness: Strictness, *, pairs: bool = True
) -> Report | None:
    """Check a hand-in as `check` does; None where nothing is filled in."""
    plan = None if reference is None else plan_as_stated(reference)
    try:
        return check(trace, plan, strictness, pairs=pairs)
    except AttnError as error:
        if any(text.startswith("nothing") for text in error.problems):
            return None
        raise


def mark_of(name: str, report: Report | None) -> Mark:
    step = None if report is None else report.steps.get(name)
    if report is None or step is None or step.verdict in {Verdict.NOT_FILLED, Verdict.NOT_RECORDED}:
        return Mark(name, BLANK)
    gap = step.gap
    part = round((gap.filled - gap.differing) / gap.of, 4) if gap else 0.0
    if step.verdict is Verdict.WRONG:
        return mark_of_wrong(name, report, part)

    if gap is not None and gap.filled < gap.of:
        filled = f"{gap.filled} of {plural(gap.of, 'number')} filled in"
        return Mark(name, BLANK, words=filled, part=part)
    if step.verdict is Verdict.AGREES:
        return Mark(name, RIGHT, part=1.0)
    return Mark(name, UNTOLD)


def mark_of_wrong(name: str, report: Report, part: float) -> Mark:
    """The mark of a wrong step: with the mistake, or with what can be said where none is known."""
    finding = next((finding for finding in report.findings if finding.step == name), None)
    if finding is not None and finding.mistake is not None:
        words = f"it is what you get when {finding.words}: {finding.fix}"
        return Mark(name, WRONG, finding.mistake, words, also=finding.also, part=part)

    gap = report.steps[name].gap
    words = ""
    if gap:
        verb = "differs" if gap.differing == 1 else "differ"
        words = f"{gap.differing} of {gap.filled} numbers {verb}"
    return Mark(name, WRONG, words=words, part=part, slips=find_slips(name, report))


def is_settled(mark: Mark, right: Container[str]) -> bool:
    """True where `check` has doubts, but what stands there is what should."""
    return mark.verdict in DOUBTED and mark.step in right


def right_as_written(trace: Trace, reference: Trace | None, decimals: int) -> set[str]:
    """The blank steps whose every number is as it should be, but for one in the last place.

    To few decimals a mistake might not show, so that `check` cannot tell, and what follows from numbers
    before they were rounded is far from what follows after. But no one can do more than write down right
    numbers: such as follow from those that were handed out, or from those that were written down before,
    whichever a person went on with.
    """
    if reference is None:
        return set()

    right: set[str] = set()
    values: dict[str, Array] = {}
    for name, step in reference.steps.items():
        if isinstance(step.op, Given):
            values[name] = reference[name]
            continue
        values[name] = step.op.apply(*(values[input_] for input_ in step.inputs))
        if name not in trace:
            continue

        found = trace[name]
        ways = (values[name], reference[name])
        close = [is_off_by_one_at_most(found, expected, decimals) for expected in ways]
        if np.logical_or(*close).all():
            right.add(name)
        if not np.isnan(found).any():
            values[name] = found
    return right


def is_off_by_one_at_most(found: Array, expected: Array, decimals: int) -> Array:
    """For each number whether it is the expected one, rounded, or off by one in the last place."""
    unit = 10.0**-decimals
    slack = 1e-9 * (unit + np.abs(np.where(np.isfinite(expected), expected, 0)))
    off = np.abs(found - np.round(expected, decimals))
    close: Array = (found == expected) | (off <= unit + slack)
    return close


def find_slips(name: str, report: Report) -> dict[str, tuple[float, float]]:
    """The wrong cells of a step, the worst first, where they are few: found and expected."""
    wrong_cells = report.wrong_cells()
    if name not in wrong_cells:
        return {}
    wrong, expected = wrong_cells[name]
    if not 0 < wrong.sum() <= MOST_SLIPS:
        return {}

    found = np.asarray(report.trace[name])
    gaps = np.nan_to_num(np.abs(found - expected), nan=np.inf)
    cells: list[tuple[int, ...]] = sorted(
        map(tuple, np.argwhere(wrong).tolist()), key=lambda cell: -gaps[cell]
    )
    spell = Speller(report.trace)
    return {spell(name, cell): (float(found[cell]), float(expected[cell])) for cell in cells}


def decimals_in(trace: Trace, blank: Any) -> int:
    """The fewest decimals that hold all that was filled in; the most there may be where nothing is."""
    arrays = [trace[name] for name in trace if isinstance(blank, list) and name in blank]
    numbers = np.concatenate([np.zeros(0), *(array[np.isfinite(array)] for array in arrays)])
    if not numbers.size:
        return MOST_DECIMALS

    for decimals in range(MOST_DECIMALS):
        if (np.round(numbers, decimals) == numbers).all():
            return decimals
    return MOST_DECIMALS


def allow_for(mark: Mark, coarse: Mark, written: int, decimals: int | None) -> Mark:
    """Mark a step anew on a sheet that was written to fewer decimals than were asked for."""
    if mark.verdict != WRONG:
        return mark
    if coarse.verdict == RIGHT:
        words = f"right to {written} decimals, where {decimals} are asked for"
        return Mark(mark.step, COARSE, words=words, part=mark.part)
    return coarse if coarse.verdict == WRONG else mark


def find_changes(trace: Trace, reference: Trace | None, blank: Sequence[str]) -> list[str]:
    if reference is None:
        return []
    given = [name for name in trace if name in reference and name not in blank]
    changed = [name for name in given if not np.array_equal(trace[name], reference[name], equal_nan=True)]
    notes = said_of_changes(changed)

    handed_out_names = [name for name, step in reference.steps.items() if isinstance(step.op, Given)]
    missing = [name for name in handed_out_names if name not in trace]
    if missing:
        notes.append(f"given numbers are missing: {all_of(missing)}")
    return notes


def said_of_changes(names: Sequence[str]) -> list[str]:
    return [f"given numbers were changed: {all_of(names)}"] if names else []
