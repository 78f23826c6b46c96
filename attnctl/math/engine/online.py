"""Softmax and A V without the weights: keys come a tile at a time, and no row is ever whole.

A tile is the scores of some queries with some keys, (query, key), the values of those keys,
(key, d_v), and room like the scores' to work in. Of the tiles so far each query has the sum
l = Σ exp(s) and the mixture z = Σ exp(s) v; its output is z / l. Softmax is the same whatever is
subtracted from a row of scores: `plain_softmax` subtracts nothing, `online_softmax` the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from attnctl.math import Array

Tile = tuple[Array, Array, Array]

LEAST_SUM = 2.0**-16
"""The least sum of exponentials that is taken as it is; products with values are not smaller still."""


def plain_softmax(tiles: Iterable[Tile], out: Array) -> Array | None:
    """Fill `out`, (query, d_v), with softmax(S) V, nothing subtracted; returns who sees nothing.

    To subtract the maximum takes two passes over the scores, and most scores are small enough to
    do without. Returns None, `out` half filled, where they are not: where the largest score in the
    first tile that a query sees, or its whole sum, is out of range.
    """
    total = np.zeros((len(out), 1), out.dtype)
    out.fill(0)
    for s, v, room in tiles:
        unseen = total[:, 0] == 0
        if unseen.any():
            first_scores = s if unseen.all() else s[unseen]
            tops = first_scores.max(axis=-1)
            if not in_range(np.exp(tops[~np.isneginf(tops)])):
                return None

        e = np.exp(s, out=room)
        total += row_sums(e)
        out += e @ v

    blind = total == 0
    if not in_range(total[~blind]):
        return None
    out /= np.where(blind, 1, total)
    return np.flatnonzero(blind)


def online_softmax(tiles: Iterable[Tile], out: Array, divisor: int = 1) -> Array:
    """Fill `out`, (query, d_v), with softmax(S) V for scores of any size; returns who sees nothing.

    A tile with a larger score scales what was summed before it by exp(m − m′) (Milakov &
    Gimelshein 2018, algorithm 3; Dao et al. 2022). A query that has seen nothing has m = −∞, and
    its output is 0. Half precision is summed in single: a sum of many ones or of large values
    would overflow. `divisor` (see `divisor_of`) is what values are divided by while they are summed.
    """
    wide = np.result_type(out, np.float32)
    m = np.full((len(out), 1), -np.inf, out.dtype)
    total = np.zeros((len(out), 1), wide)
    z = np.zeros(out.shape, wide)
    for s, v, room in tiles:
        before = m
        m = np.maximum(m, s.max(axis=-1, keepdims=True))
        top = np.where(np.isneginf(m), s.dtype.type(0), m)
        np.subtract(s, top, out=room)
        e = np.exp(room, out=room).astype(wide, copy=False)
        values = v.astype(wide, copy=False)
        if divisor != 1:
            values = values / wide.type(divisor)

        fade = np.exp(before - top)
        total *= fade
        total += row_sums(e)
        z *= fade
        z += e @ values

    z /= np.where(total == 0, 1, total)
    np.multiply(z, divisor, out=out, casting="same_kind")
    return np.flatnonzero(total == 0)


def row_sums(e: Array) -> Array:
    """The sums of rows, (query, key) -> (query, 1): BLAS is quicker at this than `sum`.

    Of short rows some kernels of BLAS multiply what lies behind them, too, and drop it: where that is no
    number, it is marked as invalid though every sum is right.
    """
    with np.errstate(invalid="ignore"):
        return e @ np.ones((e.shape[-1], 1), e.dtype)


def in_range(sums: Array) -> bool:
    """True if sums of exponentials are so far from the ends of their type that nothing was lost."""
    return bool(np.all((sums >= LEAST_SUM) & (sums <= root_of_largest(sums.dtype))))


def values_fit(v: Array) -> bool:
    """True if `plain_softmax` can sum values (…, key, d_v); half precision has too small a range."""
    return v.dtype != np.float16 and largest_size(v) <= root_of_largest(v.dtype)


def divisor_of(v: Array) -> int:
    """What `online_softmax` divides values (…, key, d_v) by: 1, or the keys where sums may overflow."""
    wide = np.result_type(v, np.float32)
    keys = v.shape[-2]
    return keys if largest_size(v) > float(np.finfo(wide).max) / max(1, keys) else 1


def largest_size(v: Array) -> float:
    """The largest absolute value, NaN where there is one."""
    return float(np.maximum(-v.min(initial=0), v.max(initial=0)))


def root_of_largest(dtype: np.dtype[Any]) -> float:
    """√ of the largest number of a type: two numbers up to it have a product that is one, too."""
    return float(np.sqrt(np.finfo(dtype).max))
