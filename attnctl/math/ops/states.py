"""Ops of layers that mix tokens without attending: a state space (Mamba 2), and a short convolution.

h_t = α_t h_{t−1} + Δ_t x_t B_tᵀ, read by h_t C_t (Dao & Gu 2024, section 3). Written out it is attention
without softmax: Σ over s ≤ t of exp(g_t − g_s) (C_t · B_s) Δ_s x_s, where g_t is the sum of ln α up to t.
"""

from __future__ import annotations

from math import prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, call, index, known, total
from attnctl.math.ops.base import ForwardOnly, Places, sum_type


def sum_back(x: Array, weight: Array) -> Array:
    """Σ over the last tokens of weight · x, (…, head, token, d), in the type of sums."""
    tokens = x.shape[-2]
    kernel = weight.shape[-1]
    out = np.zeros(x.shape, sum_type(x))
    for back in range(min(kernel, tokens)):
        factor = weight[:, None, :, kernel - 1 - back]
        out[..., back:, :] += x[..., : tokens - back, :] * factor
    return out


def sum_back_at(cell: Places, x: Input, weight: Input) -> Term:
    """A cell of that sum."""
    *lead, token, column = cell
    kernel = weight.shape[-1]
    back = index(kernel, "back")
    factor = weight.at(cell[-3], column, kernel - 1 - back)
    earlier = x.at(*lead, token - back, column)
    return total(back, earlier * factor, back < token + 1)


@dataclass(frozen=True)
class MixTokens(ForwardOnly):
    """Σ over the last tokens of weight · x, each column by itself, plus a bias; 0 before the first.

    Where it is `swish`, the sum goes through silu.
    """

    signature = "... head token d, head d kernel[, head d] -> ... head token d"

    swish: bool = False

    @property
    def words(self) -> str:
        then = ", and goes through silu" if self.swish else ""
        return (
            f"Each column of {{0}} is summed over the last tokens, each times a weight[, plus {{2}}]{then}."
        )

    def apply(self, x: Array, weight: Array, *bias: Array) -> Array:
        out = sum_back(x, weight)
        if bias:
            out += bias[0][:, None, :]
        if self.swish:
            out = out / (1 + np.exp(-out))
        return out.astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input, weight: Input, *bias: Input) -> Term:
        summed = sum_back_at(cell, x, weight)
        if bias:
            summed = summed + bias[0].at(cell[-3], cell[-1])
        if not self.swish:
            return summed
        return summed / (1 + call("exp", -1 * known(summed)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        kernel = inputs[1][-1]
        has_bias = len(inputs) > 2
        own = 2 * kernel + int(has_bias)
        if self.swish:
            own += 4  # a function, a sum, a sign and a division
        return own * prod(shape)


class StepSize(ForwardOnly):
    """ln(1 + exp(x + step)): how long a token lasts for a state."""

    signature = "... head token one, head -> ... head token one"
    words = "Each number of {0} plus {1} becomes one above 0: the logarithm of 1 + its exponential."
    flops = 4  # two functions and two sums

    def apply(self, x: Array, step: Array) -> Array:
        moved = x + step[:, None, None]
        return np.logaddexp(0, moved).astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input, step: Input) -> Term:
        inside = x.at(*cell) + step.at(cell[-3])
        return call("log", 1 + call("exp", inside))


class ScaleTokens(ForwardOnly):
    """Each row times a number of its own."""

    signature = "... token d, ... token one -> ... token d"
    linear = ((0,), (1,))
    words = "Each row of {0} is multiplied by its number of {1}."
    flops = 1

    def apply(self, x: Array, size: Array) -> Array:
        return x * size[..., :1]

    def form(self, cell: Places, x: Input, size: Input) -> Term:
        *lead, _ = cell
        return x.at(*cell) * size.at(*lead, 0)


class AddSkipped(ForwardOnly):
    """z + skip · v: what a token gives without the state, times a number of each head."""

    signature = "... head token d, ... head token d, head -> ... head token d"
    linear = ((0, 1), (0, 2))
    words = "To {0} each token's own {1} is added, times {2} of its head."
    flops = 2  # a product and a sum

    def apply(self, z: Array, v: Array, skip: Array) -> Array:
        return z + v * skip[:, None, None]

    def form(self, cell: Places, z: Input, v: Input, skip: Input) -> Term:
        return z.at(*cell) + v.at(*cell) * skip.at(cell[-3])


class Multiply(ForwardOnly):
    """Each number times another."""

    signature = "..., ... -> ..."
    linear = ((0,), (1,))
    words = "Each number of {0} is multiplied by that of {1}."
    flops = 1

    def apply(self, x: Array, gate: Array) -> Array:
        return x * gate

    def form(self, cell: Places, x: Input, gate: Input) -> Term:
        return x.at(*cell) * gate.at(*cell)


@dataclass(frozen=True)
class NormInGroups(ForwardOnly):
    """x / √(mean x² + ε) · weight, the mean over as many columns as there are to each of the `groups`."""

    signature = "... d, d -> ... d"
    linear = ((1,),)
    words = "Each group of columns of {0} is divided by the root of the mean of its squares, times {1}."
    flops = 4  # a square, a sum, a division and a product

    eps: float
    groups: int = 1

    def apply(self, x: Array, weight: Array) -> Array:
        wide = x.astype(sum_type(x), copy=False)
        grouped = wide.reshape(*x.shape[:-1], self.groups, -1)
        square = np.square(grouped).mean(axis=-1, keepdims=True)
        normed = grouped / np.sqrt(square + wide.dtype.type(self.eps))
        return (normed.reshape(x.shape) * weight).astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input, weight: Input) -> Term:
        *lead, column = cell
        size = x.shape[-1] // self.groups
        i = index(size)
        each = x.at(*lead, column // size * size + i)
        mean = total(i, each * each) / size
        return x.at(*cell) / call("sqrt", mean + self.eps) * weight.at(column)
