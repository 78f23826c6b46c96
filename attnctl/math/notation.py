"""Index notation: the arithmetic of every cell of a step, said once and as data.

A form is a tree of terms. It reads inputs at places; a place is an axis of the cell, an index that a
sum runs over, or a whole number made of these by + - * // % and abs. Numbers that an op knows by
itself (angles, slopes, who is hidden) are tables over places. Of what is read, forms make sums,
differences, products, quotients, and the functions exp, log, sqrt, tanh, cos and sin.

>>> i = index(k.shape[-1])
>>> total(i, q.at(*lead, row, i) * k.at(*lead, column, i))

`attnctl.math.filling` puts the numbers of a cell into a form; `data` writes it as plain lists, for a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Cell, Shape


class Term:
    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, *parts: Any) -> None:
        self.kind = kind
        self.parts = parts

    def __add__(self, other: Operand) -> Term:
        return Term("+", self, other)

    def __radd__(self, other: float) -> Term:
        return Term("+", other, self)

    def __sub__(self, other: Operand) -> Term:
        return Term("-", self, other)

    def __rsub__(self, other: float) -> Term:
        return Term("-", other, self)

    def __mul__(self, other: Operand) -> Term:
        return Term("*", self, other)

    def __rmul__(self, other: float) -> Term:
        return Term("*", other, self)

    def __truediv__(self, other: Operand) -> Term:
        return Term("/", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return Term("/", other, self)

    def __floordiv__(self, other: int) -> Term:
        return Term("//", self, other)

    def __mod__(self, other: int) -> Term:
        return Term("%", self, other)

    def __abs__(self) -> Term:
        return Term("abs", self)

    def __lt__(self, other: Place) -> Term:
        return Term("<", self, other)


Operand = Term | float
Place = Term | int


class Input(NamedTuple):
    """An input of an op as a form knows it: which one, its shape, its type of number."""

    position: int
    shape: Shape
    dtype: Any

    def at(self, *places: Place) -> Term:
        """The number at some places; leading axes that it lacks, and those it has once, are left out."""
        return Term("read", self.position, *own_places(self.shape, places))


def own_places(shape: Shape, places: Sequence[Place]) -> tuple[Place, ...]:
    """The last places, as many as there are axes; 0 along an axis of size 1."""
    if len(places) < len(shape):
        raise ValueError("an input has other axes than it should")
    own = places[len(places) - len(shape) :]
    return tuple(0 if size == 1 else place for place, size in zip(own, shape, strict=True))


def positions(term: Any) -> set[int]:
    if not isinstance(term, Term):
        return set()
    own = {term.parts[0]} if term.kind == "read" else set[int]()
    return own.union(*map(positions, term.parts))


def entry(array: Array, *places: Place) -> Term:
    """The number of an array that is no input."""
    return from_table(lambda: array, lambda at: array[at].item(), *own_places(array.shape, places))


def from_table(whole: Callable[[], Array], one: Callable[[Cell], float], *places: Place) -> Term:
    """A number that an op knows by itself: `whole` makes all of them, `one` that at some places."""
    return Term("table", whole, one, *places)


def index_number(place: Place) -> Term:
    """A place as a number to count with."""
    return Term("number", place)


def index(size: int, name: str = "i") -> Term:
    """An index that a sum or a maximum runs over: 0, 1, … below this size."""
    return Term("index", name, size)


def total(i: Term, body: Term, *holds: Term) -> Term:
    """The sum over an index, of the places where a condition holds if one is given."""
    return Term("sum", *i.parts, body, *holds)


def sum_over(indices: Iterable[Term], body: Term) -> Term:
    """The sum over several indices, the last of them outermost."""
    for i in indices:
        body = total(i, body)
    return body


def largest(i: Term, body: Term, *others: Term) -> Term:
    """The largest number over an index and of some others: one number, whose arithmetic is not written."""
    return Term("max", *i.parts, body, *others)


def known(body: Term) -> Term:
    """Return a term as one number, worked out once a cell: it reads at no index of a sum around it."""
    return Term("known", body)


def call(name: str, inside: Operand) -> Term:
    """A function: exp, log, sqrt, tanh, cos or sin."""
    return Term("call", name, inside)


def where(condition: Term, yes: Operand, no: Operand) -> Term:
    """One of two forms; a condition is `a < b` of places, `is_seen`, or a number that is not 0."""
    return Term("where", condition, yes, no)


def is_seen(score: Term) -> Term:
    """The condition that a score is not −∞."""
    return Term("seen", score)


def data(part: Any, number_of: Callable[[Array], int]) -> Any:
    """A form as plain lists, [kind, part, …]; `number_of` says which number stands for a table."""
    if not isinstance(part, Term):
        return part
    parts = part.parts
    if part.kind == "table":
        whole, _, *places = parts
        parts = (number_of(whole()), *places)
    return [part.kind, *(data(inner, number_of) for inner in parts)]
