"""Ops that come with trained models: sinks, relative position buckets, gates, temperatures, scaled sums."""

from __future__ import annotations

from dataclasses import replace
from math import log, prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.names import DELTA
from attnctl.math.notation import (
    Input,
    Place,
    Term,
    call,
    entry,
    index,
    is_seen,
    largest,
    sum_over,
    total,
    where,
)
from attnctl.math.ops.base import (
    Add,
    Backward,
    Block,
    Copy,
    Gradient,
    Gradients,
    Line,
    Op,
    Places,
    RowWise,
    sum_type,
)
from attnctl.math.ops.scores import Placed, Scale, Softmax
from attnctl.math.rules import PerBatch, per_batch


@dataclass(frozen=True)
class SinkSoftmax(RowWise):
    """Softmax over keys and a sink, a logit of each head that takes a share and gives no value.

    The keys' weights sum to less than 1 (gpt-oss; Miller 2023, "Attention is off by one").
    """

    signature = "... head query key, head -> ... head query key"
    words = "Softmax turns each row into shares; a sink takes one, too, and gives no value."
    flops = 5  # as softmax: a maximum, a difference, a function, a sum and a division
    never_larger = True

    at: Block | None = None

    def block(self, at: Block) -> SinkSoftmax:
        return replace(self, at=at)

    def apply(self, s: Array, sink: Array, *, out: Array | None = None) -> Array:
        logit = sink[:, None, None] if self.at is None else sink[self.at.head]
        top = np.maximum(s.max(axis=-1, keepdims=True), logit)
        e = np.subtract(s, top, out=out)
        np.exp(e, out=e)
        of_keys = e.sum(axis=-1, keepdims=True, dtype=sum_type(s))
        of_sink = np.exp(logit - top)
        return np.divide(e, of_keys + of_sink, out=e, casting="same_kind")

    def form(self, cell: Places, s: Input, sink: Input) -> Term:
        """exp(s − max) / (Σ exp(s − max) + exp(sink − max)) over the keys that are seen."""
        *row, column = cell
        j = index(s.shape[-1], "j")
        logit = sink.at(cell[-3])
        top = largest(j, s.at(*row, j), logit)

        def grown(key: Place) -> Term:
            return call("exp", s.at(*row, key) - top)

        of_keys = total(j, grown(j), is_seen(s.at(*row, j)))
        of_sink = call("exp", logit - top)
        share = grown(column) / (of_keys + of_sink)
        return where(is_seen(s.at(*cell)), share, 0)

    def adjoint(self, line: Line, d: str) -> Gradients:
        scores, sink = line.inputs
        yield from Softmax().adjoint(line._replace(inputs=(scores,)), d)
        formula = f"−Σ over queries of (1 − Σ {line.name}) · {DELTA}"
        yield Gradient(sink, SinkBack(), (line.name, DELTA), formula)


class SinkBack(Backward):
    """−Σ over queries of the sink's share times δ: it takes weight and gives no value for it."""

    signature = "... head query n, ... head query -> head"
    linear = ((1,),)
    words = "The share that the sink takes of each row is multiplied by {1}; the sum of a head, taken off."
    flops_read = 1  # an addition

    def apply(self, a: Array, delta: Array) -> Array:
        of_keys = a.sum(axis=-1, dtype=sum_type(a))
        lost = (1 - of_keys) * delta
        head_axis = lost.ndim - 2
        others = tuple(axis for axis in range(lost.ndim) if axis != head_axis)
        return (-lost.sum(axis=others)).astype(a.dtype, copy=False)

    def form(self, cell: Places, a: Input, delta: Input) -> Term:
        members = [index(size, f"i_{at}") for at, size in enumerate(delta.shape[:-2])]
        query = index(delta.shape[-1], "q")
        j = index(a.shape[-1], "j")
        row = (*members, *cell, query)
        of_sink = 1 - total(j, a.at(*row, j))
        return -1 * sum_over((query, *members), of_sink * delta.at(*row))


