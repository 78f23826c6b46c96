"""Products that loops of Python work out number by number, from rows and columns of larger matrices.

    score = sum(q[i][h * d + c] * k[j][h * d + c] for c in range(d))

No expression of the program holds the rows of K of one head: they are sought in the matrices that it has,
by the numbers that came out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from attnctl.sources.program.relations import HIDDEN, Array, Labels, is_softmax_of, softmax

LARGEST = 2**12
"""Numbers of a matrix that is searched: programs with such loops are small."""

MOST_TRIED = 2**18
"""Numbers that are worked out for a pair of matrices."""

FEWEST = 3
"""Numbers by which a product with an unknown factor is told: any two numbers are nearly one."""

CLOSE, CLOSE_IN_SINGLE = 1e-12, 1e-5
"""How far numbers of a product may be off, as a share of the largest: loops compute in double as a rule."""

MOST_OF_ONE = 0.9999
"""A weight above this says next to nothing about the other keys."""

Pool = Mapping[int, Array]
"""The matrices and vectors that a loop may have read, by their events."""

ALL = slice(None)


class Cut(NamedTuple):
    """Rows and columns of a matrix that a loop read; of a vector all of it."""

    n: int
    rows: slice = ALL
    columns: slice = ALL


class LoopProduct(NamedTuple):
    """Two parts of matrices, along which axes they were multiplied, and times what."""

    left: Cut
    right: Cut
    axes: tuple[Labels, Labels, Labels]
    factor: float

    @property
    def width(self) -> int | None:
        """The columns of a head, where it reads some of several heads."""
        columns = self.left.columns
        return None if columns.stop is None else columns.stop - columns.start


class LoopOutput(NamedTuple):
    """A row of output by the query, the keys and the values that gave it."""

    query: Cut
    keys: int
    values: int
    scores: Array
    factor: float


SCORES_OF_ONE = ("d",), ("m", "d"), ("m",)
SCORES = ("n", "d"), ("m", "d"), ("n", "m")
MIXED_ONE = ("m",), ("m", "d"), ("d",)
MIXED = ("n", "m"), ("m", "d"), ("n", "d")


def product_of_loop(value: Array, pool: Pool, longest: LoopProduct | None = None) -> LoopProduct | None:
    """What a vector or a matrix is a product of; `longest` is what the longest one of its expression is."""
    small = small_of(pool)
    if value.ndim == 1:
        return scores_of_one(value, small, longest) or values_of_one(value, small)
    if value.ndim == 2 and value.size >= FEWEST:
        return of_matrices(value, small)
    return None


def small_of(pool: Pool) -> Pool:
    return {n: array.astype(float) for n, array in pool.items() if array.size <= LARGEST}


def pairs(pool: Pool) -> Iterator[tuple[int, int]]:
    """Two of the pool, the second with rows."""
    for left in pool:
        for right in pool:
            if left != right and pool[right].ndim == 2:
                yield left, right


# --- one query with the keys of a head ---


def scores_of_one(value: Array, pool: Pool, longest: LoopProduct | None) -> LoopProduct | None:
    """A row of one matrix, or a vector, with as many rows of another as there are numbers."""
    count = len(value)
    if longest is None and count < FEWEST:
        return None
    factor = None if longest is None else longest.factor

    for left, right in pairs(pool):
        a = np.atleast_2d(pool[left])
        b = pool[right]
        if len(b) < count:
            continue
        for width in widths(a.shape[1], b.shape[1], longest):
            heads_a = a.reshape(len(a), -1, width)
            heads_b = b.reshape(len(b), -1, width)
            if a.size * b.size > MOST_TRIED * width**2:
                continue
            # (query, head, head of the keys, key)
            scores = np.einsum("iad,jbd->iabj", heads_a, heads_b)
            windows = np.lib.stride_tricks.sliding_window_view(scores, count, axis=-1)
            factors = factors_of(windows, value, factor)
            for query, head, of_keys, first in np.argwhere(factors > 0):
                return LoopProduct(
                    left=Cut(left, slice(query, query + 1), columns_of(head, width)),
                    right=Cut(right, slice(first, first + count), columns_of(of_keys, width)),
                    axes=SCORES_OF_ONE,
                    factor=float(factors[query, head, of_keys, first]),
                )
    return None


def scores_behind(weights: Array, pool: Pool) -> tuple[Array, LoopProduct] | None:
    """The scores of one query whose exponentials these are, times any number; and their product."""
    if weights.ndim != 1 or len(weights) <= FEWEST or not weights.min() > 0:
        return None
    small = small_of(pool)
    for left, right in pairs(small):
        a = np.atleast_2d(small[left])
        b = small[right]
        if len(b) != len(weights) or a.shape[1] != b.shape[1] or b.shape[1] < 2:
            continue
        for query in range(len(a)):
            scores = b @ a[query]
            if is_softmax_of(weights, scores):
                factor = slope(scores, np.log(weights))
                row = Cut(left, slice(query, query + 1))
                return factor * scores, LoopProduct(row, Cut(right), SCORES_OF_ONE, factor)
    return None


# --- weights with the values of a head ---


def values_of_one(value: Array, pool: Pool) -> LoopProduct | None:
    """Weights over some rows of V, of which the columns of one head are read."""
    width = len(value)
    if width < 2:
        return None
    for left, right in pairs(pool):
        weights = pool[left]
        v = pool[right]
        if weights.ndim != 1 or v.shape[1] % width or not 0 < len(weights) <= len(v):
            continue
        rows = np.lib.stride_tricks.sliding_window_view(v, len(weights), axis=0)
        mixed = (rows @ weights).reshape(len(rows), -1, width)
        is_told = width >= FEWEST and len(weights) > 1
        factors = factors_of(mixed, value, None if is_told else 1.0)
        for first, head in np.argwhere(factors > 0):
            return LoopProduct(
                left=Cut(left),
                right=Cut(right, slice(first, first + len(weights)), columns_of(head, width)),
                axes=MIXED_ONE,
                factor=float(factors[first, head]),
            )
    return None


# --- all queries of a head ---


def of_matrices(value: Array, pool: Pool) -> LoopProduct | None:
    """Columns of one matrix with those of another, or a matrix of weights with columns of V."""
    queries, count = value.shape
    for left, right in pairs(pool):
        a = pool[left]
        b = pool[right]
        if a.ndim != 2 or len(a) != queries:
            continue
        product = None
        if len(b) == count:
            product = scores_of_head(value, Cut(left), Cut(right), pool)
        if product is None and a.shape[1] == len(b) and b.shape[1] % count == 0:
            product = values_of_head(value, Cut(left), Cut(right), pool)
        if product is not None:
            return product
    return None


def scores_of_head(value: Array, left: Cut, right: Cut, pool: Pool) -> LoopProduct | None:
    a = pool[left.n]
    b = pool[right.n]
    for width in widths(a.shape[1], b.shape[1], None):
        if a.size * b.size > MOST_TRIED * width**2:
            continue
        heads_a = a.reshape(len(a), -1, width)
        heads_b = b.reshape(len(b), -1, width)
        scores = np.einsum("iad,jbd->abij", heads_a, heads_b)
        factors = factors_of(scores.reshape(*scores.shape[:2], -1), value.reshape(-1), None)
        for head, of_keys in np.argwhere(factors > 0):
            return LoopProduct(
                left=left._replace(columns=columns_of(head, width)),
                right=right._replace(columns=columns_of(of_keys, width)),
                axes=SCORES,
                factor=float(factors[head, of_keys]),
            )
    return None


def values_of_head(value: Array, left: Cut, right: Cut, pool: Pool) -> LoopProduct | None:
    queries, width = value.shape
    mixed = (pool[left.n] @ pool[right.n]).reshape(queries, -1, width).swapaxes(0, 1)
    factors = factors_of(mixed.reshape(len(mixed), -1), value.reshape(-1), None)
    for (head,) in np.argwhere(factors > 0):
        of_values = right._replace(columns=columns_of(head, width))
        return LoopProduct(left, of_values, MIXED, factor=float(factors[head]))
    return None


# --- an output whose weights were never kept ---


def output_of_loop(value: Array, pool: Pool) -> LoopOutput | None:
    """Q, K and V of which a row of output was made at once, as a running softmax does it.

    Nothing in between is there to be judged: only what comes out right is recognised.
    """
    small = small_of(pool)
    matrices = [n for n, array in small.items() if array.ndim == 2]
    for query, keys in pairs(small):
        for values in matrices:
            if values in {query, keys}:
                continue
            output = output_of(value, (query, keys, values), small)
            if output is not None:
                return output
    return None


def output_of(value: Array, operands: tuple[int, int, int], pool: Pool) -> LoopOutput | None:
    query, keys, values = operands
    q = np.atleast_2d(pool[query])
    k = pool[keys]
    v = pool[values]
    if q.shape[1] != k.shape[1] or len(k) != len(v) or v.shape[1] != len(value) or len(k) < FEWEST:
        return None
    if (v == v[:1]).all():
        return None  # whatever the weights are, that row comes out

    for factor in (1 / np.sqrt(k.shape[1]), 1.0):
        scores = factor * q @ k.T
        weights = softmax(scores)
        apart = np.abs(weights @ v - value).max(axis=1)
        row = int(apart.argmin())
        is_mixed = weights[row].max() < MOST_OF_ONE  # a row of V by itself may be anybody's
        if is_mixed and apart[row] <= closeness(value) * np.abs(value).max():
            return LoopOutput(Cut(query, slice(row, row + 1)), keys, values, scores[row], float(factor))
    return None


# --- numbers ---


def slope(x: Array, y: Array) -> float:
    """The factor of the line through points."""
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def columns_of(head: int, width: int) -> slice:
    return slice(int(head) * width, (int(head) + 1) * width)


def widths(left: int, right: int, longest: LoopProduct | None) -> list[int]:
    """The numbers of columns that a head may have in matrices of so many, the largest first."""
    common = int(np.gcd(left, right))
    candidates = [width for width in range(common, 1, -1) if common % width == 0]
    if longest is not None and longest.width is not None:
        return [width for width in candidates if width == longest.width]
    return candidates


def factors_of(made: Array, value: Array, factor: float | None) -> Array:
    """The factors by which arrays (…, numbers) become this one, where it is not hidden; 0 for none."""
    seen = np.isfinite(value) & (value > HIDDEN)
    largest = np.abs(value[seen]).max(initial=0.0)
    if seen.sum() < min(FEWEST, len(value)) or largest == 0:
        return np.zeros(made.shape[:-1])

    made = made[..., seen]
    value = value[seen]
    factors = np.full(made.shape[:-1], factor or 0.0)
    if factor is None:
        squares = (made * made).sum(-1)
        factors = (made @ value) / np.maximum(squares, 1e-300)
    apart = np.abs(made * factors[..., None] - value).max(-1)
    return np.where((apart <= closeness(value) * largest) & (factors > 0), factors, 0.0)


def closeness(value: Array) -> float:
    return CLOSE if value.dtype == np.float64 else CLOSE_IN_SINGLE
