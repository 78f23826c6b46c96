"""The record: a trace as it is judged, each number with the precision to which it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.precision import (
    FLOAT32,
    FLOAT64,
    Precision,
    coarser,
    declared_precision,
    of_run,
    on_grid,
    own,
)
from attnctl.evidence.results import widen
from attnctl.evidence.rounding import AS_THEY_ARE, Factors, Known, exactly, noise, round_at_random
from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.ops import Given, Hide
from attnctl.record.trace import Trace

if TYPE_CHECKING:
    from attnctl.inputs.plan.plan import DumpPlan

BLUR = 0.05
"""The part of a step's spread that rounding may put its numbers off, as a root mean square; beyond it
nobody can tell a right program from a wrong one."""

BLUR_OF_DECIMALS = 0.3
"""The same where someone says to how many decimals the numbers were rounded."""


@dataclass(frozen=True)
class Strictness:
    """The tolerance of a check: that of rounding, or one that someone asks for.

    `decimals` says that the recorded numbers were rounded (or cut) to so many decimals. Those of an
    exercise are filled in `by_hand`: what is given is exact, and the last decimal may be off by one.
    Of its computed steps those that were `handed_out` are given too: what follows is worked out from them.
    """

    rtol: float | None = None
    atol: float | None = None
    decimals: int | None = None
    by_hand: bool = False
    handed_out: frozenset[str] = frozenset()

    @property
    def told(self) -> bool:
        return self.rtol is not None or self.atol is not None

    @property
    def blur(self) -> float:
        """The part of a step's spread beyond which an allowed error leaves the numbers without meaning."""
        return BLUR if self.decimals is None else BLUR_OF_DECIMALS

    @property
    def last_place(self) -> float:
        """A unit of the last decimal."""
        return 0.0 if self.decimals is None else 10.0**-self.decimals

    def rounded(self, given: Array) -> bool:
        """True for numbers that were handed in rounded: they have that many decimals, no more."""
        if (
            self.by_hand or self.decimals is None or on_grid(given, FLOAT32.bits)
        ):  # 1, 0.5: toy numbers, as they are meant
            return False
        return bool((np.round(given, self.decimals) == given).all())

    def __str__(self) -> str:
        if self.told:
            return "the tolerance"
        if self.by_hand:
            return f"rounding to {self.decimals} decimals (the last may be off by one)"
        return "rounding" if self.decimals is None else f"rounding to {self.decimals} decimals"

    def allowed(self, expected: Array, rounding: Array) -> Array:
        """The error that is allowed of each expected number."""
        if not self.told:
            return rounding
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return (self.atol or 0.0) + (self.rtol or 0.0) * size + np.zeros_like(rounding)


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
    factors: Factors = AS_THEY_ARE
    """What becomes of the factors of products of matrices."""
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
        """The numbers of a recorded step, in float64; booleans as they are."""
        return widen(self.trace[name])

    def numbers(self, axes: Sequence[str]) -> int:
        """Count the numbers of an array along these axes, those of no known size left out."""
        return prod(self.plan.sizes.get(axis, 1) for axis in axes)

    def forgetting(self, name: str) -> Record:
        """The record without a step, which is then recomputed."""
        kept = [each for each in self.trace if each != name]
        return replace(self, trace=self.trace.select(kept))

    def blank(self, name: str) -> Array:
        return self.blanks.get(name, np.zeros((), dtype=bool))

    def precision(self, name: str) -> Precision:
        return self.precisions.get(name, self.unrecorded)

    def factors_of(self, name: str) -> Factors:
        """The rounding of the factors of a product of matrices.

        A step that is written down in more digits may still have been made of factors in fewer.
        """
        coarse = self.unrecorded.unit
        fewer = coarse > max(self.precision(name).unit, self.factors.unit)
        return Factors(coarse) if fewer else self.factors

    def known(self, name: str) -> Known:
        """A recorded step: it was rounded when it was written down, and is right to its last digit."""
        value = self.value(name)
        if value.dtype == bool:
            return exactly(value)
        unit = self.precision(name).unit
        printed = not isinstance(self.intended[name].op, Given) or self.strictness.rounded(value)
        last = self.strictness.last_place / 2 if printed else 0.0

        def run(number: int) -> Array:
            moved = round_at_random(value, unit, name, number)
            return moved + last * noise(f"{name} printed", number, value.shape) if last else moved

        return Known(value, run)

    def unseen(self, s: Array) -> Array:
        """The rows of scores that are meant to see nothing, (..., query, 1)."""
        for step in self.intended:
            if isinstance(step.op, Hide) and all(name in self for name in step.inputs[1:]):
                allowed = step.op.allowed(s.shape, *(self.value(name) for name in step.inputs[1:]))
                return np.logical_not(np.broadcast_to(allowed, s.shape).any(axis=-1, keepdims=True))
        return np.zeros((*s.shape[:-1], 1), dtype=bool)


def with_precisions(record: Record, at_least: Precision) -> Record:
    """The record with the precision of each step, as its numbers show it; coarser if that is asked for.

    A run that starts from numbers of a coarse type may have any step in it that nobody recorded.
    A recorded step is in it where its own numbers are.
    """
    arrays = {name: record.trace[name] for name in record.trace if name in record.intended}
    leaf = {name: isinstance(record.intended[name].op, Given) for name in arrays}
    run = of_run(
        [array for name, array in arrays.items() if leaf[name]],
        [array for name, array in arrays.items() if not leaf[name]],
    )
    found = {name: own(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if not leaf[name]:
            kept = run if on_grid(array, run.bits) else FLOAT64
            found[name] = coarser(coarser(found[name], kept), at_least)
    unrecorded = coarser(run, at_least)
    for name, array in arrays.items():
        if not leaf[name] and declared_precision(array.dtype) is not FLOAT64:
            unrecorded = coarser(unrecorded, found[name])
    return replace(record, precisions=found, unrecorded=unrecorded)


def with_shapes(name: str, found: Array, expected: Array) -> None:
    """Raise AttnError where a step has not the shape that its inputs give it."""
    if found.shape != expected.shape:
        raise AttnError(
            f"{name}: {' × '.join(map(str, found.shape))}, but its inputs make it "
            f"{' × '.join(map(str, expected.shape))}"
        )
