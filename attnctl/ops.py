"""The operations a derivation is made of.

An op has three duties: `apply` computes the step (arrays to array), `terms` writes out one cell's
arithmetic, `cost` counts floating-point operations from shapes alone. Those that depend on where
a query or key stands also say what they are for a `block` of them. Adding an op is adding one
small class here; every verb then knows it.

Axes are those of the step's inputs, last ones first in mind: (..., head, query, key) for scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.arithmetic import Call, Cell, Difference, Expr, Number, Product, Quotient, Source, Sum
from attnctl.positions import rotary_angles, rotary_pairs, rotate, sinusoids
from attnctl.rules import PerBatch, VisibilityRule, alibi_slopes, per_batch

Array = NDArray[Any]
Shape = tuple[int, ...]


class Op:
    """One kind of line in a derivation."""

    def apply(self, *inputs: Array) -> Array:
        """Compute the step from its inputs."""
        raise NotImplementedError

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The arithmetic that gives one cell of the step."""
        raise NotImplementedError

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """Floating-point operations for a result of this shape; a copy costs none."""
        return 0

    def block(self, first_query: int, first_key: int) -> Op:
        """The same op for a block of scores that starts at this query and key."""
        return self


def read(array: Array, position: int, cell: Cell) -> Number:
    """The number at `cell` of input `position`; axes the input lacks or has once are left out."""
    own = cell[len(cell) - array.ndim :]
    own = tuple(0 if size == 1 else i for i, size in zip(own, array.shape, strict=True))
    return Number(float(array[own]), Source(position, own))


@dataclass(frozen=True)
class Given(Op):
    """A value that was handed in or drawn: the leaves of every derivation."""

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The number itself (its own step is passed as the one input)."""
        return Number(float(inputs[0][cell]))


@dataclass(frozen=True)
class Copy(Op):
    """The input as it is, under a new name."""

    def apply(self, *inputs: Array) -> Array:
        """(...) -> the same."""
        return inputs[0].copy()

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a."""
        return read(inputs[0], 0, cell)


@dataclass(frozen=True)
class Add(Op):
    """a + b, the second broadcast where it lacks axes."""

    def apply(self, *inputs: Array) -> Array:
        """(...), (...) -> (...)."""
        a, b = inputs
        return a + b

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a + b."""
        return Sum(tuple(read(x, at, cell) for at, x in enumerate(inputs)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)


@dataclass(frozen=True)
class Sinusoid(Op):
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

    length: int
    d_model: int
    start: int = 0

    def apply(self, *inputs: Array) -> Array:
        """() -> (token, d_model)."""
        return sinusoids(self.length, self.d_model, self.start)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """sin or cos of position / 10000^(2i/d)."""
        row, column = cell
        divisor = 10000.0 ** (2 * (column // 2) / self.d_model)
        angle = Quotient(Number(float(row + self.start)), Number(divisor))
        return Call("sin" if column % 2 == 0 else "cos", angle)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A division and a function a cell."""
        return 2 * prod(shape)


