"""Softmax and A V without the weights: keys come a tile at a time, and no row is ever whole."""

from __future__ import annotations

import numpy as np

from attnctl.array import Array


class OnlineSoftmax:
    """softmax(S) V of a block of queries (Milakov & Gimelshein 2018, algorithm 3; Dao et al. 2022).

    Of the tiles so far each query has the largest score m, the sum l = Σ exp(s − m) and the
    mixture z = Σ exp(s − m) v. A tile with a larger score makes what was summed before it fade
    by exp(m − m′). All three start from a query that has seen nothing. Half precision is summed
    in single: half a row of ones is more than it can count.
    """

    def __init__(self, queries: int, columns: int, dtype: np.dtype[np.floating]) -> None:
        wide = np.result_type(dtype, np.float32)
        self.m = np.full((queries, 1), -np.inf, dtype)
        self.l = np.zeros((queries, 1), wide)
        self.z = np.zeros((queries, columns), wide)

    def add(self, s: Array, v: Array, out: Array) -> None:
        """Take in a tile: scores (query, key) and values (key, d_v); `out`, like s, is room to work in."""
        m = np.maximum(self.m, s.max(axis=-1, keepdims=True))
        top = np.where(np.isneginf(m), s.dtype.type(0), m)
        e = np.exp(np.subtract(s, top, out=out), out=out)
        fade = np.exp(self.m - top)
        self.l *= fade
        self.l += e @ np.ones((e.shape[-1], 1), self.l.dtype)  # BLAS is quicker at this than sum
        self.z *= fade
        self.z += e @ v
        self.m = m

    def outputs(self) -> Array:
        """The head outputs, (query, d_v): the mixture over the sum, or 0 for a query that saw nothing."""
        return self.z / np.where(self.l == 0, 1, self.l)

    def blind(self) -> Array:
        """The queries that saw nothing."""
        return np.flatnonzero(self.l == 0)
