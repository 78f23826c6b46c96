"""Ops that no derivation should have: the wrong ones that people write, each as small as the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import reduce

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.blocks import OverQueries
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.notation import Input
from attnctl.math.ops import Hide, Op, Rotate, RowWise
from attnctl.math.rules import Span

Move = Callable[[Array], Array]
Axes = int | tuple[int, ...]


def keep_positions(array: Array) -> Array:
    return array


def swap_heads(x: Array) -> Array:
    """(..., head, token, d) -> (..., token, head, d), and back."""
    return x.swapaxes(-3, -2)


@dataclass(frozen=True)
class Arranged(Op):
    """An op whose inputs or result have their numbers in other places."""

    op: Op
    before: tuple[Move, ...] = ()
    after: Move = keep_positions

    def apply(self, *inputs: Array) -> Array:
        moved = list(inputs)
        for place, move in enumerate(self.before):
            moved[place] = move(inputs[place])
        return self.finish(self.op.apply(*moved))

    @property
    def goes_on_from(self) -> Op | None:
        """The op to whose result it does something; none where it reads other numbers."""
        return None if self.before else self.op

    def finish(self, result: Array) -> Array:
        return self.after(result)


@dataclass(frozen=True)
class Then(RowWise):
    op: Op
    then: Op

    def apply(self, *inputs: Array) -> Array:
        return self.finish(self.op.apply(*inputs))

    @property
    def goes_on_from(self) -> Op:
        return self.op

    def finish(self, result: Array) -> Array:
        return self.then.apply(result)


@dataclass(frozen=True)
class Coarse(RowWise):
    """An op carried out in fewer digits; which digits those are cannot be told, only how far off."""

    op: Op
    unit: float
    largest: float

    def apply(self, *inputs: Array) -> Array:
        """The op; what is too large becomes ∞."""
        value = self.op.apply(*inputs)
        return np.where(np.abs(value) > self.largest, np.copysign(np.inf, value), value)


@dataclass(frozen=True)
class By(Op):
    function: Callable[..., Array]

    def apply(self, *inputs: Array) -> Array:
        return self.function(*inputs)


@dataclass(frozen=True)
class ByRow(By, RowWise):
    """A function of which each row of the result is made of the same row of what is read."""


@dataclass(frozen=True)
class AddRows(Op):
    """Tokens' rows from this one on, added to those of the queries, of which there may be fewer."""

    begin: int = 0

    def from_query(self, query: int) -> AddRows:
        return AddRows(self.begin + query)

    def apply(self, *inputs: Array) -> Array:
        """(..., query, d), (..., token, d) -> (..., query, d)."""
        y, x = inputs
        return y + x[..., self.begin : self.begin + y.shape[-2], :]


@dataclass(frozen=True)
class TurnedOtherwise(Rotate):
    change: Callable[[Array], Array] = keep_positions

    def angles(self, x: Array | Input) -> Array:
        return self.change(super().angles(x))


@dataclass(frozen=True)
class TurnedInChunks(Rotate):
    """Pairs go by time, then by height, then by width, as many as each has where they take turns."""

    def rows_of_pairs(self, pairs: int) -> Array:
        """T T T T H H W W."""
        return np.sort(super().rows_of_pairs(pairs))


# --- masks ---


@dataclass(frozen=True)
class Shown(Hide):
    """What is made of scores, and of which of them may be seen."""

    show: Callable[[Array, Array], Array] = field(default=lambda s, seen: np.where(seen, s, -np.inf))

    def apply(self, s: Array, *mask: Array, out: Array | None = None) -> Array:
        return self.show(s, self.allowed(s.shape, *mask))


def shown(hide: Hide, show: Callable[[Array, Array], Array]) -> Shown:
    return Shown(hide.offset, hide.at, hide.places, hide.rules, show=show)


@dataclass(frozen=True)
class SeenByAny(Hide):
    """What any rule lets be seen is seen: rules joined by "or"."""

    def visible_to_any(self, queries: int, keys: int) -> Span:
        return 0, keys

    def borders(self) -> list[int]:
        return []

    def apply(self, s: Array, *mask: Array, out: Array | None = None) -> Array:
        query, key = self.positions(s.shape)
        every = (*(rule.allows(query, key) for rule in self.rules), *mask)
        return np.where(reduce(np.logical_or, every), s, -np.inf)


# --- softmax, and what has something else for its exp or its sum ---


def softmax(s: Array, axis: Axes = -1) -> Array:
    """Along this axis; zeros where nothing is seen."""
    return over(grown(s, axis), axis)


@dataclass(frozen=True)
class SoftmaxOver(OverQueries):
    """Softmax along axes of which queries are one."""

    axes: tuple[int, ...] = (-2,)

    def sum_over(self, blocks: Iterable[Array], *_: Array) -> tuple[Array, ...]:
        """The maximum, and Σ exp(s − maximum), online: what was summed shrinks as the maximum grows."""
        top = np.array(-np.inf)
        sums = np.array(0.0)
        for s in blocks:
            last = top
            top = np.maximum(last, s.max(axis=self.axes, keepdims=True))
            safe = np.where(np.isinf(top), 0.0, top)
            sums = sums * np.exp(last - safe) + np.exp(s - safe).sum(axis=self.axes, keepdims=True)
        return np.where(np.isinf(top), 0.0, top), sums

    def share_out(self, s: Array, *sums: Array) -> Array:
        top, total_ = sums
        return shared_out(np.exp(s - top), total_)


