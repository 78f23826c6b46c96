"""Ops on scores: Q Kᵀ, what bends and hides it, softmax, and A V."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import inf, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Cell, Shape
from attnctl.math.names import DELTA
from attnctl.math.notation import (
    Input,
    Place,
    Term,
    call,
    entry,
    from_table,
    index,
    index_number,
    is_seen,
    largest,
    total,
    where,
)
from attnctl.math.ops.base import (
    Backward,
    Block,
    Copy,
    Gradient,
    Gradients,
    Invariant,
    Invariants,
    Line,
    Places,
    RowWise,
    sum_type,
)
from attnctl.math.ops.products import RowDot, SharedTMatMul, SumRows, TMatMul, times
from attnctl.math.rules import PerBatch, Span, VisibilityRule, alibi_slopes, of_member, per_batch

ALONE = 0.1
"""The size of the rounding of a row in which one key has all the weight."""


class MatMulT(RowWise):
    """Q Kᵀ: every query with every key."""

    signature = "... query d, ... key d -> ... query key"
    linear = ((0,), (1,))
    words = (
        "Each row of {0} is multiplied by each row of {1}, column by column, and the products are added up."
    )
    flops_term = 2  # a product and a sum

    def apply(self, q: Array, k: Array, *, out: Array | None = None) -> Array:
        return np.matmul(q, k.swapaxes(-1, -2), out=out)

    def form(self, cell: Places, q: Input, k: Input) -> Term:
        *lead, row, column = cell
        i = index(q.shape[-1])
        return total(i, q.at(*lead, row, i) * k.at(*lead, column, i))

    def adjoint(self, line: Line, d: str) -> Gradients:
        q, k = line.inputs
        yield Gradient(q, MatMul(), (d, k), f"{d} {k}")
        yield Gradient(k, TMatMul(), (d, q), f"{d}ᵀ {q}")


class MatMul(RowWise):
    """a b: A V, or concat W_O (+ b_O)."""

    signature = "... m n, ... n p[, p] -> ... m p"
    linear = ((0, 2), (1, 2))
    words = "Each row of {0} is multiplied by {1}[, and {2} is added]."
    flops_term = 2  # a product and a sum

    def apply(self, a: Array, b: Array, *bias: Array, out: Array | None = None) -> Array:
        product = times(a, b) if out is None else np.matmul(a, b, out=out)
        return np.add(product, bias[0], out=out) if bias else product

    def form(self, cell: Places, a: Input, b: Input, *bias: Input) -> Term:
        *lead, row, column = cell
        i = index(a.shape[-1])
        product = total(i, a.at(*lead, row, i) * b.at(*lead, i, column))
        return product + bias[0].at(column) if bias else product

    def adjoint(self, line: Line, d: str) -> Gradients:
        a, b, *biases = line.inputs
        a_axes, b_axes, *_ = line.axes
        by_b = SharedTMatMul() if len(b_axes) < len(a_axes) else TMatMul()

        yield Gradient(a, MatMulT(), (d, b), f"{d} {b}ᵀ")
        yield Gradient(b, by_b, (a, d), f"{a}ᵀ {d}")
        for bias in biases:
            yield Gradient(bias, SumRows(), (d,), f"Σ over rows of {d}")


@dataclass(frozen=True)
class Scale(RowWise):
    """Scores / √d_k, or times a factor of one's own (Vaswani et al. 2017, equation 1)."""

    signature = "... -> ..."
    linear = ((0,),)
    flops = 1  # a division or a product

    d_k: int = 1
    factor: float | None = None

    @property
    def words(self) -> str:
        if self.factor is not None:
            return f"Each of the {{0}} is multiplied by {self.factor:g}."
        root = f"√d_k = √{self.d_k} = {sqrt(self.d_k):.4g}"
        return f"Each of the {{0}} is divided by {root}, so that they do not grow with d_k."

    @property
    def multiplier(self) -> float:
        return 1 / sqrt(self.d_k) if self.factor is None else self.factor

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        if self.factor is None:
            return np.divide(s, s.dtype.type(sqrt(self.d_k)), out=out)
        return np.multiply(s, s.dtype.type(self.factor), out=out)

    def form(self, cell: Places, s: Input) -> Term:
        if self.factor is not None:
            return s.at(*cell) * self.factor
        return s.at(*cell) / call("sqrt", self.d_k)

    def largest_score(self, size: float, reach: int, *others: Array) -> float:
        return size * abs(self.multiplier)

    def adjoint(self, line: Line, d: str) -> Gradients:
        factor = "/ √d_k" if self.factor is None else f"· {self.factor:g}"
        yield Gradient(line.inputs[0], self, (d,), f"{d} {factor}")


