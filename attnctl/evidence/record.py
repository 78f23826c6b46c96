"""The record: a trace as it is judged, each number with the precision to which it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.precision import (
    FLOAT64,
    Precision,
    coarser,
    declared_precision,
    of_run,
    on_grid,
    own,
    to_float64,
)
from attnctl.evidence.rounding import (
    AS_THEY_ARE,
    Factors,
    Known,
    anything,
    carry_rounding,
    exactly,
    noise,
    round_at_random,
)
from attnctl.evidence.shared import shared
from attnctl.math import Array, Shape
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Given, Hide, MatMul, Project, Repeat, Softmax, Unstated
from attnctl.record import Trace

if TYPE_CHECKING:
    from attnctl.inputs.plan import DumpPlan


SMALL = 2**18
"""Numbers below which an array is kept in float64, too."""


@dataclass(frozen=True)
class Record:
    """A trace as it is judged: by what was planned, and with what is known of how it was rounded.

    A part of a record is a record, too. `blanks` are cells still to be filled in.
    """

    trace: Trace
    plan: DumpPlan
    strictness: Strictness = Strictness()
    blanks: Mapping[str, Array] = field(default_factory=dict)
    precisions: Mapping[str, Precision] = field(default_factory=dict)
    unrecorded: Precision = FLOAT64
    """What a step that is not recorded may have been carried out in."""
    factors: Mapping[str, Factors] = field(default_factory=dict)
    """What the factors of a product of matrices were shown to become; as they are, where it is not here."""
    widened: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """Small arrays that were read, in float64: a search reads them thousands of times."""
    lenient: bool = False
    """Whether weights of rows that are meant to see nothing may be anything: programs differ there.

    Those of rows that a mistake hid all keys of always may.
    """

    @property
    def intended(self) -> Derivation:
        return self.plan.derivation

    def __contains__(self, name: object) -> bool:
        return name in self.trace

    def tells(self, name: str) -> bool:
        """True for a recorded step of which no number is still to be filled in."""
        return name in self and name not in self.blanks

    def value(self, name: str) -> Array:
        array = self.trace[name]
        if array.dtype in (np.float64, bool):
            return array
        if array.size >= SMALL:
            return shared("float64", [array], lambda: array.astype(np.float64))
        if name not in self.widened or self.widened[name][0] is not array:
            self.widened[name] = array, to_float64(array)
        return self.widened[name][1]

    def numbers(self, axes: Sequence[str]) -> int:
        """Count the numbers of an array along these axes, those of no known size left out."""
        return prod(self.plan.sizes.get(axis, 1) for axis in axes)

    def blank(self, name: str) -> Array:
        return self.blanks.get(name, np.zeros((), dtype=bool))

    def precision(self, name: str) -> Precision:
        return self.precisions.get(name, self.unrecorded)

    def projected(self, step: Step) -> Array | None:
        """A projection of what is recorded, made once for all walks; None of any other step."""
        if not self.is_projection(step):
            return None
        op = step.op
        inputs = [self.value(name) for name in step.inputs]
        return shared("projected", self.arrays_of(step), lambda: op.apply(*inputs))

    def with_runs_kept(self, step: Step, known: Known) -> Known:
        """A value with its runs, which are the same in all walks where it is made of the same numbers."""
        if self.strictness != Strictness() or step.name in self.factors or not self.is_projection(step):
            return known.with_runs_kept()
        units = tuple(self.precision(name).unit for name in (step.name, *step.inputs))
        return shared(("runs", step.name, units), self.arrays_of(step), known.with_runs_kept)

    def is_projection(self, step: Step) -> bool:
        return type(step.op) is Project and all(map(self.tells, step.inputs))

    def arrays_of(self, step: Step) -> list[Array]:
        return [self.trace[name] for name in step.inputs]

    def factors_of(self, name: str) -> Factors:
        return self.factors.get(name, AS_THEY_ARE)

    def known(self, name: str) -> Known:
        """A recorded step: it was rounded when it was written down, and is right to its last digit."""
        value = self.value(name)
        if value.dtype == bool:
            return exactly(value)

        unit = self.precision(name).unit
        is_given = isinstance(self.intended[name].op, Given)
        half_place = 0.0
        if not is_given or self.strictness.rounded(value):  # what is given may be exact
            half_place = self.strictness.last_place / 2

        def run(number: int) -> Array:
            moved = round_at_random(value, unit, name, number)
            if half_place:
                moved = moved + half_place * noise(f"{name} printed", number, value.shape)
            return moved

        return Known(value, run)

    def unseen(self, shape: Shape) -> Array:
        """The rows of scores of this shape that are meant to see nothing, (..., query, 1)."""
        shape_of_rows = (*shape[:-1], 1)
        for step in self.intended:
            if isinstance(step.op, Hide) and all(name in self for name in step.inputs[1:]):
                masks = [self.value(name) for name in step.inputs[1:]]
                allowed = step.op.allowed(shape, *masks)
                seen = allowed.any(axis=-1, keepdims=True)
                return np.logical_not(np.broadcast_to(seen, shape_of_rows))
        return np.zeros(shape_of_rows, dtype=bool)


def may_have_unseen(record: Record) -> bool:
    """False where every query is meant to see some key, so that being lenient excuses nothing."""
    try:
        for step in record.intended:
            shape = tuple(record.plan.sizes.get(axis, 1) for axis in step.axes)
            if isinstance(step.op, Hide) and record.unseen(shape).any():
                return True
    except ValueError:  # a recorded mask of some queries alone
        return True
    return False


def with_precisions(record: Record, at_least: Precision) -> Record:
    """The record with the precision of each step, as its numbers show it; coarser if that is asked for.

    A run that starts from numbers of a coarse type may have any step in it that nobody recorded.
    A recorded step is in it where its own numbers are.
    """
    arrays = {name: record.trace[name] for name in record.trace if name in record.intended}
    given = [name for name in arrays if isinstance(record.intended[name].op, Given)]
    computed = {name: array for name, array in arrays.items() if name not in given}

    run = of_run([arrays[name] for name in given], computed.values())
    unrecorded = coarser(run, at_least)
    precisions = {name: own(array) for name, array in arrays.items()}
    for name, array in computed.items():
        of_run_or_exact = run if on_grid(array, run.bits) else FLOAT64
        precisions[name] = coarser(coarser(precisions[name], of_run_or_exact), at_least)
        if declared_precision(array.dtype) is not FLOAT64:
            unrecorded = coarser(unrecorded, precisions[name])
    return replace(record, precisions=precisions, unrecorded=unrecorded)


def with_shapes(name: str, found: Array, expected: Array) -> None:
    """Raise AttnError where a step has not the shape that its inputs give it."""
    if found.shape != expected.shape:
        raise AttnError(
            f"{name}: {' × '.join(map(str, found.shape))}, but its inputs make it "
            f"{' × '.join(map(str, expected.shape))}"
        )


# --- what follows from recorded numbers ---

Values = dict[str, Known | None]
"""What steps should be; None where nothing tells, or the record holds it."""


def expect_surely(record: Record, step: Step, values: Values) -> Known:
    expected = expect(record, step, values)
    assert expected is not None
    return expected


def expect(record: Record, step: Step, values: Values) -> Known | None:
    """The value that follows from a step's inputs; None where they do not tell."""
    if isinstance(step.op, Unstated):
        return None
    inputs: list[Known] = []
    for name in step.inputs:
        known = input_of(record, name, values)
        if known is None:
            return None
        inputs.append(known)

    if isinstance(step.op, MatMul) and len(inputs) == 2:
        weights, rows = inputs
        inputs = [weights, without_unseen_rows(weights, rows)]

    unit = record.precision(step.name).unit
    factors = record.factors_of(step.name)
    try:
        made = record.projected(step) if factors is AS_THEY_ARE else None
        value = carry_rounding(step.op, inputs, unit, step.name, factors, value=made)
    except (ValueError, IndexError, TypeError, ArithmeticError):  # a step that was not written by attnctl
        shapes = [
            f"{name} {' × '.join(map(str, known.value.shape))}"
            for name, known in zip(step.inputs, inputs, strict=True)
        ]
        raise AttnError(f"{step.name}: its inputs do not go together ({', '.join(shapes)})") from None

    # What follows from a recorded NaN, nobody can say.
    recorded = [known for name, known in zip(step.inputs, inputs, strict=True) if name in record]
    if any(np.isnan(known.value).any() for known in recorded):
        value = anything(value, np.isnan(value.value))
    if step.name in record:
        free = free_cells(record, step, value.value)
        if free is not None:
            value = anything(value, free)
    if isinstance(step.op, Softmax):
        return excuse_empty_rows(record, value, inputs[0].value)
    return value


