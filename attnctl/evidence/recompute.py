"""Steps of other programs as plain values: one that makes a mistake, one that carries fewer digits.

That a step was carried out in fewer digits is evident where carrying it out so gives the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from itertools import product

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.evidence.allowed import FACTOR, root_mean_square, spread
from attnctl.evidence.blocks import axes_of, stretch
from attnctl.evidence.precision import FLOAT32, Precision, cut_bits, evident, on_grid, round_bits
from attnctl.evidence.precision import round_to as nearest
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import AS_THEY_ARE, MULTIPLIED, PRODUCTS, Factors, Later, is_part
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

LARGE = 2**15
MOST_SHARED = 4
"""The numbers of a value from which on it is shared between programs, and how many: Q, K, V, and one."""

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

    @cached_property
    def told(self) -> frozenset[str]:
        """The steps that the record tells, which is asked at every input of hundreds of programs."""
        record = self.before.record
        return frozenset(name for name in record.trace if name not in record.blanks)

    def compute(self, name: str) -> Array | None:
        """The step's value by its inputs; None where they do not tell."""
        step = self.derivation[name]
        if isinstance(step.op, (Given, Unstated)):
            return None
        # All are asked for, even behind one that is not told: what is computed is kept for others.
        inputs = [self.input(input_) for input_ in step.inputs]
        told = [input_ for input_ in inputs if input_ is not None]
        if len(told) < len(inputs):
            return None
        value = self.apply(step, told)
        self.numbers += value.size
        return value

    def apply(self, step: Step, inputs: Sequence[Array]) -> Array:
        """The op of a step on its inputs; what other programs have made of the same numbers is reused."""
        right = self.begun(step)
        if right is not None:
            value: Array = step.op.finish(right)  # type: ignore[attr-defined]
            return value
        if not self.told.issuperset(step.inputs):
            return self.before.made.apply(step, inputs)

        shared = self.before.shared
        key = (id(step.op), step.inputs)
        if key in shared:
            shared[key] = shared.pop(key)  # the one that was used last goes last
            return shared[key][1]

        value = step.op.apply(*inputs)
        if value.size >= LARGE and not is_part(value):
            shared[key] = step.op, value  # the op as well: the id of what is gone may be another's
            if len(shared) > MOST_SHARED:
                del shared[next(iter(shared))]
        return value

    def begun(self, step: Step) -> Array | None:
        """The right result of a step that an op goes on from, where it is known; else None."""
        right_op = getattr(step.op, "goes_on_from", None)
        old = self.before.derivation.by_name.get(step.name)
        known = self.before.values.get(step.name)
        if old is None or right_op is not old.op or step.inputs != old.inputs:
            return None
        if known is None or isinstance(known, Later) or isinstance(right_op, MatMul):
            return None
        is_as_computed = self.before.record.factors_of(step.name) is AS_THEY_ARE
        has_right_inputs = not any(name not in self.told and self.is_changed(name) for name in step.inputs)
        return known.value if is_as_computed and has_right_inputs else None

    def input(self, name: str) -> Array | None:
        if name in self.told:
            return self.before.record.value(name)
        if name not in self.values:
            self.values[name] = self.input_computed(name)
        return self.values[name]

    def input_computed(self, name: str) -> Array | None:
        """A step that is not recorded: as it was before, where nothing of it changed."""
        old = None if self.is_changed(name) else self.earlier(name)
        if old is None:
            return self.compute(name)
        known = self.before.values[old.name]
        return known.value if known else None

    def is_changed(self, name: str) -> bool:
        """True for a step that is another one than before, or is computed from such as is not recorded."""
        if name not in self.changed:
            inputs = self.derivation[name].inputs
            computed = [input_ for input_ in inputs if input_ not in self.told]
            self.changed[name] = self.earlier(name) is None or any(map(self.is_changed, computed))
        return self.changed[name]

    def earlier(self, name: str) -> Step | None:
        """The same step as it was before, which may have another name there."""
        step = self.derivation[name]
        walk = self.before
        if name in walk.derivation:
            old = walk.derivation[name]
            return old if old is step else None

        for old in walk.derivation:
            is_same = old.op is step.op and old.inputs == step.inputs
            if is_same and old.name in walk.values and old.name not in walk.record:
                return old
        return None


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

        round_inputs = [before(step, number) for number in range(len(step.inputs))]
        round_result = after(step)
        is_untouched = all(rounding is keep_digits for rounding in (*round_inputs, round_result))
        if not is_untouched or not changed.isdisjoint(step.inputs):
            changed.add(step.name)
        if step.name in kept and step.name not in changed:
            result = kept[step.name]
            values[step.name] = result
            continue

        rounded = []
        for name, round_input in zip(step.inputs, round_inputs, strict=True):
            array = values[name] if name in values else record.value(name)
            rounded.append(array if array.dtype == bool else round_input(array))
        made = record.projected(step) if is_untouched and step.name not in changed else None
        result = round_result(step.op.apply(*rounded)) if made is None else made
        values[step.name] = result
        if step.name not in changed:
            kept[step.name] = result
    return result