@dataclass(frozen=True)
class Project(Op):
    """X W (+ b), for every head at once."""

    def apply(self, *inputs: Array) -> Array:
        """X (..., token, d_model), W (head, d_model, d), b (head, d) -> (..., head, token, d)."""
        x, w, *b = inputs
        out = x[..., None, :, :] @ w
        return out + b[0][:, None, :] if b else out

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
    """Rotary positions (Su et al. 2021): pairs of columns turned by position · θ^(−2i/dims)."""

    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False
    start: PerBatch = 0

    def angles(self, x: Array) -> Array:
        """The angle of each token and pair, ([batch, 1,] token, dims/2)."""
        positions = np.arange(x.shape[-2]) + per_batch(self.start)[..., 0, :]
        return rotary_angles(positions, self.dims or x.shape[-1], self.theta)

    def apply(self, *inputs: Array) -> Array:
        """(..., head, token, d) -> the same shape, rotated."""
        (x,) = inputs
        angle = self.angles(x)
        cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        return rotate(x, cos, sin, interleaved=self.interleaved)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a·cos α − b·sin α for the first of a pair, a·sin α + b·cos α for the second."""
        (x,) = inputs
        *lead, token, column = cell
        angles = self.angles(x)
        first, second = rotary_pairs(2 * angles.shape[-1], interleaved=self.interleaved)
        where = np.flatnonzero((first == column) | (second == column))
        if not where.size:
            return read(x, 0, cell)
        pair = int(where[0])
        where_angle = (*lead, token, pair)
        angle = Number(float(np.broadcast_to(angles, (*x.shape[:-1], len(first)))[where_angle]))
        cos, sin = Call("cos", angle), Call("sin", angle)
        a = read(x, 0, (*lead, token, int(first[pair])))
        b = read(x, 0, (*lead, token, int(second[pair])))
        if column == first[pair]:
            return Difference(Product((a, cos)), Product((b, sin)))
        return Sum((Product((a, sin)), Product((b, cos))))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """Two products and a sum a cell."""
        return 3 * prod(shape)


@dataclass(frozen=True)
class Append(Op):
    """New keys (or values) after the past ones, along the key axis."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, past, d), (..., head, new, d) -> (..., head, past + new, d)."""
        return np.concatenate(inputs, axis=-2)

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

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The cell of the head that is shared."""
        *lead, head, row, column = cell
        return read(inputs[0], 0, (*lead, head // self.times, row, column))


@dataclass(frozen=True)
class MatMulT(Op):
    """Q Kᵀ: every query with every key."""

    def apply(self, *inputs: Array) -> Array:
        """(..., query, d), (..., key, d) -> (..., query, key)."""
        q, k = inputs
        return q @ k.swapaxes(-1, -2)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """Σ q·k."""
        q, k = inputs
        *lead, row, column = cell
        return Sum(
            tuple(
                Product((read(q, 0, (*lead, row, i)), read(k, 1, (*lead, column, i))))
                for i in range(q.shape[-1])
            )
        )

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]


@dataclass(frozen=True)
class MatMul(Op):
    """a b: A V, or concat W_O (+ b_O)."""

    def apply(self, *inputs: Array) -> Array:
        """(..., m, n), (..., n, p)[, (p,)] -> (..., m, p)."""
        a, b, *bias = inputs
        return a @ b + bias[0] if bias else a @ b

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """Σ a·b (+ bias)."""
        a, b, *bias = inputs
        *lead, row, column = cell
        products = tuple(
            Product((read(a, 0, (*lead, row, i)), read(b, 1, (*lead, i, column))))
            for i in range(a.shape[-1])
        )
        return Sum(products + tuple(read(each, 2, (column,)) for each in bias))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        return 2 * prod(shape) * inputs[0][-1]


@dataclass(frozen=True)
class Scale(Op):
    """Scores / √d_k, or times a factor of one's own (Vaswani et al. 2017, equation 1)."""

    d_k: int = 1
    factor: float | None = None

    def apply(self, *inputs: Array) -> Array:
        """(...) -> the same shape."""
        (s,) = inputs
        if self.factor is None:
            return s / s.dtype.type(sqrt(self.d_k))
        return s * s.dtype.type(self.factor)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """s / √d_k."""
        s = read(inputs[0], 0, cell)
        if self.factor is not None:
            return Product((s, Number(self.factor)))
        return Quotient(s, Call("sqrt", Number(float(self.d_k))))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)