class Remainder(Op):
    """1 − Σ over keys: the share of each query's weights that the sink takes."""

    signature = "... query key -> ... query"
    words = "What the {0} of a row lack to 1 is the share of the sink."
    flops_read = 1  # an addition

    def apply(self, weights: Array) -> Array:
        total = weights.sum(axis=-1, dtype=sum_type(weights))
        return (1 - total).astype(weights.dtype, copy=False)

    def form(self, cell: Places, weights: Input) -> Term:
        j = index(weights.shape[-1], "j")
        return 1 - total(j, weights.at(*cell, j))

    def adjoint(self, line: Line, d: str) -> Gradients:
        (weights,) = line.inputs
        yield Gradient(weights, RemainderBack(), (d, weights), f"−{d} for every key")


class RemainderBack(Backward):
    """−d for every key: what a key gains the sink loses."""

    signature = "... query, ... query key -> ... query key"
    linear = ((0,),)
    words = "What a key gains the sink loses: {0}, taken off at every key."

    def apply(self, d: Array, weights: Array) -> Array:
        return np.broadcast_to(-d[..., None], weights.shape).copy()

    def form(self, cell: Places, d: Input, weights: Input) -> Term:
        return -1 * d.at(*cell[:-1])


@dataclass(frozen=True)
class Buckets(Placed):
    """S + a learned number for each head and bucket of the distance key − query.

    Half of the buckets of a side are exact distances, the others grow as the logarithm up to
    `furthest` (Raffel et al. 2020, section 2.1); with `both_ways` keys ahead have buckets of their own.
    """

    signature = "batch? head query key, head bucket -> batch? head query key"
    linear = ((0, 1),)
    words = "To each of the {0} a learned number is added, by head and by distance of the key."
    flops = 1  # an addition

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
        near = max(exact, 1)
        last = max(count, 1) - 1
        # float32, as every implementation has it: the edges of buckets depend on it.
        far = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near))
        whole = np.float32(log(max(self.furthest, near + 1) / near))
        growth = (far / whole * np.float32(count - exact)).astype(int)
        logarithmic = np.minimum(exact + growth, last)
        return start + np.where(distance < exact, distance, logarithmic)

    def apply(self, s: Array, table: Array, *, out: Array | None = None) -> Array:
        query, key = self.positions(s.shape)
        buckets = self.buckets(np.asarray(key - query), table.shape[-1])
        of_heads = table if self.at is None else table[self.at.head]
        bias = np.take(of_heads, buckets, axis=-1)
        if bias.ndim > 3:  # members have distances of their own: (head, batch, 1, query, key)
            bias = np.moveaxis(bias, 0, 1)[:, :, 0]
        return np.add(s, bias, out=out)

    def form(self, cell: Places, s: Input, learned: Input) -> Term:
        return s.at(*cell) + learned.at(cell[-3], self.bucket_of(cell, s.shape, learned.shape[-1]))

    largest_score = Add.largest_score  # the table's largest number on top

    def bucket_of(self, cell: Places, shape: Shape, count: int) -> Term:
        """The bucket, of so many, of a cell of scores of this shape."""
        first, last = self.reach(shape)
        by_distance = self.buckets(np.arange(first, last + 1), count)
        return entry(by_distance, self.ahead(cell) - first)

    def adjoint(self, line: Line, d: str) -> Gradients:
        scores, learned = line.inputs
        yield Gradient(scores, Copy(), (d,), d)
        back = BucketsBack(
            self.offset, places=self.places, furthest=self.furthest, both_ways=self.both_ways
        )
        yield Gradient(learned, back, (d, learned), f"Σ over the cells of a bucket of {d}")


