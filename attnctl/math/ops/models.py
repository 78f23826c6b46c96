"""Ops that only trained models have: sinks, relative position buckets, gates, scaled residuals."""

from __future__ import annotations

from dataclasses import replace
from math import log, prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.notation import Input, Term, call, index, is_seen, largest, table, total, where
from attnctl.math.ops.base import Block, Op, Places, RowWise
from attnctl.math.ops.placed import Placed


@dataclass(frozen=True)
class SinkSoftmax(RowWise):
    """Softmax over keys and a sink, a logit of each head that takes a share and gives no value.

    The keys' weights sum to less than 1 (gpt-oss; Miller 2023, "Attention is off by one").
    """

    signature = "(..., head, query, key), (head) -> (..., head, query, key)"
    words = "Softmax turns each row into shares; a sink takes one, too, and gives no value."

    at: Block | None = None

    def block(self, at: Block) -> SinkSoftmax:
        """The same op for the block of scores that starts here."""
        return replace(self, at=at)

    def apply(self, s: Array, sink: Array, *, out: Array | None = None) -> Array:
        own = sink[:, None, None] if self.at is None else sink[self.at.head]
        top = np.maximum(s.max(axis=-1, keepdims=True), own)
        e = np.subtract(s, top, out=out)
        np.exp(e, out=e)
        total = e.sum(axis=-1, keepdims=True, dtype=np.result_type(s, np.float32)) + np.exp(own - top)
        return np.divide(e, total, out=e, casting="same_kind")

    def form(self, cell: Places, s: Input, sink: Input) -> Term:
        """exp(s − max) / (Σ exp(s − max) + exp(sink − max)) over the keys that are seen."""
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

    signature = "(..., query, key) -> (..., query)"
    words = "What the {0} of a row lack to 1 is the share of the sink."

    def apply(self, weights: Array) -> Array:
        total = weights.sum(axis=-1, dtype=np.result_type(weights, np.float32))
        return (1 - total).astype(weights.dtype, copy=False)

    def form(self, cell: Places, weights: Input) -> Term:
        """1 − Σ a."""
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

    signature = "(batch?, head, query, key), (head, bucket) -> (batch?, head, query, key)"
    words = "To each of the {0} a learned number is added, by head and by distance of the key."

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

    def apply(self, s: Array, table: Array, *, out: Array | None = None) -> Array:
        query, key = self.positions(s.shape)
        buckets = self.buckets(np.asarray(key - query), table.shape[-1])
        own = np.take(table if self.at is None else table[self.at.head], buckets, axis=-1)
        return np.add(s, own if own.ndim <= 3 else np.moveaxis(own, 0, 1)[:, :, 0], out=out)

    def form(self, cell: Places, s: Input, learned: Input) -> Term:
        """s + table[bucket]."""
        *_, queries, keys = s.shape
        first, last = 1 - queries - int(np.max(self.offset)), keys - 1 - int(np.min(self.offset))
        buckets = self.buckets(np.arange(first, last + 1), learned.shape[-1])
        return s.at(*cell) + learned.at(cell[-3], table(buckets, self.ahead(cell) - first))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)


class Gate(Op):
    """Each number times σ(gate) = 1 / (1 + exp(−gate))."""

    signature = "(...), (...) -> (...)"
    words = "Each number of {0} is multiplied by a gate between 0 and 1, the sigmoid of {1}."

    def apply(self, x: Array, gate: Array) -> Array:
        return x / (1 + np.exp(-gate))

    def form(self, cell: Places, x: Input, gate: Input) -> Term:
        """x / (1 + exp(−g))."""
        return x.at(*cell) / (1 + call("exp", -1 * gate.at(*cell)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A function, a sum and a division a cell."""
        return 3 * prod(shape)


@dataclass(frozen=True)
class AddScaled(Op):
    """a + factor · b."""

    signature = "(...), (...) -> (...)"
    words = "{1} is multiplied by {op.factor:g} and added to {0}."

    factor: float

    def apply(self, a: Array, b: Array) -> Array:
        return a + b * b.dtype.type(self.factor)

    def form(self, cell: Places, a: Input, b: Input) -> Term:
        """a + f·b."""
        return a.at(*cell) + self.factor * b.at(*cell)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A product and a sum a cell."""
        return 2 * prod(shape)


class Beside(Op):
    """The columns of each head, then those that all heads share."""

    signature = "(..., head, token, a), (..., token, b) -> (..., head, token, a + b)"
    words = "The columns of {1}, the same for all heads, are put beside those of {0}."

    def apply(self, own: Array, shared: Array) -> Array:
        spread = np.broadcast_to(shared[..., None, :, :], (*own.shape[:-1], shared.shape[-1]))
        return np.concatenate([own, spread], axis=-1)

    def form(self, cell: Places, own: Input, shared: Input) -> Term:
        """The cell of the head, or the shared one."""
        *batch, _, token, column = cell
        width = own.shape[-1]
        return where(column < width, own.at(*cell), shared.at(*batch, token, column - width))
