"""Keys and values that a cache keeps in pages: a table says which are a sequence's (Kwon et al. 2023)."""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, entry, index, sum_over, where
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Op, Places
from attnctl.math.rules import PerBatch, per_batch

MOST = 2**31
"""Pages and keys that a table may be of."""


@dataclass(frozen=True)
class ByTable(Op):
    """What reads pages: key j of a member is in slot j % slots of the page `table[member][j // slots]`.

    `lengths` are the keys that there are; a number instead of several is of one sequence, without a batch
    axis. Slots behind the last key are free.
    """

    linear = ((0,),)

    table: tuple[tuple[int, ...], ...]
    lengths: PerBatch

    def __post_init__(self) -> None:
        each = self.lengths if isinstance(self.lengths, tuple) else (self.lengths,)
        if len({len(row) for row in self.table}) != 1 or len(each) != len(self.table):
            raise AttnError("table: expected as many pages of each sequence, and a length for each")
        if any(abs(number) > MOST for row in (*self.table, each) for number in row):
            raise AttnError(f"table: expected pages and lengths up to {MOST:,}")

    @property
    def batched(self) -> bool:
        return isinstance(self.lengths, tuple)

    def rows(self, slots: int) -> tuple[Array, Array, Array]:
        """The page and the slot of each key, and whether there is one, ([batch,] key)."""
        key = np.arange(len(self.table[0]) * slots)
        there = key < np.reshape(self.lengths, (-1, 1))
        page = np.where(there, np.array(self.table)[:, key // slots], 0)
        slot = np.broadcast_to(key % slots, page.shape)
        return (page, slot, there) if self.batched else (page[0], slot[0], there[0])


@dataclass(frozen=True)
class Gather(ByTable):
    """The rows that a table names, in order, by head; zeros where no key is, whatever is in the slot."""

    words = (
        "Each key of {0} is read in the page that the table names, in its slot there; "
        "where there is none, 0 stands."
    )

    @property
    def signature(self) -> str:
        return f"page slot head d -> {'batch ' * self.batched}head key d"

    def shape(self, *inputs: Shape) -> Shape:
        _, slots, head, d = inputs[0]
        return (*[len(self.table)] * self.batched, head, len(self.table[0]) * slots, d)

    def apply(self, pages: Array) -> Array:
        page, slot, there = self.rows(pages.shape[1])
        read = np.where(there[..., None, None], pages[page, slot], pages.dtype.type(0))
        return np.ascontiguousarray(read.swapaxes(-3, -2))

    def free(self, result: Array) -> Array:
        """The rows of no key: a program may have read there whatever the slot holds."""
        free = np.arange(result.shape[-2])[:, None] >= per_batch(self.lengths)
        return np.broadcast_to(free, result.shape)

    def form(self, cell: Places, pages: Input) -> Term:
        *member, head, key, column = cell
        page, slot, there = (entry(numbers, *member, key) for numbers in self.rows(pages.shape[1]))
        return where(there, pages.at(page, slot, head, column), 0)

    def adjoint(self, line: Line, d: str) -> Gradients:
        (pages,) = line.inputs
        yield Gradient(pages, Scatter(self.table, self.lengths), (d, pages), f"{d}, put back in its pages")


@dataclass(frozen=True)
class Scatter(ByTable, Backward):
    """The sum of all rows that were read in a slot: sequences may share pages."""

    words = "Each row of {0} is added to the slot of {1} that it was read in."
    flops_read = 1  # an addition

    @property
    def signature(self) -> str:
        return f"{'batch ' * self.batched}head key d, page slot head d -> page slot head d"

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[1]

    def apply(self, d: Array, pages: Array) -> Array:
        page, slot, there = self.rows(pages.shape[1])
        total = np.zeros(pages.shape, np.result_type(d, np.float32))
        np.add.at(total, (page[there], slot[there]), d.swapaxes(-3, -2)[there])
        return total.astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, pages: Input) -> Term:
        own_page, own_slot, head, column = cell
        page, slot, there = self.rows(pages.shape[1])
        places = [index(size, name) for size, name in zip(there.shape, "bj"[-there.ndim :], strict=True)]
        *member, key = places
        numbers = np.arange(pages.shape[0])[:, None], np.arange(pages.shape[1])
        own = [array.reshape(*array.shape, *[1] * there.ndim) for array in np.broadcast_arrays(*numbers)]
        read = entry(there & (own[0] == page) & (own[1] == slot), own_page, own_slot, *places)
        return sum_over(reversed(places), where(read, d.at(*member, head, key, column), 0))