def without_unseen_rows(weights: Known, values: Known) -> Known:
    """The values, 0 in rows of NaN or ∞ to which every query gives a weight of exactly 0.

    Free slots of a cache may hold anything: a program that writes 0 there, or reads no further, is right.
    """
    is_wild = ~np.isfinite(values.value).all(axis=-1)
    if not is_wild.any() or weights.value.shape[-1] != is_wild.shape[-1]:
        return values
    is_unseen = is_wild & (weights.value == 0).all(axis=-2)
    if not is_unseen.any():
        return values

    def run(number: int) -> Array:
        return np.where(is_unseen[..., None], 0.0, values.run(number))

    return replace(values, value=np.where(is_unseen[..., None], 0.0, values.value), run=run)


def free_cells(record: Record, step: Step, value: Array) -> Array | None:
    """The cells of a step that may hold anything, as nothing is made of them; so may what repeats them."""
    if not isinstance(step.op, Repeat):
        return step.op.free(value)
    free = record.intended[step.inputs[0]].op.free(value[..., :: step.op.times, :, :])
    return None if free is None else step.op.apply(free)


def input_of(record: Record, name: str, values: Values) -> Known | None:
    """A step as those after it read it: as it should be, or else as it is recorded."""
    known = values.get(name)
    if known:
        return known
    return record.known(name) if record.tells(name) else None


def excuse_empty_rows(record: Record, weights: Known, scores: Array) -> Known:
    """The weights, free to be anything in rows that see nothing and are not meant to."""
    sees_nothing = np.asarray(np.isneginf(scores).all(axis=-1, keepdims=True))
    if not sees_nothing.any():
        return weights
    if not record.lenient:
        sees_nothing = np.logical_and(sees_nothing, ~record.unseen(scores.shape))
        if not sees_nothing.any():
            return weights
    return anything(weights, sees_nothing)