@dataclass(frozen=True)
class Squeeze(Op):
    """cap · tanh(S / cap), the soft cap (Gemma 2, section 2)."""

    cap: float

    def apply(self, *inputs: Array) -> Array:
        """(...) -> the same shape, in (−cap, cap)."""
        (s,) = inputs
        cap = s.dtype.type(self.cap)
        return np.tanh(s / cap) * cap

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """cap · tanh(s / cap)."""
        cap = Number(self.cap)
        return Product((cap, Call("tanh", Quotient(read(inputs[0], 0, cell), cap))))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A division, a function and a product a cell."""
        return 3 * prod(shape)


@dataclass(frozen=True)
class Placed(Op):
    """An op on scores that depends on where queries and keys stand.

    Query i stands at absolute position first_query + i + offset, key j at first_key + j; `offset`
    is the number of keys that precede query 0 (a cache, or lengths − queries).
    """

    offset: PerBatch = 0
    first_query: int = 0
    first_key: int = 0

    def block(self, first_query: int, first_key: int) -> Op:
        """The same op for scores that start at this query and key."""
        return replace(
            self,
            first_query=self.first_query + first_query,
            first_key=self.first_key + first_key,
        )

    def positions(self, shape: Shape) -> tuple[Array, Array]:
        """Positions of the queries ([batch, 1,] queries, 1) and of the keys (keys,)."""
        *_, queries, keys = shape
        rows = np.arange(self.first_query, self.first_query + queries)[:, None]
        if np.ndim(self.offset) == 0:
            return rows + self.offset, np.arange(self.first_key, self.first_key + keys)
        return rows + per_batch(self.offset), np.arange(self.first_key, self.first_key + keys)


@dataclass(frozen=True)
class Slope(Placed):
    """S − slope · |query − key| (ALiBi, Press et al. 2022, section 3)."""

    def distances(self, shape: Shape) -> Array:
        """|query − key|, ([batch, 1,] query, key)."""
        query, key = self.positions(shape)
        return np.abs(query - key)

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key) -> the same shape."""
        (s,) = inputs
        slopes = alibi_slopes(s.shape[-3])[:, None, None]
        return s - (slopes * self.distances(s.shape)).astype(s.dtype)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """s − slope · distance."""
        (s,) = inputs
        distance = np.broadcast_to(self.distances(s.shape), s.shape)[cell]
        slope = alibi_slopes(s.shape[-3])[cell[-3]]
        return Difference(read(s, 0, cell), Product((Number(float(slope)), Number(float(distance)))))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A product and a difference a cell."""
        return 2 * prod(shape)


@dataclass(frozen=True)
class Hide(Placed):
    """S where every rule (and the given mask, if there is one) allows it, else −∞."""

    rules: tuple[VisibilityRule, ...] = ()

    def allowed(self, shape: Shape, *mask: Array) -> Array:
        """True where the query may attend to the key; broadcasts against the scores."""
        query, key = self.positions(shape)
        allowed: Array = np.ones((1, 1), dtype=bool)
        for each in (*(rule.allows(query, key) for rule in self.rules), *mask):
            allowed = allowed & each
        return allowed

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, key)[, mask that broadcasts] -> the same shape."""
        s, *mask = inputs
        return np.where(self.allowed(s.shape, *mask), s, s.dtype.type(-np.inf))

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """s, or −∞."""
        s, *mask = inputs
        if np.broadcast_to(self.allowed(s.shape, *mask), s.shape)[cell]:
            return read(s, 0, cell)
        return Number(-np.inf)

    def hidden_by(self, shape: Shape, *mask: Array) -> Array:
        """For each cell the number of the first rule that hides it, −1 where none does.

        Rules count from 0 in order; the given mask comes after them.
        """
        query, key = self.positions(shape)
        out = np.full(shape, -1)
        sources = [rule.allows(query, key) for rule in self.rules] + list(mask)
        for number, allowed in reversed(list(enumerate(sources))):
            out[np.broadcast_to(~allowed, shape)] = number
        return out


@dataclass(frozen=True)
class Softmax(Op):
    """exp(s − max) / Σ exp(s − max) over keys; a row that sees nothing gets zeros."""

    def apply(self, *inputs: Array) -> Array:
        """(..., key) -> the same shape; rows sum to 1 or are 0."""
        (s,) = inputs
        top = s.max(axis=-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(top), s.dtype.type(0), top))
        total = e.sum(axis=-1, keepdims=True)
        return e / np.where(total == 0, s.dtype.type(1), total)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """exp(s − max) / Σ exp(s − max) over the keys that are seen."""
        (s,) = inputs
        *lead, column = cell
        row = s[cell[:-1]]
        seen = np.flatnonzero(~np.isneginf(row))
        if column not in seen:
            return Number(0.0)
        top = Number(float(row.max()))

        def grown(key: int) -> Expr:
            return Call("exp", Difference(read(s, 0, (*lead, key)), top))

        return Quotient(grown(column), Sum(tuple(grown(int(key)) for key in seen)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A maximum, a difference, a function, a sum and a division a cell."""
        return 5 * prod(shape)


@dataclass(frozen=True)
class Merge(Op):
    """The heads side by side: h0 h0 h1 h1 along the columns."""

    def apply(self, *inputs: Array) -> Array:
        """(..., head, query, d) -> (..., query, head · d)."""
        (z,) = inputs
        *batch, heads, queries, d = z.shape
        return z.swapaxes(-3, -2).reshape(*batch, queries, heads * d)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The head's cell."""
        (z,) = inputs
        *batch, query, column = cell
        head, own = divmod(column, z.shape[-1])
        return read(z, 0, (*batch, head, query, own))


@dataclass(frozen=True)
class Unstated(Op):
    """A step of a file that does not say how it came about."""
