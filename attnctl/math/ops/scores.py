"""Ops on scores: Q Kᵀ, what bends it, softmax, and A V."""

from __future__ import annotations

from math import inf, prod, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.names import DELTA
from attnctl.math.notation import Input, Place, Term, call, index, is_seen, largest, total, where
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Places, RowWise
from attnctl.math.ops.contraction import RowDot, SharedTMatMul, SumRows, TMatMul
from attnctl.math.products import times


class MatMulT(RowWise):
    """Q Kᵀ: every query with every key."""

    signature = "... query d, ... key d -> ... query key"
    words = (
        "Each row of {0} is multiplied by each row of {1}, column by column, and the products are added up."
    )

    def apply(self, q: Array, k: Array, *, out: Array | None = None) -> Array:
        return np.matmul(q, k.swapaxes(-1, -2), out=out)

    def form(self, cell: Places, q: Input, k: Input) -> Term:
        """Σ q·k."""
        *lead, row, column = cell
        i = index(q.shape[-1])
        return total(i, q.at(*lead, row, i) * k.at(*lead, column, i))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]

    def adjoint(self, line: Line, d: str) -> Gradients:
        """dq = d k; dk = dᵀ q."""
        q, k = line.inputs
        yield Gradient(q, MatMul(), (d, k), f"{d} {k}")
        yield Gradient(k, TMatMul(), (d, q), f"{d}ᵀ {q}")


class MatMul(RowWise):
    """a b: A V, or concat W_O (+ b_O)."""

    signature = "... m n, ... n p[, p] -> ... m p"
    words = "Each row of {0} is multiplied by {1}[, and {2} is added]."

    def apply(self, a: Array, b: Array, *bias: Array, out: Array | None = None) -> Array:
        product = np.matmul(a, b, out=out) if out is not None else times(a, b)
        return np.add(product, bias[0], out=out) if bias else product

    def form(self, cell: Places, a: Input, b: Input, *bias: Input) -> Term:
        """Σ a·b (+ bias)."""
        *lead, row, column = cell
        i = index(a.shape[-1])
        product = total(i, a.at(*lead, row, i) * b.at(*lead, i, column))
        return product + bias[0].at(column) if bias else product

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]

    def adjoint(self, line: Line, d: str) -> Gradients:
        """da = d bᵀ; db = aᵀ d, over all rows that share b; d_bias = Σ d."""
        a, b, *bias = line.inputs
        shared = len(line.axes[1]) < len(line.axes[0])
        yield Gradient(a, MatMulT(), (d, b), f"{d} {b}ᵀ")
        yield Gradient(b, SharedTMatMul() if shared else TMatMul(), (a, d), f"{a}ᵀ {d}")
        for each in bias:
            yield Gradient(each, SumRows(), (d,), f"Σ over rows of {d}")


@dataclass(frozen=True)
class Scale(RowWise):
    """Scores / √d_k, or times a factor of one's own (Vaswani et al. 2017, equation 1)."""

    signature = "... -> ..."
    flops = 1  # a division or a product

    d_k: int = 1
    factor: float | None = None

    @property
    def words(self) -> str:
        """By how much, and why."""
        if self.factor is not None:
            return f"Each of the {{0}} is multiplied by {self.factor:g}."
        root = f"√d_k = √{self.d_k} = {sqrt(self.d_k):.4g}"
        return f"Each of the {{0}} is divided by {root}, so that they do not grow with d_k."

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        if self.factor is None:
            return np.divide(s, s.dtype.type(sqrt(self.d_k)), out=out)
        return np.multiply(s, s.dtype.type(self.factor), out=out)

    def form(self, cell: Places, s: Input) -> Term:
        """s / √d_k."""
        if self.factor is not None:
            return s.at(*cell) * self.factor
        return s.at(*cell) / call("sqrt", self.d_k)

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = d / √d_k."""
        factor = "/ √d_k" if self.factor is None else f"· {self.factor:g}"
        yield Gradient(line.inputs[0], self, (d,), f"{d} {factor}")


@dataclass(frozen=True)
class Squeeze(RowWise):
    """cap · tanh(S / cap), the soft cap (Gemma 2, section 2)."""

    signature = "... -> ..."
    words = "The {0} are bent by tanh: no score gets beyond ±{op.cap:g}."
    flops = 3  # a division, a function and a product

    cap: float

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        wide = np.result_type(s, np.float32)  # half precision has no room for a small cap
        cap = wide.type(self.cap)
        squeezed = np.divide(s, cap, out=out if wide == s.dtype else None)
        np.tanh(squeezed, out=squeezed)
        np.multiply(squeezed, cap, out=squeezed)
        if wide == s.dtype:
            return squeezed
        return np.add(squeezed, 0, out=np.empty_like(s) if out is None else out, casting="same_kind")

    def form(self, cell: Places, s: Input) -> Term:
        """cap · tanh(s / cap)."""
        return self.cap * call("tanh", s.at(*cell) / self.cap)

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = d · (1 − (y / cap)²)."""
        formula = f"{d} · (1 − ({line.name} / {self.cap:g})²)"
        yield Gradient(line.inputs[0], SqueezeBack(self.cap), (d, line.name), formula)