def same_errors(found: Array, right: Array, simulated: Array, least: float) -> bool:
    """True if most found numbers are off just as a simulation is; right ones below `least` tell nothing."""
    found, right, simulated = where_finite(found, right, simulated)
    by_rounding = np.abs(simulated - right)
    left = np.abs(found - simulated)
    tells = (by_rounding > 0) & (np.abs(right) >= least)
    if tells.sum() < FEWEST:
        return False
    is_explained = left[tells] <= LEFT * by_rounding[tells]
    return bool(is_explained.mean() >= MOST)


def on_its_grid(found: Array, right: Array, simulated: Array, precision: Precision) -> bool:
    """True if found numbers are of this type, and off by rounding, which is unrelated to them."""
    if not on_grid(found, precision.bits) or not evident(found, precision):
        return False
    found, right, simulated = where_finite(found, right, simulated)
    off = found - right
    by_rounding = simulated - right
    if off.size < FEWEST:
        return False

    chance = 4 / np.sqrt(off.size)
    is_unrelated = abs(correlation(off, right)) <= UNRELATED + chance
    return is_unrelated and bool(np.std(off) <= 4 * np.std(by_rounding))


def related_errors(found: Array, right: Array, simulated: Array) -> bool:
    """True if found numbers are off as far as a simulation, and most often just where it is.

    That is not to be said of what all are off by together, in proportion or by as much: digits that are cut
    off make numbers smaller, and so do many mistakes. A kernel rounds exp(scores − maximum) for the product
    with V, not the weights: of its error that part is another one.
    """
    found, right, simulated = where_finite(found, right, simulated)
    if found.size <= FEWEST:
        return False
    off = fit_together(found - right, right).rest
    by_rounding = fit_together(simulated - right, right).rest
    apart = np.std(off) / max(np.std(by_rounding), np.finfo(float).tiny)
    is_as_far = bool(1 / (2 * MOST_APART) <= apart <= MOST_APART)
    return correlation(off, by_rounding) >= RELATED and is_as_far


class CommonError(NamedTuple):
    """What numbers are off by, taken apart."""

    slope: float
    """In proportion to the right ones."""
    offset: float
    """By as much."""
    rest: Array


def fit_together(off: Array, right: Array) -> CommonError:
    """What numbers are off by in proportion to the right ones, by as much, and else: least squares."""
    deviation = right - right.mean()
    size = float(np.square(deviation).sum())
    slope = float(deviation.ravel() @ off.ravel()) / size if size else 0.0
    offset = float(off.mean() - slope * right.mean())
    return CommonError(slope, offset, rest=np.asarray(off - slope * right - offset))


