"""A recorded step beside what it should be, number by number; and its rows, all together."""

from __future__ import annotations

from math import floor, log10, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR, Strictness, root_mean_square, spread, times_scatter, typical
from attnctl.evidence.precision import FLOAT32, Precision, different, to_float64
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import Known, boundless
from attnctl.math import Array
from attnctl.math.ops import Op
from attnctl.math.ops.base import Invariant, Invariants

NOTHING = 1e-6
"""The part of a last place that is nothing: 0.3 − 0.2 is not quite 0.1."""


BEYOND_DOUBT = 1e3
"""The multiple of what is allowed that a number is off when it is wrong, however few runs were drawn."""


@dataclass(frozen=True)
class Gap:
    """The largest difference of a recorded step from the right numbers, and its place."""

    largest: float
    allowed: float
    """What that number may be off by."""
    at: tuple[int, ...]
    found: float
    expected: float
    differing: int
    nan: int
    """How many of those that differ are NaN and should not be."""
    of: int
    filled: int
    """How many are filled in at all."""


@dataclass(frozen=True)
class Judged:
    found: Array
    expected: Array
    gap: Array
    """|found − expected|."""
    allowed: Array
    wrong: Array
    blurred: float
    """What all numbers may be off by, as a part of how far they vary; ∞ where any number would do."""
    beyond: float
    """How many times their scatter all numbers are off, as a root mean square."""

    def summarize(self, blank: Array | None = None) -> Gap:
        """The largest difference, of wrong numbers where there are any; none of a blank cell."""
        gap = self.gap
        wrong = self.wrong
        filled = gap.size
        if blank is not None:
            wrong = wrong & ~blank
            gap = np.where(blank, 0.0, gap)
            filled = int((~blank).sum())

        count = int(wrong.sum())
        among = np.where(wrong, gap, -1.0) if count else gap
        is_nan = np.isnan(among)
        # A NaN is shown where there is nothing else: above what is right (−1), below any difference.
        ranked = np.where(is_nan, -0.5 if count else -1.0, among)
        cell = tuple(int(place) for place in np.unravel_index(int(ranked.argmax()), ranked.shape))

        return Gap(
            largest=float(gap[cell]) if count or not is_nan[cell] else 0.0,
            allowed=float(self.allowed[cell]),
            at=cell,
            found=float(self.found[cell]),
            expected=float(self.expected[cell]),
            differing=count,
            nan=int((wrong & is_nan).sum()),
            of=gap.size,
            filled=filled,
        )


def judge_step(record: Record, name: str, expected: Known, rows: int | None = None) -> Judged:
    """A recorded step beside what it should be, number by number; `rows` of the whole where it is part."""
    rows = rows or expected.value[..., 0].size
    most = typical(rows)
    judged = judged_by(record, name, expected, expected.scatter, most)

    if judged.beyond > most:
        # Equal numbers are off alike: what counts as apart is how many different ones there are.
        apart = different(record.value(name), record.precision(name))
        if apart < rows:
            most = typical(int(apart))
            judged = judged_by(record, name, expected, expected.scatter, most)

    # A few stand out where all together are right. What is that far off needs no more runs to tell.
    is_in_doubt = (judged.gap <= BEYOND_DOUBT * judged.allowed)[judged.wrong].any()
    if judged.beyond <= most and is_in_doubt:
        return judged_by(record, name, expected, expected.own_scatter, most)
    return judged


def judged_by(record: Record, name: str, expected: Known, scatter: Array, most: float) -> Judged:
    """Judge a step of which right programs scatter so, and all together by at most so many times that."""
    found = record.value(name)
    value = expected.value
    precision = record.precision(name)
    strictness = record.strictness

    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    error = expected.error_by(scatter)
    slack = precision.smallest + strictness.last_place
    if strictness.by_hand:
        value = by_hand(found, expected, strictness.decimals or 0)
        # What a person may write is a range already, and its last place is all that is left.
        error = np.where(boundless(error), np.inf, 0.0)
        slack = slack * (1 + NOTHING)

    allowed = strictness.allowed(value, error + precision.unit * size + slack)
    gap = np.abs(found - value)
    is_told = np.isfinite(gap) & np.isfinite(scatter) & (scatter > 0)
    beyond = times_scatter(gap[is_told], scatter[is_told], slack)
    # One number that is far off is but one wrong number, and speaks against no other.
    if not strictness.told and root_mean_square(beyond[beyond <= FACTOR]) > most:
        allowed = np.where(is_told, np.minimum(allowed, most * scatter + slack), allowed)

    is_same = (found == value) | (np.isnan(value) & np.isnan(found))
    is_fine = (gap <= allowed) | is_same | boundless(error)
    # Too large for its type: infinite, as it should be.
    overflows = np.abs(value) + allowed > precision.largest
    is_fine |= np.isinf(found) & overflows & (np.sign(found) == np.sign(value))
    is_hidden = np.isneginf(value)
    if is_hidden.any():
        is_fine |= is_hidden & vanishes(found, is_hidden, precision.vanishing)

    # A gap that means nothing is not shown.
    gap = np.where(is_fine & (~np.isfinite(gap) | boundless(error)), 0.0, gap)
    blurred = blur_of(strictness, value[is_told], scatter[is_told], value[..., 0].size)
    if (
        value.size and (boundless(error) & ~is_same).all()
    ):  # a yes to numbers that nothing was compared with
        blurred = np.inf
    return Judged(
        found,
        expected.value,
        gap,
        allowed=allowed,
        wrong=~is_fine,
        blurred=blurred,
        beyond=root_mean_square(beyond),
    )


