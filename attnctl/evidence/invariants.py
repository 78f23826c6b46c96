"""A step's rows, all together, held to what is true of them whatever their numbers were rounded to.

An op says what that is (`Op.invariants`). One number may be off by as much as rounding allows; what all are
off by together averages out in a decent program and does not in one that adds 1e-3 to a sum. So rows are
held to their own rounding one by one, by their root mean square, and by their mean, and by how that changes
from the first query to the last.

Roundings of equal numbers are equal: weights that are all near 1/3 are all off the same way. What counts as
apart are as many numbers as there are different ones, each by its share of the whole.
"""

from __future__ import annotations

from math import floor, log10, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR, root_mean_square, times_scatter, typical
from attnctl.evidence.precision import FLOAT32, Precision, different, to_float64
from attnctl.math import Array
from attnctl.math.ops import Op
from attnctl.math.ops.base import Invariant, Invariants

UNIFORM = 1 / sqrt(3)
"""The scatter of a rounding, in units of the most that it may be."""

CUT = 1 / 8
"""Units of float32 that a sum may lose with each term: those of blocks of eight, cut off on some GPUs."""

LOGARITHM = 64
"""Units that a row may be off whose numbers are exp(score − log-sum-exp), which was rounded itself."""

MOST_APART = 64
"""Rows that count as apart: sums of rows are rounded, too, and those of like rows alike."""

NEAR_LEAST = 4
"""The multiple of a type's smallest number up to which the least may be, where smaller ones became 0."""

AT_ONCE = 2**18
"""Numbers of a step that are widened at a time."""

LEAST_SHOWN = 1e-9
"""The least distance from what is right that is spelled out."""


@dataclass(frozen=True)
class Broken:
    invariant: Invariant
    precision: Precision

    def __str__(self) -> str:
        """Completes "Its ": "512 rows sum to between 0.97 and 0.99 (0.98 on average) instead of 1, …"."""
        found = self.invariant.found[np.isfinite(self.invariant.found)]
        meant = float(np.nanmedian(np.broadcast_to(self.invariant.right, self.invariant.found.shape)))
        statistics = [float(summary(found)) for summary in (np.min, np.max, np.mean)]
        digits = max(
            4, 2 - floor(log10(max(*(abs(statistic - meant) for statistic in statistics), LEAST_SHOWN)))
        )
        shown = [f"{statistic:.{digits}g}" for statistic in statistics]
        least, most, mean = shown
        span = least if len({*shown}) == 1 else f"between {least} and {most} ({mean} on average)"
        rows = f"{found.size:,} rows {self.invariant.words} {span} instead of {meant:g}"
        return f"{rows}, more than rounding to {self.precision.name} explains"


def broken_by(op: Op, found: Array, precision: Precision) -> Broken | None:
    """The invariant of an op that the rows of its result break, if there is one."""
    if type(op).invariants is Op.invariants or not found.size:
        return None
    result = found if found.dtype.kind == "f" else to_float64(found)
    for invariant in invariants_of(op, result):
        if breaks(invariant, result, precision):
            return Broken(invariant, precision)
    return None


def invariants_of(op: Op, result: Array) -> Invariants:
    """Those of all rows in float64, some rows at a time, so that no n × n numbers are widened at once."""
    if result.ndim < 2:
        yield from op.invariants(to_float64(result))
        return
    rows = max(1, AT_ONCE * result.shape[-2] // result.size)
    blocks = (to_float64(result[..., at : at + rows, :]) for at in range(0, result.shape[-2], rows))
    for parts in zip(*(list(op.invariants(block)) for block in blocks), strict=True):
        arrays = ((part.found, np.broadcast_to(part.right, part.found.shape), part.size) for part in parts)
        joined = (np.concatenate(several, axis=-1) for several in zip(*arrays, strict=True))
        yield Invariant(parts[0].words, *joined)


def like(op: Op, found: Array, value: Array, precision: Precision) -> bool:
    """True where rounding explains how far the rows of a result are from those of another program."""
    for own, other in zip(op.invariants(found), op.invariants(value), strict=True):
        as_exact = other.found == other.right
        size = np.where(as_exact, own.size, np.maximum(own.size, 1))  # other programs round what is 1
        if breaks(own._replace(right=other.found, size=size), found, precision):
            return False
    return True


def breaks(invariant: Invariant, result: Array, precision: Precision) -> bool:
    off = invariant.found - invariant.right
    told = np.isfinite(off)
    scatter = UNIFORM * precision.unit * np.broadcast_to(invariant.size, off.shape)[told]
    slack = max(LOGARITHM, CUT * result.shape[-1]) * min(precision.unit, FLOAT32.unit)
    slack = slack + lost_below(result, precision)[told]
    off = off[told]
    beyond = times_scatter(np.abs(off), scatter, slack)
    apart = int(min(MOST_APART, off.size, different(result, precision)))
    if (beyond > FACTOR).any() or root_mean_square(beyond) > typical(apart):
        return True
    place = np.broadcast_to(np.linspace(-1.0, 1.0, told.shape[-1]), told.shape)[told]
    return any(drifts(off, scatter, slack, along, apart) for along in (np.ones(off.shape), place))


def drifts(off: Array, scatter: Array, slack: Array, along: Array, apart: int) -> bool:
    """True where rows are off together in one direction, by more than chance and what sums may lose."""
    total, size = (along * off / scatter).sum(), float(np.square(along).sum())
    lost = (np.abs(along) * slack / scatter).sum()
    return bool(size and (abs(total) - lost) / size > FACTOR / sqrt(apart))


def lost_below(result: Array, precision: Precision) -> Array:
    """What each row may have lost in numbers too small for their type: half a last digit each, or all."""
    zeros = result.shape[-1] - np.count_nonzero(result, axis=-1)
    least = float(np.min(result, where=result > 0, initial=np.inf))
    flushed = precision.smallest <= least < NEAR_LEAST * precision.smallest
    return np.asarray(zeros * precision.smallest * (1.0 if flushed else precision.unit))
