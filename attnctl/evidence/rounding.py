"""The error that rounding may give a step, by Monte Carlo arithmetic.

The derivation is carried out again a dozen times, each result multiplied by 1 + u·e with e drawn
from [−1, 1] and u the unit of the precision that a step may have been carried out in: each is a
program that rounds in its own way (Parker 1997, "Monte Carlo arithmetic"; CADNA and Verificarlo
work so). How far these runs scatter around the exact one is how far a decent program is off.

- A recorded step is off by half a unit of its own type, whoever reads it.
- Sums of n terms are kept in float32 or better, and wander by √n of its units (Higham and Mary
  2019), which is drawn for what goes into an op and for what comes out of it.
- A few runs say little of one number, and much of a row. The scatter of a number is the largest of
  three: that of its row, that of its row and its column together (columns may differ in size), and
  the share of the number that numbers of its matrix are off by (one weight may outdo its row).
- How far off a number, and all of them together, may be by that scatter, `evidence/allowed.py` says.
- Where all numbers together are right and a few are not, these outdo their rows and columns, as a weight
  does that many roundings lead to. Then each number is held to what the runs show of it alone, with the
  quantile of so few.

Right programs of ten kinds (tests/check/programs.py) stay within 5.4 times the scatter in any
number and 0.65 in the root mean square, float16 and bfloat16, d_model 64 to 1024.

No op needs a rule of its own: a new one is carried out like the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from math import prod, sqrt
from typing import Any, ClassVar
from weakref import ref
from zlib import crc32

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR, allowed_error
from attnctl.evidence.precision import FLOAT32, FLOAT64, Precision, round_to
from attnctl.inputs.plan.tensors import uniform_numbers
from attnctl.math import Array
from attnctl.math.ops import MatMul, MatMulT, Op, Project, Rotate, Softmax
from attnctl.math.ops.models import SinkSoftmax
from attnctl.math.ops.products import SharedTMatMul, TMatMul
from attnctl.math.ops.vectors import ProjectBack, ProjectWeights

RUNS = 12
"""Runs of Monte Carlo arithmetic; fewer where there are many numbers."""

LEAST_RUNS = 4
MANY_NUMBERS = 2**20
"""Numbers that the runs may compute, of a step and of what leads to it, before they become fewer."""

HUGE = 2**23
"""Numbers from which on two runs have to do."""

LARGE = 2**13
"""Numbers of a step from which on a run is carried out again rather than kept."""

KEPT_APART = 2**16
LARGE_RUNS = 3 * LEAST_RUNS
"""Numbers of a value from which on few runs are kept, and how many: those of Q, K and V."""

LITTLE = 0.05
"""The part of a step's rounding that sums may add before they count."""

ULPS = 4
"""Units of float64 that any number may be off, where no run shows an error."""

PRODUCTS = (MatMul, MatMulT, Project, TMatMul, SharedTMatMul, ProjectBack, ProjectWeights)

MULTIPLIED = 2
"""Inputs of a product of matrices that are its factors; a bias that is added may follow."""

NOISE: Array = 2 * uniform_numbers(0, 65537) - 1
"""What results are rounded by; as many as a prime, so that no matrix repeats it row by row."""

NOISE_TWICE: Array = np.concatenate((NOISE, NOISE))


