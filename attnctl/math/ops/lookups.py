"""Biases that a table holds: an index says which of its numbers each query and key read."""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, entry, index, sum_over, where
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Op, Places


@dataclass(frozen=True)
class ByIndex(Op):
    """What reads a table of (head, number): query i reads number `index[i][j]` for key j.

    Where the index is one of T5's buckets, `furthest` is the distance from which on all share the last one,
    and with `both_ways` keys ahead have buckets of their own (Raffel et al. 2020, section 2.1).
    """

    linear = ((0,),)

    index: tuple[tuple[int, ...], ...]
    furthest: int | None = None
    both_ways: bool = True

    def __post_init__(self) -> None:
        if len({len(row) for row in self.index}) != 1 or min(map(min, self.index)) < 0:
            raise AttnError("index: expected a row for each query, a whole number from 0 on for each key")

    @property
    def numbers(self) -> Array:
        """The index as an array, (query, key)."""
        return np.array(self.index)


@dataclass(frozen=True)
class LookUp(ByIndex):
    """The numbers of a table that an index names (Swin's and T5's relative biases)."""

    signature = "head bucket -> head query key"
    words = "For each head, query and key one of the {0} is read, which an index names."

    def shape(self, *inputs: Shape) -> Shape:
        heads, _ = inputs[0]
        return (heads, len(self.index), len(self.index[0]))

    def apply(self, table: Array) -> Array:
        return np.take(table, self.numbers, axis=-1)

    def form(self, cell: Places, table: Input) -> Term:
        head, query, key = cell
        return table.at(head, entry(self.numbers, query, key))

    def adjoint(self, line: Line, d: str) -> Gradients:
        (table,) = line.inputs
        yield Gradient(table, LookUpBack(self.index), (d, table), f"Σ over the cells that read it of {d}")


@dataclass(frozen=True)
class LookUpBack(ByIndex, Backward):
    """Σ d over the cells that read a number of the table, for each head."""

    signature = "head query key, head bucket -> head bucket"
    words = "For each number of {1}, {0} are added up over the cells that read it."
    flops_read = 1  # an addition

    def apply(self, d: Array, table: Array) -> Array:
        total = np.zeros(table.shape[::-1], np.result_type(d, np.float32))
        np.add.at(total, self.numbers.reshape(-1), d.reshape(len(d), -1).T)
        return total.T.astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, table: Input) -> Term:
        head, number = cell
        row = index(d.shape[-2], "i")
        column = index(d.shape[-1], "j")
        same = entry(np.eye(table.shape[-1]), entry(self.numbers, row, column), number)
        return sum_over((column, row), where(same, d.at(head, row, column), 0))
