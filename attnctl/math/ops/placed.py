"""Ops on scores that depend on where queries and keys stand: ALiBi's slopes, and what is hidden."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import inf

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Cell, Shape
from attnctl.math.notation import Input, Table, Term, number, table, where
from attnctl.math.ops.base import Block, Copy, Gradient, Gradients, Line, Places, RowWise
from attnctl.math.rules import PerBatch, Span, VisibilityRule, alibi_slopes, of_member, per_batch


@dataclass(frozen=True)
class Placed(RowWise):
    """An op on scores that depends on where queries and keys stand.

    Query i stands at absolute position i + offset, key j at j; `offset` is the number of keys
    that precede query 0 (a cache, or lengths − queries). `at` is where these scores begin.
    """

    offset: PerBatch = 0
    at: Block | None = None

    def block(self, at: Block) -> RowWise:
        return replace(self, offset=of_member(self.offset, at.member), at=at)

    def positions(self, shape: Shape) -> tuple[Array, Array]:
        """Positions of the queries ([batch, 1,] queries, 1) and of the keys (keys,)."""
        *_, queries, keys = shape
        start = self.at or Block()
        rows = np.arange(start.query, start.query + queries)[:, None]
        return rows + per_batch(self.offset), np.arange(start.key, start.key + keys)

    def ahead(self, cell: Places) -> Term:
        """key − query of a cell, by their absolute positions."""
        *batch, _, query, key = cell
        offset = self.offset
        return key - query - (offset if isinstance(offset, int) else table(np.array(offset), *batch))


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
        lost = np.empty_like(s)
        np.multiply(self.slopes(s.shape), self.distances(s.shape), out=lost, casting="same_kind")
        return np.subtract(s, lost, out=lost if out is None else out)

    def form(self, cell: Places, s: Input) -> Term:
        """s − slope · distance."""
        slope = table(alibi_slopes(s.shape[-3]), cell[-3])
        return s.at(*cell) - slope * number(abs(self.ahead(cell)))

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = d."""
        yield Gradient(line.inputs[0], Copy(), (d,), d)


@dataclass(frozen=True)
class Hide(Placed):
    """S where every rule (and the given mask, if there is one) allows it, else −∞; 0 of a gradient."""

    signature = "batch? head query key[, bool batch? head? query? key?] -> batch? head query key"

    rules: tuple[VisibilityRule, ...] = ()
    hidden: float = -inf

    @property
    def words(self) -> str:
        """With what each rule asks for."""
        if self.hidden == 0:
            return "A score that may not be seen changes nothing: its gradient is 0."
        said = "".join(f" {rule.said}" for rule in self.rules)
        return f"Scores that may not be seen become −∞.{said}[ The given {{1}} says who sees whom.]"

    def block(self, at: Block) -> Hide:
        rules = tuple(rule.of_member(at.member) for rule in self.rules)
        return replace(self, rules=rules, offset=of_member(self.offset, at.member), at=at)

    def visible_to_any(self, queries: int, keys: int) -> Span:
        """The keys that any of so many queries of this block can see: the rest need not be computed."""
        first = (self.at or Block()).query + int(np.min(self.offset))
        last = first + queries - 1 + int(np.ptp(self.offset))
        spans = [rule.visible_to_any(first, last, keys) for rule in self.rules]
        start = max((span[0] for span in spans), default=0)
        return start, max(start, min((span[1] for span in spans), default=keys))

    def allowed(self, shape: Shape, *mask: Array) -> Array:
        """True where the query may attend to the key; broadcasts against the scores."""
        query, key = self.positions(shape)
        every = [*(rule.allows(query, key) for rule in self.rules), *mask]
        allowed: Array = reduce(np.logical_and, every) if every else np.ones((1, 1), dtype=bool)
        return allowed

    def apply(self, s: Array, *mask: Array, out: Array | None = None) -> Array:
        hidden = s.copy() if out is None else out
        if hidden is not s:
            np.copyto(hidden, s)
        for start, stop in [(0, s.shape[-1])] if mask else self.columns_to_check(s.shape):
            part = hidden[..., start:stop]
            np.copyto(part, self.hidden, where=~self.from_key(start).allowed(part.shape, *mask))
        return hidden

    def from_key(self, start: int) -> Hide:
        """Return the same op for the columns of this block from `start` on."""
        if self.at is None or start == 0:
            return self
        return replace(self, at=replace(self.at, key=self.at.key + start))

    def columns_to_check(self, shape: Shape) -> list[Span]:
        """The columns of this block that a rule may hide from a query.

        The others are those that every rule promises to show to all queries of the block.
        """
        *_, queries, keys = shape
        if self.at is None or not isinstance(self.offset, int):
            return [(0, keys)]
        key, first = self.at.key, self.at.query + self.offset
        promised = [rule.visible_to_all(first, first + queries - 1, key + keys) for rule in self.rules]
        low = max([0, *(start - key for start, _ in promised)])
        high = min([keys, *(stop - key for _, stop in promised)])
        parts = [(0, low), (high, keys)] if low < high else [(0, keys)]
        return [(start, stop) for start, stop in parts if start < stop]

    def form(self, cell: Places, s: Input, *mask: Input) -> Term:
        """s, or −∞."""
        shown = s.at(*cell)
        for each in mask:
            shown = where(each.at(*cell), shown, self.hidden)
        hiding = Term("table", self.hiding(s.shape), *cell)
        return where(hiding, self.hidden, shown) if self.rules else shown

    def hiding(self, shape: Shape) -> Table:
        """For each cell the number of the first rule that hides it, from 1; 0 where none does."""
        heads = (*shape[:-3], 1, *shape[-2:])  # rules hide the same of every head
        return Table(
            lambda: (self.hidden_by(heads) + 1).astype(np.uint8), lambda cell: self.reason(cell, shape) + 1
        )

    def reason(self, cell: Cell, shape: Shape, *mask: Array) -> int:
        """The number of the first rule that hides this cell, as `hidden_by` counts them."""
        *batch, head, query, key = cell
        block = Block(batch[0] if batch else 0, head, shape[-3], query, key)
        here = [np.broadcast_to(each, shape)[cell] for each in mask]
        return int(self.block(block).hidden_by((1, 1, 1), *here).item())

    def hidden_by(self, shape: Shape, *mask: Array) -> Array:
        """For each cell the number of the first rule that hides it, −1 where none does.

        Rules count from 0 in order; the given mask comes after them.
        """
        query, key = self.positions(shape)
        out = np.full(shape, -1)
        sources = [rule.allows(query, key) for rule in self.rules] + list(mask)
        for at, allowed in reversed(list(enumerate(sources))):
            out[np.broadcast_to(~allowed, shape)] = at
        return out

    def adjoint(self, line: Line, d: str) -> Gradients:
        """ds = d where allowed, else 0."""
        scores, *mask = line.inputs
        yield Gradient(scores, replace(self, hidden=0.0), (d, *mask), f"{d} where allowed, else 0")
