"""Ops of attention that reads distances as vectors (He et al. 2021, DeBERTa, section 3.1).

A score is Q_i · K_j + Q_i · K_D[i − j] + K_j · Q_D[i − j]: content with content, content with position and
position with content. K_D and Q_D are made of one learned row for each distance, or each bucket of them.
"""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, entry, index, total
from attnctl.math.ops.base import ForwardOnly, Places
from attnctl.math.ops.scores import Placed


class WithDistances(ForwardOnly):
    """x Dᵀ for each head: a row for each token, a number for each distance."""

    signature = "... head token d, head distance d -> ... head token distance"
    linear = ((0,), (1,))
    words = "Each row of {0} is multiplied by each row of {1}, that of a distance, and summed."
    flops_term = 2  # a product and a sum

    def apply(self, x: Array, distances: Array) -> Array:
        return x @ distances.swapaxes(-1, -2)

    def form(self, cell: Places, x: Input, distances: Input) -> Term:
        *lead, token, distance = cell
        i = index(x.shape[-1])
        return total(i, x.at(*lead, token, i) * distances.at(cell[-3], distance, i))


@dataclass(frozen=True)
class AddByDistance(Placed, ForwardOnly):
    """S + the number that a token has for the distance query − key; `of_keys` has a row for each key.

    Row `span` is distance 0. Distances of half of the `span` and more share rows by their logarithm, up to
    `furthest`; where that is 0, each has its own, and those that are further share the last one.
    """

    linear = ((0, 1),)
    words = "To each of the {0} that number of {1} is added which is for the distance of its query and key."
    flops = 1  # an addition

    span: int = 2
    furthest: int = 0
    of_keys: bool = False

    @property
    def signature(self) -> str:
        row = "key" if self.of_keys else "query"
        return f"... head query key, ... head {row} distance -> ... head query key"

    def rows(self, behind: Array, count: int) -> Array:
        """The row, of so many, of each distance query − key."""
        if self.furthest:
            behind = self.buckets(behind)
        return np.clip(behind + self.span, 0, count - 1)

    def buckets(self, behind: Array) -> Array:
        """Distances, those of half of the span and more by their logarithm."""
        half = max(self.span // 2, 1)
        distance = np.maximum(np.abs(behind), half).astype(np.float32)
        # float32, as every implementation has it: the edges of buckets depend on it.
        far = np.log(distance / np.float32(half))
        whole = np.log(np.float32(max(self.furthest - 1, half + 1) / half))
        growth = np.ceil(far / whole * np.float32(half - 1)).astype(int)
        return np.where(np.abs(behind) <= half, behind, np.sign(behind) * (half + growth))

    def apply(self, s: Array, by_distance: Array, *, out: Array | None = None) -> Array:
        query, key = self.positions(s.shape)
        rows = self.rows(np.asarray(query - key), by_distance.shape[-1])
        if self.of_keys:
            read = np.take_along_axis(by_distance, self.spread(rows.swapaxes(-1, -2), by_distance), -1)
            return np.add(s, read.swapaxes(-1, -2), out=out)
        read = np.take_along_axis(by_distance, self.spread(rows, by_distance), -1)
        return np.add(s, read, out=out)

    def spread(self, rows: Array, by_distance: Array) -> Array:
        return np.broadcast_to(rows, (*by_distance.shape[:-1], rows.shape[-1]))

    def form(self, cell: Places, s: Input, by_distance: Input) -> Term:
        *lead, query, key = cell
        row = self.row_of(cell, s.shape, by_distance.shape[-1])
        token = key if self.of_keys else query
        return s.at(*cell) + by_distance.at(*lead, token, row)

    def row_of(self, cell: Places, shape: Shape, count: int) -> Term:
        """The row, of so many, of a cell of scores of this shape."""
        first, last = self.reach(shape)
        by_distance = self.rows(-np.arange(first, last + 1), count)
        return entry(by_distance, self.ahead(cell) - first)
