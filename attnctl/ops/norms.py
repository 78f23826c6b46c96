"""Ops that bring a row to one scale: LayerNorm and RMSNorm."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from attnctl.arithmetic import Call, Cell, Difference, Expr, Number, Product, Quotient, Sum
from attnctl.array import Array, Shape
from attnctl.ops.base import Op, read


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

    def over(self, x: Array) -> tuple[int, ...]:
        """The axes of one row."""
        return (-3, -1) if self.heads else (-1,)

    def apply(self, *inputs: Array) -> Array:
        """(..., [head,] token, d)[, weight ([head,] d)[, bias ([head,] d)]] -> the same shape."""
        x, *factors = inputs
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

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """(x − mean) / √(mean of squares + ε) · weight (+ bias)."""
        x, *factors = inputs
        cells = self.row(cell, x.shape)
        mean = Number(float(np.mean([float(x[each]) for each in cells])) if self.centred else 0.0)

        def part(at: Cell) -> Expr:
            return Difference(read(x, 0, at), mean) if self.centred else read(x, 0, at)

        squares = Sum(tuple(Product((part(each), part(each))) for each in cells))
        size = Call("sqrt", Sum((Quotient(squares, Number(float(len(cells)))), Number(self.eps))))
        own: Expr = Quotient(part(cell), size)
        if factors:
            weight: Expr = read(factors[0], 1, factor_cell(factors[0], cell))
            own = Product((own, Sum((Number(1.0), weight)) if self.plus_one else weight))
        return Sum((own, read(factors[1], 2, factor_cell(factors[1], cell)))) if len(factors) > 1 else own

    def row(self, cell: Cell, shape: Shape) -> list[Cell]:
        """The cells of the row that a cell is in."""
        if not self.heads:
            return [(*cell[:-1], column) for column in range(shape[-1])]
        *batch, _, token, _ = cell
        return [(*batch, head, token, column) for head in range(shape[-3]) for column in range(shape[-1])]

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A square, a sum, a division and a product a cell."""
        return (6 if self.centred else 4) * prod(shape)


def beside(factor: Array) -> Array:
    """A weight or bias so that it broadcasts: (d,) as it is, (head, d) as (head, 1, d)."""
    return factor[:, None, :] if factor.ndim == 2 else factor


def factor_cell(factor: Array, cell: Cell) -> Cell:
    """The cell of a weight or bias that belongs to a cell of the result."""
    return (cell[-3], cell[-1]) if factor.ndim == 2 else (cell[-1],)


@dataclass(frozen=True)
class RMSNorm(Norm):
    """x / √(mean x² + ε) · weight (Zhang & Sennrich 2019)."""


@dataclass(frozen=True)
class LayerNorm(Norm):
    """(x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016)."""

    centred: ClassVar[bool] = True
