"""Keys and values that a cache keeps in pages: a table says which are a sequence's (Kwon et al. 2023)."""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, entry, index, sum_over, where
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Op, Places, sum_type
from attnctl.math.rules import PerBatch, per_batch

MOST = 2**31
"""Pages and keys that a table may be of."""


class Slots(NamedTuple):
    """Where the keys of each sequence are, ([batch,] key)."""

    page: Array
    slot: Array
    there: Array
    """Whether there is a key at all."""


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

    def rows(self, slots: int) -> Slots:
        """The page and the slot of each key, of pages with so many slots."""
        table = np.array(self.table)
        key = np.arange(table.shape[1] * slots)
        there = key < np.reshape(self.lengths, (-1, 1))
        page = np.where(there, table[:, key // slots], 0)
        slot = np.broadcast_to(key % slots, page.shape)
        if self.batched:
            return Slots(page, slot, there)
        return Slots(page[0], slot[0], there[0])


@dataclass(frozen=True)
class Gather(ByTable):
    """The rows that a table names, in order, by head; zeros where no key is, whatever is in the slot."""

    words = (
        "Each key of {0} is read in the page that the table names, in its slot there; "
        "where there is none, 0 stands."
    )

    @property
    def signature(self) -> str:
        keys = "batch head key d" if self.batched else "head key d"
        return f"page slot head d -> {keys}"

    def shape(self, *inputs: Shape) -> Shape:
        _, slots, head, d = inputs[0]
        keys = len(self.table[0]) * slots
        if self.batched:
            return len(self.table), head, keys, d
        return head, keys, d

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
        rows = self.rows(pages.shape[1])
        page = entry(rows.page, *member, key)
        slot = entry(rows.slot, *member, key)
        there = entry(rows.there, *member, key)
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
        keys = "batch head key d" if self.batched else "head key d"
        return f"{keys}, page slot head d -> page slot head d"

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[1]

    def apply(self, d: Array, pages: Array) -> Array:
        page, slot, there = self.rows(pages.shape[1])
        total = np.zeros(pages.shape, sum_type(d))
        np.add.at(total, (page[there], slot[there]), d.swapaxes(-3, -2)[there])
        return total.astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, pages: Input) -> Term:
        """Σ over all keys of those that were read in this slot."""
        own_page, own_slot, head, column = cell
        page_count, slot_count, *_ = pages.shape
        rows = self.rows(slot_count)
        names = "bj" if self.batched else "j"
        places = [index(size, name) for name, size in zip(names, rows.there.shape, strict=True)]
        *member, key = places

        # A table with axes (page, slot, [member,] key): whether that key was read in that slot.
        beside = (1,) * rows.there.ndim
        page = np.arange(page_count).reshape(-1, 1, *beside)
        slot = np.arange(slot_count).reshape(1, -1, *beside)
        was_read = rows.there & (page == rows.page) & (slot == rows.slot)

        read = entry(was_read, own_page, own_slot, *places)
        return sum_over(reversed(places), where(read, d.at(*member, head, key, column), 0))
