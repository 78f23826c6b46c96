"""Softmax and A V without the weights: keys come a tile at a time, and no row is ever whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnctl.array import Array


class OnlineSoftmax:
    """softmax(S) V of a block of queries (Milakov & Gimelshein 2018, algorithm 3; Dao et al. 2022).

    Of the tiles so far each query has the largest score m, the sum l = Σ exp(s − m) and the
    mixture z = Σ exp(s − m) v. A tile with a larger score scales what was summed before it by
    exp(m − m′). All three start from a query that has seen nothing.

    Half precision is summed in single: a sum of many ones or of large values would overflow.
    `divisor` (see `divisor_of`) is what values are divided by while they are summed.
    """

    def __init__(self, queries: int, columns: int, dtype: np.dtype[Any], divisor: int = 1) -> None:
        self.wide = np.result_type(dtype, np.float32)
        self.divisor = self.wide.type(divisor)
        self.m = np.full((queries, 1), -np.inf, dtype)
        self.l = np.zeros((queries, 1), self.wide)
        self.z = np.zeros((queries, columns), self.wide)

    def add(self, s: Array, v: Array, out: Array) -> None:
        """Take in a tile: scores (query, key) and values (key, d_v); `out`, like s, is room to work in."""
        m = np.maximum(self.m, s.max(axis=-1, keepdims=True))
        top = np.where(np.isneginf(m), s.dtype.type(0), m)
        e = np.exp(np.subtract(s, top, out=out), out=out).astype(self.wide, copy=False)
        values = v.astype(self.wide, copy=False)
        fade = np.exp(self.m - top)
        self.l *= fade
        self.l += e @ np.ones((e.shape[-1], 1), self.l.dtype)  # BLAS is quicker at this than sum
        self.z *= fade
        self.z += e @ (values if self.divisor == 1 else values / self.divisor)
        self.m = m

    def outputs(self) -> Array:
        """The head outputs, (query, d_v): the mixture over the sum, or 0 for a query that saw nothing."""
        mixture = self.z / np.where(self.l == 0, 1, self.l)
        return mixture if self.divisor == 1 else mixture * self.divisor

    def blind(self) -> Array:
        """The queries that saw nothing."""
        return np.flatnonzero(self.l == 0)


def divisor_of(v: Array) -> int:
    """What to divide values (…, key, d_v) by while they are summed.

    1, or the number of keys where a sum of so many of the largest value may overflow.
    """
    wide, keys = np.result_type(v, np.float32), v.shape[-2]
    largest = max(-float(v.min(initial=0)), float(v.max(initial=0)))
    return keys if largest > float(np.finfo(wide).max) / max(1, keys) else 1
