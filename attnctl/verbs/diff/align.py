"""Two traces side by side: by position, or by token where their sentences differ; heads in any number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Shape
from attnctl.record import Trace
from attnctl.record.cells import spell_cell, spellings
from attnctl.record.linear import ApartError

Places = Array

HEAD = "head"
KEY = "key"


@dataclass(frozen=True)
class Pairing:
    """Places along an axis of A and of B: `a[i]` stands beside `b[i]`, the others beside nothing."""

    a: Places
    b: Places
    size_a: int
    size_b: int

    @classmethod
    def same(cls, size: int) -> Pairing:
        every = np.arange(size)
        return cls(every, every, size, size)

    @property
    def whole(self) -> bool:
        return len(self.a) == self.size_a == self.size_b

    @property
    def only_a(self) -> Places:
        return np.setdiff1d(np.arange(self.size_a), self.a)

    @property
    def only_b(self) -> Places:
        return np.setdiff1d(np.arange(self.size_b), self.b)


class MatchedArrays(NamedTuple):
    """A step on both sides without leading axes of one place, and how its axes pair up."""

    a: Array
    b: Array
    pairings: tuple[Pairing, ...]


@dataclass(frozen=True)
class Alignment:
    """The pairs of places of two traces; `by_position` looks at no tokens."""

    a: Trace
    b: Trace
    by_position: bool = False

    @cached_property
    def tokens(self) -> Pairing | None:
        """The tokens of the queries side by side; None where position decides."""
        return self.pair_sentences(self.a.tokens, self.b.tokens)

    @cached_property
    def keys(self) -> Pairing | None:
        return self.pair_sentences(self.a.key_tokens, self.b.key_tokens)

    def pair_sentences(self, a: Sequence[str] | None, b: Sequence[str] | None) -> Pairing | None:
        if self.by_position or a is None or b is None or list(a) == list(b):
            return None
        pairs = np.array(common_subsequence(a, b), dtype=np.intp)
        of_a, of_b = pairs.reshape(-1, 2).T
        return Pairing(of_a, of_b, len(a), len(b))

    def along(self, axis: str, a: int, b: int) -> Pairing:
        """Pair up an axis of these sizes. Raises ApartError where that cannot be."""
        pairing = {"token": self.tokens, "query": self.tokens, "key": self.keys}.get(axis)
        if pairing is None or (pairing.size_a, pairing.size_b) != (a, b):
            if a != b:
                raise ApartError(f"{axis}: {a} against {b}")
            return Pairing.same(a)

        if not len(pairing.a):
            hint = "; by position they could be compared" if a == b else ""
            raise ApartError(f"no token in common{hint}")
        return pairing

    def match_axes(self, name: str, in_b: str = "") -> MatchedArrays:
        """A step of both without leading axes of one place, and how its axes pair up. Raises ApartError."""
        in_b = in_b or name
        if name not in self.a or in_b not in self.b:
            raise ApartError(f"no {in_b} in B" if name in self.a else f"no {name} in A")

        recorded_a = self.a[name]
        recorded_b = self.b[in_b]
        a = without_single_axes(recorded_a, recorded_b.ndim)
        b = without_single_axes(recorded_b, recorded_a.ndim)
        if a.ndim != b.ndim:
            raise ApartError(f"{a.ndim} axes against {b.ndim}")
        axes = self.a.steps[name].axes[recorded_a.ndim - a.ndim :]
        pairings = [self.along(*sizes) for sizes in zip(axes, a.shape, b.shape, strict=True)]
        return MatchedArrays(a, b, tuple(pairings))

    def sides(self, name: str) -> Sides:
        """The places of a step that both traces have. Raises ApartError as `match_axes` does."""
        a, b, pairings = self.match_axes(name)
        # Addresses of cells count the leading axes, too.
        leading = (1,) * (len(self.a.steps[name].axes) - a.ndim)
        loaded = Trace(self.a.steps, {name: a.reshape(leading + a.shape)}, self.a.header)
        return Sides(name, *pick_common(a, b, pairings), pairings, loaded)

    def left_out(self) -> tuple[list[str], list[str]]:
        """The tokens of A and of B that stand beside nothing, as an address names them."""
        only_a: list[str] = []
        only_b: list[str] = []
        for kind, pairing in (("tokens", self.tokens), ("key_tokens", self.keys)):
            if pairing:
                only_a += tokens_at(self.a, kind, pairing.only_a)
                only_b += tokens_at(self.b, kind, pairing.only_b)
        return only_a, only_b


def tokens_at(trace: Trace, kind: str, places: Places) -> list[str]:
    """These tokens of a trace; none of its keys where they are the queries' own."""
    words = getattr(trace, kind)
    if kind == "key_tokens" and words == trace.tokens:
        return []
    spelled = spellings(words)
    return [spelled[place] for place in places]


@dataclass(frozen=True)
class Sides:
    """A step on both sides: only the places that stand beside each other; `trace` is all of it in A."""

    name: str
    a: Array
    b: Array
    pairings: tuple[Pairing, ...]
    trace: Trace
    merged: bool = False  # whether heads are side by side: a column here is a head and a column in A

    @property
    def whole(self) -> bool:
        return all(pairing.whole for pairing in self.pairings)

    def at(self, index: Shape) -> Shape:
        """The index in A of a number whose index is given here."""
        places = [int(pairing.a[place]) for pairing, place in zip(self.pairings, index, strict=True)]
        shape = self.trace[self.name].shape
        if not self.merged:
            leading = [0] * (len(shape) - len(places))
            return (*leading, *places)

        *lead, column = places
        head, column_of_head = divmod(column, shape[-1])
        head_axis = self.trace.steps[self.name].axes.index(HEAD)
        return (*lead[:head_axis], head, *lead[head_axis:], column_of_head)

    def cell(self, index: Shape) -> str:
        return spell_cell(self.trace, self.name, self.at(index))


