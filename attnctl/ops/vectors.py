"""Ops on rows: what makes Q, K and V of a sentence, and a sentence of the heads."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from attnctl.arithmetic import Call, Cell, Difference, Expr, Number, Product, Quotient, Sum
from attnctl.array import Array, Shape
from attnctl.ops.base import Op, read
from attnctl.ops.positions import rotary_angles, rotary_pairs, rotate, sinusoids
from attnctl.rules import PerBatch, per_batch


@dataclass(frozen=True)
class Sinusoid(Op):
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

    length: int
    d_model: int
    start: int = 0

    def apply(self, *inputs: Array) -> Array:
        """() -> (token, d_model)."""
        return sinusoids(self.length, self.d_model, self.start)

    def shape(self, *inputs: Shape) -> Shape:
        """() -> (token, d_model)."""
        return self.length, self.d_model

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """sin or cos of position / 10000^(2i/d)."""
        row, column = cell
        divisor = 10000.0 ** (2 * (column // 2) / self.d_model)
        angle = Quotient(Number(float(row + self.start)), Number(divisor))
        return Call("sin" if column % 2 == 0 else "cos", angle)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A division and a function a cell."""
        return 2 * prod(shape)


class Project(Op):
    """X W (+ b), for every head at once."""

    def apply(self, *inputs: Array) -> Array:
        """X (..., token, d_model), W (head, d_model, d), b (head, d) -> (..., head, token, d)."""
        x, w, *b = inputs
        out = x[..., None, :, :] @ w
        return out + b[0][:, None, :] if b else out

    def shape(self, *inputs: Shape) -> Shape:
        """(..., token, d_model), (head, d_model, d) -> (..., head, token, d)."""
        x, w, *_ = inputs
        return (*x[:-2], w[0], x[-2], w[-1])

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """Σ x·w (+ b)."""
        *batch, head, token, column = cell
        x, w, *b = inputs
        products = tuple(
            Product((read(x, 0, (*batch, token, i)), read(w, 1, (head, i, column))))
            for i in range(x.shape[-1])
        )
        return Sum(products + tuple(read(each, 2, (head, column)) for each in b))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]


@dataclass(frozen=True)
class Rotate(Op):
    """Rotary positions (Su et al. 2021): pairs of columns turned by position · θ^(−2i/dims).

    `frequencies` are given where θ does not say them (an angle is position · frequency), and
    `factor` multiplies what is turned (YaRN). Columns before `first` are not turned.
    """

    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False
    start: PerBatch = 0
    frequencies: tuple[float, ...] = ()
    factor: float = 1.0
    first: int = 0

    def angles(self, x: Array) -> Array:
        """The angle of each token and pair, ([batch, 1,] token, dims/2)."""
        positions = np.arange(x.shape[-2]) + per_batch(self.start, axes=2)
        if self.frequencies:
            # In the type of the numbers: models multiply in float32, which tells at far positions.
            wide = np.result_type(x, np.float32)
            return positions.astype(wide)[..., None] * np.array(self.frequencies, wide)
        return rotary_angles(positions, self.dims or x.shape[-1] - self.first, self.theta)

    def pairs(self, count: int) -> tuple[Array, Array]:
        """The columns (first, second) of each of so many pairs."""
        return rotary_pairs(2 * count, interleaved=self.interleaved, start=self.first)

    def apply(self, *inputs: Array) -> Array:
        """(..., head, token, d) -> the same shape, rotated."""
        (x,) = inputs
        angle = self.angles(x)
        cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        if self.factor != 1:
            cos, sin = cos * x.dtype.type(self.factor), sin * x.dtype.type(self.factor)
        return rotate(x, cos, sin, interleaved=self.interleaved, start=self.first)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a·cos α − b·sin α for the first of a pair, a·sin α + b·cos α for the second."""
        (x,) = inputs
        *lead, token, column = cell
        angles = self.angles(x)
        first, second = self.pairs(angles.shape[-1])
        where = np.flatnonzero((first == column) | (second == column))
        if not where.size:
            return read(x, 0, cell)
        pair = int(where[0])
        where_angle = (*lead, token, pair)
        angle = Number(float(np.broadcast_to(angles, (*x.shape[:-1], len(first)))[where_angle]))
        cos: Expr = Call("cos", angle)
        sin: Expr = Call("sin", angle)
        if self.factor != 1:
            cos, sin = Product((Number(self.factor), cos)), Product((Number(self.factor), sin))
        a = read(x, 0, (*lead, token, int(first[pair])))
        b = read(x, 0, (*lead, token, int(second[pair])))
        if column == first[pair]:
            return Difference(Product((a, cos)), Product((b, sin)))
        return Sum((Product((a, sin)), Product((b, cos))))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """Two products and a sum a cell."""
        return 3 * prod(shape)


class Append(Op):
    """New keys (or values) after the past ones, along the key axis."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, past, d), (..., head, new, d) -> (..., head, past + new, d)."""
        return np.concatenate(inputs, axis=-2)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., past, d), (..., new, d) -> (..., past + new, d)."""
        past, new = inputs
        return (*new[:-2], past[-2] + new[-2], new[-1])

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The cell of the past, or of the new."""
        *lead, row, column = cell
        past = inputs[0].shape[-2]
        if row < past:
            return read(inputs[0], 0, cell)
        return read(inputs[1], 1, (*lead, row - past, column))


@dataclass(frozen=True)
class Repeat(Op):
    """Each kv head serves `times` query heads in a row: h0 h0 h1 h1 (Ainslie et al. 2023)."""

    times: int

    def apply(self, *inputs: Array) -> Array:
        """(..., kv head, key, d) -> (..., head, key, d)."""
        return np.repeat(inputs[0], self.times, axis=-3)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., kv head, key, d) -> (..., head, key, d)."""
        *batch, heads, keys, d = inputs[0]
        return (*batch, heads * self.times, keys, d)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The cell of the head that is shared."""
        *lead, head, row, column = cell
        return read(inputs[0], 0, (*lead, head // self.times, row, column))


class Merge(Op):
    """The heads side by side: h0 h0 h1 h1 along the columns."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, d) -> (..., query, head · d)."""
        (z,) = inputs
        *batch, heads, queries, d = z.shape
        return z.swapaxes(-3, -2).reshape(*batch, queries, heads * d)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., head, query, d) -> (..., query, head · d)."""
        *batch, heads, queries, d = inputs[0]
        return (*batch, queries, heads * d)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The head's cell."""
        (z,) = inputs
        *batch, query, column = cell
        head, own = divmod(column, z.shape[-1])
        return read(z, 0, (*batch, head, query, own))
