"""Claims about the numbers of a step, as values: anyone can recompute each from the dump.

Cells are full indices into a step, rows those without the last axis.
"""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.show.looks import ULPS
from attnctl.math import Array, Cell


@dataclass(frozen=True)
class Extremes:
    """The largest and the smallest finite number of a step, and the first cell that holds each.

    They are one where all are the same. `whole` says that all are finite, here as in other claims.
    """

    step: str
    largest: Cell
    most: float
    smallest: Cell
    least: float
    whole: bool


@dataclass(frozen=True)
class Moved:
    """The cell of a step that differs most from the same cell of what it was made of, both finite."""

    step: str
    source: str
    cell: Cell
    before: float
    after: float
    whole: bool


@dataclass(frozen=True)
class Unchanged:
    """A step that holds the same numbers as what it was made of."""

    step: str
    source: str


@dataclass(frozen=True)
class Hidden:
    """The number of cells of a step that are −∞, and what hid them: a rule, a mask, a bias, an edit."""

    step: str
    by: tuple[tuple[str, int], ...]
    of: int


BLIND, EMPTY, UNMIXED = "blind", "empty", "unmixed"
"""Rows of weights that are all 0, as their scores are all −∞ or though some are not, and rows of head
outputs that are not what the weights make of the values."""


@dataclass(frozen=True)
class OddRows:
    """The rows of a step of which nothing else can be said: `BLIND`, `EMPTY` or `UNMIXED` ones."""

    step: str
    kind: str
    rows: tuple[Cell, ...]


@dataclass(frozen=True)
class TopKeys:
    """Which keys a row of weights looks at most (several where they tie), with which share.

    `seen` are the keys whose scores are not −∞, `hidden` the others, with what hides them; where the
    scores are not known, none is hidden. `scores` are the scores of `keys` where these are the largest
    of the row, and so the reason; none where they are not.
    """

    step: str
    row: Cell
    keys: tuple[int, ...]
    share: float
    seen: int
    hidden: tuple[tuple[str, tuple[int, ...]], ...] = ()
    source: str = ""
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Mix:
    """The keys that a row of head outputs is mixed of, first the one with the largest weight.

    The row is the sum of their values, each times its weight, where values are recorded.
    """

    step: str
    row: Cell
    parts: tuple[tuple[int, float], ...]
    rest: float
    """The weights of the other keys together."""


@dataclass(frozen=True)
class Pull:
    """The key whose score moves the loss most in a row, by how much, and the keys it takes weight from.

    A key that has all the weight takes it from nothing.
    """

    step: str
    row: Cell
    key: int
    gradient: float
    others: tuple[int, ...]
    has_all: bool


@dataclass(frozen=True)
class NotFinite:
    """The number of NaN and ∞ in a step (−∞ in scores is a hidden key, and none of these)."""

    step: str
    count: int


Claim = Extremes | Moved | Unchanged | Hidden | OddRows | TopKeys | Mix | Pull | NotFinite


def extremes(step: str, array: Array) -> Extremes | None:
    """The largest and the smallest of the finite numbers; None where there are none."""
    finite = np.isfinite(array)
    if not finite.any():
        return None
    high = np.where(finite, array, -np.inf)
    low = np.where(finite, array, np.inf)
    top, bottom = index_of(high.argmax(), array), index_of(low.argmin(), array)
    return Extremes(step, top, float(array[top]), bottom, float(array[bottom]), bool(finite.all()))


def index_of(flat: np.intp, array: Array) -> Cell:
    """A place in a flat array as a full index."""
    return tuple(int(at) for at in np.unravel_index(flat, array.shape))


def largest_change(step: str, source: str, array: Array, before: Array) -> Moved | Unchanged | None:
    """The cell that changed most; None where the two cannot be laid side by side."""
    if before.shape != array.shape or not array.size:
        return None
    both = np.isfinite(array) & np.isfinite(before)
    if not both.any():
        return None
    with np.errstate(invalid="ignore"):
        gap = np.where(both, np.abs(np.subtract(array, before, dtype=np.float64)), -1.0)
    if not gap.max() > 0:
        return Unchanged(step, source) if np.array_equal(array, before, equal_nan=True) else None
    cell = index_of(gap.argmax(), array)
    return Moved(step, source, cell, float(before[cell]), float(array[cell]), bool(both.all()))


def mix(step: str, row: Cell, weights: Array, most: int) -> Mix:
    order = np.argsort(-weights, kind="stable")[:most]
    parts = tuple((int(key), float(weights[key])) for key in order if weights[key] > 0)
    rest = float(weights.sum(dtype=np.float64)) - sum(share for _, share in parts)
    return Mix(step, row, parts, max(rest, 0.0))


def same_mixture(output: Array, weights: Array, values: Array) -> bool:
    """True where an output row is Σ weight · value, but for rounding in its type."""
    terms = np.abs(weights.astype(np.float64)[:, None] * values).sum(axis=0)
    off = np.abs(weights.astype(np.float64) @ values - output)
    return bool((off <= ULPS * np.finfo(output.dtype).eps * (len(weights) + 1) * terms).all())