@dataclass(frozen=True)
class GrownOver(OverQueries):
    """exp(s − the row's maximum), divided by its sums over queries."""

    def sum_over(self, blocks: Iterable[Array], *_: Array) -> tuple[Array, ...]:
        parts = [grown(s).sum(axis=-2, keepdims=True) for s in blocks]
        return (np.sum(parts, axis=0),)

    def share_out(self, s: Array, *sums: Array) -> Array:
        return shared_out(grown(s), *sums)


@dataclass(frozen=True)
class ByOtherSums(OverQueries):
    """e / e.sum(-1), of as many queries as keys: NumPy lines the sums up with the columns."""

    grow: Callable[[Array], Array]

    def sum_over(self, blocks: Iterable[Array], *_: Array) -> tuple[Array, ...]:
        rows = np.concatenate([total(self.grow(s)) for s in blocks], axis=-2)
        return (np.swapaxes(rows, -1, -2),)

    def share_out(self, s: Array, *sums: Array) -> Array:
        return shared_out(self.grow(s), *sums)


@dataclass(frozen=True)
class MixTransposed(OverQueries):
    """What mixes values by weights, which were transposed before: row q has Σ weights[k, q] · v[k]."""

    op: Op
    begin: int = 0
    """The query of the first row that is asked for."""

    def from_query(self, query: int) -> MixTransposed:
        return replace(self, begin=self.begin + query) if self.sums else self

    def sum_over(self, blocks: Iterable[Array], *others: Array) -> tuple[Array, ...]:
        """All rows: each block of queries adds its part to every one."""
        (v,) = others
        rows = np.array(0.0)
        start = 0
        for weights in blocks:
            stop = start + weights.shape[-2]
            rows = rows + self.op.apply(transpose(weights), v[..., start:stop, :])
            start = stop
        return (rows,)

    def apply(self, *inputs: Array) -> Array:
        """(..., query, key), (..., key, d) -> (..., query, d), of as many queries as keys."""
        weights, v = inputs
        if not self.sums:
            return self.op.apply(transpose(weights), v)
        return self.sums[0][..., self.begin : self.begin + weights.shape[-2], :]


@dataclass(frozen=True)
class Dropped(RowWise):
    """Softmax with dropout: survivors times 1 / (1 − p), the others 0."""

    kept: Array = field(compare=False, repr=False)
    factor: float

    def from_query(self, query: int) -> Dropped:
        return replace(self, kept=self.kept[..., query:, :])

    def reread(self, found: Array) -> Dropped:
        """Return the same op, its survivors those of these weights, which were found."""
        return replace(self, kept=found != 0)

    def apply(self, *inputs: Array) -> Array:
        (s,) = inputs
        return np.where(self.kept[..., : s.shape[-2], :], softmax(s) * self.factor, 0.0)


def total(e: Array) -> Array:
    return e.sum(axis=-1, keepdims=True)


def grown(s: Array, axis: Axes = -1) -> Array:
    """exp(s − the row's maximum)."""
    return np.exp(s - top_of(s, axis))


def top_of(s: Array, axis: Axes = -1) -> Array:
    """The maximum of each row; 0 where nothing is seen."""
    top = s.max(axis=axis, keepdims=True)
    return np.where(np.isinf(top), 0.0, top)


def shared_out(e: Array, by: Array) -> Array:
    """e / Σ; zeros where Σ is 0."""
    return e / np.where(by == 0, 1.0, by)


def over(e: Array, axis: Axes) -> Array:
    return shared_out(e, e.sum(axis=axis, keepdims=True))


def with_constant(s: Array, constant: float) -> Array:
    """exp(s − max) / (c + Σ exp(s − max))."""
    e = grown(s)
    return shared_out(e, constant + total(e))


def with_logit(s: Array, constant: float) -> Array:
    """exp(s) / (c + Σ exp(s)): a key more in the sum, of the score log c."""
    e = grown(s)
    return shared_out(e, constant * np.exp(-top_of(s)) + total(e))


# --- softmax over blocks of keys ---


def online(s: Array, block: int, output: float | None, total_: float | None) -> Array:
    """Weights of a softmax summed block by block; what is summed shrinks by exp(maximum − the last one).

    Output and sum by this power of it, which should be 1; with None all blocks but the last are forgotten.
    """
    keys = s.shape[-1]
    in_block = np.arange(keys) // block
    ends = np.minimum((in_block + 1) * block, keys) - 1
    here = np.maximum.accumulate(s, axis=-1)[..., ends]
    last = s.max(axis=-1, keepdims=True)
    safe = np.where(np.isinf(here), 0.0, here)
    e = np.exp(s - safe)

    def kept(power: float | None) -> Array:
        if power is None:
            is_last_block = in_block == (keys - 1) // block
            return np.broadcast_to(is_last_block, here.shape).astype(float)
        behind = safe - np.where(np.isinf(last), 0.0, last)
        return np.where(np.isinf(here), 0.0, np.exp(power * behind))

    return shared_out(e * kept(output), total(e * kept(total_)))


def averaged_blocks(s: Array, block: int) -> Array:
    parts = [softmax(s[..., at : at + block]) for at in range(0, s.shape[-1], block)]
    return np.concatenate(parts, axis=-1) / len(parts)


# --- heads ---


def side_by_side(z: Array) -> Array:
    """(..., head, n, d) -> (..., n, head·d): h0 h0 h1 h1."""
    return rearrange(z, "... head n d -> ... n (head d)")


def transpose(w: Array) -> Array:
    return w.swapaxes(-1, -2)


def side_into_heads(x: Array, heads: int) -> Array:
    """(..., n, head·d) -> (..., head, n, d), as it should be done."""
    return rearrange(x, "... n (head d) -> ... head n d", head=heads)