def wide(array: Array) -> Array:
    return array.astype(np.float64, copy=False)


def without_single_axes(array: Array, axes: int) -> Array:
    """The array without leading axes of one place, where it has more axes than these."""
    while array.ndim > axes and len(array) == 1:
        array = array[0]
    return array


def pick_places(array: Array, places: Sequence[Places | None]) -> Array:
    """These places along each axis; None is all of them."""
    for axis, of_axis in enumerate(places):
        if of_axis is not None:
            array = array.take(of_axis, axis)
    return array


def pick_common(a: Array, b: Array, pairings: Sequence[Pairing]) -> tuple[Array, Array]:
    a = pick_places(a, [None if pairing.whole else pairing.a for pairing in pairings])
    return a, pick_places(b, [None if pairing.whole else pairing.b for pairing in pairings])


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence, in order.

    The table of lengths is kept as an integer a row, whose bit j is 0 where the length grows at
    token j of b (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    where: dict[str, int] = {}
    for j, word in enumerate(b):
        where[word] = where.get(word, 0) | 1 << j

    every = (1 << len(b)) - 1
    rows = [every]
    for word in a:
        above = rows[-1]
        hit = above & where.get(word, 0)
        rows.append((above + hit | above - hit) & every)

    # Back from the last corner of the table: a pair stands where the length grows with this row only.
    pairs: list[tuple[int, int]] = []
    i = len(a)
    j = len(b)
    while i and j:
        grows_here = not rows[i] >> (j - 1) & 1
        grows_above = not rows[i - 1] >> (j - 1) & 1
        if not grows_here:
            j -= 1
        elif grows_above:
            i -= 1
        else:
            i -= 1
            j -= 1
            pairs.append((i, j))
    return pairs[::-1]


# --- other numbers of heads ---


def sides_of(alignment: Alignment, name: str) -> Sides:
    """A step side by side, though the traces may differ in heads. Raises ApartError where that cannot be.

    What is made of columns (W_Q, Q, head_outputs, …) is compared with all heads side by side; of scores and
    weights every head is compared with the single one of the other trace.
    """
    if head_counts(alignment, name) is None:
        return alignment.sides(name)
    axes = alignment.a.steps[name].axes
    if alignment.b.steps[name].axes != axes:
        raise ApartError("other axes in B")
    return one_with_each(alignment, name) if axes[-1] == KEY else with_heads_merged(alignment, name)


def head_counts(alignment: Alignment, name: str) -> tuple[int, int] | None:
    """The numbers of heads of a step in A and in B where they differ."""
    counts = []
    for trace in (alignment.a, alignment.b):
        axes = trace.steps[name].axes if name in trace else ()
        if HEAD not in axes:
            return None
        counts.append(trace[name].shape[axes.index(HEAD)])
    return None if counts[0] == counts[1] else (counts[0], counts[1])


def with_heads_merged(alignment: Alignment, name: str) -> Sides:
    """The columns of all heads as one axis: (…, head, …, column) -> (…, head · column)."""
    axes = alignment.a.steps[name].axes
    head_axis = axes.index(HEAD)
    a = merge_heads(alignment.a[name], head_axis)
    b = merge_heads(alignment.b[name], head_axis)

    other_axes = [axis for axis in axes if axis != HEAD]
    sizes = list(zip(other_axes, a.shape, b.shape, strict=True))[:-1]
    pairings = [alignment.along(*size) for size in sizes]
    if a.shape[-1] != b.shape[-1]:
        raise ApartError(f"{a.shape[-1]} columns in all heads against {b.shape[-1]}")
    of_all = (*pairings, Pairing.same(a.shape[-1]))
    return Sides(name, *pick_common(a, b, of_all), of_all, alignment.a, merged=True)


def merge_heads(array: Array, head_axis: int) -> Array:
    """Put the columns of all heads side by side."""
    moved = np.moveaxis(array, head_axis, -2)
    *lead, heads, columns = moved.shape
    return moved.reshape(*lead, heads * columns)


def one_with_each(alignment: Alignment, name: str) -> Sides:
    """The only head of one trace beside each head of the other."""
    axes = alignment.a.steps[name].axes
    head_axis = axes.index(HEAD)
    a = alignment.a[name]
    b = alignment.b[name]
    heads_a = a.shape[head_axis]
    heads_b = b.shape[head_axis]
    if min(heads_a, heads_b) != 1:
        raise ApartError(f"head: {heads_a} against {heads_b}")

    many = max(heads_a, heads_b)
    every_head = np.arange(many)
    only_head = np.zeros(many, int)
    pair_heads = Pairing(
        every_head if heads_a == many else only_head,
        every_head if heads_b == many else only_head,
        heads_a,
        heads_b,
    )

    def along(axis: str, size_a: int, size_b: int) -> Pairing:
        return pair_heads if axis == HEAD else alignment.along(axis, size_a, size_b)

    pairings = tuple(along(*sizes) for sizes in zip(axes, a.shape, b.shape, strict=True))
    return Sides(name, *pick_common(a, b, pairings), pairings, alignment.a)