def common_bias(found: Array, right: Array, simulated: Array, slack: float) -> float:
    """The part of their size that all found numbers are off by together, by factor or constant.

    0 where that may be chance: numbers of a row are off together, so each row counts as one.
    """
    is_told = np.isfinite(found) & np.isfinite(right) & np.isfinite(simulated)
    off = np.where(is_told, found - simulated, 0.0)
    right = np.where(is_told, right, 0.0)
    slope, offset, _ = fit_together(off[is_told], right[is_told])
    left = np.where(is_told, off - slope * right - offset, 0.0)

    def chance_of(along: Array) -> float:
        size = float(np.square(along).sum())
        by_row = (left * along).sum(axis=-1)
        return np.sqrt(np.square(by_row).sum()) / size if size else np.inf

    deviation = np.where(is_told, right - right[is_told].mean(), 0.0)
    if abs(slope) > FACTOR * chance_of(deviation) + slack:
        return slope
    size = root_mean_square(right[is_told])
    if abs(offset) > FACTOR * chance_of(is_told.astype(float)) + slack * size:
        return offset / size
    return 0.0


def where_finite(*arrays: Array) -> list[Array]:
    is_finite = np.logical_and.reduce([np.isfinite(array) for array in arrays])
    return [array[is_finite] for array in arrays]


def correlation(a: Array, b: Array) -> float:
    a = a - a.mean()
    b = b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def factors_shown(walk: Walk, name: str, *, plain: bool) -> dict[str, Factors]:
    """What the factors of the products that lead to a wrong step were rounded to, as far as it shows.

    Where they are recorded, their product is to be reproduced number by number. Where they are not, a
    simulation has to be off alike, all numbers together no multiple of it, and no product of the same
    kernel `plain`: right as it is.
    """
    steps = stretch(walk.derivation, walk.record, name)
    products = [step.name for step in steps if isinstance(step.op, PRODUCTS)]
    if not products or not walk.expect(name):
        return {}

    ways = roundings(walk.record, name)
    is_direct = all(step.name in products or getattr(step.op, "exact", False) for step in steps)
    if is_direct:
        reproduced = factors_reproduced(walk, name, products[-1], ways)
        if reproduced:
            return reproduced

    in_kernel = any(is_of_kernel(walk, walk.derivation[product]) for product in products)
    kernels = KERNELS if in_kernel else KERNELS[:1]
    way, bias = nearest_way(walk, name, product(ways, kernels))
    if way is None or bias or (in_kernel and plain):
        return {}
    of_weights = "key" in axes_of_first_factor(walk, walk.derivation[products[-1]])[-1:]
    return dict.fromkeys(products, way) if of_weights or not is_direct else {}


def factors_reproduced(
    walk: Walk, name: str, product_name: str, ways: Iterable[Factors]
) -> dict[str, Factors]:
    """The factors with which the product is right number by number; none where no way gives that."""
    for factors in ways:
        shown = {product_name: replace(factors, unit=0.0)}
        record = replace(walk.record, factors=shown)
        again = Walk.over(record, walk.derivation, before=walk, until=name, anew={name})
        if name not in again.wrong:
            return shown
    return {}


def follows_from_product(walk: Walk, name: str) -> bool:
    """True for a step that may show what the factors of products were rounded to."""
    steps = stretch(walk.derivation, walk.record, name)
    return any(isinstance(step.op, PRODUCTS) for step in steps)


def is_far_off(found: Array, right: Array) -> bool:
    """True where a step is off by more than fewer digits of factors can explain."""
    is_told = np.isfinite(found) & np.isfinite(right)
    off = root_mean_square((found - right)[is_told])
    return bool(off > FAR_OFF * spread(right[is_told]))


