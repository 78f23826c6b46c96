"""Two arrays, number by number: how far apart, where, and how many beyond the tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import Tolerance
from attnctl.math import Array

Index = tuple[int, ...]

Peak = tuple[float, int | None]
"""The largest of the numbers so far, and where it stands."""

NO_PEAK: Peak = (0.0, None)

CHUNK = 1 << 14
"""Numbers that are compared at a time: few enough to stay in the processor's cache."""

USUAL = Tolerance()
"""What follows from the types alone."""


@dataclass(frozen=True)
class Measure:
    """Two arrays of one shape, measured against each other.

    `at` and `max_rel_at` say where the largest differences stand, None where all is equal to the
    bit. `hidden_in_a` and `hidden_in_b` count the numbers that are −∞ on that side alone, `nan`
    those that differ because of a NaN.
    """

    max_abs: float
    max_rel: float
    at: Index | None
    differing: int
    of: int
    max_rel_at: Index | None = None
    hidden_in_a: int = 0
    hidden_in_b: int = 0
    nan: int = 0


def measure_difference(a: Array, b: Array, tolerance: Tolerance) -> Measure:
    """Compare two arrays of one shape, a chunk at a time."""
    rtol, atol = tolerance.of(a, b)
    largest = relative = NO_PEAK
    counts = np.zeros(4, dtype=np.int64)
    with np.errstate(all="ignore"):
        for start, x, y in chunks(a, b):
            gap, size = absolute_difference(x, y, equal_nan=tolerance.equal_nan), np.abs(wide(y))
            largest = higher(largest, gap, start)
            differs = gap > size * rtol + atol
            finite = bool(np.isfinite(gap.sum()))
            if not finite:
                differs |= ~np.isfinite(gap)
                counts[1:] += strange(wide(x), wide(y), differs)
            counts[0] += np.count_nonzero(differs)
            relative = higher(relative, ratio(gap, size, finite=finite), start)

    def index(flat: int | None) -> Index | None:
        return None if flat is None else tuple(map(int, np.unravel_index(flat, a.shape)))

    (max_abs, at), (max_rel, rel_at) = largest, relative
    differing, *others = map(int, counts)
    return Measure(max_abs, max_rel, index(at), differing, a.size, index(rel_at), *others)


def higher(peak: Peak, values: Array, start: int) -> Peak:
    """The peak, or the largest of more numbers, the first of them at `start`; NaN is above all."""
    at = int(values.argmax())  # of the first NaN, where there is one
    value = float(values[at])
    return (value, start + at) if not isnan(peak[0]) and (isnan(value) or value > peak[0]) else peak


def differing(a: Array, b: Array, tolerance: Tolerance) -> Array:
    """Which numbers of two arrays of one shape differ, as `measure` counts them."""
    rtol, atol = tolerance.of(a, b)
    with np.errstate(all="ignore"):
        gap = absolute_difference(a, b, equal_nan=tolerance.equal_nan)
        return (gap > np.abs(wide(b)) * rtol + atol) | ~np.isfinite(gap)


def chunks(a: Array, b: Array) -> Iterator[tuple[int, Array, Array]]:
    """The stretches in which the arrays are not bit-for-bit identical, each with its start."""
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, prod(a.shape), CHUNK):
        x, y = flat_a[start : start + CHUNK], flat_b[start : start + CHUNK]
        if not (x == y).all():
            yield start, x, y


def absolute_difference(a: Array, b: Array, *, equal_nan: bool) -> Array:
    """|a − b| in float64; equal infinities are 0 apart, and NaNs where they count as equal.

    Whole numbers may differ where the nearest floats do not.
    """
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return np.array([abs(x - y) for x, y in pairs], dtype=np.float64).reshape(a.shape)
    x, y = wide(a), wide(b)
    gap: Array = np.abs(x - y)
    if np.isnan(gap.sum()):
        gap[x == y] = 0.0
        if equal_nan:
            gap[np.isnan(x) & np.isnan(y)] = 0.0
    return gap


def wide(array: Array) -> Array:
    return array.astype(np.float64, copy=False)


def ratio(gap: Array, size: Array, *, finite: bool) -> Array:
    """|x − y| / |y|; nothing is a finite part of 0."""
    out = gap / size
    out[gap == 0] = 0.0
    if not finite:
        out[np.isinf(gap)] = np.inf
    return out


def strange(x: Array, y: Array, differs: Array) -> tuple[int, int, int]:
    """Count the numbers that differ because x is −∞, because y is, because either is NaN."""
    nan = differs & (np.isnan(x) | np.isnan(y))
    plain = differs & ~nan
    hidden_x, hidden_y = plain & np.isneginf(x), plain & np.isneginf(y)
    return int(hidden_x.sum()), int(hidden_y.sum()), int(nan.sum())
