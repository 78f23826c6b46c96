"""Ops that only trained models have: sinks, relative position buckets, gates, scaled residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, prod

import numpy as np

from attnctl.array import Array, Shape
from attnctl.notation import Input, Term, call, index, is_seen, largest, table, total, where
from attnctl.ops.base import Block, Op, Places, RowWise
from attnctl.ops.placed import Placed


@dataclass(frozen=True)
class SinkSoftmax(RowWise):
    """Softmax over keys and a sink, a logit of each head that takes a share and gives no value.

    The keys' weights sum to less than 1 (gpt-oss; Miller 2023, "Attention is off by one").
    """

    at: Block | None = None

    def block(self, at: Block) -> SinkSoftmax:
        """The same op for the block of scores that starts here."""
        return replace(self, at=at)

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., head, query, key), sink (head,) -> the same shape; rows sum to less than 1."""
        s, sink = inputs
        own = sink[:, None, None] if self.at is None else sink[self.at.head]
        top = np.maximum(s.max(axis=-1, keepdims=True), own)
        e = np.subtract(s, top, out=out)
        np.exp(e, out=e)
        total = e.sum(axis=-1, keepdims=True, dtype=np.result_type(s, np.float32)) + np.exp(own - top)
        return np.divide(e, total, out=e, casting="same_kind")

    def form(self, cell: Places, *inputs: Input) -> Term:
        """exp(s − max) / (Σ exp(s − max) + exp(sink − max)) over the keys that are seen."""
        s, sink = inputs
        *row, _ = cell
        j, own = index(s.shape[-1], "j"), sink.at(cell[-3])
        top = largest(j, s.at(*row, j), own)
        every = total(j, call("exp", s.at(*row, j) - top), seen=s.at(*row, j)) + call("exp", own - top)
        return where(is_seen(s.at(*cell)), call("exp", s.at(*cell) - top) / every, 0)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """As softmax: a maximum, a difference, a function, a sum and a division a cell."""
        return 5 * prod(shape)


class Remainder(Op):
    """1 − Σ over keys: the share of each query's weights that the sink takes."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key) -> (..., head, query)."""
        (weights,) = inputs
        total = weights.sum(axis=-1, dtype=np.result_type(weights, np.float32))
        return (1 - total).astype(weights.dtype, copy=False)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., head, query, key) -> (..., head, query)."""
        return inputs[0][:-1]

    def form(self, cell: Places, *inputs: Input) -> Term:
        """1 − Σ a."""
        (weights,) = inputs
        j = index(weights.shape[-1], "j")
        return 1 - total(j, weights.at(*cell, j))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a weight."""
        return prod(inputs[0])


@dataclass(frozen=True)
class Buckets(Placed):
    """S + a learned number for each head and bucket of the distance key − query.

    Half of the buckets of a side are exact distances, the others grow as the logarithm up to
    `furthest` (Raffel et al. 2020, section 2.1); with `both_ways` keys ahead have buckets of their own.
    """

    furthest: int = 128
    both_ways: bool = True

    def buckets(self, ahead: Array, count: int) -> Array:
        """The bucket, of so many, of each distance key − query."""
        start = np.zeros_like(ahead)
        if self.both_ways:
            count //= 2
            start = np.where(ahead > 0, count, 0)
            distance = np.abs(ahead)
        else:
            distance = np.maximum(-ahead, 0)
        exact = count // 2
        # float32, as every implementation has it: the edges of buckets depend on it.
        far = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(max(exact, 1)))
        growth = (far / np.float32(log(self.furthest / max(exact, 1))) * np.float32(count - exact)).astype(
            int
        )
        return start + np.where(distance < exact, distance, np.minimum(exact + growth, count - 1))

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(..., head, query, key), table (head, bucket) -> the shape of the scores."""
        s, table = inputs
        query, key = self.positions(s.shape)
        buckets = self.buckets(np.asarray(key - query), table.shape[-1])
        own = np.take(table if self.at is None else table[self.at.head], buckets, axis=-1)
        return np.add(s, own if own.ndim <= 3 else np.moveaxis(own, 0, 1)[:, :, 0], out=out)

    def form(self, cell: Places, *inputs: Input) -> Term:
        """s + table[bucket]."""
        s, learned = inputs
        *_, queries, keys = s.shape
        first, last = 1 - queries - int(np.max(self.offset)), keys - 1 - int(np.min(self.offset))
        buckets = self.buckets(np.arange(first, last + 1), learned.shape[-1])
        return s.at(*cell) + learned.at(cell[-3], table(buckets, self.ahead(cell) - first))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)


class Gate(Op):
    """Each number times σ(gate) = 1 / (1 + exp(−gate))."""

    def apply(self, *inputs: Array) -> Array:
        """(...), (...) -> the same shape."""
        x, gate = inputs
        return x / (1 + np.exp(-gate))

    def form(self, cell: Places, *inputs: Input) -> Term:
        """x / (1 + exp(−g))."""
        x, gate = inputs
        return x.at(*cell) / (1 + call("exp", -1 * gate.at(*cell)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A function, a sum and a division a cell."""
        return 3 * prod(shape)


@dataclass(frozen=True)
class AddScaled(Op):
    """a + factor · b."""

    factor: float

    def apply(self, *inputs: Array) -> Array:
        """(...), (...) -> the same shape."""
        a, b = inputs
        return a + b * b.dtype.type(self.factor)

    def form(self, cell: Places, *inputs: Input) -> Term:
        """a + f·b."""
        a, b = inputs
        return a.at(*cell) + self.factor * b.at(*cell)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A product and a sum a cell."""
        return 2 * prod(shape)


class Beside(Op):
    """The columns of each head, then those that all heads share."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, token, a), (..., token, b) -> (..., head, token, a + b)."""
        own, shared = inputs
        spread = np.broadcast_to(shared[..., None, :, :], (*own.shape[:-1], shared.shape[-1]))
        return np.concatenate([own, spread], axis=-1)

    def shape(self, *inputs: Shape) -> Shape:
        """(..., head, token, a), (..., token, b) -> (..., head, token, a + b)."""
        own, shared = inputs
        return (*own[:-1], own[-1] + shared[-1])

    def form(self, cell: Places, *inputs: Input) -> Term:
        """The cell of the head, or the shared one."""
        own, shared = inputs
        *batch, _, token, column = cell
        width = own.shape[-1]
        return where(column < width, own.at(*cell), shared.at(*batch, token, column - width))