def nearest_way(
    walk: Walk, name: str, ways: Iterable[tuple[Factors, tuple[float, bool]]]
) -> tuple[Factors | None, float]:
    """The way of rounding that leaves least of what a step is off by; and what all of it is off besides."""
    expected = walk.expect(name)
    assert expected is not None  # it is wrong
    record = walk.record
    found = record.value(name)
    right = expected.value
    if is_far_off(found, right):
        return None, 0.0

    def rest_of(off: Array) -> float:
        return float(np.std(fit_together(*where_finite(off, right)).rest))

    steps = stretch(walk.derivation, record, name)
    plain: dict[str, Array] = {}
    tried: list[SimulatedWay] = []
    for factors, (power, by_row) in ways:
        rounds = in_products(factors.short or keep_digits, power, by_row)
        simulated = recompute(record, steps, rounds, lambda _: keep_digits, plain)
        if simulated is not None and related_errors(found, right, simulated):
            tried.append(SimulatedWay(rest_of(found - simulated), factors, simulated))
    if not tried:
        return None, 0.0

    best = min(tried, key=lambda way: way.left)
    # What a simulation leaves may be common to all numbers as the rest is.
    slack = BIASED * best.left / rest_of(found - right) * best.factors.unit
    return best.factors, common_bias(found, right, best.simulated, slack)


class SimulatedWay(NamedTuple):
    """A way of rounding that was carried out."""

    left: float
    """The part of what the step is off by that it does not explain."""
    factors: Factors
    simulated: Array


def roundings(record: Record, name: str) -> list[Factors]:
    """The ways in which a program may have rounded the factors of a step: TF32, or what the run is in."""
    own = record.precision(name)
    run = record.unrecorded
    ways = []
    if run.bits < own.bits:
        ways.append(Factors(run.unit, partial(nearest, precision=run), run.name))
    if own is FLOAT32 and not on_grid(record.value(name), TF32_BITS):
        ways += TF32  # sums of TF32 have the digits of float32
    return ways


def is_of_kernel(walk: Walk, step: Step) -> bool:
    """True for Q Kᵀ and A V, which one kernel multiplies, and their like in the backward pass."""
    return "key" in (step.axes[-1], axes_of_first_factor(walk, step)[-1])


def axes_of_first_factor(walk: Walk, step: Step) -> tuple[str, ...]:
    first = step.inputs[0]
    return axes_of(walk.record, first) if first in walk.record else walk.derivation[first].axes


def has_plain_product(walk: Walk) -> bool:
    """True if a recorded product of attention agrees as it is, of factors with more digits than TF32."""
    record = walk.record
    for name, checked in walk.steps.items():
        step = walk.derivation[name]
        if checked.verdict is not Verdict.AGREES or not isinstance(step.op, PRODUCTS):
            continue
        if not is_of_kernel(walk, step) or not all(map(record.tells, step.inputs)):
            continue
        if not all(on_grid(record.trace[input_], TF32_BITS) for input_ in step.inputs):
            return True
    return False


def in_products(short: Rounding, power: float, by_row: bool) -> Callable[[Step, int], Rounding]:
    """Rounds the two factors of products of matrices, and nothing else: no bias that is added.

    Scores are of Q and K that were multiplied by a power of d_k first, weights rounded as parts of the
    largest of their row.
    """

    def round_scaled(x: Array) -> Array:
        d_k = x.shape[-1]
        return short(x * d_k**-power) * d_k**power

    def round_by_row(x: Array) -> Array:
        largest = np.abs(x).max(axis=-1, keepdims=True, initial=1e-300)  # of a row of zeros, too
        return short(x / largest) * largest

    def rounding(step: Step, number: int) -> Rounding:
        is_first = number == 0
        if not isinstance(step.op, PRODUCTS) or number >= MULTIPLIED:
            return keep_digits
        # A half is divided from Q alone, less from both.
        if power and isinstance(step.op, MatMulT) and (power < 1 / 2 or is_first):
            return round_scaled
        if by_row and isinstance(step.op, MatMul) and is_first:
            return round_by_row
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