@dataclass(frozen=True)
class Squeeze(RowWise):
    """cap · tanh(S / cap), the soft cap (Gemma 2, section 2)."""

    signature = "... -> ..."
    words = "The {0} are bent by tanh: no score gets beyond ±{op.cap:g}."
    never_larger = True
    flops = 3  # a division, a function and a product

    cap: float

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        wide = sum_type(s)  # half precision has no room for a small cap
        cap = wide.type(self.cap)
        is_wide = wide == s.dtype
        squeezed = np.divide(s, cap, out=out if is_wide else None)
        np.tanh(squeezed, out=squeezed)
        np.multiply(squeezed, cap, out=squeezed)
        if is_wide:
            return squeezed

        narrow = np.empty_like(s) if out is None else out
        return np.add(squeezed, 0, out=narrow, casting="same_kind")

    def form(self, cell: Places, s: Input) -> Term:
        return self.cap * call("tanh", s.at(*cell) / self.cap)

    def adjoint(self, line: Line, d: str) -> Gradients:
        formula = f"{d} · (1 − ({line.name} / {self.cap:g})²)"
        yield Gradient(line.inputs[0], SqueezeBack(self.cap), (d, line.name), formula)


@dataclass(frozen=True)
class SqueezeBack(Backward):
    """d · (1 − (y / cap)²), the slope of the soft cap where it came out as y."""

    signature = "..., ... -> ..."
    linear = ((0,),)
    words = "Each number of {0} is multiplied by the slope of tanh there: the flatter the cap, the less."
    flops = 4  # a division, two products and a difference

    cap: float

    def apply(self, d: Array, y: Array) -> Array:
        wide = sum_type(d)
        part = y.astype(wide, copy=False) / wide.type(self.cap)
        return (d * (1 - np.square(part))).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, y: Input) -> Term:
        part = y.at(*cell) / self.cap
        return d.at(*cell) * (1 - part * part)


class Softmax(RowWise):
    """exp(s − max) / Σ exp(s − max) over keys; a row that sees nothing gets zeros."""

    signature = "... key -> ... key"
    words = "Softmax turns each row of scores into shares: exp(score), divided by the sum of the row."
    flops = 5  # a maximum, a difference, a function, a sum and a division
    never_larger = True

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        top = s.max(axis=-1, keepdims=True, initial=-inf)
        # A row that sees nothing has no largest score: −∞ − −∞ would be NaN, and 0 / 0, too.
        shift = np.where(np.isneginf(top), s.dtype.type(0), top)
        e = np.subtract(s, shift, out=out)
        np.exp(e, out=e)
        total = e.sum(axis=-1, keepdims=True, dtype=sum_type(s))
        divisor = np.where(total == 0, total.dtype.type(1), total)
        return np.divide(e, divisor, out=e, casting="same_kind")

    def form(self, cell: Places, s: Input) -> Term:
        *row, column = cell
        j = index(s.shape[-1], "j")
        top = largest(j, s.at(*row, j))

        def grown(key: Place) -> Term:
            return call("exp", s.at(*row, key) - top)

        whole = total(j, grown(j), is_seen(s.at(*row, j)))
        share = grown(column) / whole
        return where(is_seen(s.at(*cell)), share, 0)

    def adjoint(self, line: Line, d: str) -> Gradients:
        yield Gradient(DELTA, RowDot(), (d, line.name), f"Σ over keys of {d} ∘ {line.name}")
        formula = f"{line.name} ∘ ({d} − {DELTA})"
        yield Gradient(line.inputs[0], SoftmaxBack(), (line.name, d, DELTA), formula)

    def invariants(self, result: Array, *inputs: Array) -> Invariants:
        """Σ = 1 in rows that see something; who sees one key gives it all, which nothing rounds."""
        sums = result.sum(axis=-1)
        seen = np.count_nonzero(result, axis=-1)
        right = np.where(seen, 1.0, 0.0)
        # Roundings of the shares add up at random, so as their squares; the 1 is that of the sum itself.
        several = np.sqrt(np.square(result).sum(axis=-1) + 1)
        size = np.where(seen > 1, several, ALONE)
        yield Invariant("sum to", sums, right, size)


