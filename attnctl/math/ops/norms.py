"""Ops that bring a row to one scale, LayerNorm and RMSNorm; and one that scales its columns."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.notation import Input, Term, call, index, known, sum_over, total
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Op, Places, sum_type
from attnctl.math.ops.products import Contraction, SumRows, SumTokens


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
        rows = f"... {'head' if self.heads else 'head?'} token d"
        return f"{rows}[, head? d[, head? d]] -> {rows}"

    def over(self, x: Array | Input) -> tuple[int, ...]:
        """The axes of one row."""
        return (-3, -1) if self.heads else (-1,)

    def apply(self, x: Array, *factors: Array) -> Array:
        """(..., [head,] token, d)[, weight ([head,] d)[, bias ([head,] d)]] -> the same shape."""
        out, _ = self.normalize(x)
        if factors:
            out = out * self.factor(factors[0])
        if len(factors) > 1:
            out = out + broadcast_factor(factors[1])
        return out.astype(x.dtype, copy=False)

    def normalize(self, x: Array) -> tuple[Array, Array]:
        """The rows without their weight, and the root that each was divided by."""
        wide = x.astype(sum_type(x), copy=False)
        if self.centred:
            wide = wide - wide.mean(axis=self.over(x), keepdims=True)
        square = np.square(wide).mean(axis=self.over(x), keepdims=True)
        root = np.sqrt(square + wide.dtype.type(self.eps))
        return wide / root, root

    def factor(self, weight: Array) -> Array:
        """The weight that rows are multiplied by; some models store it less one."""
        return broadcast_factor(weight) + 1 if self.plus_one else broadcast_factor(weight)

    def form(self, cell: Places, x: Input, *factors: Input) -> Term:
        """(x − mean) / √(mean of squares + ε) · weight (+ bias)."""
        centred, root = RowTerms(self, cell, x).parts(cell)
        normed = centred / root
        if factors:
            weight = read_factor(factors[0], cell)
            normed = normed * (1 + weight if self.plus_one else weight)
        if len(factors) > 1:
            normed = normed + read_factor(factors[1], cell)
        return normed

    def adjoint(self, line: Line, d: str) -> Gradients:
        x, *factors = line.inputs
        own: Any = self
        by_head = bool(factors) and len(line.axes[1]) == 2

        g = f"{d} ∘ {factors[0]}" if factors else d
        taken_off = f"its mean and what lies along {x}" if self.centred else f"what lies along {x}"
        formula = f"({g} without {taken_off}) / the root of {x}"
        yield Gradient(x, NormBack(own, by_head), (d, x, *factors[:1]), formula)

        for weight in factors[:1]:
            yield Gradient(weight, NormWeightBack(own, by_head), (d, x), f"Σ over rows of {d} ∘ {x} normed")
        for bias in factors[1:]:
            has_heads = len(line.axes[2]) == 2
            op = SumTokens() if has_heads else SumRows()
            yield Gradient(bias, op, (d,), f"Σ over rows of {d}")


def normed_axes(norm: Norm, *, by_head: bool) -> str:
    """The axes of rows that are normed, with heads where a weight or a row needs them."""
    return "... head token d" if by_head or norm.heads else "... token d"


class RowTerms:
    """A row of a norm in index notation: its cells, sums over them, and its mean, worked out `once`."""

    def __init__(self, norm: Norm, cell: Places, x: Input, once: Callable[[Term], Term] = known) -> None:
        self.norm = norm
        self.x = x
        self.i = index(x.shape[-1])
        self.h = index(x.shape[-3] if norm.heads else 1, "h")
        if norm.heads:
            self.row = (*cell[:-3], self.h, cell[-2], self.i)
        else:
            self.row = (*cell[:-1], self.i)

        self.count = prod(x.shape[axis] for axis in norm.over(x))
        self.mean = once(self.average(x.at(*self.row)))

    def average(self, body: Term) -> Term:
        """The mean of a number for each column of the row."""
        summed = total(self.i, body)
        if self.norm.heads:
            summed = total(self.h, summed)
        return summed / self.count

    def center(self, cell: Places) -> Term:
        """A cell without the mean, where that is taken off."""
        return self.x.at(*cell) - self.mean if self.norm.centred else self.x.at(*cell)

    def parts(self, cell: Places) -> tuple[Term, Term]:
        """A cell, and the root that it is divided by."""
        each = self.center(self.row)
        root = call("sqrt", self.average(each * each) + self.norm.eps)
        return self.center(cell), root


def broadcast_factor(factor: Array) -> Array:
    """A weight or bias so that it broadcasts: (d,) as it is, (head, d) as (head, 1, d)."""
    return factor[:, None, :] if factor.ndim == 2 else factor


def read_factor(factor: Input, cell: Places) -> Term:
    """The number of a weight or bias that belongs to a cell of the result."""
    has_heads = len(factor.shape) == 2
    return factor.at(cell[-3], cell[-1]) if has_heads else factor.at(cell[-1])


@dataclass(frozen=True)
class RMSNorm(Norm):
    """x / √(mean x² + ε) · weight (Zhang & Sennrich 2019)."""

    words = "Each row of {0} is divided by the root of the mean of its squares."
    flops = 4  # a square, a sum, a division and a product


@dataclass(frozen=True)
class LayerNorm(Norm):
    """(x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016)."""

    words = "From each row of {0} its mean is taken away; the rest is divided by its spread."
    flops = 6  # the mean, too: a sum and a difference
    centred: ClassVar[bool] = True


@dataclass(frozen=True)
class NormBack(Backward):
    """(g − mean g − n · mean(g ∘ n)) / root, g = d ∘ weight, n the row normed; RMSNorm has no mean g."""

    linear = ((0,),)
    flops = 10  # the norm once more, and as much again

    norm: RMSNorm | LayerNorm
    by_head: bool = False

    @property
    def signature(self) -> str:
        rows = normed_axes(self.norm, by_head=self.by_head)
        return f"{rows}, {rows}[, {'head d' if self.by_head else 'd'}] -> {rows}"

    @property
    def words(self) -> str:
        both = "its mean, and what" if self.norm.centred else "what"
        return f"A norm undoes a change of a row's size: {both} of {{0}} lies along {{1}} is taken off."

    def apply(self, d: Array, x: Array, *weight: Array) -> Array:
        axes = self.norm.over(x)
        normed, root = self.norm.normalize(x)
        g = d.astype(normed.dtype, copy=False)
        if weight:
            g = g * self.norm.factor(weight[0])

        along = (g * normed).mean(axis=axes, keepdims=True)
        rest = g - normed * along
        if self.norm.centred:
            rest = rest - g.mean(axis=axes, keepdims=True)
        return (rest / root).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, x: Input, *weight: Input) -> Term:
        row = RowTerms(self.norm, cell, x)

        def g(at: Places) -> Term:
            if not weight:
                return d.at(*at)
            factor = read_factor(weight[0], at)
            return d.at(*at) * (1 + factor if self.norm.plus_one else factor)

        centred, root = row.parts(cell)
        root = known(root)
        along = known(row.average(g(row.row) * row.center(row.row)))
        rest = g(cell) - centred * along / (root * root)
        if self.norm.centred:
            rest = rest - row.average(g(row.row))
        return rest / root


@dataclass(frozen=True)
class NormWeightBack(Backward):
    """Σ over rows of d ∘ the row normed; for each head where each has a weight of its own."""

    linear = ((0,),)
    words = "{0} are multiplied by {1}, normed, and added up over the rows that share a weight."
    flops_read = 6  # the norm once more, a product and a sum

    norm: RMSNorm | LayerNorm
    by_head: bool = False

    @property
    def signature(self) -> str:
        rows = normed_axes(self.norm, by_head=self.by_head)
        return f"{rows}, {rows} -> {'head d' if self.by_head else 'd'}"

    def apply(self, d: Array, x: Array) -> Array:
        normed, _ = self.norm.normalize(x)
        last = d.ndim - 1
        kept = {last, last - 2} if self.by_head else {last}
        summed = tuple(set(range(d.ndim)) - kept)
        return (d * normed).sum(axis=summed).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, x: Input) -> Term:
        last = len(d.shape) - 1
        kept = (last - 2, last) if self.by_head else (last,)
        place_of = dict(zip(kept, cell, strict=True))
        summed: list[Term] = []
        for axis, size in enumerate(d.shape):
            if axis not in kept:
                i = index(size, f"r_{axis}")
                summed.append(i)
                place_of[axis] = i

        places = [place_of[axis] for axis in range(len(d.shape))]
        # The mean is worked out at each place: what is `known` reads at no index of a sum around it.
        centred, root = RowTerms(self.norm, places, x, once=lambda mean: mean).parts(places)
        return sum_over(summed, d.at(*places) * centred / root)


class ScaleColumns(Op):
    """x ∘ λ, a number for each column: LayerScale (Touvron et al. 2021)."""

    signature = "... token d, d -> ... token d"
    linear = ((0,), (1,))
    words = "Each column of {0} is multiplied by its number of {1}."
    flops = 1  # a product

    def apply(self, x: Array, factors: Array) -> Array:
        return x * factors

    def form(self, cell: Places, x: Input, factors: Input) -> Term:
        return x.at(*cell) * factors.at(cell[-1])

    def adjoint(self, line: Line, d: str) -> Gradients:
        x, factors = line.inputs
        yield Gradient(x, ScaleColumns(), (d, factors), f"{d} ∘ {factors}")
        yield Gradient(factors, SumProducts(), (d, x), f"Σ over rows of {d} ∘ {x}")


class ScaleHeads(Op):
    """x ∘ s, a number for each head: what is stored in few bits times the scale that it is stored by."""

    signature = "... head token d, head -> ... head token d"
    linear = ((0,), (1,))
    words = "Each head of {0} is multiplied by its number of {1}."
    flops = 1  # a product

    def apply(self, x: Array, factors: Array) -> Array:
        return x * factors[:, None, None]

    def form(self, cell: Places, x: Input, factors: Input) -> Term:
        return x.at(*cell) * factors.at(cell[-3])

    def adjoint(self, line: Line, d: str) -> Gradients:
        x, factors = line.inputs
        yield Gradient(x, ScaleHeads(), (d, factors), f"{d} ∘ {factors}")
        yield Gradient(factors, SumProductsOfHeads(), (d, x), f"Σ over each head of {d} ∘ {x}")


class SumProductsOfHeads(Contraction):
    """Σ over tokens and columns of a ∘ b, for each head."""

    signature = "... h m p, ... h m p -> h"
    words = "{0} and {1} are multiplied, number by number, and the products of each head are added up."


class SumProducts(Contraction):
    """Σ over rows of a ∘ b, for each column."""

    signature = "... m p, ... m p -> p"
    words = "{0} and {1} are multiplied, number by number, and the rows of products are added up."