@dataclass(frozen=True)
class BucketsBack(Backward):
    """Σ d over the cells whose distance is in a bucket, for each head."""

    signature = "batch? head query key, head bucket -> head bucket"
    linear = ((0,),)
    words = "For each head and bucket, {0} are added up over the cells that read it."
    flops_read = 1  # an addition

    offset: PerBatch = 0
    at: Block | None = None
    places: tuple[tuple[int, ...], ...] = ()
    furthest: int = 128
    both_ways: bool = True

    @property
    def forward(self) -> Buckets:
        return Buckets(self.offset, self.at, self.places, furthest=self.furthest, both_ways=self.both_ways)

    def apply(self, d: Array, table: Array) -> Array:
        query, key = self.forward.positions(d.shape)
        buckets = self.forward.buckets(np.asarray(key - query), table.shape[-1])
        if buckets.ndim == 4:  # members have distances of their own
            buckets = buckets[:, 0]

        by_head = np.moveaxis(d, -3, 0)
        bucket_of_cell = np.broadcast_to(buckets, by_head.shape[1:]).reshape(-1)
        cells = by_head.reshape(len(by_head), -1)
        sums = np.zeros(table.shape[::-1])  # (bucket, head), as `add.at` takes them
        np.add.at(sums, bucket_of_cell, cells.T)
        return sums.T.astype(d.dtype)

    def form(self, cell: Places, d: Input, learned: Input) -> Term:
        head, bucket = cell
        sizes = (*d.shape[:-3], *d.shape[-2:])
        names = "bqk" if len(sizes) == 3 else "qk"
        places = [index(size, name) for size, name in zip(sizes, names, strict=True)]
        *members, row, column = places

        own = (*members, head, row, column)
        count = learned.shape[-1]
        bucket_of_own = self.forward.bucket_of(own, d.shape, count)
        is_same = entry(np.eye(count), bucket_of_own, bucket)
        return sum_over(reversed(places), where(is_same, d.at(*own), 0))


class Gate(Op):
    """Each number times σ(gate) = 1 / (1 + exp(−gate))."""

    signature = "..., ... -> ..."
    linear = ((0,),)
    words = "Each number of {0} is multiplied by a gate between 0 and 1, the sigmoid of {1}."
    flops = 3  # a function, a sum and a division

    def apply(self, x: Array, gate: Array) -> Array:
        return x / (1 + np.exp(-gate))

    def form(self, cell: Places, x: Input, gate: Input) -> Term:
        return x.at(*cell) / (1 + call("exp", -1 * gate.at(*cell)))

    def adjoint(self, line: Line, d: str) -> Gradients:
        x, gate = line.inputs
        yield Gradient(x, Gate(), (d, gate), f"{d} · σ({gate})")
        yield Gradient(gate, GateBack(), (d, x, gate), f"{d} · {x} · σ({gate}) · (1 − σ({gate}))")


class GateBack(Backward):
    """d · x · σ(g) · (1 − σ(g)), the slope of the sigmoid."""

    signature = "..., ..., ... -> ..."
    linear = ((0,), (1,))
    words = "{0} are multiplied by {1} and by the slope of the sigmoid at {2}."
    flops = 6  # a function, a division, a difference and three products

    def apply(self, d: Array, x: Array, gate: Array) -> Array:
        grown = np.exp(-np.abs(gate))  # the slope is even, and this does not overflow
        return d * x * grown / np.square(1 + grown)

    def form(self, cell: Places, d: Input, x: Input, gate: Input) -> Term:
        grown = call("exp", -1 * gate.at(*cell))
        return d.at(*cell) * x.at(*cell) * grown / ((1 + grown) * (1 + grown))


