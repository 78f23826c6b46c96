"""Steps of other programs as plain values: one that makes a mistake, one that carries fewer digits.

That a step was carried out in fewer digits is evident where carrying it out so gives the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import product

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR, root_mean_square, spread
from attnctl.evidence.blocks import axes_of, stretch
from attnctl.evidence.precision import FLOAT32, Precision, cut_bits, evident, on_grid, round_bits
from attnctl.evidence.precision import round_to as nearest
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import MULTIPLIED, PRODUCTS, Factors
from attnctl.evidence.walk import Verdict, Walk
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Given, MatMul, MatMulT, Unstated

Rounding = Callable[[Array], Array]

LEFT = 0.25
"""The part of its error that a simulation may leave of a number that was rounded as it is."""

MOST = 0.5
"""The part of the numbers that a simulation has to explain."""

UNRELATED = 0.1
"""The correlation of errors with the numbers up to which they may be rounding."""

RELATED = 0.5
"""The correlation from which on errors come from the same rounding, but for a part of it."""

FAR_OFF = 0.1
"""The part of its spread that a step may be off by fewer digits of factors, root mean square."""

MOST_APART = 1.5
"""The multiple of the errors of a simulation that they may be, in spread."""

FEWEST = 4
"""Numbers that show how they were rounded."""

TF32_BITS = 11
"""Ten after the leading one: what goes into products of matrices in float32 on NVIDIA's GPUs."""

KERNELS = tuple(product((0.0, 0.25, 0.5), (False, True)))
"""The power of d_k by which Q and K (Q alone, where it is a half) are divided before they are rounded; and
whether weights are rounded as parts of the largest of their row, as block by block in softmax."""

LARGE, MOST_SHARED = 2**15, 8
"""The numbers of a value from which on it is shared between programs, and how many are."""

BIASED = 1 / 8
"""The part of a factor's rounding that all of a step may be off by, where a simulation explains nothing."""


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
        inputs = [self.input(input_) for input_ in step.inputs]
        told = [input_ for input_ in inputs if input_ is not None]
        if len(told) < len(inputs):
            return None
        value = self.apply(step, told)
        self.numbers += value.size
        return value

    def apply(self, step: Step, inputs: Sequence[Array]) -> Array:
        """The op of a step on its inputs; large results of recorded ones are kept for the next programs."""
        if not all(map(self.before.record.tells, step.inputs)):
            return step.op.apply(*inputs)
        shared, key = self.before.shared, (id(step.op), step.inputs)
        if key in shared:
            return shared[key][1]

        value = step.op.apply(*inputs)
        if value.size >= LARGE:
            shared[key] = step.op, value  # the op as well: the id of what is gone may be another's
            if len(shared) > MOST_SHARED:
                del shared[next(iter(shared))]
        return value

    def input(self, name: str) -> Array | None:
        if self.before.record.tells(name):
            return self.before.record.value(name)
        if name not in self.values:
            old = None if self.is_changed(name) else self.earlier(name)
            known = self.before.values[old.name] if old else None
            self.values[name] = known.value if known else None if old else self.compute(name)
        return self.values[name]

    def is_changed(self, name: str) -> bool:
        """True for a step that is another one than before, or is computed from such as is not recorded."""
        if name not in self.changed:
            computed = (x for x in self.derivation[name].inputs if not self.before.record.tells(x))
            self.changed[name] = self.earlier(name) is None or any(map(self.is_changed, computed))
        return self.changed[name]

    def earlier(self, name: str) -> Step | None:
        """The same step as it was before, which may have another name there."""
        step, walk = self.derivation[name], self.before
        if name in walk.derivation:
            old = walk.derivation[name]
            return old if old is step else None
        same = (x for x in walk.derivation if x.op is step.op and x.inputs == step.inputs)
        return next((x for x in same if x.name in walk.values and x.name not in walk.record), None)


