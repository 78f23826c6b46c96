"""Ops of the gated delta rule, whose layers carry a state from token to token instead of attending.

S_t = α_t S_{t−1} (I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, read by S_t q_t (Yang et al. 2025, equation 10).
Written out it is attention without softmax: S_t = Σ over s ≤ t of exp(g_t − g_s) u_s k_sᵀ, where g_t is
the sum of ln α up to t, and u_s what token s writes (Yang et al. 2024, section 3.2).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, call, index, known, total, where
from attnctl.math.ops.base import Block, ForwardOnly, Places, RowWise, sum_type
from attnctl.math.ops.states import sum_back, sum_back_at


class Convolve(ForwardOnly):
    """silu(Σ over the last tokens of weight · x), each column by itself; there is 0 before the first."""

    signature = "... head token d, head d kernel -> ... head token d"
    words = "Each column of {0} is summed over the last tokens, each times a weight, and goes through silu."

    def apply(self, x: Array, weight: Array) -> Array:
        out = sum_back(x, weight)
        swish = out / (1 + np.exp(-out))
        return swish.astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input, weight: Input) -> Term:
        summed = sum_back_at(cell, x, weight)
        return summed / (1 + call("exp", -1 * known(summed)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        kernel = inputs[1][-1]
        return (2 * kernel + 4) * prod(shape)  # products and sums; a function, a sum and a division


class Sigmoid(ForwardOnly):
    """σ(x) = 1 / (1 + exp(−x))."""

    signature = "... -> ..."
    words = "Each number of {0} becomes one between 0 and 1, its sigmoid."
    flops = 3  # a function, a sum and a division

    def apply(self, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def form(self, cell: Places, x: Input) -> Term:
        return 1 / (1 + call("exp", -1 * x.at(*cell)))


class SwishGate(ForwardOnly):
    """Each number times silu(gate) = gate / (1 + exp(−gate))."""

    signature = "..., ... -> ..."
    linear = ((0,),)
    words = "Each number of {0} is multiplied by {1}, and by the sigmoid of that."
    flops = 4  # a product, a function, a sum and a division

    def apply(self, x: Array, gate: Array) -> Array:
        return x * gate / (1 + np.exp(-gate))

    def form(self, cell: Places, x: Input, gate: Input) -> Term:
        g = gate.at(*cell)
        return x.at(*cell) * g / (1 + call("exp", -1 * g))


class LogDecay(ForwardOnly):
    """−exp(rate) · Σ up to the token of ln(1 + exp(x + step)): ln of what is left of the first state."""

    signature = "... head token one, head, head -> ... head token one"
    words = "What is left of a state after each token is multiplied up: {0} are the sums of its logarithms."
    flops = 7  # two functions, four sums and a product

    def apply(self, x: Array, rate: Array, step: Array) -> Array:
        by_token = np.logaddexp(0, x + step[:, None, None])
        summed = by_token.cumsum(axis=-2, dtype=sum_type(x)).astype(x.dtype)
        by_head = np.exp(rate)[:, None, None]
        return -by_head * summed

    def form(self, cell: Places, x: Input, rate: Input, step: Input) -> Term:
        *lead, token, one = cell
        head = cell[-3]
        s = index(x.shape[-2], "s")
        inside = x.at(*lead, s, one) + step.at(head)
        softplus = call("log", 1 + call("exp", inside))
        summed = total(s, softplus, s < token + 1)
        return -1 * call("exp", rate.at(head)) * summed


@dataclass(frozen=True)
class Fade(RowWise, ForwardOnly):
    """S · exp(g_t − g_s) for a key s up to the query t, 0 after it."""

    signature = "... token token, ... token one -> ... token token"
    linear = ((0,),)
    words = (
        "What a query takes of each key fades by the decay between the two; later keys are not there yet."
    )
    flops = 3  # a difference, a function and a product
    never_larger = True

    at: Block | None = None

    def block(self, at: Block) -> Fade:
        return replace(self, at=at)

    def apply(self, s: Array, decay: Array, *, out: Array | None = None) -> Array:
        *_, queries, keys = s.shape
        at = self.at or Block()
        of_queries = decay[..., at.query : at.query + queries, 0]
        of_keys = decay[..., at.key : at.key + keys, 0]
        between = of_queries[..., :, None] - of_keys[..., None, :]
        faded = np.multiply(s, np.exp(between), out=out)

        query = np.arange(at.query, at.query + queries)
        key = np.arange(at.key, at.key + keys)
        is_later = key > query[:, None]
        faded[..., is_later] = 0
        return faded

    def form(self, cell: Places, s: Input, decay: Input) -> Term:
        *lead, query, key = cell
        between = decay.at(*lead, query, 0) - decay.at(*lead, key, 0)
        faded = s.at(*cell) * call("exp", between)
        return where(key < query + 1, faded, 0)


class Write(ForwardOnly):
    """u_t = β_t (v_t − Σ over s < t of exp(g_t − g_s) (k_t · k_s) u_s): v_t less what is there for k_t."""

    signature = "... token d_k, ... token d_v, ... token one, ... token one -> ... token d_v"
    linear = ((1,),)
    words = "Each token writes its {1} less what the state holds for its {0} already, times {2}."
    recurrent: ClassVar[bool] = True
    flops_term = 5  # a decay; a product and a sum to read, and to write

    def apply(self, k: Array, v: Array, beta: Array, decay: Array) -> Array:
        tokens, d_v = v.shape[-2:]
        wide = sum_type(v)
        written = np.empty(v.shape, wide)
        state = np.zeros((*k.shape[:-2], k.shape[-1], d_v), wide)
        alpha = np.exp(np.diff(decay.astype(wide), axis=-2, prepend=wide.type(0)))

        for token in range(tokens):
            key = k[..., token, :, None]
            state *= alpha[..., token, :1, None]
            held = (key * state).sum(axis=-2)
            new = beta[..., token, :1] * (v[..., token, :] - held)
            written[..., token, :] = new
            state += key * written[..., token, None, :]
        return written.astype(v.dtype, copy=False)

    def form(self, cell: Places, k: Input, v: Input, beta: Input, decay: Input, own: Input) -> Term:
        *lead, token, column = cell
        s = index(v.shape[-2], "s")
        i = index(k.shape[-1], "i")
        between = decay.at(*lead, token, 0) - decay.at(*lead, s, 0)
        alike = total(i, k.at(*lead, token, i) * k.at(*lead, s, i))
        written = own.at(*lead, s, column)
        held = total(s, call("exp", between) * alike * written, s < token)
        return beta.at(*lead, token, 0) * (v.at(*cell) - held)
