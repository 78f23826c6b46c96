"""Steps of other programs as plain values: one that makes a mistake, one that carries fewer digits.

That a step was carried out in fewer digits is evident where carrying it out so gives the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import FLOAT32, Precision, evident, on_grid
from attnctl.evidence.precision import round_to as nearest
from attnctl.evidence.record import Record
from attnctl.evidence.results import apply_op
from attnctl.evidence.rounding import MULTIPLIED, Factors
from attnctl.evidence.rows import stretch
from attnctl.evidence.walk import Walk
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Given, MatMul, MatMulT, Project, Unstated

Rounding = Callable[[Array], Array]

LEFT = 0.25
"""The part of its error that a simulation may leave of a number that was rounded as it is."""

MOST = 0.5
"""The part of the numbers that a simulation has to explain."""

UNRELATED = 0.1
"""The correlation of errors with the numbers up to which they may be rounding."""

RELATED = 0.5
"""The correlation from which on errors come from the same rounding, but for a part of it."""

MOST_APART = 1.5
"""The multiple of the errors of a simulation that they may be, in spread."""

FEWEST = 4
"""Numbers that show how they were rounded."""

TF32 = replace(FLOAT32, name="TF32", bits=11)
"""float32 with ten bits after the leading one: what goes into products of matrices on NVIDIA's GPUs."""

TF32_UNIT = 2.0**-10
"""The relative error of a factor, cut off rather than rounded on some of them."""


@dataclass
class Probe:
    """Computes one step of a derivation from what is recorded, quick enough to try hundreds."""

    before: Walk
    derivation: Derivation
    numbers: int = 0
    """How many were computed."""
    values: dict[str, Array | None] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)

    def compute(self, name: str) -> Array | None:
        """The step's value by its inputs; None where they do not tell."""
        step = self.derivation[name]
        if isinstance(step.op, (Given, Unstated)):
            return None
        inputs = [self.input(each) for each in step.inputs]
        told = [each for each in inputs if each is not None]
        if len(told) < len(inputs):
            return None
        value = apply_op(step.op, *told)
        self.numbers += value.size
        return value

    def input(self, name: str) -> Array | None:
        """The value of a step above: recorded, known from before, or computed."""
        if self.before.record.tells(name):
            return self.before.record.value(name)
        if name not in self.values:
            if self.is_changed(name):
                self.values[name] = self.compute(name)
            else:
                known = self.before.values[name]
                self.values[name] = None if known is None else known.value
        return self.values[name]

    def is_changed(self, name: str) -> bool:
        """True for a step that is another one than before, or is computed from such as is not recorded."""
        if name not in self.changed:
            step, old = self.derivation[name], self.before.derivation.by_name.get(name)
            computed = (each for each in step.inputs if not self.before.record.tells(each))
            self.changed[name] = step is not old or any(map(self.is_changed, computed))
        return self.changed[name]


def recompute(
    record: Record,
    steps: Iterable[Step],
    before: Callable[[Step, int], Rounding],
    after: Callable[[Step], Rounding],
) -> Array | None:
    """The last of these steps, inputs and results rounded on the way; None where it cannot be told."""
    values: dict[str, Array] = {}
    result = None
    for step in steps:
        if any(name not in values and not record.tells(name) for name in step.inputs):
            return None
        inputs = [values[name] if name in values else record.value(name) for name in step.inputs]
        rounded = [x if x.dtype == bool else before(step, at)(x) for at, x in enumerate(inputs)]
        known = all(x is y for x, y in zip(inputs, rounded, strict=True))  # nobody asks for others again
        values[step.name] = result = after(step)(
            apply_op(step.op, *rounded) if known else step.op.apply(*rounded)
        )
    return result


def same_errors(found: Array, right: Array, simulated: Array, least: float) -> bool:
    """True if most found numbers are off just as a simulation is.

    Where right numbers are below the `least` that their type holds with all digits, that tells nothing.
    """
    found, right, simulated = where_finite(found, right, simulated)
    by_rounding, left = np.abs(simulated - right), np.abs(found - simulated)
    rounds = (by_rounding > 0) & (np.abs(right) >= least)
    if rounds.sum() < FEWEST:
        return False
    return bool((left[rounds] <= LEFT * by_rounding[rounds]).mean() >= MOST)


def on_its_grid(found: Array, right: Array, simulated: Array, precision: Precision) -> bool:
    """True if found numbers are of this type, and off by rounding, which is unrelated to them."""
    if not on_grid(found, precision.bits) or not evident(found, precision):
        return False
    found, right, simulated = where_finite(found, right, simulated)
    off, by_rounding = found - right, simulated - right
    if off.size < FEWEST:
        return False
    related = abs(correlation(off, right))
    return related <= UNRELATED + 4 / np.sqrt(off.size) and bool(np.std(off) <= 4 * np.std(by_rounding))


def related_errors(found: Array, right: Array, simulated: Array) -> bool:
    """True if found numbers are off as far as a simulation, and most often just where it is.

    A kernel rounds exp(scores − maximum) for the product with V, not the weights: of its error that part
    is another one.
    """
    found, right, simulated = where_finite(found, right, simulated)
    off, by_rounding = found - right, simulated - right
    if off.size < FEWEST or np.std(off) > MOST_APART * np.std(by_rounding):
        return False
    return correlation(off, by_rounding) >= RELATED


def where_finite(*arrays: Array) -> list[Array]:
    """The numbers of arrays in the places where all are finite."""
    told = np.logical_and.reduce([np.isfinite(each) for each in arrays])
    return [each[told] for each in arrays]


def correlation(a: Array, b: Array) -> float:
    """Of two lists of numbers; 0 where one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def factors_shown(walk: Walk) -> Factors:
    """The factors of products of matrices: in TF32 where the first wrong step shows that they were."""
    record, first = walk.record, next(iter(walk.wrong), "")
    if not first or record.precision(first) is not FLOAT32:
        return record.factors
    expected, found = walk.expect(first), record.value(first)
    steps = stretch(walk.derivation, record, first)
    if expected is None or on_grid(found, TF32.bits):  # sums of TF32 have the digits of float32
        return record.factors
    for short in (to_tf32, cut_to_tf32):
        simulated = recompute(record, steps, in_products(short), lambda _: keep_digits)
        if simulated is not None and related_errors(found, expected.value, simulated):
            return Factors(TF32_UNIT, short)
    return record.factors


def in_products(short: Rounding) -> Callable[[Step, int], Rounding]:
    """Rounds the two factors of products of matrices, and nothing else: no bias that is added."""
    products = (MatMul, MatMulT, Project)
    return lambda step, at: short if isinstance(step.op, products) and at < MULTIPLIED else keep_digits


def keep_digits(x: Array) -> Array:
    return x


def to_tf32(x: Array) -> Array:
    return nearest(x, TF32)


def cut_to_tf32(x: Array) -> Array:
    significand, exponent = np.frexp(x)
    return np.ldexp(np.trunc(significand * 2.0**TF32.bits) / 2.0**TF32.bits, exponent)
