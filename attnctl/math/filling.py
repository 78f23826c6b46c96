"""Forms filled in: index notation and the numbers of a cell make an expression (`math.arithmetic`).

A form is made into functions of the cell once, so that a sum over many places stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf, isnan, nan
from operator import add, floordiv, itemgetter, mod, mul, sub
from typing import Any

from attnctl.math import Array, Cell
from attnctl.math.arithmetic import Expr, Number, Operation, evaluate
from attnctl.math.notation import Input, Operand, Place, Term


def form_of(op: Any, rank: int, inputs: Sequence[Array]) -> Term:
    cell = [Term("axis", axis) for axis in range(rank)]
    form: Term = op.form(cell, *(Input(at, x.shape, x.dtype) for at, x in enumerate(inputs)))
    return form


At = dict[Any, Any]
"""Where a cell is: its places by axis, those of indices by name, and the numbers known of it by term."""

Expression = Callable[[At], Expr]

EPS = 2.0**-52
"""A unit of rounding to count in."""


def filler(form: Term, inputs: Sequence[Array]) -> Callable[[Cell], Expr]:
    make = Filling(inputs).expression(form)
    return lambda cell: make(dict(enumerate(cell)))


class Filling:
    """Makes functions of a cell of the terms of a form, each once."""

    def __init__(self, inputs: Sequence[Array]) -> None:
        self.inputs = inputs
        self.made: dict[Term, Expression] = {}

    def expression(self, term: Operand) -> Expression:
        if not isinstance(term, Term):
            fixed = Number(float(term))
            return lambda _: fixed
        if term not in self.made:
            self.made[term] = EXPRESSIONS[term.kind](self, *term.parts)
        return self.made[term]

    def value(self, term: Operand) -> Callable[[At], float]:
        make = self.expression(term)

        def work_out(at: At) -> float:
            made = make(at)
            return made.value if isinstance(made, Number) else evaluate(made, 0.0).value

        return work_out

    def place(self, place: Place) -> Callable[[At], int]:
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
                by = PLACES[sign]
                a = self.place(left)
                b = self.place(right)
                return lambda at: by(a(at), b(at))
        raise TypeError(place.kind)

    def places(self, places: Sequence[Place]) -> Callable[[At], Cell]:
        found = [self.place(place) for place in places]
        return lambda at: tuple([term(at) for term in found])

    def condition(self, term: Term) -> Callable[[At], bool]:
        match term.kind, term.parts:
            case "<", (left, right):
                a = self.place(left)
                b = self.place(right)
                return lambda at: a(at) < b(at)
            case "seen", (score,):
                found = self.value(score)
                return lambda at: found(at) != -inf
        number = self.value(term)
        return lambda at: bool(number(at))

    # --- a function for each kind of term ---

    def read(self, position: int, *places: Place) -> Expression:
        """The number of an input, and where it was read."""
        array = self.inputs[position]
        own = self.places(places)

        def make(at: At) -> Expr:
            cell = own(at)
            return Number(float(array.item(cell)), (position, cell))

        return make

    def look_up(self, _: Callable[[], Array], one: Callable[[Cell], float], *places: Place) -> Expression:
        own = self.places(places)
        return lambda at: Number(float(one(own(at))))

    def count(self, place: Place) -> Expression:
        found = self.place(place)
        return lambda at: Number(float(found(at)))

    def combine(self, kind: str, *parts: Operand) -> Expression:
        made = [self.expression(part) for part in parts]
        join = one_sum if kind == "+" else partial(Operation, kind)
        return lambda at: join(tuple([part(at) for part in made]))

    def add_up(self, name: str, size: int, body: Operand, *seen: Term) -> Expression:
        part = self.expression(body)
        conditions = [self.condition(term) for term in seen]

        def make(at: At) -> Expr:
            terms = (part(at) for _ in over(at, name, size) if all(holds(at) for holds in conditions))
            return one_sum(terms)

        return make

    def choose(self, condition: Term, yes: Operand, no: Operand) -> Expression:
        holds = self.condition(condition)
        a = self.expression(yes)
        b = self.expression(no)
        return lambda at: a(at) if holds(at) else b(at)

    def once(self, work_out: Callable[[At], Number]) -> Expression:
        def make(at: At) -> Expr:
            if work_out not in at:
                at[work_out] = work_out(at)
            return at[work_out]

        return make

    def known_number(self, body: Operand) -> Expression:
        """What a body comes to at each cell, as one number: its own arithmetic is not shown."""
        made = self.expression(body)

        def work_out(at: At) -> Number:
            value, slack = evaluate(made(at), EPS)
            return Number(value, None, slack / EPS)

        return self.once(work_out)

    def largest(self, name: str, size: int, body: Operand, *others: Operand) -> Expression:
        """The largest over an index, and of others; NaN where one of them is."""
        one = self.value(body)
        more = [self.value(other) for other in others]

        def work_out(at: At) -> Number:
            values = [one(at) for _ in over(at, name, size)]
            values += [other(at) for other in more]
            return Number(nan if any(map(isnan, values)) else max(values))

        return self.once(work_out)


def over(at: At, name: str, size: int) -> Iterator[None]:
    """Every place of an index, which is as it was afterwards: sums within sums may share a name."""
    before = at.get(name)
    for at[name] in range(size):
        yield
    at[name] = before


def one_sum(parts: Iterable[Expr]) -> Operation:
    flat: list[Expr] = []
    for part in parts:
        if isinstance(part, Operation) and part.kind == "+":
            flat += part.parts
        else:
            flat.append(part)
    return Operation("+", tuple(flat))


PLACES: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
"""What makes a place of two."""

EXPRESSIONS: dict[str, Callable[..., Expression]] = {
    "read": Filling.read,
    "table": Filling.look_up,
    "number": Filling.count,
    **{sign: lambda fill, a, b, sign=sign: fill.combine(sign, a, b) for sign in "+-*/"},
    "sum": Filling.add_up,
    "max": Filling.largest,
    "known": Filling.known_number,
    "call": Filling.combine,
    "where": Filling.choose,
}
"""What makes an expression of each kind of term."""
