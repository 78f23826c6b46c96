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
from attnctl.evidence.blocks import MANY, StepInBlocks, axes_of, in_blocks, of_scores
from attnctl.evidence.judge import Broken, Gap, broken_by, judge_step
from attnctl.evidence.record import Record, Values, expect, expect_surely, input_of, with_shapes
from attnctl.evidence.rounding import Known, Later, either, exactly, noise
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
        changed: set[str] = set()
        old = {step.name: step for step in before.derivation if step.name in before.steps} if before else {}
        for step in derivation:
            same = old.get(step.name) is step and step.name not in anew
            if before is not None and same and (step.name in settled or changed.isdisjoint(step.inputs)):
                checked, value = before.steps[step.name], before.values[step.name]
            else:
                checked, value = check_step(record, derivation, step, walk.values)
                if not record.tells(step.name) or record.strictness.by_hand:
                    changed.add(step.name)
            walk.steps[step.name], walk.values[step.name] = checked, value
            if step.name == until and (excused is None or not excused.issuperset(walk.wrong)):
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
    name, by_hand = step.name, record.strictness.by_hand
    if isinstance(step.op, Given):
        return Checked(name, Verdict.GIVEN if name in record else Verdict.NOT_RECORDED), None
    if name in record.trace.edited:
        return Checked(name, Verdict.EDITED), None
    if name not in record:
        return Checked(name, Verdict.NOT_RECORDED), value_of(record, derivation, step, values)
    if steps := in_blocks(record, derivation, step, values):
        return said_of(record, step, *StepInBlocks.begin(record, derivation, steps, values).compare()), None
    expected = expect(record, step, values)
    if expected is None:
        return Checked(name, Verdict.NOT_CHECKABLE), None
    with_shapes(name, record.trace[name], expected.value)
    blank = record.blanks.get(name)
    if blank is not None and blank.all():
        return Checked(name, Verdict.NOT_FILLED), expected
    judgement = judge_step(record, name, expected)
    gap = judgement.summarize(blank)
    blurred = 0.0 if cancels(record, step, expected, values) else judgement.blurred
    checked = said_of(record, step, gap, blurred)
    if not by_hand and blank is None:  # it is in the record
        return checked, None
    known = record.known(name)
    if by_hand and name in record.strictness.handed_out:  # numbers that may be taken as they stand
        known = exactly(record.value(name))
    elif by_hand:
        filled_in = values.keys() - record.strictness.handed_out
        before = sum(name in record and values[name] is not None for name in filled_in)
        known = worked_on(record, name, expected, judgement.wrong, before)
    return checked, known if blank is None else either(blank, expected, known)


def cancels(record: Record, step: Step, expected: Known, values: Values) -> bool:
    """True for a sum that comes to nothing but rounding: it should be 0, however little that varies.

    So is the gradient by b_K: softmax does not see what is added to all scores of a row.
    """
    if not isinstance(step.op, (SumRows, SumTokens)):
        return False
    terms = input_of(record, step.inputs[0], values)
    assert terms is not None  # it has an expected value
    most = CANCELLED * record.precision(step.name).unit * step.op.apply(np.abs(terms.value))
    return bool((np.abs(expected.value) <= most).all())


def value_of(record: Record, derivation: Derivation, step: Step, values: Values) -> Known | None:
    """The value of a step that is not recorded; large scores, and what follows, only when asked for."""
    late = of_scores(step) and record.numbers(step.axes) >= MANY
    late |= any(isinstance(values.get(name), Later) for name in step.inputs)
    recorded = (name for name in step.inputs if name in record and record.trace[name].size >= MANY)
    late |= any(axes_of(record, name)[-2:] == ("query", "key") for name in recorded)
    late &= not isinstance(step.op, Unstated)

    def compute() -> Known:
        if of_scores(step):
            return expect_surely(record, step, values)  # whose runs are too large to keep
        steps, known = in_blocks(record, derivation, step, values), None
        if steps and of_scores(derivation[step.inputs[0]]):
            known = StepInBlocks.begin(record, derivation, steps, values).known()
        return (known or expect_surely(record, step, values)).with_runs_kept()

    if late and all(values.get(input_) or record.tells(input_) for input_ in step.inputs):
        return Later(compute)
    known = expect(record, step, values)
    return known and known.with_runs_kept()


def worked_on(record: Record, name: str, expected: Known, wrong: Array, before: int) -> Known:
    """A step that was filled in by hand, as what follows may be worked out from it.

    A person goes on from unrounded numbers, or from those that are written down: run 0 does the one
    everywhere, the others the one after another of the steps, of which so many stand `before` this one.
    A wrong number is known by what is written alone, to half of its last place.
    """
    value, half = record.value(name), record.strictness.last_place / 2

    @cache
    def run(number: int) -> Array:
        right = expected.run(number) if before >= number else value
        slip = half * noise(name, number, value.shape) if number else 0.0
        return np.where(wrong, value + slip, right)

    return Known(value, run)


def said_of(record: Record, step: Step, gap: Gap, blurred: float) -> Checked:
    """What was found of a step, which is wrong where its rows break an invariant of its op as well."""
    checked = Checked(step.name, Verdict.WRONG, gap)
    if not gap.differing:
        told = blurred <= record.strictness.blur
        checked = Checked(step.name, Verdict.AGREES if told else Verdict.CANNOT_TELL, gap, blurred)
    if record.strictness != Strictness() or step.name in record.blanks:
        return checked
    broken = broken_by(step.op, record.trace[step.name], record.precision(step.name))
    return replace(checked, verdict=Verdict.WRONG, broken=broken) if broken else checked
