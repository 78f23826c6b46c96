"""The walk: every recorded step beside what its recorded inputs make of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.blocks import MANY, StepInBlocks, after_scores, axes_of, in_blocks, of_scores
from attnctl.evidence.judge import Broken, Gap, broken_by, judge_step
from attnctl.evidence.made import MadeOnce
from attnctl.evidence.record import Record, Values, expect, expect_surely, input_of, with_shapes
from attnctl.evidence.rounding import KEPT_APART, Known, Later, either, exactly, noise
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Given, Unstated
from attnctl.math.ops.products import SumRows, SumTokens

CANCELLED = 4.0
"""Units of the sum of sizes that a sum of numbers which cancel may be off."""


SharedValues = dict[tuple[int, tuple[str, ...]], tuple[Any, Array]]
"""Values by their op (that one, not any that is equal) and the recorded steps that it reads."""


class Verdict(str, Enum):
    AGREES = "agrees"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"
    GIVEN = "given"
    EDITED = "edited"
    NOT_RECORDED = "not recorded"
    NOT_FILLED = "not filled in"
    NOT_CHECKABLE = "not checkable"


@dataclass(frozen=True)
class Checked:
    name: str
    verdict: Verdict
    gap: Gap | None = None
    blurred: float = 0.0
    """What all numbers may be off by, as a part of how far they vary."""
    broken: Broken | None = None
    """What is not true of its rows, whatever each number was rounded to."""


@dataclass(frozen=True)
class Walk:
    """Every step of a derivation beside what a record holds of it, checked.

    `values` are those of the steps that the record does not tell.
    """

    record: Record
    derivation: Derivation
    steps: dict[str, Checked] = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The parts of it in which a step was looked at, by the step: more than one search begins there."""
    shared: SharedValues = field(default_factory=dict, compare=False, repr=False)
    """Large values of other programs, which those that come next have in common with them."""
    made: MadeOnce = field(default_factory=MadeOnce, compare=False, repr=False)
    """Small ones, too, by the numbers that they were made of."""

    @classmethod
    def over(
        cls,
        record: Record,
        derivation: Derivation,
        before: Walk | None = None,
        until: str | None = None,
        anew: Collection[str] = (),
        excused: frozenset[str] | None = None,
        settled: Collection[str] = (),
    ) -> Walk:
        """Check every step (or those up to one), reusing what another walk found where nothing changed.

        Steps to check `anew` are other ones, though they look the same. With steps that are `excused`, it
        ends at that one only if another is wrong by then. Those that are `settled` are taken over whatever
        they are computed from.
        """
        walk = cls(record, derivation, {}, {})
        old_steps: dict[str, Step] = {}
        if before is not None:
            old_steps = {step.name: step for step in before.derivation if step.name in before.steps}

        changed: set[str] = set()
        for step in derivation:
            name = step.name
            is_same = old_steps.get(name) is step and name not in anew
            is_kept = is_same and (name in settled or changed.isdisjoint(step.inputs))
            if before is not None and is_kept:
                walk.steps[name] = before.steps[name]
                walk.values[name] = before.values[name]
            else:
                walk.steps[name], walk.values[name] = check_step(record, derivation, step, walk.values)
                # Where the record tells a step, what follows is computed from that, whatever it should be.
                if not record.tells(name) or record.strictness.by_hand:
                    changed.add(name)

            if name == until and (excused is None or not excused.issuperset(walk.wrong)):
                break
        return walk

    @property
    def wrong(self) -> list[str]:
        return [name for name, step in self.steps.items() if step.verdict is Verdict.WRONG]

    def gap(self, name: str) -> Gap:
        gap = self.steps[name].gap
        assert gap is not None
        return gap

    def expect(self, name: str) -> Known | None:
        """The value that follows from a step's inputs; None where they do not tell."""
        return expect(self.record, self.derivation[name], self.values)


def check_step(
    record: Record, derivation: Derivation, step: Step, values: Values
) -> tuple[Checked, Known | None]:
    """Check one step; with its value, where the record does not hold it."""
    name = step.name
    if isinstance(step.op, Given):
        return Checked(name, Verdict.GIVEN if name in record else Verdict.NOT_RECORDED), None
    if name in record.trace.edited:
        return Checked(name, Verdict.EDITED), None
    if name not in record:
        return Checked(name, Verdict.NOT_RECORDED), value_of(record, derivation, step, values)

    steps = in_blocks(record, derivation, step, values)
    if steps:
        gap, blurred = StepInBlocks.begin(record, derivation, steps, values).compare()
        return said_of(record, step, gap, blurred), None

    expected = expect(record, step, values)
    if expected is None:
        return Checked(name, Verdict.NOT_CHECKABLE), None
    with_shapes(name, record.trace[name], expected.value)
    blank = record.blanks.get(name)
    if blank is not None and blank.all():
        return Checked(name, Verdict.NOT_FILLED), expected

    judgement = judge_step(record, name, expected)
    blurred = 0.0 if cancels(record, step, expected, values) else judgement.blurred
    checked = said_of(record, step, judgement.summarize(blank), blurred)

    if record.strictness.by_hand:
        known = known_by_hand(record, name, expected, judgement.wrong, values)
    elif blank is None:  # it is in the record
        return checked, None
    else:
        known = record.known(name)
    return checked, known if blank is None else either(blank, expected, known)