@dataclass(frozen=True)
class SqueezeBack(Backward):
    """d · (1 − (y / cap)²), the slope of the soft cap where it came out as y."""

    signature = "..., ... -> ..."
    words = "Each number of {0} is multiplied by the slope of tanh there: the flatter the cap, the less."
    flops = 4  # a division, two products and a difference

    cap: float

    def apply(self, d: Array, y: Array) -> Array:
        wide = np.result_type(d, np.float32)
        part = y.astype(wide, copy=False) / wide.type(self.cap)
        return (d * (1 - np.square(part))).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, y: Input) -> Term:
        """d · (1 − (y / cap)²)."""
        part = y.at(*cell) / self.cap
        return d.at(*cell) * (1 - part * part)


class Softmax(RowWise):
    """exp(s − max) / Σ exp(s − max) over keys; a row that sees nothing gets zeros."""

    signature = "... key -> ... key"
    words = "Softmax turns each row of scores into shares: exp(score), divided by the sum of the row."
    flops = 5  # a maximum, a difference, a function, a sum and a division

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        top = s.max(axis=-1, keepdims=True, initial=-inf)
        e = np.subtract(s, np.where(np.isneginf(top), s.dtype.type(0), top), out=out)
        np.exp(e, out=e)
        total = e.sum(axis=-1, keepdims=True, dtype=np.result_type(s, np.float32))
        return np.divide(e, np.where(total == 0, total.dtype.type(1), total), out=e, casting="same_kind")

    def form(self, cell: Places, s: Input) -> Term:
        """exp(s − max) / Σ exp(s − max) over the keys that are seen."""
        *row, column = cell
        j = index(s.shape[-1], "j")
        top = largest(j, s.at(*row, j))

        def grown(key: Place) -> Term:
            return call("exp", s.at(*row, key) - top)

        share = grown(column) / total(j, grown(j), seen=s.at(*row, j))
        return where(is_seen(s.at(*cell)), share, 0)

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = A ∘ (d − δ), δ = Σ A ∘ d of the row."""
        yield Gradient(DELTA, RowDot(), (d, line.name), f"Σ over keys of {d} ∘ {line.name}")
        formula = f"{line.name} ∘ ({d} − {DELTA})"
        yield Gradient(line.inputs[0], SoftmaxBack(), (line.name, d, DELTA), formula)


class LogSumExp(RowWise):
    """max + ln Σ exp(s − max) over keys, natural; −∞ for a row that sees nothing.

    With it softmax is exp(s − L): what the backward pass reads, and what joins parts of a row.
    """

    signature = "... key -> ..."
    words = "The logarithm of what softmax divides a row by: its shares are exp(score − {name})."
    flops_read = 4  # a maximum, a difference, a function and a sum

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        top = s.max(axis=-1, initial=-inf)
        least = np.where(np.isneginf(top), s.dtype.type(0), top)
        total = np.exp(s - least[..., None]).sum(axis=-1, dtype=np.result_type(s, np.float32))
        with np.errstate(divide="ignore"):  # the logarithm of an empty sum is −∞
            return np.add(least, np.log(total), out=out, casting="same_kind").astype(s.dtype, copy=False)

    def form(self, cell: Places, s: Input) -> Term:
        """max + log(Σ exp(s − max)) over the keys that are seen."""
        j = index(s.shape[-1], "j")
        top = largest(j, s.at(*cell, j))
        every = total(j, call("exp", s.at(*cell, j) - top), seen=s.at(*cell, j))
        return where(is_seen(top), top + call("log", every), -inf)

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = exp(s − L) · d."""
        (scores,) = line.inputs
        formula = f"exp({scores} − {line.name}) · {d}"
        yield Gradient(scores, LogSumExpBack(), (scores, line.name, d), formula)


class LogSumExpBack(Backward):
    """exp(s − L) · d: a score moves the logarithm by the share that it has."""

    signature = "... n, ..., ... -> ... n"
    words = "A score moves {1} by the share that it has: that share, times {2}."
    flops = 3  # a difference, a function and a product

    def apply(self, s: Array, total: Array, d: Array) -> Array:
        seen = np.where(np.isneginf(total), total.dtype.type(0), total)
        return np.exp(s - seen[..., None]) * d[..., None]

    def form(self, cell: Places, s: Input, total: Input, d: Input) -> Term:
        """exp(s − L) · d."""
        row = cell[:-1]
        share = call("exp", s.at(*cell) - total.at(*row)) * d.at(*row)
        return where(is_seen(s.at(*cell)), share, 0 * d.at(*row))


class SoftmaxBack(Backward, RowWise):
    """A ∘ (d − δ): raising a score takes weight from the other keys of its row."""

    signature = "... n, ... n, ... -> ... n"
    words = (
        "Raising a score takes weight from the rest of its row, so {0} are multiplied by how far {1} "
        "are above {2}, the mean that the weights give."
    )
    flops = 2  # a difference and a product

    def apply(self, a: Array, d: Array, delta: Array, *, out: Array | None = None) -> Array:
        return np.multiply(a, np.subtract(d, delta[..., None], out=out), out=out)

    def form(self, cell: Places, a: Input, d: Input, delta: Input) -> Term:
        """a · (d − δ)."""
        return a.at(*cell) * (d.at(*cell) - delta.at(*cell[:-1]))
