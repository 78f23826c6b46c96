"""Evidence that a step was carried out in fewer digits: carrying it out so gives the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from attnctl.array import Array
from attnctl.derivation import Derivation, Step
from attnctl.ops import Given, MatMul, MatMulT, Project, Unstated
from attnctl.verbs.check.precision import FLOAT32, Precision, evident, on_grid
from attnctl.verbs.check.precision import rounded as nearest
from attnctl.verbs.check.record import Record
from attnctl.verbs.check.walk import Walk, Walker

Rounding = Callable[[Array], Array]

ALIKE = 0.5
"""The correlation from which errors are taken to have the same source."""

UNRELATED = 0.1
"""The correlation of errors with the numbers up to which they may be rounding."""

FEWEST = 4
"""Numbers that show a correlation."""

TF32 = replace(FLOAT32, name="TF32", bits=11)
"""float32 with ten bits after the leading one: what goes into products of matrices on NVIDIA's GPUs."""

TF32_UNIT = 2.0**-10
"""The relative error of a factor, cut off rather than rounded on some of them."""


def stretch(derivation: Derivation, record: Record, name: str) -> list[Step]:
    """A step and the unrecorded ones it was computed from, in order."""
    wanted, found = [name], set()
    while wanted:
        step = derivation[wanted.pop()]
        if not isinstance(step.op, (Given, Unstated)) and step.name not in found:
            found.add(step.name)
            wanted += [each for each in step.inputs if each not in record]
    return [step for step in derivation if step.name in found]


def recomputed(
    record: Record, steps: Iterable[Step], before: Callable[[Step], Rounding], after: Callable[[Step], Rounding]
) -> Array | None:
    """The last of these steps, inputs and results rounded on the way; None where it cannot be told."""
    values: dict[str, Array] = {}
    result = None
    for step in steps:
        if any(name not in values and (name not in record or name in record.blanks) for name in step.inputs):
            return None
        inputs = [values[name] if name in values else record.value(name) for name in step.inputs]
        result = after(step)(step.op.apply(*(x if x.dtype == bool else before(step)(x) for x in inputs)))
        values[step.name] = result
    return result


def same_errors(found: Array, right: Array, simulated: Array) -> bool:
    """Whether found numbers are off where, and as far as, a simulation is."""
    told = np.isfinite(found) & np.isfinite(right) & np.isfinite(simulated)
    off, by_rounding = (found - right)[told], (simulated - right)[told]
    if off.size < FEWEST or not off.any() or not by_rounding.any():
        return False
    return correlation(off, by_rounding) >= ALIKE and bool(np.std(off) <= 4 * np.std(by_rounding))


def on_its_grid(found: Array, right: Array, simulated: Array, precision: Precision) -> bool:
    """Whether found numbers are of this type, and are off as rounding puts them: unrelated to the numbers."""
    told = np.isfinite(found) & np.isfinite(right) & np.isfinite(simulated)
    off, by_rounding = (found - right)[told], (simulated - right)[told]
    if off.size < FEWEST or not on_grid(found, precision.bits) or not evident(found, precision):
        return False
    related = abs(correlation(off, right[told]))
    return related <= UNRELATED + 4 / np.sqrt(off.size) and bool(np.std(off) <= 4 * np.std(by_rounding))


def correlation(a: Array, b: Array) -> float:
    """Of two lists of numbers; 0 where one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def with_products(record: Record, walk: Walk) -> Record:
    """The record, its products of matrices in TF32 where the first wrong step shows that they were."""
    if not walk.wrong or record.precision(walk.wrong[0]) is not FLOAT32:
        return record
    first = walk.wrong[0]
    expected = Walker(record).expected(walk.derivation[first], walk.values)
    steps = stretch(walk.derivation, record, first)
    if expected is None or not any(isinstance(step.op, (MatMul, MatMulT, Project)) for step in steps):
        return record
    found = record.value(first)
    for simulated in tf32(record, steps):
        if simulated is not None and same_errors(found, expected.value, simulated):
            return replace(record, products=TF32_UNIT)
    return record


def tf32(record: Record, steps: list[Step]) -> Iterator[Array | None]:
    """The last step with the factors of every product rounded to TF32, and cut off to it."""
    for short in (lambda x: nearest(x, TF32), cut):

        def before(step: Step, short: Rounding = short) -> Rounding:
            return short if isinstance(step.op, (MatMul, MatMulT, Project)) else unrounded

        yield recomputed(record, steps, before, lambda _: unrounded)


def unrounded(x: Array) -> Array:
    """The same."""
    return x


def cut(x: Array) -> Array:
    """Numbers cut off to the digits of TF32."""
    significand, exponent = np.frexp(x)
    return np.ldexp(np.trunc(significand * 2.0**TF32.bits) / 2.0**TF32.bits, exponent)