def known_by_hand(record: Record, name: str, expected: Known, wrong: Array, values: Values) -> Known:
    """A step of an exercise, as those after it may go on from it."""
    handed_out = record.strictness.handed_out
    if name in handed_out:  # numbers that may be taken as they stand
        return exactly(record.value(name))
    filled_in = values.keys() - handed_out
    before = sum(other in record and values[other] is not None for other in filled_in)
    return worked_on(record, name, expected, wrong, before)


def cancels(record: Record, step: Step, expected: Known, values: Values) -> bool:
    """True for a sum that comes to nothing but rounding: it should be 0, however little that varies.

    So is the gradient by b_K: softmax does not see what is added to all scores of a row.
    """
    if not isinstance(step.op, (SumRows, SumTokens)):
        return False
    terms = input_of(record, step.inputs[0], values)
    assert terms is not None  # it has an expected value
    sum_of_sizes = step.op.apply(np.abs(terms.value))
    allowed = CANCELLED * record.precision(step.name).unit * sum_of_sizes
    return bool((np.abs(expected.value) <= allowed).all())


def value_of(record: Record, derivation: Derivation, step: Step, values: Values) -> Known | None:
    """The value of a step that is not recorded; large scores, and what follows, only when asked for."""

    def compute() -> Known:
        if of_scores(step):
            return expect_surely(record, step, values)  # whose runs are too large to keep
        steps = in_blocks(record, derivation, step, values)
        known = None
        if steps and of_scores(derivation[step.inputs[0]]):
            known = StepInBlocks.begin(record, derivation, steps, values).known()
        return (known or expect_surely(record, step, values)).with_runs_kept()

    has_inputs = all(values.get(name) or record.tells(name) for name in step.inputs)
    if is_large(record, step, values) and has_inputs:
        return Later(compute)
    known = expect(record, step, values)
    if known is None or (known.value.size >= KEPT_APART and is_made_again(record, derivation, step)):
        return known
    return record.with_runs_kept(step, known)


def is_made_again(record: Record, derivation: Derivation, step: Step) -> bool:
    """True for a step of which no large runs are to be kept: those of another one do.

    What moves numbers to other places is made again of what it moves; and what but one step reads, on the
    way to scores, is in the runs of that one.
    """
    if getattr(step.op, "exact", False):
        return True
    readers = [other for other in derivation if step.name in other.inputs]
    if len(readers) != 1:
        return False
    (reader,) = readers
    if reader.name in record or getattr(reader.op, "exact", False):
        return False
    return reader.name not in after_scores(derivation)


def is_large(record: Record, step: Step, values: Values) -> bool:
    """True for large scores, and for what is computed from them."""
    if isinstance(step.op, Unstated):
        return False
    if of_scores(step) and record.numbers(step.axes) >= MANY:
        return True
    if any(isinstance(values.get(name), Later) for name in step.inputs):
        return True
    recorded = [name for name in step.inputs if name in record and record.trace[name].size >= MANY]
    return any(axes_of(record, name)[-2:] == ("query", "key") for name in recorded)


def worked_on(record: Record, name: str, expected: Known, wrong: Array, before: int) -> Known:
    """A step that was filled in by hand, as what follows may be worked out from it.

    A person goes on from unrounded numbers, or from those that are written down: run 0 does the one
    everywhere, the others the one after another of the steps, of which so many stand `before` this one.
    A wrong number is known by what is written alone, to half of its last place.
    """
    written = record.value(name)
    half_place = record.strictness.last_place / 2

    @cache
    def run(number: int) -> Array:
        right = expected.run(number) if before >= number else written
        slip = half_place * noise(name, number, written.shape) if number else 0.0
        return np.where(wrong, written + slip, right)

    return Known(written, run)


def said_of(record: Record, step: Step, gap: Gap, blurred: float) -> Checked:
    """What was found of a step, which is wrong where its rows break an invariant of its op as well."""
    if gap.differing:
        checked = Checked(step.name, Verdict.WRONG, gap)
    elif blurred <= record.strictness.blur:
        checked = Checked(step.name, Verdict.AGREES, gap, blurred)
    else:
        checked = Checked(step.name, Verdict.CANNOT_TELL, gap, blurred)

    # Numbers that are rounded by hand, or to a tolerance, break them anyway.
    if record.strictness != Strictness() or step.name in record.blanks:
        return checked
    broken = broken_by(step.op, record.trace[step.name], record.precision(step.name))
    return replace(checked, verdict=Verdict.WRONG, broken=broken) if broken else checked