class LogSumExp(RowWise):
    """max + ln Σ exp(s − max) over keys, natural; −∞ for a row that sees nothing.

    With it softmax is exp(s − L): what the backward pass reads, and what joins parts of a row.
    """

    signature = "... key -> ..."
    words = "The logarithm of what softmax divides a row by: its shares are exp(score − {name})."
    flops_read = 4  # a maximum, a difference, a function and a sum
    log_of_sum = True

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        top = s.max(axis=-1, initial=-inf)
        shift = np.where(np.isneginf(top), s.dtype.type(0), top)
        total = np.exp(s - shift[..., None]).sum(axis=-1, dtype=sum_type(s))
        with np.errstate(divide="ignore"):  # the logarithm of an empty sum is −∞
            log = np.add(shift, np.log(total), out=out, casting="same_kind")
        return log.astype(s.dtype, copy=False)

    def form(self, cell: Places, s: Input) -> Term:
        j = index(s.shape[-1], "j")
        return log_total(j, s.at(*cell, j))

    def adjoint(self, line: Line, d: str) -> Gradients:
        (scores,) = line.inputs
        formula = f"exp({scores} − {line.name}) · {d}"
        yield Gradient(scores, LogSumExpBack(), (scores, line.name, d), formula)


def log_total(j: Term, score: Term) -> Term:
    """max + ln Σ exp(score − max) over an index; −∞ where nothing is seen."""
    top = largest(j, score)
    every = total(j, call("exp", score - top), is_seen(score))
    return where(is_seen(top), top + call("log", every), -inf)


class LogSumExpBack(Backward):
    """exp(s − L) · d: a score moves the logarithm by the share that it has."""

    signature = "... n, ..., ... -> ... n"
    linear = ((2,),)
    words = "A score moves {1} by the share that it has: that share, times {2}."
    flops = 3  # a difference, a function and a product

    def apply(self, s: Array, total: Array, d: Array) -> Array:
        seen = np.where(np.isneginf(total), total.dtype.type(0), total)
        return np.exp(s - seen[..., None]) * d[..., None]

    def form(self, cell: Places, s: Input, total: Input, d: Input) -> Term:
        row = cell[:-1]
        score = s.at(*cell)
        by_row = d.at(*row)
        share = call("exp", score - total.at(*row))
        return where(is_seen(score), share * by_row, 0 * by_row)


class SoftmaxBack(Backward, RowWise):
    """A ∘ (d − δ): raising a score takes weight from the other keys of its row."""

    signature = "... n, ... n, ... -> ... n"
    linear = ((0,), (1, 2))
    words = (
        "Raising a score takes weight from the rest of its row, so {0} are multiplied by how far {1} "
        "are above {2}, the mean that the weights give."
    )
    flops = 2  # a difference and a product

    def apply(self, a: Array, d: Array, delta: Array, *, out: Array | None = None) -> Array:
        return np.multiply(a, np.subtract(d, delta[..., None], out=out), out=out)

    def form(self, cell: Places, a: Input, d: Input, delta: Input) -> Term:
        return a.at(*cell) * (d.at(*cell) - delta.at(*cell[:-1]))


# --- ops that depend on where queries and keys stand: ALiBi's slopes, and what is hidden ---