@dataclass(frozen=True)
class Temper(Op):
    """x · (1 + β ln(1 + ⌊(position + first) / every⌋)): Llama 4's temperature, after Nakanishi 2025."""

    signature = "batch? head? token d -> batch? head? token d"
    linear = ((0,),)
    words = "Each row of {0} is multiplied by {op.factor}, a number that grows with its position."
    flops = 1  # a product

    beta: float = 0.1
    every: int = 8192
    first: int = 0
    start: PerBatch = 0

    @property
    def factor(self) -> str:
        place = f"(position + {self.first})" if self.first else "position"
        return f"1 + {self.beta:g} · ln(1 + ⌊{place} / {self.every}⌋)"

    def factors(self, tokens: int) -> Array:
        """The number of each token, ([batch, 1,] token, 1)."""
        position = np.arange(tokens) + per_batch(self.start, axes=2)
        steps = np.maximum(position + self.first, 0) // self.every
        return 1 + self.beta * np.log1p(steps)[..., None]

    def apply(self, x: Array) -> Array:
        return x * self.factors(x.shape[-2]).astype(x.dtype)

    def form(self, cell: Places, x: Input) -> Term:
        return x.at(*cell) * entry(self.factors(x.shape[-2]), *cell)

    def adjoint(self, line: Line, d: str) -> Gradients:
        yield Gradient(line.inputs[0], self, (d,), f"{d} · ({self.factor})")


@dataclass(frozen=True)
class AddScaled(Op):
    """a + factor · b."""

    signature = "..., ... -> ..."
    linear = ((0, 1),)
    words = "{1} is multiplied by {op.factor:g} and added to {0}."
    flops = 2  # a product and a sum

    factor: float

    def apply(self, a: Array, b: Array) -> Array:
        return a + b * b.dtype.type(self.factor)

    def form(self, cell: Places, a: Input, b: Input) -> Term:
        return a.at(*cell) + self.factor * b.at(*cell)

    def adjoint(self, line: Line, d: str) -> Gradients:
        a, b = line.inputs
        yield Gradient(a, Copy(), (d,), d)
        yield Gradient(b, Scale(factor=self.factor), (d,), f"{d} · {self.factor:g}")


class Beside(Op):
    """The columns of each head, then those that all heads share."""

    signature = "... head token a, ... token b -> ... head token (a + b)"
    linear = ((0, 1),)
    words = "The columns of {1}, the same for all heads, are put beside those of {0}."

    def apply(self, own: Array, shared: Array) -> Array:
        spread = np.broadcast_to(shared[..., None, :, :], (*own.shape[:-1], shared.shape[-1]))
        return np.concatenate([own, spread], axis=-1)

    def form(self, cell: Places, own: Input, shared: Input) -> Term:
        *batch, _, token, column = cell
        width = own.shape[-1]
        return where(column < width, own.at(*cell), shared.at(*batch, token, column - width))

    def adjoint(self, line: Line, d: str) -> Gradients:
        own, shared = line.inputs
        yield Gradient(own, OwnColumns(), (d, own), f"the first columns of {d}")
        yield Gradient(shared, SharedColumns(), (d, shared), f"Σ over heads of the last columns of {d}")


class OwnColumns(Backward):
    """The first columns, as many as another array has."""

    signature = "... head token (a + rest), ... head token a -> ... head token a"
    linear = ((0,),)
    words = "Of {0} the columns that came from {1}."

    def apply(self, d: Array, own: Array) -> Array:
        return d[..., : own.shape[-1]]

    def form(self, cell: Places, d: Input, own: Input) -> Term:
        """d at the same cell: the first columns stand where they stood."""
        return d.at(*cell)


class SharedColumns(Backward):
    """The last columns, as many as another array has, summed over the heads that share them."""

    signature = "... head token (rest + b), ... token b -> ... token b"
    linear = ((0,),)
    words = "Of {0} the columns that came from {1}, added up over the heads that share them."

    def apply(self, d: Array, shared: Array) -> Array:
        before = d.shape[-1] - shared.shape[-1]
        columns = d[..., before:]
        return columns.sum(axis=-3, dtype=sum_type(d)).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, shared: Input) -> Term:
        *batch, token, column = cell
        head = index(d.shape[-3], "h")
        before = d.shape[-1] - shared.shape[-1]
        return total(head, d.at(*batch, head, token, column + before))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        return prod(shape) * inputs[0][-3]  # an addition a head
