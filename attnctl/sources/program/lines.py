"""What one array of scores became in the next, as their numbers tell."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import NamedTuple

import numpy as np

from attnctl.sources.program.relations import HIDDEN, Array, ratio

SHIFT_SLACK = 1e-5
"""How far the numbers of a row may be from being shifted alike, as a share of the largest score."""


class ChangeKind(Enum):
    NONE = "none"
    SCALE = "scale"
    SHIFT = "shift"
    """A number was taken off each row, or each column: softmax over them takes no notice."""
    MASK = "mask"
    OTHER = "other"


class LineChange(NamedTuple):
    kind: ChangeKind
    shift: Array | float = 0.0
    """What was taken off."""


def is_below_top(now: Array, is_hidden: Array) -> bool:
    """True if the largest number of each column is 0, as where it was taken off before exp."""
    top = np.where(is_hidden, -np.inf, now).max(-2)
    return bool(np.allclose(top[np.isfinite(top)], 0, atol=1e-6))


def classify(before: Array, now: Array) -> LineChange:
    """What an array became: hidden in places, multiplied, shifted by the row, or something else."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of rows of which all is hidden
        was_hidden = (before <= HIDDEN) | np.isneginf(before)
        is_hidden = (now <= HIDDEN) | np.isneginf(now)
        hides_more = bool((is_hidden & ~was_hidden).any())
        known = np.isfinite(before) & np.isfinite(now) & ~is_hidden & ~was_hidden

        if np.allclose(before[known], now[known], rtol=1e-6, atol=1e-9):
            return LineChange(ChangeKind.MASK if hides_more else ChangeKind.NONE)
        if hides_more:
            return LineChange(ChangeKind.MASK)

        taken_off = np.where(known, before.astype(float) - now, np.nan)
        slack = SHIFT_SLACK * float(np.abs(before[known]).max(initial=0.0))
        for axis in (-1, -2):
            if axis == -2 and not is_below_top(now, is_hidden):
                continue  # a bias by the key, as ALiBi's may be written: softmax over keys does see it
            usual = np.nanmedian(taken_off, axis=axis, keepdims=True)
            if before.shape[axis] > 1 and np.allclose(np.where(known, taken_off - usual, 0), 0, atol=slack):
                return LineChange(ChangeKind.SHIFT, np.nan_to_num(usual))
            if axis == -1 and ratio(np.where(known, before, np.nan), np.where(known, now, np.nan)):
                return LineChange(ChangeKind.SCALE)
    return LineChange(ChangeKind.OTHER)
