"""Products of rows with one matrix: as ever, or in tiles, many rows at once, each with bits of its own.

BLAS adds up the terms of a row in an order that may depend on the shape of the whole product and on the
place of the row in it, but on no number. A tile has always as many rows, so there it depends on the place
alone. That is tried, with one row repeated: on some machines all places have one order; on others (OpenBLAS
with AVX2) the order comes back after twelve places, and sentences begin where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import numpy as np

from attnctl.math import Array
from attnctl.math.axes import rearrange

TILE = 192
"""Rows of a tile: enough for BLAS to reach its peak, and a multiple of every period."""

PERIODS = (1, 2, 4, 6, 8, 12, 16)
"""After how many places an order may come back."""

TRIED = 1024
"""Sums that are compared, at least, before the order of a product is held to be known."""

TILED: ContextVar[bool] = ContextVar("TILED", default=False)


@contextmanager
def in_tiles() -> Iterator[None]:
    """Products of rows with a matrix are in tiles in this block, where that keeps a row's bits its own."""
    before = TILED.set(True)
    try:
        yield
    finally:
        TILED.reset(before)


def times(x: Array, w: Array) -> Array:
    """x w: rows (..., token, in) and a matrix (in, out) that all of them share -> (..., token, out)."""
    period = period_of(w) if TILED.get() and w.ndim == 2 else None
    return x @ w if period is None else multiply_tiles(x, w, period)


def times_heads(x: Array, w: Array) -> Array:
    """x w: rows (..., token, in) and a matrix for each head (head, in, out) -> (..., head, token, out)."""
    if not TILED.get():
        out: Array = x[..., None, :, :] @ w
        return out
    side_by_side = times(x, rearrange(w, "head width d -> width (head d)"))
    return rearrange(side_by_side, "... token (head d) -> ... head token d", head=len(w))


def multiply_tiles(x: Array, w: Array, period: int) -> Array:
    """x w with the rows of each sentence from a place at which the period begins."""
    *lead, tokens, width = x.shape
    room = -(-tokens // period) * period
    if room != tokens:
        padded = np.zeros((*lead, room, width), x.dtype)
        padded[..., :tokens, :] = x
        x = padded
    rows, columns = x.reshape(-1, width), w.shape[1]
    whole, rest = len(rows) // TILE * TILE, len(rows) % TILE
    out = np.empty((len(rows), columns), np.result_type(x, w))
    np.matmul(rows[:whole].reshape(-1, TILE, width), w, out=out[:whole].reshape(-1, TILE, columns))
    if rest:
        last = np.zeros((TILE, width), x.dtype)
        last[:rest] = rows[whole:]
        out[whole:] = (last @ w)[:rest]
    return out.reshape(*lead, room, columns)[..., :tokens, :]


def period_of(w: Array) -> int | None:
    """After how many places of a tile the order of summation comes back; None where it does not soon."""
    return find_period(w.shape, w.flags.c_contiguous, w.dtype.str)


@lru_cache(maxsize=64)
def find_period(shape: tuple[int, int], by_rows: bool, dtype: str) -> int | None:
    """The period of products with matrices of this shape and layout.

    Two orders that happen to give the same sums are told apart by trying many.
    """
    width, columns = shape
    drawn = np.random.RandomState(0)
    w = drawn.standard_normal(shape if by_rows else shape[::-1]).astype(dtype)
    w = w if by_rows else w.T
    rows = drawn.standard_normal((-(-TRIED // columns), 1, width)).astype(dtype)
    sums = np.repeat(rows, TILE, axis=1) @ w
    return next((each for each in PERIODS if (sums[:, each:] == sums[:, :-each]).all()), None)
