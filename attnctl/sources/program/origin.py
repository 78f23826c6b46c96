"""Where Q, K and V come from: back through moves, splits, repetitions and factors to X W + b."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from attnctl.sources.program.graph import SOFT, SUMS, Graph, Product
from attnctl.sources.program.relations import Array, has_same_numbers, is_near, ratio

MOST_SORTED = 2**20
"""Numbers of arrays that are compared in any order; of larger ones the sizes have to do."""

FARTHEST = 40
"""Expressions between a projection and the product that reads it."""

NEAR_SOFTMAX = 12
"""Arrays between weights and the softmax that gave them."""

BENT = frozenset(
    {"tanh", "relu", "gelu", "sigmoid", "silu", "elu", "GELU", "ReLU", "SiLU", "Tanh", "GRU", "LSTM", "RNN"}
)
"""What makes of a projection something else than a projection: the state of a network."""

MOST_ANCESTORS = 60
"""Arrays that are looked at on the way back to a projection."""


class Projection(NamedTuple):
    """x W + b, as the program computes it."""

    n: int
    x: int
    weight: int
    matrix: Array
    """W as (in, out)."""
    bias: Array | None
    rows: Array
    """What came out, (batch · token, out)."""
    is_linear: bool = False
    """True for a weight that is (out, in), as torch.nn.Linear has it."""
    row_bias: Array | None = None
    """A bias for each row of what came out: where tokens are columns, W x + b."""
    tokens: Array | None = None
    """x as (…, token, d), where the program has its tokens as columns."""


class Origin(NamedTuple):
    """The way of an array back to its projection, or to where nothing explains it."""

    path: list[int]
    """From the array itself backwards."""
    projection: Projection | None = None

    @property
    def last(self) -> int:
        return self.path[-1]


class Origins:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.projections: dict[int, Projection | None] = {}

    def origin(self, n: int) -> Origin:
        """Follow an array back as long as its numbers are those of what it was made of."""
        path = [n]
        while len(path) < FARTHEST:
            projection = self.projection(n)
            if projection is not None:
                return Origin(path, projection)
            before = self.before(n)
            if before is None:
                break
            path.append(before)
            n = before
        return Origin(path)

    def before(self, n: int) -> int | None:
        """The array whose numbers these are: moved, split, repeated, or times a constant."""
        value = self.graph.value(n)
        parents = self.graph.parents(n)
        if value.size > MOST_SORTED:
            same_size = [parent for parent in parents if self.graph.value(parent).size == value.size]
            if same_size:
                return same_size[0]
            return None

        for parent in parents:
            other = self.graph.value(parent)
            if is_made_of(value, other) and not self.is_gained(n, parent):
                return parent
        return self.before_pieces(n, parents)

    def before_pieces(self, n: int, pieces: Sequence[int]) -> int | None:
        """The array that was cut into the pieces of which this was put together, as heads are."""
        value = self.graph.value(n)
        if len(pieces) < 2 or sum(self.graph.value(piece).size for piece in pieces) != value.size:
            return None
        whole = {self.before(piece) for piece in pieces}
        if len(whole) > 1:
            return None
        (cut,) = whole
        if cut is not None and has_same_numbers(self.graph.value(cut), value):
            return cut
        return None

    def is_gained(self, n: int, before: int) -> bool:
        """True if each dimension has a factor of its own, these perhaps all equal: the weight of a norm."""
        value = self.graph.value(n)
        if value.shape[-1:] == (1,) or not value.ndim:
            return False
        factors = [self.graph.value(m) for m in self.graph.parents(n) if m != before]
        is_vector = any(factor.shape == value.shape[-1:] for factor in factors)
        return is_vector and ratio(self.graph.value(before), value) not in {0.0, 1.0}

    def is_unexplained(self, origin: Origin) -> bool:
        """True if a projection was made into the array at its end, in a way that is not understood."""
        if origin.projection is not None:
            return False
        return self.nearest_projection(origin.last) is not None

    def nearest_projection(self, n: int) -> Projection | None:
        """The nearest projection with as many numbers, through whatever was done with them since."""
        size = self.graph.value(n).size
        for nearest in self.before_softmax(n):
            if self.graph.value(nearest).size == size:
                projection = self.projection(nearest)
                if projection is not None:
                    return projection
        return None

    def before_softmax(self, n: int) -> Iterator[int]:
        """An array and what it was made of, the nearest first.

        Behind an attention lie the projections of the one before: these are none of its own.
        """
        edge = [n]
        seen = {n}
        while edge and len(seen) < MOST_ANCESTORS:
            nearest = edge.pop(0)
            yield nearest
            product = self.graph.product(nearest)
            if product is not None and self.is_after_softmax(product):
                continue
            if self.graph.op(nearest) in BENT:
                continue  # a state of its own, of which a query may be read as it is
            further = [parent for parent in self.graph.nearest_kept(nearest) if parent not in seen]
            seen.update(further)
            edge += further

    # --- projections ---

    def projection(self, n: int) -> Projection | None:
        if n not in self.projections:
            self.projections[n] = self.find_projection(n)
        return self.projections[n]

    def find_projection(self, n: int) -> Projection | None:
        if not self.graph.has_value(n):
            return None
        if self.graph.value(n).ndim < 1:
            return None
        if not self.graph.is_float(n):
            return None
        return self.of_module(n) or self.with_bias(n) or self.of_product(n)

    def of_module(self, n: int) -> Projection | None:
        """What a torch.nn.Linear gave, or F.linear."""
        graph = self.graph
        value = self.graph.value(n)
        event = graph.events[n]
        weight = event.weights.get("weight")
        parents = graph.parents(n)
        if weight is None and graph.op(n) == "linear" and len(parents) > 1:
            weight = parents[1]
        if weight is None:
            return None
        if not parents:
            return None
        if not graph.has_value(weight):
            return None

        x = parents[0]
        w = graph.value(weight)
        if w.ndim != 2:
            return None
        if not graph.value(x).ndim:
            return None
        if graph.value(x).shape[-1] != w.shape[1]:
            return None
        biases = [graph.value(p) for p in parents[1:] if graph.value(p).shape == (w.shape[0],)]
        bias = None
        if biases:
            bias = biases[0]
        made = graph.value(x) @ w.T + (0 if bias is None else bias)
        if not is_near(made, value, 1e-3):
            return None
        rows = value.reshape(-1, w.shape[0])
        return Projection(n, x, weight, matrix=w.T, bias=bias, rows=rows, is_linear=True)

    def with_bias(self, n: int) -> Projection | None:
        graph = self.graph
        value = self.graph.value(n)
        if graph.op(n) not in SUMS | {"addmm"}:
            return None
        for product, bias in permutations(graph.parents(n), 2):
            if graph.value(product).shape != value.shape:
                continue
            projection = self.plus(n, product, graph.value(bias))
            if projection is not None:
                return projection
        return self.of_sum(n)

    def of_sum(self, n: int) -> Projection | None:
        """x W + s (x A) B, a weight and what adapts it (LoRA, Hu et al. 2021): one projection."""
        graph = self.graph
        parents = graph.parents(n)
        shape = graph.value(n).shape
        if len(parents) != 2 or any(graph.value(parent).shape != shape for parent in parents):
            return None
        for base, adapter in permutations(parents):
            whole = self.projection(base)
            added = self.multiplied_out(adapter)
            if whole is None or added is None or whole.x != added.x:
                continue
            if whole.matrix.shape == added.matrix.shape and added.bias is None:
                rows = graph.value(n).reshape(whole.rows.shape)
                return whole._replace(n=n, matrix=whole.matrix + added.matrix, rows=rows)
        return None

    def multiplied_out(self, n: int) -> Projection | None:
        """s (x A) B, as one projection of x; None of what is projected once, or with a bias."""
        origin = self.origin(n)
        outer = origin.projection
        inner = None if outer is None else self.projection(outer.x)
        if outer is None or inner is None or inner.bias is not None or outer.bias is not None:
            return None
        factor = ratio(self.graph.value(origin.last), self.graph.value(n)) or 1.0
        return inner._replace(n=n, matrix=inner.matrix @ outer.matrix * factor)

    def plus(self, n: int, product: int, b: Array) -> Projection | None:
        """A projection with this bias: one for each column, or written out for all rows."""
        value = self.graph.value(n)
        if b.ndim == 2 and b.shape[1] == 1 < value.shape[-1]:
            b = np.repeat(b, value.shape[-1], axis=1)  # of W x + b[:, None]
        if b.ndim == 2 and b.shape == value.shape:
            spread = self.with_spread_bias(n, product, b)
            if spread is not None:
                return spread
        if b.size != value.shape[-1] or b.ndim > value.ndim:
            return None
        projection = self.projection(product)
        if projection is None or projection.bias is not None:
            return None
        rows = value.reshape(-1, value.shape[-1])
        return projection._replace(n=n, bias=b.reshape(-1), rows=rows)

    def with_spread_bias(self, n: int, product: int, b: Array) -> Projection | None:
        """A bias that was written out for every token: its rows are alike, or its columns."""
        projection = self.projection(product)
        if projection is None or projection.bias is not None:
            return None
        rows = self.graph.value(n).reshape(-1, b.shape[-1])
        bias = b[0] if (b == b[:1]).all() else None
        row_bias = b[:, 0] if (b == b[:, :1]).all() else None
        if bias is None and row_bias is None:
            return None
        return projection._replace(n=n, bias=bias, row_bias=row_bias, rows=rows)

    def of_product(self, n: int) -> Projection | None:
        """A product with a matrix, which has no rows of its own in what comes out."""
        product = self.graph.product(n)
        if product is None:
            return None
        if self.is_after_softmax(product):
            return None
        for swapped in (False, True):
            projection = self.of_operands(n, product, swapped=swapped)
            if projection is not None:
                return projection
        return None

    def of_columns(self, projection: Projection) -> Projection | None:
        """The same product as W x: what was taken for the weight is x, whose tokens are columns."""
        graph = self.graph
        n = projection.n
        product = graph.product(n)
        if product is None:  # a bias was added to it
            products = [m for m in graph.parents(n) if graph.product(m) is not None]
            n = products[0] if products else n
            product = graph.product(n)
        if product is None or projection.is_linear:
            return None
        is_left = projection.x == product.left
        turned = self.of_operands(n, product, swapped=is_left, as_columns=True)
        if turned is None:
            return None

        of_x = product.right_axes if is_left else product.left_axes
        summed = [axis for axis in of_x if axis not in product.axes]
        if len(summed) != 1:
            return None
        tokens = np.moveaxis(graph.value(turned.x), of_x.index(summed[0]), -1)
        rows = turned.rows
        if projection.row_bias is not None:
            rows = rows + projection.row_bias
        return turned._replace(n=projection.n, bias=projection.row_bias, rows=rows, tokens=tokens)

    def tokens(self, projection: Projection) -> Array:
        """What is projected, (…, token, d)."""
        if projection.tokens is not None:
            return projection.tokens
        return self.graph.value(projection.x)

    def of_operands(
        self, n: int, product: Product, *, swapped: bool, as_columns: bool = False
    ) -> Projection | None:
        x, weight = (product.right, product.left) if swapped else (product.left, product.right)
        of_x = product.left_axes
        of_w = product.right_axes
        if swapped:
            of_x, of_w = of_w, of_x
        w = self.graph.value(weight)
        value = self.graph.value(n)
        summed = [axis for axis in of_w if axis in of_x and axis not in product.axes]
        kept = [axis for axis in of_w if axis not in summed]
        if not summed:
            return None
        if not kept:
            return None
        if any(axis in of_x for axis in kept):
            return None
        if [axis for axis in of_x if axis in summed] != summed:
            return None
        if swapped and not as_columns and [*product.axes[-len(kept) :]] != kept:
            return None  # W x, whose tokens are columns: told by whoever lays it out

        order = [of_w.index(axis) for axis in (*summed, *kept)]
        inside = prod(w.shape[of_w.index(axis)] for axis in summed)
        matrix = w.transpose(order).reshape(inside, -1) * product.factor
        tokens = [axis for axis in product.axes if axis not in kept]
        rows = value.transpose([product.axes.index(axis) for axis in (*tokens, *kept)])
        rows = rows.reshape(-1, matrix.shape[1])
        return Projection(n, x, weight, matrix=matrix, bias=None, rows=rows)

    def is_after_softmax(self, product: Product) -> bool:
        """True if an operand is made of weights: then it is attention's own second product."""
        return any(map(self.is_made_of_weights, (product.left, product.right)))

    def is_made_of_weights(self, operand: int) -> bool:
        """True if arrays of as many numbers lead back to a softmax, with no product between."""
        graph = self.graph
        edge = [operand]
        seen: set[int] = set()
        while edge and len(seen) < NEAR_SOFTMAX:
            n = edge.pop(0)
            seen.add(n)
            if graph.op(n) in SOFT:
                return True
            if graph.is_opaque(n) or not graph.product(n):
                size = graph.value(n).size
                edge += [m for m in graph.parents(n) if graph.value(m).size == size and m not in seen]
        return False


def is_made_of(value: Array, other: Array) -> bool:
    """True if an array has the numbers of another: moved, split, repeated, cast, or times a constant."""
    if other.dtype.kind != "f":
        return False
    if not value.size:
        return False
    if not other.size:
        return False
    if other.ndim < 1:
        return False

    if has_same_numbers(other, value):
        return True
    if ratio(other, value):
        return True
    if other.size == value.size:
        return is_cast(other, value)
    return bool(np.isin(value, other).all()) and np.unique(other).size > 2


def is_cast(before: Array, now: Array) -> bool:
    """True if one is the other in a coarser type."""
    if before.dtype == now.dtype:
        return False
    if before.shape != now.shape:
        return False
    return is_near(before, now, 2e-3)
