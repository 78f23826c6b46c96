"""Ops on scores: Q Kᵀ, what bends it, softmax, and A V."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from attnctl.array import Array, Shape
from attnctl.notation import Input, Place, Term, call, index, is_seen, largest, total, where
from attnctl.ops.base import Places, RowWise


def longer(a: Shape, b: Shape) -> Shape:
    """The leading axes of a product: those of the factor that has more."""
    return a if len(a) >= len(b) else b


class MatMulT(RowWise):
    """Q Kᵀ: every query with every key."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., query, d), (..., key, d) -> (..., query, key)."""
        q, k = inputs
        return np.matmul(q, k.swapaxes(-1, -2), out=out)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., query, d), (..., key, d) -> (..., query, key)."""
        q, k = inputs
        return (*longer(q[:-2], k[:-2]), q[-2], k[-2])

    def form(self, cell: Places, *inputs: Input) -> Term:
        """Σ q·k."""
        q, k = inputs
        *lead, row, column = cell
        i = index(q.shape[-1])
        return total(i, q.at(*lead, row, i) * k.at(*lead, column, i))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]


class MatMul(RowWise):
    """a b: A V, or concat W_O (+ b_O)."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., m, n), (..., n, p)[, (p,)] -> (..., m, p)."""
        a, b, *bias = inputs
        product = np.matmul(a, b, out=out)
        return np.add(product, bias[0], out=out) if bias else product

    def shape(self, *inputs: Shape) -> Shape:
        """(..., m, n), (..., n, p) -> (..., m, p)."""
        a, b, *_ = inputs
        return (*longer(a[:-2], b[:-2]), a[-2], b[-1])

    def form(self, cell: Places, *inputs: Input) -> Term:
        """Σ a·b (+ bias)."""
        a, b, *bias = inputs
        *lead, row, column = cell
        i = index(a.shape[-1])
        product = total(i, a.at(*lead, row, i) * b.at(*lead, i, column))
        return product + bias[0].at(column) if bias else product

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]


@dataclass(frozen=True)
class Scale(RowWise):
    """Scores / √d_k, or times a factor of one's own (Vaswani et al. 2017, equation 1)."""

    d_k: int = 1
    factor: float | None = None

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...) -> the same shape."""
        (s,) = inputs
        if self.factor is None:
            return np.divide(s, s.dtype.type(sqrt(self.d_k)), out=out)
        return np.multiply(s, s.dtype.type(self.factor), out=out)

    def form(self, cell: Places, *inputs: Input) -> Term:
        """s / √d_k."""
        (s,) = inputs
        if self.factor is not None:
            return s.at(*cell) * self.factor
        return s.at(*cell) / call("sqrt", self.d_k)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)


@dataclass(frozen=True)
class Squeeze(RowWise):
    """cap · tanh(S / cap), the soft cap (Gemma 2, section 2)."""

    cap: float

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...) -> the same shape, in (−cap, cap)."""
        (s,) = inputs
        wide = np.result_type(s, np.float32)  # half precision has no room for a small cap
        cap = wide.type(self.cap)
        squeezed = np.divide(s, cap, out=out if wide == s.dtype else None)
        np.tanh(squeezed, out=squeezed)
        np.multiply(squeezed, cap, out=squeezed)
        if wide == s.dtype:
            return squeezed
        return np.add(squeezed, 0, out=np.empty_like(s) if out is None else out, casting="same_kind")

    def form(self, cell: Places, *inputs: Input) -> Term:
        """cap · tanh(s / cap)."""
        (s,) = inputs
        return self.cap * call("tanh", s.at(*cell) / self.cap)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A division, a function and a product a cell."""
        return 3 * prod(shape)


class Softmax(RowWise):
    """exp(s − max) / Σ exp(s − max) over keys; a row that sees nothing gets zeros."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., key) -> the same shape; rows sum to 1 or are 0."""
        (s,) = inputs
        top = s.max(axis=-1, keepdims=True)
        e = np.subtract(s, np.where(np.isneginf(top), s.dtype.type(0), top), out=out)
        np.exp(e, out=e)
        total = e.sum(axis=-1, keepdims=True, dtype=np.result_type(s, np.float32))
        return np.divide(e, np.where(total == 0, total.dtype.type(1), total), out=e, casting="same_kind")

    def form(self, cell: Places, *inputs: Input) -> Term:
        """exp(s − max) / Σ exp(s − max) over the keys that are seen."""
        (s,) = inputs
        *row, column = cell
        j = index(s.shape[-1], "j")
        top = largest(j, s.at(*row, j))

        def grown(key: Place) -> Term:
            return call("exp", s.at(*row, key) - top)

        share = grown(column) / total(j, grown(j), seen=s.at(*row, j))
        return where(is_seen(s.at(*cell)), share, 0)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A maximum, a difference, a function, a sum and a division a cell."""
        return 5 * prod(shape)
