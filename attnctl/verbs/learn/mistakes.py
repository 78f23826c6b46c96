"""Which mistake would give a wrong answer: the run carried out under each, and the answer looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import exactly
from attnctl.evidence.walk import Walk
from attnctl.inputs.plan.intended import plan_as_stated
from attnctl.math import Array
from attnctl.math.engine.execute import carry_out
from attnctl.math.ops import Given
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake, WrongStep
from attnctl.record.cells import Speller
from attnctl.record.cells import parse as parse_address
from attnctl.record.trace import Trace
from attnctl.verbs.check.check import spoken
from attnctl.verbs.learn.expression import Cells, StepName, Value, addresses
from attnctl.verbs.learn.lesson import Lesson
from attnctl.verbs.learn.typed import Typed, fit_shape

Found = tuple[str, str]
"""The name of a mistake, and what is said of it."""


def as_array(value: Value) -> Array:
    """An answer in numbers. Raises AttnError where it is none."""
    if isinstance(value, Cells | StepName):
        raise AttnError("a cell where a number is wanted")
    return np.asarray(value, dtype=np.float64)


def find_mistakes(lesson: Lesson, typed: Typed, trace: Trace) -> Iterator[Found]:
    """The mistakes that give what was typed: those that the lesson names, or else all of the catalogue."""
    own = {wrong.mistake: wrong.says for wrong in lesson.wrong if wrong.answer is None}
    named = [
        (wrong.mistake or "see", wrong.says)
        for wrong in lesson.wrong
        if wrong.answer is not None and gives(typed, wrong.answer.value(trace))
    ]
    yield from named
    cases = [case_of(trace, step) for step in steps_asked(lesson, trace)]
    first = [each for each in CATALOGUE if each.name in own]
    rest = [each for each in CATALOGUE if each.name not in own]
    for mistakes in (first, rest):
        if named:
            return
        for mistake in mistakes:
            said = name_step(mistake, lesson, typed, trace, cases)
            if said:
                named.append((mistake.name, own.get(mistake.name) or said))
                yield named[-1]


def gives(typed: Typed, value: Value) -> bool:
    """True where the value is what was typed, to its digits."""
    if isinstance(value, Cells | StepName):
        return False
    right = as_array(value)
    return fit_shape(typed, right.shape).could_be(right)


def name_step(
    mistake: Mistake, lesson: Lesson, typed: Typed, trace: Trace, cases: Sequence[WrongStep]
) -> str:
    """Name the wrong step of a mistake that gives what was typed; empty where none does."""
    if mistake.fitted or not mistake.exact:
        return ""
    for case in cases:
        for plant in mistake.at(case):
            try:
                made_of = {name: trace[name] for name in plant.derivation.given if name in trace}
                values = carry_out(plant.derivation, made_of, "float64").values
                steps = {each.name: each for each in plant.derivation if each.name in values}
                value = lesson.answer.value(Trace(steps, values, trace.header))
            except (AttnError, ValueError, IndexError, KeyError):
                continue  # the mistake cannot be made with these shapes, or leaves out what is asked
            if gives(typed, value):
                words, fix = spoken(mistake, plant.detail)
                return f"it is what you get when {words}: {fix}"
    return ""


def steps_asked(lesson: Lesson, trace: Trace) -> list[str]:
    """The computed steps that the answer is read from."""
    names = (address.spell_out(trace).step for address in addresses(lesson.answer.text))
    return [name for name in names if name in trace and not isinstance(trace.steps[name].op, Given)]


def case_of(trace: Trace, step: str) -> WrongStep:
    """The step as check would look at it, were all of it wrong, with nothing recorded between."""
    leaves = [name for name, each in trace.steps.items() if isinstance(each.op, Given)]
    record = Record(trace.select([*leaves, step]), plan_as_stated(trace))
    walk = Walk.over(record, trace.derivation)
    found = record.value(step)
    return WrongStep(
        trace.derivation, record, step, found, exactly(found), np.ones(found.shape, bool), walk
    )


def neighbours(lesson: Lesson, typed: Typed, trace: Trace) -> Iterator[Found]:
    """Cells beside the one that is asked for that hold what was typed: another row, column, head, step."""
    try:
        address = parse_address(lesson.answer.text).spell_out(trace)
        cell = address.cell(trace)
    except AttnError:  # not one cell: nothing is beside it
        return
    speller = Speller(trace)
    for step, other in beside(trace, address.step, cell):
        if typed.could_be(np.asarray(trace[step][other], dtype=np.float64)):
            name = "other-step" if step != address.step else "other-cell"
            yield name, f"that is {speller(step, other)}; asked is {speller(address.step, cell)}"


def beside(trace: Trace, step: str, cell: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield near misses: row and column exchanged, this cell of steps of the same shape, other cells."""
    array = trace[step]
    if len(cell) >= 2:
        turned = (*cell[:-2], cell[-1], cell[-2])
        if all(at < size for at, size in zip(turned, array.shape, strict=True)):
            yield step, turned
    for name in trace:
        if name != step and trace[name].shape == array.shape and trace[name].dtype != bool:
            yield name, cell
    for other in np.ndindex(*array.shape):
        yield step, other