@dataclass(frozen=True)
class Known:
    """A value, and what other programs that round in their own way would have."""

    value: Array
    run: Callable[[int], Array]
    """The value in one run of Monte Carlo arithmetic."""
    before: int = 0
    """How many numbers a run computes that lead to it."""

    @property
    def numbers(self) -> int:
        return self.before + self.value.size

    @property
    def enough_runs(self) -> int:
        least = LEAST_RUNS if self.numbers < HUGE else 2
        return min(RUNS, max(least, MANY_NUMBERS // max(self.numbers, 1)))

    @cached_property
    def scatter(self) -> Array:
        """The error of a decent program in each number; ∞ for what could be anything."""
        return self.scatter_in(self.enough_runs)

    @cached_property
    def own_scatter(self) -> Array:
        """The scatter, of each number at least what the runs show of it alone."""
        with np.errstate(all="ignore"):
            squares = self.squares_in(RUNS)
            own = np.where(np.isfinite(squares), squares, 0.0) * few(np.array(RUNS))
            return np.maximum(pool_scatter(squares, self.value, RUNS), np.sqrt(own))

    def scatter_in(self, runs: int) -> Array:
        with np.errstate(all="ignore"):
            return pool_scatter(self.squares_in(runs), self.value, runs)

    def with_runs_kept(self) -> Known:
        """The value, its first runs kept for all that is computed from it."""
        if self.value.size < KEPT_APART:
            return replace(self, run=lru_cache(LEAST_RUNS)(self.run))
        if isinstance(self.run, LargeRuns):
            return self
        return replace(self, run=LargeRuns(self.value, self.run))

    def squares_in(self, runs: int) -> Array:
        squares = np.zeros(self.value.shape)
        for number in range(runs):
            squares += squared_distance(self.run(number), self.value)
        return squares / runs

    @cached_property
    def reach(self) -> tuple[Array, Array]:
        runs = [self.value, *(self.run(number) for number in range(RUNS))]
        return np.minimum.reduce(runs), np.maximum.reduce(runs)

    @cached_property
    def error(self) -> Array:
        return self.error_by(self.scatter)

    def error_by(self, scatter: Array) -> Array:
        return allowed_error(self.value, scatter, ULPS * FLOAT64.unit)


class LargeRuns:
    """Runs of a large value, kept as how far they are off it, of which float32 tells enough.

    Those of all walks together are so many that one walk does without computing them again.
    """

    together: ClassVar[deque[tuple[ref[LargeRuns], int]]] = deque()
    """Which are kept, those that were used last at the end."""

    def __init__(self, value: Array, run: Callable[[int], Array]) -> None:
        self.value = value
        self.run = run
        self.kept: dict[int, Array] = {}

    def __call__(self, number: int) -> Array:
        off = self.off(number)
        if off is not None:
            return self.value + off

        moved = self.run(number)
        with np.errstate(all="ignore"):
            off = (moved - self.value).astype(np.float32)
        if number < LEAST_RUNS and np.isfinite(off).all():
            self.keep(number, off)
        return moved

    def part(self, number: int, cut: Callable[[Array], Array]) -> Array:
        """What is cut from a run, without making all of it where it is kept."""
        off = self.off(number)
        return cut(self(number)) if off is None else cut(self.value) + cut(off)

    def off(self, number: int) -> Array | None:
        off = self.kept.get(number)
        if off is not None:
            self.together.remove((ref(self), number))
            self.together.append((ref(self), number))
        return off

    def keep(self, number: int, off: Array) -> None:
        self.kept[number] = off
        self.together.append((ref(self), number))
        while len(self.together) > LARGE_RUNS:
            oldest, run = self.together.popleft()
            runs = oldest()
            if runs is not None:
                runs.kept.pop(run, None)


class Later(Known):
    """A value that is computed when it is first asked for: many large ones never are."""

    def __init__(self, compute: Callable[[], Known]) -> None:
        object.__setattr__(self, "compute", compute)

    compute: Callable[[], Known]

    @cached_property
    def known(self) -> Known:
        return self.compute()

    def with_runs_kept(self) -> Known:
        return self

    @property
    def value(self) -> Array:
        return self.known.value

    @property
    def run(self) -> Callable[[int], Array]:
        return self.known.run

    @property
    def before(self) -> int:
        return self.known.before


@dataclass(frozen=True)
class Factors:
    """The rounding that a program was shown to do to the factors of a product, for that alone."""

    unit: float = 0.0
    """How far off each may be, as a part of it; 0 where each is known to its last digit."""
    short: Callable[[Array], Array] | None = None
    """How each is rounded, where that is known (TF32)."""
    name: str = ""
    """What they are rounded to."""

    def round(self, op: Op, inputs: Sequence[Array]) -> list[Array]:
        """The inputs of an op as it multiplies them: no bias that is added."""
        if self.short is None or not isinstance(op, PRODUCTS):
            return [*inputs]
        return [*(self.short(x) for x in inputs[:MULTIPLIED]), *inputs[MULTIPLIED:]]


AS_THEY_ARE = Factors()


def exactly(value: Array) -> Known:
    """A value that every program has."""
    return Known(value, lambda _: value)


def drawn(name: str, run: int) -> Array:
    """Numbers from [−1, 1] for one array in one run, to be repeated over it."""
    start = crc32(f"{name} {run}".encode()) % NOISE.size
    return NOISE_TWICE[start : start + NOISE.size]


def noise(name: str, run: int, shape: tuple[int, ...]) -> Array:
    size = prod(shape)
    numbers = drawn(name, run)
    return numbers[:size].reshape(shape) if size <= NOISE.size else np.resize(numbers, shape)


def round_at_random(value: Array, unit: float, name: str, run: int, *, in_place: bool = False) -> Array:
    if value.dtype == bool or not unit:
        return value
    flat = value.reshape(-1)
    factors = drawn(name, run)[: flat.size] * unit
    factors += 1.0
    if in_place and value.dtype == np.float64 and value.flags.c_contiguous:
        out = flat
    else:
        out = factors if flat.size <= NOISE.size else np.empty(flat.size)
    for start in range(0, flat.size, NOISE.size):  # in parts that stay in the processor's cache
        part = flat[start : start + NOISE.size]
        np.multiply(part, factors[: part.size], out=out[start : start + NOISE.size])
    return out.reshape(value.shape)


def carry_rounding(
    op: Op,
    inputs: Sequence[Known],
    unit: float,
    name: str = "",
    factors: Factors = AS_THEY_ARE,
    of_sums: float = FLOAT32.unit,
    value: Array | None = None,
) -> Known:
    """The result of an op on numbers that are known so well, as a step of this name.

    `unit` is the relative error of one rounding, `of_sums` the largest that one in a sum has; `value` is
    the result itself, where it is known.
    """
    numbers = sum(input_.numbers for input_ in inputs)
    if factors.short is not None and not factors.unit and not getattr(op, "exact", False):
        inputs = [*map(exactly, factors.round(op, [input_.value for input_ in inputs]))]
    factor = factors.unit if isinstance(op, PRODUCTS) else 0.0

    def run(number: int) -> Array:
        drawn = [input_.run(number) for input_ in inputs]
        return run_rounded(op, drawn, unit, name=name, number=number, factor=factor, of_sums=of_sums)

    if value is None:
        with np.errstate(all="ignore"):
            value = op.apply(*factors.round(op, [input_.value for input_ in inputs]))
    # What is small is kept: every step that reads it runs it again.
    return Known(value, cache(lambda number: alone(run(number))) if value.size < LARGE else run, numbers)


def alone(array: Array) -> Array:
    """The array, without the memory of a larger one of which it is a part: some rows of Q, say."""
    return array.copy(order="K") if is_part(array) else array


def is_part(array: Array) -> bool:
    return isinstance(array.base, np.ndarray) and array.base.size > array.size


@np.errstate(all="ignore")
def run_rounded(
    op: Op,
    inputs: Sequence[Array],
    unit: float,
    name: str,
    number: int,
    factor: float = 0.0,
    of_sums: float = FLOAT32.unit,
) -> Array:
    """The result of an op in one run of Monte Carlo arithmetic, its `inputs` those of that run."""
    if getattr(op, "exact", False):  # numbers in other places
        return op.apply(*inputs)
    coarse = getattr(op, "unit", 0.0)
    unit = max(unit, coarse)
    terms = max((x.shape[-1] for x in inputs if x.ndim), default=1)
    sums = min(unit, of_sums) * sqrt(terms)
    inside = max(sums if sums > LITTLE * unit else 0.0, coarse, factor)
    if isinstance(op, Rotate):
        inside = max(inside, sqrt(2) * unit)  # products with cos and sin, which were rounded themselves
    if isinstance(op, (Softmax, SinkSoftmax)):
        unit = sqrt(3) * unit  # exp and its sum are rounded, too
    moved = [round_at_random(x, inside, f"{name} {at}", number) for at, x in enumerate(inputs)]
    result = op.apply(*moved)
    is_own = result.flags.owndata and all(result is not x for x in moved)
    result = round_at_random(result, unit + sums, name, number, in_place=is_own)
    if getattr(op, "start", None) is None:
        return result
    return result + displace(op, moved, result, unit, name=name, run=number)


def round_weights(known: Known, name: str, precision: Precision) -> Known:
    """Weights as they are rounded to so few bits before they are multiplied by values.

    The largest of a row is anywhere between one and two times a power of two of the type, as it is in
    programs that multiply them by a number first; small ones lose their digits one by one.
    """

    def run(number: int) -> Array:
        weights = known.run(number)
        top = weights.max(axis=-1, keepdims=True)
        top = np.where(top > 0, top, 1.0)
        begins = 0.75 + noise(f"{name} in few bits", number, top.shape) / 4
        return np.asarray(round_to(weights / top * begins, precision) * top / begins)

    return replace(known, run=run)


def displace(op: Any, inputs: Sequence[Array], result: Array, unit: float, name: str, run: int) -> Any:
    """The error from rounding a position, of an op that has any: sin and cos of large angles are far off.

    Nobody rounds positions more coarsely than float32.
    """
    start = op.start
    places = getattr(op, "places", ())
    if places:
        farthest = np.max(places)
        after = {"places": tuple(tuple(map(tuple, part)) for part in (np.array(places) + 1).tolist())}
    elif isinstance(start, tuple):
        farthest = result.shape[-2] + max(start)
        after = {"start": tuple(place + 1 for place in start)}
    else:
        farthest = result.shape[-2] + np.max(start)
        after = {"start": start + 1}
    by_one = replace(op, **after).apply(*inputs) - result
    return by_one * (min(unit, FLOAT32.unit) * farthest) * noise(f"{name} at", run, result.shape)


def squared_distance(moved: Array, value: Array) -> Array:
    """(moved − value)², 0 where both are the same ∞ or NaN, ∞ where only one is."""
    squared = np.subtract(moved, value)
    np.square(squared, out=squared)
    np.maximum(squared, np.finfo(float).tiny, out=squared, where=moved != value)  # or it would underflow
    strange = ~np.isfinite(squared)
    if strange.any():
        a = moved[strange]
        b = value[strange]
        squared[strange] = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.inf)
    return squared


def pool_scatter(squares: Array, value: Array, runs: int) -> Array:
    """The scatter of each number (..., row, column), by the mean squares of its row, column and matrix."""
    if squares.ndim < 2:
        return pool_scatter(squares[None], value[None], runs)[0]
    told = np.isfinite(squares) & (squares > 0)  # hidden cells are exact and say nothing of others
    known = np.where(told, squares, 0.0)
    count = told.sum(axis=-1, keepdims=True)
    row = known.sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    column = known.sum(axis=-2, keepdims=True) / np.maximum(told.sum(axis=-2, keepdims=True), 1)
    numbers = told.sum(axis=(-1, -2), keepdims=True)
    matrix = known.sum(axis=(-1, -2), keepdims=True) / np.maximum(numbers, 1)
    size = np.where(told, np.square(value), 0.0)
    top = size.max(axis=(-1, -2), keepdims=True)
    size = size / np.where(top > 0, top, 1.0)
    weight = np.square(size).sum(axis=(-1, -2), keepdims=True)
    share = (known * size).sum(axis=(-1, -2), keepdims=True) / np.where(weight > 0, weight, 1.0)
    scatter = np.maximum(row * few(runs * count), share * size)
    scatter = np.maximum(scatter, row * column / np.where(matrix > 0, matrix, 1.0) * few(runs * numbers))
    return np.sqrt(np.where(np.isfinite(squares), np.where(told, scatter, 0.0), np.inf))


def few(numbers: Array) -> Array:
    """The factor by which the square of a scatter is widened that so few numbers tell.

    The quantile of Student's t beside that of the normal distribution at `FACTOR`, by the
    approximation of Wallace (1959).
    """
    freedom = np.clip(numbers, 4, None).astype(float)
    z = FACTOR * (8 * freedom + 3) / (8 * freedom + 1)
    return freedom * np.expm1(np.square(z) / freedom) / FACTOR**2


def boundless(error: Array) -> Array:
    return np.isinf(error)


def anything(known: Known, where: Array) -> Known:
    return replace(known, run=lambda number: np.where(where, np.inf, known.run(number)))


def either(where: Array, one: Known, other: Known) -> Known:
    return Known(
        np.where(where, one.value, other.value),
        lambda number: np.where(where, one.run(number), other.run(number)),
    )
