"""Index notation: the arithmetic of every cell of a step, said once and as data.

A form is a tree of nodes. It reads inputs at places; a place is an axis of the cell, an index that a
sum runs over, or a whole number made of these by + - * // % and abs. Numbers that an op knows by
itself (angles, slopes, who is hidden) are tables over places. Of what is read, forms make sums,
differences, products, quotients, and the functions exp, sqrt, tanh, cos and sin.

>>> i = index(k.shape[-1])
>>> total(i, q.at(*lead, row, i) * k.at(*lead, column, i))

`filler` puts the numbers of a cell into a form, which makes an expression of `attnctl.arithmetic`;
`data` writes a form as plain lists, for a page (`attnctl/report/page/arithmetic.mjs` fills those in).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from operator import add, floordiv, itemgetter, mod, mul, sub
from typing import Any, NamedTuple

import numpy as np

from attnctl.arithmetic import (
    Call,
    Cell,
    Difference,
    Expr,
    Number,
    Product,
    Quotient,
    Source,
    Sum,
    evaluate,
)
from attnctl.array import Array, Shape


@dataclass(frozen=True, eq=False)
class Term:
    """A part of a form: its kind, and what it is made of."""

    kind: str
    parts: tuple[Any, ...]

    def __add__(self, other: Operand) -> Term:
        """A sum; of sums, one sum."""
        return Term("+", (self, other))

    def __radd__(self, other: float) -> Term:
        return Term("+", (other, self))

    def __sub__(self, other: Operand) -> Term:
        return Term("-", (self, other))

    def __rsub__(self, other: float) -> Term:
        return Term("-", (other, self))

    def __mul__(self, other: Operand) -> Term:
        return Term("*", (self, other))

    def __rmul__(self, other: float) -> Term:
        return Term("*", (other, self))

    def __truediv__(self, other: Operand) -> Term:
        return Term("/", (self, other))

    def __floordiv__(self, other: int) -> Term:
        return Term("//", (self, other))

    def __mod__(self, other: int) -> Term:
        return Term("%", (self, other))

    def __abs__(self) -> Term:
        return Term("abs", (self,))

    def __lt__(self, other: int) -> Term:
        """A condition, of places."""
        return Term("<", (self, other))


Operand = Term | float
Place = Term | int


class Table(NamedTuple):
    """Numbers that an op knows by itself: `whole` makes all of them, `one` the number at some places."""

    whole: Callable[[], Array]
    one: Callable[[Cell], float]


@dataclass(frozen=True)
class Input:
    """An input of an op as a form knows it: which one, its shape, its type of number."""

    position: int
    shape: Shape
    dtype: np.dtype[Any]

    def at(self, *places: Place) -> Term:
        """The number at some places; leading axes that it lacks, and those it has once, are left out."""
        return Term("read", (self.position, *own_places(self.shape, places)))


def own_places(shape: Shape, places: Sequence[Place]) -> tuple[Place, ...]:
    """The last places, as many as there are axes; 0 along an axis of size 1."""
    if len(places) < len(shape):
        raise ValueError("an input has other axes than it should")
    own = places[len(places) - len(shape) :]
    return tuple(0 if size == 1 else place for place, size in zip(own, shape, strict=True))


def table(array: Array, *places: Place) -> Term:
    """The number of an array that is no input."""
    kept = Table(lambda: array, lambda at: array[at].item())
    return Term("table", (kept, *own_places(array.shape, places)))


def number(place: Place) -> Term:
    """A place as a number to count with."""
    return Term("number", (place,))


def index(size: int, name: str = "i") -> Term:
    """An index that a sum or a maximum runs over: 0, 1, … below this size."""
    return Term("index", (name, size))


def total(i: Term, body: Term, seen: Term | None = None) -> Term:
    """The sum over an index, of the places where a score is seen if one is given."""
    return Term("sum", (*i.parts, body) if seen is None else (*i.parts, body, is_seen(seen)))


def largest(i: Term, body: Term, *others: Term) -> Term:
    """The largest number over an index and of some others: one number, whose arithmetic is not written."""
    return Term("max", (*i.parts, body, *others))


def known(body: Term) -> Term:
    """What something comes to, as one number whose arithmetic is not written.

    As the largest, it is worked out once a cell: it may not read at the index of a sum around it.
    """
    return Term("known", (body,))


def call(name: str, inside: Operand) -> Term:
    """A function: exp, sqrt, tanh, cos or sin."""
    return Term("call", (name, inside))


def where(condition: Term, yes: Operand, no: Operand) -> Term:
    """One of two forms; a condition is `a < b` of places, `is_seen`, or a number that is not 0."""
    return Term("where", (condition, yes, no))


def is_seen(score: Term) -> Term:
    """The condition that a score is not −∞."""
    return Term("seen", (score,))


def form_of(op: Any, rank: int, inputs: Sequence[Array]) -> Term:
    """The form of a step with so many axes that an op makes of such inputs."""
    cell = [Term("axis", (axis,)) for axis in range(rank)]
    form: Term = op.form(cell, *(Input(at, x.shape, x.dtype) for at, x in enumerate(inputs)))
    return form


def data(part: Any, number_of: Callable[[Array], int]) -> Any:
    """A form as plain lists, [kind, part, …]; `number_of` says which number stands for a table."""
    if isinstance(part, Term):
        return [part.kind, *(data(each, number_of) for each in part.parts)]
    return number_of(part.whole()) if isinstance(part, Table) else part


# --- filled in ---

At = dict[Any, Any]
"""Where a cell is: its places by axis, those of indices by name, and the numbers known of it by term."""

Expression = Callable[[At], Expr]


def filler(form: Term, inputs: Sequence[Array]) -> Callable[[Cell], Expr]:
    """What makes the arithmetic of any cell from its form."""
    make = Filling(inputs).expression(form)
    return lambda cell: make(dict(enumerate(cell)))


class Filling:
    """Makes functions of a cell of the terms of a form, each once."""

    def __init__(self, inputs: Sequence[Array]) -> None:
        self.inputs = inputs
        self.made: dict[Term, Expression] = {}

    def expression(self, term: Operand) -> Expression:
        """What makes an expression of a term."""
        if not isinstance(term, Term):
            fixed = Number(float(term))
            return lambda _: fixed
        if term not in self.made:
            self.made[term] = EXPRESSIONS[term.kind](self, *term.parts)
        return self.made[term]

    def value(self, term: Operand) -> Callable[[At], float]:
        """What works out the number that a term comes to."""
        make = self.expression(term)
        return lambda at: found.value if isinstance(found := make(at), Number) else evaluate(found, 0.0)[0]

    def place(self, place: Place) -> Callable[[At], int]:
        """What finds the whole number that a place is."""
        if not isinstance(place, Term):
            return lambda _: place
        match place.kind, place.parts:
            case (("axis" | "index"), (which, *_)):
                return itemgetter(which)
            case "abs", (inside,):
                size = self.place(inside)
                return lambda at: abs(size(at))
            case "table", _:
                found = self.value(place)
                return lambda at: int(found(at))
            case sign, (left, right):
                by, a, b = PLACES[sign], self.place(left), self.place(right)
                return lambda at: by(a(at), b(at))
        raise TypeError(place.kind)

    def places(self, places: Sequence[Place]) -> Callable[[At], Cell]:
        """What finds a cell of an input or a table."""
        found = [self.place(each) for each in places]
        return lambda at: tuple([each(at) for each in found])

    def condition(self, term: Term) -> Callable[[At], bool]:
        """What tells whether a condition holds."""
        match term.kind, term.parts:
            case "<", (left, right):
                a, b = self.place(left), self.place(right)
                return lambda at: a(at) < b(at)
            case "seen", (score,):
                found = self.value(score)
                return lambda at: found(at) != -inf
        number = self.value(term)
        return lambda at: bool(number(at))

    # --- a function for each kind of term ---

    def read(self, position: int, *places: Place) -> Expression:
        """The number of an input, and where it was read."""
        array, own = self.inputs[position], self.places(places)

        def make(at: At) -> Expr:
            cell = own(at)
            return Number(float(array.item(cell)), Source(position, cell))

        return make

    def look_up(self, numbers: Table, *places: Place) -> Expression:
        """The number of a table."""
        own = self.places(places)
        return lambda at: Number(float(numbers.one(own(at))))

    def count(self, place: Place) -> Expression:
        """A place as a number."""
        found = self.place(place)
        return lambda at: Number(float(found(at)))

    def combine(self, kind: Callable[[Expr, Expr], Expr], left: Operand, right: Operand) -> Expression:
        """A difference, product, quotient or sum of two."""
        a, b = self.expression(left), self.expression(right)
        return lambda at: kind(a(at), b(at))

    def add_up(self, name: str, size: int, body: Operand, *seen: Term) -> Expression:
        """A sum over an index."""
        part, holds = self.expression(body), [self.condition(each) for each in seen]
        return lambda at: one_sum(part(at) for at[name] in range(size) if all(each(at) for each in holds))

    def apply(self, name: str, inside: Operand) -> Expression:
        """A function of an expression."""
        made = self.expression(inside)
        return lambda at: Call(name, made(at))

    def choose(self, condition: Term, yes: Operand, no: Operand) -> Expression:
        """One of two."""
        holds, a, b = self.condition(condition), self.expression(yes), self.expression(no)
        return lambda at: a(at) if holds(at) else b(at)

    def once(self, work_out: Callable[[At], float]) -> Expression:
        """One number, which is worked out once a cell."""

        def make(at: At) -> Expr:
            if work_out not in at:
                at[work_out] = Number(work_out(at))
            return at[work_out]

        return make

    def come_to(self, body: Operand) -> Expression:
        """What something comes to."""
        return self.once(self.value(body))

    def largest(self, name: str, size: int, body: Operand, *others: Operand) -> Expression:
        """The largest over an index, and of others; NaN where one of them is."""
        each, more = self.value(body), [self.value(other) for other in others]

        def work_out(at: At) -> float:
            values = [*(each(at) for at[name] in range(size)), *(other(at) for other in more)]
            return nan if any(map(isnan, values)) else max(values)

        return self.once(work_out)


def one_sum(parts: Iterable[Expr]) -> Sum:
    """A sum whose parts are no sums: theirs stand in their place."""
    flat: list[Expr] = []
    for part in parts:
        if isinstance(part, Sum):
            flat += part.parts
        else:
            flat.append(part)
    return Sum(tuple(flat))


PLACES: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
"""What makes a place of two."""

EXPRESSIONS: dict[str, Callable[..., Expression]] = {
    "read": Filling.read,
    "table": Filling.look_up,
    "number": Filling.count,
    "+": lambda fill, a, b: fill.combine(lambda *both: one_sum(both), a, b),
    "-": lambda fill, a, b: fill.combine(Difference, a, b),
    "*": lambda fill, a, b: fill.combine(lambda *both: Product(both), a, b),
    "/": lambda fill, a, b: fill.combine(Quotient, a, b),
    "sum": Filling.add_up,
    "max": Filling.largest,
    "known": Filling.come_to,
    "call": Filling.apply,
    "where": Filling.choose,
}
"""What makes an expression of each kind of term."""
