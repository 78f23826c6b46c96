"""A hand-in graded: each blank step by `check`, what was given held to what was handed out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
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
from attnctl.verbs.exercise import DECIMALS, Student, following, round_given

RIGHT, WRONG, BLANK, UNTOLD = "right", "wrong", "not filled in", "cannot tell"
COARSE = "too few decimals"
"""What a step may be marked."""

MOST_MEMORY = 2**28  # bytes that a hand-in, and a run of its own config, may take
MOST_DECIMALS = 15


@dataclass(frozen=True)
class Assignment:
    """The task as the teacher states it, so that a hand-in need not be believed."""

    settings: Settings | None = None
    blank: tuple[str, ...] = ()
    decimals: int | None = None

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
        return bool(self.marks) and all(mark.verdict == RIGHT for mark in self.marks) and not self.notes

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
        found = sorted(str(file) for file in Path(path).glob("*.json"))
        raise_all([f"{path}: no .json in this folder; give the files that were handed in"] * (not found))
        yield from found


def absent_students(sheets: Sequence[HandIn], roster: Sequence[Student]) -> list[HandIn]:
    there = {sheet.student.key for sheet in sheets}
    lost = [student for student in roster if there.isdisjoint({student.key, str(student)})]
    return [HandIn("", student, error="nothing handed in") for student in lost]


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
    sheet = {
        name: step for name, step in reference.steps.items() if name not in following(reference, blank)
    }
    given = {name: reference[name] for name in sheet if name not in blank}
    fits = {
        name
        for name in given
        if name in trace
        and trace[name].shape == given[name].shape
        and not is_mixed_up(name, trace[name], given)
    }
    arrays = given | {name: trace[name] for name in trace if name in fits or name in blank}
    steps = {name: step for name, step in sheet.items() if name in arrays}
    graded = grade_sheet(file, Trace(steps, arrays, trace.header), None, asked)
    rounded = 10.0 ** -(DECIMALS if asked.decimals is None else asked.decimals)
    changed = [
        name
        for name, right in given.items()
        if name in fits and not np.allclose(trace[name], right, 0, rounded * (1 + np.abs(right).max()))
    ]
    return replace(graded, notes=tuple(said_of_changes(changed)))


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
    name, id_ = (exercise.header.get(key) for key in ("student", "student_id"))
    if not isinstance(name, str) or not name.strip():
        return None
    return Student(name, id_.strip() if isinstance(id_, str) else "")


def grade_sheet(file: str, trace: Trace, student: Student | None, asked: Assignment) -> HandIn:
    decimals = decimals_of(trace, asked)
    run = run_of_exercise(trace, student, asked.settings)
    reference = as_handed_out(run, trace.header, asked, decimals)
    fitted, unfit = steps_that_fit(trace, reference)
    strictness = Strictness(decimals=decimals, by_hand=decimals is not None, handed_out=handed_out(trace))
    written = decimals_in(fitted, trace.header.get("blank"))
    rounded = decimals is not None and 0 < written < decimals
    report = check_sheet(fitted, reference, strictness, pairs=not rounded)
    blank = steps_to_mark(trace, reference, report, asked.blank)
    marks = [mark_of(name, report) for name in blank]
    if rounded and any(mark.verdict == WRONG for mark in marks):
        coarse = check_sheet(fitted, reference, replace(strictness, decimals=written))
        marks = [allow_for(mark, mark_of(mark.step, coarse), written, decimals) for mark in marks]
    other = {name: Mark(name, WRONG, words=said) for name, said in unfit.items()}
    marks = [other.get(mark.step, mark) for mark in marks]
    notes = find_changes(trace, reference, blank)
    if asked.whole and trace.header.get("decimals", decimals) != decimals:
        told = trace.header["decimals"]
        notes.append(f"it says {told!r} decimals, and is held to {decimals} (--decimals)")
    return HandIn(file, student or Student(Path(file).stem), tuple(marks), tuple(notes))


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
        raise_all(["its config names files; give the config with -c"] * names_files(settings))
        return prepare(settings, trace.sentence).run()
    except AttnError as error:
        raise AttnError(f"it cannot be run again: {'; '.join(error.problems)}") from None


def names_files(settings: Settings) -> bool:
    weights = settings.weights
    tensors = [settings.embeddings, *weights.tensors.values()]
    tensors += [tensor for head in weights.heads for tensor in head.values()]
    return weights.file is not None or bool(settings.edits) or any(isinstance(x, FromFile) for x in tensors)


def steps_to_mark(
    exercise: Trace, reference: Trace | None, report: Report | None, asked: Sequence[str]
) -> list[str]:
    """The steps to mark: asked for, named, or all that are checked. Raises AttnError for unknown ones."""
    known = () if reference is None else tuple(reference)
    named = names_of_steps(asked, known) or exercise.header.get("blank")
    if named is None:
        steps = {} if report is None else report.steps
        not_filled_in = {Verdict.GIVEN, Verdict.EDITED, Verdict.NOT_RECORDED}
        found = [name for name, step in steps.items() if step.verdict not in not_filled_in]
        return found or [name for name in TABLE if name in exercise.unfilled | exercise.begun]
    if not isinstance(named, list) or not named or not all(name in known for name in named):
        raise AttnError("$.blank: not a list of steps of this run")
    return [name for name in known if name in named]


def as_handed_out(
    reference: Trace | None, header: Mapping[str, Any], asked: Assignment, decimals: int | None
) -> Trace | None:
    """The run with the numbers that were handed out: rounded as the sheet says, to no less than asked."""
    rounded, blank = header.get("rounded"), asked.blank or header.get("blank")
    if reference is None or type(rounded) is not int or not isinstance(blank, list | tuple):
        return reference
    if not 0 <= rounded <= MOST_DECIMALS or (asked.whole and rounded < (decimals or 0)):
        return reference
    names = [name for name in reference if name in blank]
    return Trace(reference.steps, round_given(reference, names, rounded), reference.header)


def decimals_of(trace: Trace, asked: Assignment) -> int | None:
    """To how many decimals a hand-in is filled in. Raises AttnError where it says nonsense."""
    told = DECIMALS if asked.whole else trace.header.get("decimals")
    decimals = told if asked.decimals is None else asked.decimals
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= MOST_DECIMALS):
        raise AttnError(f"$.decimals: {decimals!r} is not a number of decimals; use 0 to {MOST_DECIMALS}")
    return decimals


def steps_that_fit(trace: Trace, reference: Trace | None) -> tuple[Trace, dict[str, str]]:
    """The recorded steps that could be right by shape and numbers, and what is said of the others."""
    if reference is None:
        return trace, {}
    unfit = {
        name: f"{dims(trace[name].shape)} numbers, expected {dims(reference[name].shape)}"
        for name in trace
        if name in reference and trace[name].shape != reference[name].shape
    }
    for name in trace:
        lost = int(np.isnan(trace[name]).sum())
        if lost and name in reference and name not in trace.begun and "empty_rows" not in reference.header:
            unfit.setdefault(name, f"{lost} of {plural(trace[name].size, 'number')} are NaN")
    kept = [name for name in reference if name in trace and name not in unfit]
    steps = {name: reference.steps[name] for name in kept}
    arrays = {name: trace[name].astype(reference[name].dtype, copy=False) for name in kept}
    return replace(trace, steps=steps, arrays=arrays, header=reference.header), unfit


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
    part = round((step.gap.filled - step.gap.differing) / step.gap.of, 4) if step.gap else 0.0
    if step.verdict is Verdict.WRONG:
        found = next((finding for finding in report.findings if finding.step == name), None)
        if found is None or found.mistake is None:
            gap = step.gap
            off = (
                f"{gap.differing} of {gap.filled} numbers differ{'s' * (gap.differing == 1)}" if gap else ""
            )
            return Mark(name, WRONG, None, off, part=part, slips=find_slips(name, report))
        words = f"it is what you get when {found.words}: {found.fix}"
        return Mark(name, WRONG, found.mistake, words, found.also, part)
    if step.gap is not None and step.gap.filled < step.gap.of:
        filled = f"{step.gap.filled} of {plural(step.gap.of, 'number')} filled in"
        return Mark(name, BLANK, words=filled, part=part)
    return Mark(name, RIGHT, part=1.0) if step.verdict is Verdict.AGREES else Mark(name, UNTOLD)


def find_slips(name: str, report: Report) -> dict[str, tuple[float, float]]:
    """The wrong cells of a step, the worst first, where they are at most three: found and expected."""
    wrong, expected = report.wrong_cells().get(name, (np.zeros(0, bool), np.zeros(0)))
    if not 0 < wrong.sum() <= 3:
        return {}
    found = np.asarray(report.trace[name])
    off = np.nan_to_num(np.abs(found - expected), nan=np.inf)
    cells = sorted(map(tuple, np.argwhere(wrong).tolist()), key=lambda cell: -off[cell])
    spell = Speller(report.trace)
    return {spell(name, cell): (float(found[cell]), float(expected[cell])) for cell in cells}


def decimals_in(trace: Trace, blank: Any) -> int:
    """The fewest decimals that hold all that was filled in; the most there may be where nothing is."""
    arrays = [trace[name] for name in trace if isinstance(blank, list) and name in blank]
    numbers = np.concatenate([np.zeros(0), *(array[np.isfinite(array)] for array in arrays)])
    fits = (n for n in range(MOST_DECIMALS) if (np.round(numbers, n) == numbers).all())
    return next(fits, MOST_DECIMALS) if numbers.size else MOST_DECIMALS


def allow_for(mark: Mark, coarse: Mark, written: int, decimals: int | None) -> Mark:
    """Mark a step anew on a sheet that was written to fewer decimals than were asked for."""
    if mark.verdict == WRONG and coarse.verdict == RIGHT:
        words = f"right to {written} decimals, where {decimals} are asked for"
        return Mark(mark.step, COARSE, words=words, part=mark.part)
    return coarse if mark.verdict == WRONG and coarse.verdict == WRONG else mark


def find_changes(trace: Trace, reference: Trace | None, blank: Sequence[str]) -> list[str]:
    if reference is None:
        return []
    given = [name for name in trace if name in reference and name not in blank]
    other = [name for name in given if not np.array_equal(trace[name], reference[name], equal_nan=True)]
    handed_in = (name for name, step in reference.steps.items() if isinstance(step.op, Given))
    lost = [name for name in handed_in if name not in trace]
    return [*said_of_changes(other), *([f"given numbers are missing: {all_of(lost)}"] if lost else [])]


def said_of_changes(names: Sequence[str]) -> list[str]:
    return [f"given numbers were changed: {all_of(names)}"] if names else []