def by_hand(found: Array, expected: Known, decimals: int) -> Array:
    """The right number that is nearest to what was found.

    That is the one worked out without rounding and then rounded, or any between those that other ways
    give, whose last place the person may have rounded or cut.
    """
    rounded = np.round(expected.run(0), decimals)
    between = np.clip(found, *expected.reach)
    is_nearer = np.abs(found - between) < np.abs(found - rounded)
    return np.where(is_nearer, between, rounded)


def blur_of(strictness: Strictness, numbers: Array, scatter: Array, rows: int) -> float:
    """The error allowed to the numbers of so many rows, as a part of their spread."""
    blur = typical(rows) * root_mean_square(scatter) + strictness.last_place
    return 0.0 if strictness.told else blur / spread(numbers)


def wrong_numbers(record: Record, name: str, expected: Known) -> Array:
    """Which numbers of a step rounding does not explain, but for those still to be filled in."""
    return judge_step(record, name, expected).wrong & ~record.blank(name)


def vanishes(found: Array, hidden: Array, limit: float) -> Array:
    """True where a finite number stands for −∞ and softmax makes 0 of it all the same."""
    largest_seen = np.where(hidden, -np.inf, found).max(axis=-1, keepdims=True)
    return found - largest_seen < limit


# --- rows, held to what is true of them whatever their numbers were rounded to ---
#
# An op says what that is (`Op.invariants`). One number may be off by as much as rounding allows; what all
# are off by together averages out in a decent program and does not in one that adds 1e-3 to a sum. So rows
# are held to their own rounding one by one, by their root mean square, and by their mean, and by how that
# changes from the first query to the last.
#
# Roundings of equal numbers are equal: weights that are all near 1/3 are all off the same way. What counts
# as apart are as many numbers as there are different ones, each by its share of the whole.

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
        every = self.invariant.found
        found = every[np.isfinite(every)]
        right = float(np.nanmedian(np.broadcast_to(self.invariant.right, every.shape)))
        statistics = [float(found.min()), float(found.max()), float(np.mean(found))]

        # Two digits of the farthest from what is right, and no fewer than four in all.
        farthest = max(abs(statistic - right) for statistic in statistics)
        digits = max(4, 2 - floor(log10(max(farthest, LEAST_SHOWN))))
        least, most, mean = (f"{statistic:.{digits}g}" for statistic in statistics)
        span = f"between {least} and {most} ({mean} on average)"
        if least == most == mean:
            span = least

        rows = f"{found.size:,} rows {self.invariant.words} {span} instead of {right:g}"
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

    all_rows = result.shape[-2]
    rows = max(1, AT_ONCE * all_rows // result.size)
    of_blocks = []
    for first in range(0, all_rows, rows):
        block = to_float64(result[..., first : first + rows, :])
        of_blocks.append(list(op.invariants(block)))

    for parts in zip(*of_blocks, strict=True):
        yield Invariant(
            parts[0].words,
            np.concatenate([part.found for part in parts], axis=-1),
            np.concatenate([np.broadcast_to(part.right, part.found.shape) for part in parts], axis=-1),
            np.concatenate([part.size for part in parts], axis=-1),
        )


def like(op: Op, found: Array, value: Array, precision: Precision) -> bool:
    """True where rounding explains how far the rows of a result are from those of another program."""
    for ours, theirs in zip(op.invariants(found), op.invariants(value), strict=True):
        is_exact = theirs.found == theirs.right
        size = np.where(is_exact, ours.size, np.maximum(ours.size, 1))  # other programs round what is 1
        if breaks(ours._replace(right=theirs.found, size=size), found, precision):
            return False
    return True


def breaks(invariant: Invariant, result: Array, precision: Precision) -> bool:
    """True where rows are off by more than rounding explains: one by one, together, or in one direction."""
    off = invariant.found - invariant.right
    is_told = np.isfinite(off)
    scatter = UNIFORM * precision.unit * np.broadcast_to(invariant.size, off.shape)[is_told]
    units_lost = max(LOGARITHM, CUT * result.shape[-1])
    slack = units_lost * min(precision.unit, FLOAT32.unit) + lost_below(result, precision)[is_told]
    place = np.broadcast_to(np.linspace(-1.0, 1.0, is_told.shape[-1]), is_told.shape)[is_told]

    off = off[is_told]
    beyond = times_scatter(np.abs(off), scatter, slack)
    apart = int(min(MOST_APART, off.size, different(result, precision)))
    if (beyond > FACTOR).any() or root_mean_square(beyond) > typical(apart):
        return True
    return any(drifts(off, scatter, slack, along, apart) for along in (np.ones(off.shape), place))


def drifts(off: Array, scatter: Array, slack: Array, along: Array, apart: int) -> bool:
    """True where rows are off together in one direction, by more than chance and what sums may lose."""
    total = (along * off / scatter).sum()
    size = float(np.square(along).sum())
    lost = (np.abs(along) * slack / scatter).sum()
    return bool(size and (abs(total) - lost) / size > FACTOR / sqrt(apart))


def lost_below(result: Array, precision: Precision) -> Array:
    """What each row may have lost in numbers too small for their type: half a last digit each, or all."""
    zeros = result.shape[-1] - np.count_nonzero(result, axis=-1)
    least = float(np.min(result, where=result > 0, initial=np.inf))
    # Where no number is between 0 and the smallest normal one, those were made 0.
    is_flushed = precision.smallest <= least < NEAR_LEAST * precision.smallest
    part_lost = 1.0 if is_flushed else precision.unit
    return np.asarray(zeros * precision.smallest * part_lost)