@dataclass(frozen=True)
class Placed(RowWise):
    """An op on scores that depends on where queries and keys stand.

    Query i stands at absolute position i + offset, key j at j; `offset` is the number of keys
    that precede query 0 (a cache, or lengths − queries). Where positions are given, `places` has
    them instead, for each member of the batch, or for all. `at` is where these scores begin.
    """

    offset: PerBatch = 0
    at: Block | None = None
    places: tuple[tuple[int, ...], ...] = ()

    def block(self, at: Block) -> RowWise:
        offset = of_member(self.offset, at.member)
        return replace(self, offset=offset, places=self.places_of(at.member), at=at)

    def places_of(self, member: int) -> tuple[tuple[int, ...], ...]:
        return self.places[member : member + 1] if len(self.places) > 1 else self.places

    def positions(self, shape: Shape) -> tuple[Array, Array]:
        """Positions of the queries ([batch, 1,] queries, 1) and of the keys ([batch, 1, 1,] keys)."""
        *_, queries, keys = shape
        start = self.at or Block()
        rows = np.arange(start.query, start.query + queries)
        columns = np.arange(start.key, start.key + keys)
        if not self.places:
            return rows[:, None] + per_batch(self.offset), columns

        places = np.array(self.places)
        of_queries = places[:, rows, None]
        of_keys = places[:, None, columns]
        if len(places) == 1:
            return of_queries[0], of_keys[0, 0]
        return of_queries[:, None], of_keys[:, None]

    def reach(self, shape: Shape) -> tuple[int, int]:
        """The least and the largest key − query of scores of this shape."""
        *_, queries, keys = shape
        if self.places:
            furthest = int(np.ptp(np.array(self.places)))
            return -furthest, furthest
        return 1 - queries - int(np.max(self.offset)), keys - 1 - int(np.min(self.offset))

    def ahead(self, cell: Places) -> Term:
        """key − query of a cell, by their absolute positions."""
        *batch, _, query, key = cell
        if len(self.places) > 1:
            places = np.array(self.places)
            return entry(places, *batch, key) - entry(places, *batch, query)
        if self.places:
            alone = np.array(self.places[0])
            return entry(alone, key) - entry(alone, query)

        if isinstance(self.offset, int):
            return key - query - self.offset
        return key - query - entry(np.array(self.offset), *batch)


@dataclass(frozen=True)
class Slope(Placed):
    """S − slope · |query − key| (ALiBi, Press et al. 2022, section 3)."""

    signature = "batch? head query key -> batch? head query key"
    words = "From each of the {0} a number is taken away that grows with the distance of its key."
    flops = 2  # a product and a difference

    def distances(self, shape: Shape) -> Array:
        """|query − key|, ([batch, 1,] query, key)."""
        query, key = self.positions(shape)
        distance = query - key
        return np.abs(distance, out=distance)

    def slopes(self, shape: Shape) -> Array:
        """The slope of each head of these scores, (head, 1, 1), or of the one head of a block."""
        if self.at is not None:
            return alibi_slopes(self.at.heads)[self.at.head]
        return alibi_slopes(shape[-3])[:, None, None]

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        slopes = self.slopes(s.shape)
        distances = self.distances(s.shape)
        lost = np.empty_like(s)
        np.multiply(slopes, distances, out=lost, casting="same_kind")
        return np.subtract(s, lost, out=lost if out is None else out)

    def form(self, cell: Places, s: Input) -> Term:
        slope = entry(alibi_slopes(s.shape[-3]), cell[-3])
        return s.at(*cell) - slope * index_number(abs(self.ahead(cell)))

    def largest_score(self, size: float, reach: int, *others: Array) -> float:
        """The longest distance on top: no slope is larger than 1."""
        if self.places:
            return size + float(np.ptp(np.array(self.places)))
        return size + reach + float(np.max(np.abs(self.offset)))

    def adjoint(self, line: Line, d: str) -> Gradients:
        yield Gradient(line.inputs[0], Copy(), (d,), d)