def recompute(
    record: Record,
    steps: Iterable[Step],
    before: Callable[[Step, int], Rounding],
    after: Callable[[Step], Rounding],
    plain: dict[str, Array] | None = None,
) -> Array | None:
    """The last of these steps, inputs and results rounded on the way; None where it cannot be told.

    Steps to which nothing was done yet are kept in `plain`, for the next ways to round.
    """
    values: dict[str, Array] = {}
    kept = {} if plain is None else plain
    changed: set[str] = set()
    result = None
    for step in steps:
        if any(name not in values and not record.tells(name) for name in step.inputs):
            return None
        rounds = [before(step, at) for at in range(len(step.inputs))]
        round_result = after(step)
        untouched = all(rounding is keep_digits for rounding in (*rounds, round_result))
        if not untouched or not changed.isdisjoint(step.inputs):
            changed.add(step.name)
        if step.name in kept and step.name not in changed:
            values[step.name] = result = kept[step.name]
            continue

        inputs = [values[name] if name in values else record.value(name) for name in step.inputs]
        rounded = [x if x.dtype == bool else rounds[at](x) for at, x in enumerate(inputs)]
        values[step.name] = result = round_result(step.op.apply(*rounded))
        if step.name not in changed:
            kept[step.name] = result
    return result


def same_errors(found: Array, right: Array, simulated: Array, least: float) -> bool:
    """True if most found numbers are off just as a simulation is; right ones below `least` tell nothing."""
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

    That is not to be said of what all are off by together, in proportion or by as much: digits that are cut
    off make numbers smaller, and so do many mistakes. A kernel rounds exp(scores − maximum) for the product
    with V, not the weights: of its error that part is another one.
    """
    found, right, simulated = where_finite(found, right, simulated)
    if found.size <= FEWEST:
        return False
    off, by_rounding = (fit_together(array - right, right)[2] for array in (found, simulated))
    same = correlation(off, by_rounding)
    apart = np.std(off) / max(np.std(by_rounding), np.finfo(float).tiny)
    return same >= RELATED and bool(1 / (2 * MOST_APART) <= apart <= MOST_APART)


def fit_together(off: Array, right: Array) -> tuple[float, float, Array]:
    """What numbers are off by in proportion to the right ones, by as much, and else: least squares."""
    deviation = right - right.mean()
    size = float(np.square(deviation).sum())
    slope = float(deviation.ravel() @ off.ravel()) / size if size else 0.0
    offset = float(off.mean() - slope * right.mean())
    return slope, offset, np.asarray(off - slope * right - offset)


def common_bias(found: Array, right: Array, simulated: Array, slack: float) -> float:
    """The part of their size that all found numbers are off by together, by factor or constant.

    0 where that may be chance: numbers of a row are off together, so each row counts as one.
    """
    told = np.isfinite(found) & np.isfinite(right) & np.isfinite(simulated)
    off, right = (np.where(told, array, 0.0) for array in (found - simulated, right))
    slope, offset, _ = fit_together(off[told], right[told])
    left = np.where(told, off - slope * right - offset, 0.0)
    parts = ((slope, np.where(told, right - right[told].mean(), 0.0)), (offset, told.astype(float)))
    for part, along in parts:
        size = float(np.square(along).sum())
        chance = np.sqrt(np.square((left * along).sum(axis=-1)).sum()) / size if size else np.inf
        scale = 1.0 if part is slope else root_mean_square(right[told])
        if abs(part) > FACTOR * chance + slack * scale:
            return part / scale
    return 0.0


def where_finite(*arrays: Array) -> list[Array]:
    told = np.logical_and.reduce([np.isfinite(array) for array in arrays])
    return [array[told] for array in arrays]


def correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def factors_shown(walk: Walk, name: str, *, plain: bool) -> dict[str, Factors]:
    """What the factors of the products that lead to a wrong step were rounded to, as far as it shows.

    Where they are recorded, their product is to be reproduced number by number. Where they are not, a
    simulation has to be off alike, all numbers together no multiple of it, and no product of the same
    kernel `plain`: right as it is.
    """
    record, steps = walk.record, stretch(walk.derivation, walk.record, name)
    names = [step.name for step in steps if isinstance(step.op, PRODUCTS)]
    ways = roundings(record, name) if names and walk.expect(name) else []
    direct = all(step.name in names or getattr(step.op, "exact", False) for step in steps)
    for factors in ways if direct else ():
        shown = {names[-1]: replace(factors, unit=0.0)}
        if name not in Walk.over(replace(record, factors=shown), walk.derivation, walk, name, {name}).wrong:
            return shown
    kernel = any(is_of_kernel(walk, walk.derivation[name]) for name in names)
    way, bias = nearest_way(walk, name, product(ways, KERNELS if kernel else KERNELS[:1]))
    if way is None or bias or (kernel and plain):
        return {}
    weighted = "key" in axes_of_first_factor(walk, walk.derivation[names[-1]])[-1:]
    return dict.fromkeys(names, way) if weighted or not direct else {}


def follows_from_product(walk: Walk, name: str) -> bool:
    """True for a step that may show what the factors of products were rounded to."""
    steps = stretch(walk.derivation, walk.record, name)
    return any(isinstance(step.op, PRODUCTS) for step in steps)


def is_far_off(found: Array, right: Array) -> bool:
    """True where a step is off by more than fewer digits of factors can explain."""
    told = np.isfinite(found) & np.isfinite(right)
    return bool(root_mean_square((found - right)[told]) > FAR_OFF * spread(right[told]))


def nearest_way(
    walk: Walk, name: str, ways: Iterable[tuple[Factors, tuple[float, bool]]]
) -> tuple[Factors | None, float]:
    """The way of rounding that leaves least of what a step is off by; and what all of it is off besides."""
    expected, record = walk.expect(name), walk.record
    assert expected is not None  # it is wrong
    found, right, steps = record.value(name), expected.value, stretch(walk.derivation, record, name)
    if is_far_off(found, right):
        return None, 0.0
    tried: list[tuple[float, Factors, Array]] = []
    plain: dict[str, Array] = {}
    for factors, (power, by_row) in ways:
        rounds = in_products(factors.short or keep_digits, power, by_row)
        simulated = recompute(record, steps, rounds, lambda _: keep_digits, plain)
        if simulated is not None and related_errors(found, right, simulated):
            left = float(np.std(fit_together(*where_finite(found - simulated, right))[2]))
            tried.append((left, factors, simulated))
    if not tried:
        return None, 0.0
    left, best, simulated = min(tried, key=lambda way: way[0])
    all_ = float(np.std(fit_together(*where_finite(found - right, right))[2]))
    return best, common_bias(found, right, simulated, BIASED * left / all_ * best.unit)


def roundings(record: Record, name: str) -> list[Factors]:
    """The ways in which a program may have rounded the factors of a step: TF32, or what the run is in."""
    own, run = record.precision(name), record.unrecorded
    shorter = [Factors(run.unit, partial(nearest, precision=run), run.name)] if run.bits < own.bits else []
    if own is not FLOAT32 or on_grid(record.value(name), TF32_BITS):
        return shorter
    return [*shorter, *TF32]  # sums of TF32 have the digits of float32


def is_of_kernel(walk: Walk, step: Step) -> bool:
    """True for Q Kᵀ and A V, which one kernel multiplies, and their like in the backward pass."""
    return "key" in (step.axes[-1], axes_of_first_factor(walk, step)[-1])


def axes_of_first_factor(walk: Walk, step: Step) -> tuple[str, ...]:
    first, record = step.inputs[0], walk.record
    return axes_of(record, first) if first in record else walk.derivation[first].axes


def has_plain_product(walk: Walk) -> bool:
    """True if a recorded product of attention agrees as it is, of factors with more digits than TF32."""
    for name, checked in walk.steps.items():
        step, record = walk.derivation[name], walk.record
        if checked.verdict is Verdict.AGREES and isinstance(step.op, PRODUCTS) and is_of_kernel(walk, step):
            told = all(map(record.tells, step.inputs))
            if told and not all(on_grid(record.trace[input_], TF32_BITS) for input_ in step.inputs):
                return True
    return False


def in_products(short: Rounding, power: float, by_row: bool) -> Callable[[Step, int], Rounding]:
    """Rounds the two factors of products of matrices, and nothing else: no bias that is added.

    Scores are of Q and K that were multiplied by a power of d_k first, weights rounded as parts of the
    largest of their row.
    """

    def rounding(step: Step, at: int) -> Rounding:
        if not isinstance(step.op, PRODUCTS) or at >= MULTIPLIED:
            return keep_digits
        if power and isinstance(step.op, MatMulT) and (power < 1 / 2 or at == 0):
            return lambda x: short(x * x.shape[-1] ** -power) * x.shape[-1] ** power
        if by_row and isinstance(step.op, MatMul) and at == 0:
            return lambda x: short(x / (top := np.abs(x).max(axis=-1, keepdims=True, initial=1e-300))) * top
        return short

    return rounding


def keep_digits(x: Array) -> Array:
    return x


TF32 = (
    Factors(2.0**-10, partial(cut_bits, bits=TF32_BITS, add=0.5), "TF32"),
    Factors(2.0**-10, partial(cut_bits, bits=TF32_BITS), "TF32"),
    Factors(2.0**-10, partial(round_bits, bits=TF32_BITS), "TF32"),
)
"""To the nearest, ties away from 0 (cvt.rna.tf32), cut off (as tensor cores do), and ties to even."""
