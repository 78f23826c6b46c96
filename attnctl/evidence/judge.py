"""A recorded step beside what it should be, number by number."""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR, Strictness, root_mean_square, spread, times_scatter, typical
from attnctl.evidence.precision import different
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import Known, boundless
from attnctl.math import Array

NOTHING = 1e-6
"""The part of a last place that is nothing: 0.3 − 0.2 is not quite 0.1."""


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
        gap, wrong = self.gap, self.wrong
        if blank is not None:
            wrong, gap = wrong & ~blank, np.where(blank, 0.0, gap)
        count = int(wrong.sum())
        among = np.where(wrong, gap, -1.0) if count else gap
        nan = np.isnan(among)
        ranked = np.where(nan, -0.5 if count else -1.0, among)  # a NaN is shown where there is nothing else
        at = tuple(int(i) for i in np.unravel_index(int(ranked.argmax()), ranked.shape))
        largest = float(gap[at]) if count or not nan[at] else 0.0
        there = float(self.allowed[at]), at, float(self.found[at]), float(self.expected[at])
        filled = gap.size if blank is None else int((~blank).sum())
        return Gap(largest, *there, count, int((wrong & nan).sum()), gap.size, filled)


def judge_step(record: Record, name: str, expected: Known, rows: int | None = None) -> Judged:
    """A recorded step beside what it should be, number by number; `rows` of the whole where it is part."""
    rows = rows or expected.value[..., 0].size
    most = typical(rows)
    told = judged_by(record, name, expected, expected.scatter, most)
    if told.beyond > most and (apart := different(record.value(name), record.precision(name))) < rows:
        most = typical(int(apart))
        told = judged_by(record, name, expected, expected.scatter, most)
    if told.wrong.any() and told.beyond <= most:  # a few stand out where all together are right
        return judged_by(record, name, expected, expected.own_scatter, most)
    return told


def judged_by(record: Record, name: str, expected: Known, scatter: Array, most: float) -> Judged:
    """Judge a step of which right programs scatter so, and all together by at most so many times that."""
    found, value = record.value(name), expected.value
    precision, asked = record.precision(name), record.strictness
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    error, slack = expected.error_by(scatter), precision.smallest + asked.last_place
    if asked.by_hand:
        value = by_hand(found, expected, asked.decimals or 0)
        error, slack = np.where(boundless(error), np.inf, 0.0), slack * (1 + NOTHING)
    allowed = asked.allowed(value, error + precision.unit * size + slack)
    gap = np.abs(found - value)
    told = np.isfinite(gap) & np.isfinite(scatter) & (scatter > 0)
    beyond = times_scatter(gap[told], scatter[told], slack)
    if not asked.told and root_mean_square(beyond[beyond <= FACTOR]) > most:  # one wrong number is but one
        allowed = np.where(told, np.minimum(allowed, most * scatter + slack), allowed)
    same = (found == value) | (np.isnan(value) & np.isnan(found))
    fine = (gap <= allowed) | same | boundless(error)
    grown = np.abs(value) + allowed > precision.largest  # too large for its type: infinite, as it should be
    fine |= np.isinf(found) & grown & (np.sign(found) == np.sign(value))
    if np.isneginf(value).any():
        fine |= np.isneginf(value) & vanishes(found, np.isneginf(value), precision.vanishing)
    gap = np.where(fine & (~np.isfinite(gap) | boundless(error)), 0.0, gap)
    blurred = blur_of(asked, value[told], scatter[told], value[..., 0].size)
    if value.size and (boundless(error) & ~same).all():  # a yes to numbers that nothing was compared with
        blurred = np.inf
    return Judged(found, expected.value, gap, allowed, ~fine, blurred, root_mean_square(beyond))


def by_hand(found: Array, expected: Known, decimals: int) -> Array:
    """The right number that is nearest to what was found.

    That is the one worked out without rounding and then rounded, or any between those that other ways
    give, whose last place the person may have rounded or cut.
    """
    right = np.round(expected.run(0), decimals)
    between = np.clip(found, *expected.reach)
    return np.where(np.abs(found - between) < np.abs(found - right), between, right)


def blur_of(asked: Strictness, numbers: Array, scatter: Array, rows: int) -> float:
    """The error allowed to the numbers of so many rows, as a part of their spread."""
    blur = typical(rows) * root_mean_square(scatter) + asked.last_place
    return 0.0 if asked.told else blur / spread(numbers)


def wrong_numbers(record: Record, name: str, expected: Known) -> Array:
    """Which numbers of a step rounding does not explain, but for those still to be filled in."""
    return judge_step(record, name, expected).wrong & ~record.blank(name)


def vanishes(found: Array, hidden: Array, limit: float) -> Array:
    """True where a finite number stands for −∞ and softmax makes 0 of it all the same."""
    return found - np.where(hidden, -np.inf, found).max(axis=-1, keepdims=True) < limit
