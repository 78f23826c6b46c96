"""Ops that no derivation should have: the wrong ones that people write, each as small as the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from attnctl.array import Array
from attnctl.ops import Hide, Op, Softmax
from attnctl.rules import Mask, Positions, VisibilityRule

Move = Callable[[Array], Array]


def unmoved(array: Array) -> Array:
    """The array as it is."""
    return array


@dataclass(frozen=True)
class Arranged(Op):
    """An op whose inputs or result have their numbers in other places."""

    op: Op
    before: tuple[Move, ...] = ()
    after: Move = unmoved

    def moves(self, inputs: int) -> tuple[Move, ...]:
        """What happens to each input."""
        return (*self.before, *[unmoved] * (inputs - len(self.before)))

    def apply(self, *inputs: Array) -> Array:
        """The op, between the moves."""
        moves = self.moves(len(inputs))
        return self.after(self.op.apply(*(move(each) for move, each in zip(moves, inputs, strict=True))))


@dataclass(frozen=True)
class Then(Op):
    """An op, and another one on its result."""

    op: Op
    then: Op

    def apply(self, *inputs: Array) -> Array:
        """Both, one after the other."""
        return self.then.apply(self.op.apply(*inputs))


@dataclass(frozen=True)
class Coarse(Op):
    """An op carried out in fewer digits; which digits those are cannot be told, only how far off."""

    op: Op
    unit: float
    largest: float

    def apply(self, *inputs: Array) -> Array:
        """The op; what is too large becomes ∞."""
        value = self.op.apply(*inputs)
        return np.where(np.abs(value) > self.largest, np.copysign(np.inf, value), value)


# --- masks ---


@dataclass(frozen=True)
class Before(VisibilityRule):
    """A query sees what came before it, and not itself."""

    name: ClassVar[str] = "causal"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(..., queries, 1), (keys,) -> (..., queries, keys)."""
        return key < query


@dataclass(frozen=True)
class After(VisibilityRule):
    """A query sees itself and what comes after it."""

    name: ClassVar[str] = "causal"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(..., queries, 1), (keys,) -> (..., queries, keys)."""
        return key >= query


@dataclass(frozen=True)
class Inverted(Hide):
    """Hides what should be seen, and shows what should be hidden."""

    def allowed(self, shape: tuple[int, ...], *mask: Array) -> Array:
        """The opposite."""
        return ~super().allowed(shape, *mask)


@dataclass(frozen=True)
class InvertedMask(Hide):
    """The rules as they should be, the given mask inverted."""

    def allowed(self, shape: tuple[int, ...], *mask: Array) -> Array:
        """The rules, and not the mask."""
        return super().allowed(shape, *(~each for each in mask))


@dataclass(frozen=True)
class Filled(Hide):
    """A finite number where −∞ should be: put in its place, or added."""

    fill: float = 0.0
    added: bool = False

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., head, query, key)[, mask] -> the same shape."""
        s, *mask = inputs
        return np.where(self.allowed(s.shape, *mask), s, s + self.fill if self.added else self.fill)


# --- softmax ---


def softmax(s: Array, axis: int) -> Array:
    """Along this axis; zeros where nothing is seen."""
    return Softmax().apply(s.swapaxes(axis, -1)).swapaxes(axis, -1)


@dataclass(frozen=True)
class SoftmaxOver(Op):
    """Softmax along another axis than that of the keys."""

    axis: int

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key) -> the same shape."""
        return softmax(inputs[0], self.axis)


@dataclass(frozen=True)
class SoftmaxThenHide(Op):
    """Softmax over all keys, then zeros where a key is hidden: rows no longer sum to 1."""

    hide: Hide

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key)[, mask] -> the same shape."""
        s, *mask = inputs
        return np.where(self.hide.allowed(s.shape, *mask), softmax(s, -1), 0.0)


@dataclass(frozen=True)
class Bare(Op):
    """exp(s) / Σ exp(s), the row maximum not subtracted: exp overflows."""

    dtype: str

    def apply(self, *inputs: Array) -> Array:
        """(..., key) -> the same shape; NaN where ∞ / ∞."""
        e = np.exp(inputs[0].astype(self.dtype))
        total = e.sum(axis=-1, keepdims=True)
        return (e / total).astype(np.float64)


@dataclass(frozen=True)
class NaNWhereNothingIsSeen(Op):
    """Softmax whose rows without a key are 0 / 0."""

    def apply(self, *inputs: Array) -> Array:
        """(..., key) -> the same shape."""
        (s,) = inputs
        return np.where(np.isneginf(s).all(axis=-1, keepdims=True), np.nan, softmax(s, -1))


@dataclass(frozen=True)
class Dropped(Op):
    """Softmax with dropout: survivors times 1 / (1 − p), the others 0."""

    kept: Array = field(compare=False, repr=False)
    factor: float

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key) -> the same shape."""
        return np.where(self.kept, softmax(inputs[0], -1) * self.factor, 0.0)


# --- heads ---


def tiled(times: int) -> Move:
    """The kv heads one after the other, again and again: h0 h1 h0 h1."""
    return lambda x: np.concatenate([x] * times, axis=-3)


def side_by_side(z: Array) -> Array:
    """(..., head, n, d) -> (..., n, head·d): h0 h0 h1 h1."""
    *batch, heads, n, d = z.shape
    return z.swapaxes(-3, -2).reshape(*batch, n, heads * d)


def split_by_reshape(z: Array) -> Array:
    """What (..., n, head·d).reshape(..., head, n, d) makes of heads: rows of other tokens."""
    return side_by_side(z).reshape(z.shape)


def split_interleaved(z: Array) -> Array:
    """What (..., n, head·d).reshape(..., n, d, head) makes of heads: columns of other heads."""
    *batch, heads, n, d = z.shape
    return np.moveaxis(side_by_side(z).reshape(*batch, n, d, heads), -1, -3)


def merge_interleaved(z: Array) -> Array:
    """(..., head, n, d) -> (..., n, head·d) with the heads' columns in turn: h0 h1 h0 h1."""
    *batch, heads, n, d = z.shape
    return np.moveaxis(z, -3, -1).reshape(*batch, n, d * heads)


def merge_by_reshape(z: Array) -> Array:
    """(..., head, n, d) -> (..., n, head·d) without bringing the heads of a token together."""
    *batch, heads, n, d = z.shape
    return z.reshape(*batch, n, heads * d)


def transpose(w: Array) -> Array:
    """A square matrix, transposed."""
    return w.swapaxes(-1, -2)


def transpose_fused(w: Array) -> Array:
    """A projection by head, (head, d_model, d), as its square fused matrix transposed."""
    heads, rows, d = w.shape
    fused = np.moveaxis(w, 0, 1).reshape(rows, heads * d)
    return np.moveaxis(fused.T.reshape(rows, heads, d), 1, 0)