@dataclass(frozen=True)
class Hide(Placed):
    """S where every rule (and the given mask, if there is one) allows it, else −∞; 0 of a gradient."""

    signature = "batch? head query key[, bool batch? head? query? key?] -> batch? head query key"

    hides = True
    never_larger = True

    rules: tuple[VisibilityRule, ...] = ()
    hidden: float = -inf

    @property
    def words(self) -> str:
        if self.hidden == 0:
            return "A score that may not be seen changes nothing: its gradient is 0."
        said = "".join(f" {rule.said}" for rule in self.rules)
        return f"Scores that may not be seen become −∞.{said}[ The given {{1}} says who sees whom.]"

    def block(self, at: Block) -> Hide:
        rules = tuple(rule.of_member(at.member) for rule in self.rules)
        offset = of_member(self.offset, at.member)
        return replace(self, rules=rules, offset=offset, places=self.places_of(at.member), at=at)

    def visible_to_any(self, queries: int, keys: int) -> Span:
        """The keys that any of so many queries of this block can see: the rest need not be computed."""
        if self.places:  # rules promise what they do for positions that go up by one
            return 0, keys
        block = self.at or Block()
        first = block.query + int(np.min(self.offset))
        last = first + queries - 1 + int(np.ptp(self.offset))
        spans = [rule.visible_to_any(first, last, keys) for rule in self.rules]

        start = max((start for start, _ in spans), default=0)
        stop = min((stop for _, stop in spans), default=keys)
        return start, max(start, stop)

    def borders(self) -> list[int]:
        """The queries from which on none of the keys before is seen; none where members have others."""
        if self.places or not isinstance(self.offset, int):
            return []
        return [start - self.offset for rule in self.rules for start in rule.borders]

    def allowed(self, shape: Shape, *mask: Array) -> Array:
        """True where the query may attend to the key; broadcasts against the scores.

        Raises ValueError for a mask of numbers: 0.5 is neither seen nor hidden.
        """
        if any(part.dtype != bool for part in mask):
            raise ValueError("a mask says True or False of each key; these are numbers")

        query, key = self.positions(shape)
        by_each = [rule.allows(query, key) for rule in self.rules]
        by_each += mask
        if not by_each:
            return np.ones((1, 1), dtype=bool)
        allowed: Array = reduce(np.logical_and, by_each)
        return allowed

    def apply(self, s: Array, *mask: Array, out: Array | None = None) -> Array:
        hidden = s.copy() if out is None else out
        if hidden is not s:
            np.copyto(hidden, s)

        keys = s.shape[-1]
        block = self.at or Block()
        for start, stop in [(0, keys)] if mask else self.columns_to_check(s.shape):
            part = hidden[..., start:stop]
            # A start at 0 leaves the op as it is: without a block it is that of all heads.
            from_start = replace(self, at=replace(block, key=block.key + start)) if start else self
            is_hidden = ~from_start.allowed(part.shape, *mask)
            np.copyto(part, self.hidden, where=is_hidden)
        return hidden

    def columns_to_check(self, shape: Shape) -> list[Span]:
        """The columns of this block that some rule does not promise to show to all its queries."""
        *_, queries, keys = shape
        if self.at is None or self.places or not isinstance(self.offset, int):
            return [(0, keys)]

        first_key = self.at.key
        first = self.at.query + self.offset
        last = first + queries - 1
        promised = [rule.visible_to_all(first, last, first_key + keys) for rule in self.rules]
        low = max([0, *(start - first_key for start, _ in promised)])
        high = min([keys, *(stop - first_key for _, stop in promised)])
        if low >= high:
            return [(0, keys)]
        return [(start, stop) for start, stop in ((0, low), (high, keys)) if start < stop]

    def form(self, cell: Places, s: Input, *mask: Input) -> Term:
        shown = s.at(*cell)
        for part in mask:
            shown = where(part.at(*cell), shown, self.hidden)
        if not self.rules:
            return shown

        one_head = (*s.shape[:-3], 1, *s.shape[-2:])  # rules hide the same of every head
        number = from_table(
            lambda: (self.hidden_by(one_head) + 1).astype(np.uint8),
            lambda at: self.reason(at, s.shape) + 1,
            *cell,
        )
        return where(number, self.hidden, shown)

    def reason(self, cell: Cell, shape: Shape, *mask: Array) -> int:
        """The number of the first rule that hides this cell, as `hidden_by` counts them."""
        *batch, head, query, key = cell
        member = batch[0] if batch else 0
        block = self.block(Block(member, head, shape[-3], query=query, key=key))
        mask_here = [np.broadcast_to(part, shape)[cell] for part in mask]
        return int(block.hidden_by((1, 1, 1), *mask_here).item())

    def hidden_by(self, shape: Shape, *mask: Array) -> Array:
        """The number of the first rule, or then mask, that hides each cell, from 0; −1: none does."""
        query, key = self.positions(shape)
        by_each = [rule.allows(query, key) for rule in self.rules]
        by_each += mask

        out = np.full(shape, -1)
        for number in reversed(range(len(by_each))):  # the first is written last, over the others
            hides = np.broadcast_to(~by_each[number], shape)
            out[hides] = number
        return out

    def adjoint(self, line: Line, d: str) -> Gradients:
        scores, *mask = line.inputs
        yield Gradient(scores, replace(self, hidden=0.0), (d, *mask), f"{d} where allowed, else 0")
