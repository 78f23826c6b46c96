"""Ops that bring a row to one scale: LayerNorm and RMSNorm."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, call, index, known, total
from attnctl.math.ops.base import Op, Places


@dataclass(frozen=True)
class Norm(Op):
    """A row over its own size, times a weight.

    The weight is one number a column, (d,), or a row for each head, (head, d). `heads` takes the
    columns of all heads as one row; `plus_one` multiplies by 1 + weight (Gemma).
    """

    eps: float
    heads: bool = False
    plus_one: bool = False

    centred: ClassVar[bool] = False
    """Whether the mean is taken off first."""

    @property
    def signature(self) -> str:
        """Rows of all heads need an axis of heads."""
        rows = f"(..., {'head' if self.heads else 'head?'}, token, d)"
        return f"{rows}[, (head?, d)[, (head?, d)]] -> {rows}"

    def over(self, x: Array | Input) -> tuple[int, ...]:
        """The axes of one row."""
        return (-3, -1) if self.heads else (-1,)

    def apply(self, x: Array, *factors: Array) -> Array:
        """(..., [head,] token, d)[, weight ([head,] d)[, bias ([head,] d)]] -> the same shape."""
        wide = x.astype(np.result_type(x, np.float32), copy=False)
        if self.centred:
            wide = wide - wide.mean(axis=self.over(x), keepdims=True)
        square = np.square(wide).mean(axis=self.over(x), keepdims=True)
        out = wide / np.sqrt(square + wide.dtype.type(self.eps))
        if factors:
            weight = beside(factors[0])
            out = out * (weight + 1 if self.plus_one else weight)
        if len(factors) > 1:
            out = out + beside(factors[1])
        return out.astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input, *factors: Input) -> Term:
        """(x − mean) / √(mean of squares + ε) · weight (+ bias)."""
        i, h = index(x.shape[-1]), index(x.shape[-3] if self.heads else 1, "h")
        row = (*cell[:-3], h, cell[-2], i) if self.heads else (*cell[:-1], i)
        count = prod(x.shape[axis] for axis in self.over(x))

        def over_row(body: Term) -> Term:
            return total(h, total(i, body)) if self.heads else total(i, body)

        mean = known(over_row(x.at(*row)) / count)
        each, own = (x.at(*at) - mean if self.centred else x.at(*at) for at in (row, cell))
        normed = own / call("sqrt", over_row(each * each) / count + self.eps)
        if factors:
            weight = factors[0].at(*factor_cell(factors[0], cell))
            normed = normed * (1 + weight if self.plus_one else weight)
        return normed + factors[1].at(*factor_cell(factors[1], cell)) if len(factors) > 1 else normed

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A square, a sum, a division and a product a cell."""
        return (6 if self.centred else 4) * prod(shape)


def beside(factor: Array) -> Array:
    """A weight or bias so that it broadcasts: (d,) as it is, (head, d) as (head, 1, d)."""
    return factor[:, None, :] if factor.ndim == 2 else factor


def factor_cell(factor: Input, cell: Places) -> Places:
    """The cell of a weight or bias that belongs to a cell of the result."""
    return (cell[-3], cell[-1]) if len(factor.shape) == 2 else (cell[-1],)


@dataclass(frozen=True)
class RMSNorm(Norm):
    """x / √(mean x² + ε) · weight (Zhang & Sennrich 2019)."""

    words = "Each row of {0} is divided by the root of the mean of its squares."


@dataclass(frozen=True)
class LayerNorm(Norm):
    """(x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016)."""

    words = "From each row of {0} its mean is taken away; the rest is divided by its spread."

    centred: ClassVar[bool] = True
