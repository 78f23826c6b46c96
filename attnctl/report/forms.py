"""The arithmetic of a step as data: what `op.terms` says of some cells, generalised to all of them.

A page works out the arithmetic of the cell under the cursor without Python. What it needs is read
off `op.terms` itself, so that no op's arithmetic is written twice. The expressions of a few cells
are laid side by side: cells whose expressions are built alike are of one class, and in a class each
place of an input and each constant is the same for all, follows an axis of the cell, is the largest
of the numbers read, or is looked up in a table over the axes it depends on. What was generalised is
held against `op.terms` at other cells before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, isnan, prod
from typing import Any

import numpy as np

from attnctl.arithmetic import (
    Call,
    Cell,
    Difference,
    Expr,
    Number,
    Product,
    Quotient,
    Rest,
    Source,
    Sum,
    numbers,
)
from attnctl.array import Array, Shape
from attnctl.ops import Hide, Op

Node = list[Any]
"""A form as JSON: ["sum", parts] ["difference", a, b] ["product", parts] ["quotient", a, b]
["call", name, inside] ["seen", inside] ["number", value] ["read", input, places]."""

Rule = Any
"""How a place or a constant follows from the cell: a number, ["axis", which, more], ["largest"] or
["table", axes, number of the table]."""

PROBES = 12
"""Cells drawn to learn from, and as many again to hold what was learnt against."""

MOST_EVALUATED = 1 << 16
"""Cells that are asked at most to fill the tables of one step."""

MOST_LOOKED_AT = 16
"""Places along an axis that are asked to find whether something depends on it."""


class IrregularError(Exception):
    """The arithmetic of this step cannot be generalised."""


@dataclass
class Form:
    """The arithmetic of every cell of a step.

    `by` holds, for each axis that the class of a cell depends on, the part of the class at each
    place; where it is None the class says whether the cell is hidden. `nodes` has a form a class.
    """

    by: list[tuple[int, list[int]]] | None
    nodes: dict[Cell, Node]
    tables: list[Array] = field(default_factory=list)

    def class_of(self, cell: Cell, hidden: Array | None) -> Cell:
        """The class of a cell."""
        if self.by is None:
            assert hidden is not None
            return (int(spread(hidden, cell) > 0),)
        return tuple(parts[cell[axis]] for axis, parts in self.by)


def spread(array: Array, cell: Cell) -> Any:
    """The number of an array that is broadcast, at a cell."""
    own = cell[len(cell) - array.ndim :]
    return array[tuple(0 if size == 1 else at for at, size in zip(own, array.shape, strict=True))]


# --- an expression in two parts: how it is built, and the numbers in it ---


def taken_apart(expr: Expr) -> tuple[str, list[float], float]:
    """(how it is built, its places and constants in order, the largest number that is read)."""
    built: list[str] = []
    values: list[float] = []

    def walk(part: Expr) -> None:
        match part:
            case Number(value, None):
                built.append("n")
                values.append(value)
            case Number(_, Source(position, cell)):
                built.append(f"r{position}.{len(cell)}")
                values.extend(cell)
            case Sum(parts) | Product(parts):
                built.append(f"{type(part).__name__}{len(parts)}")
                for each in parts:
                    walk(each)
            case Difference(left, right) | Quotient(left, right):
                built.append(type(part).__name__)
                walk(left)
                walk(right)
            case Call(name, inside):
                built.append(name)
                walk(inside)
            case Rest():
                raise IrregularError

    walk(expr)
    read = [each.value for each in read_in(expr)]
    return " ".join(built), values, (np.max(read) if read else inf)


def read_in(expr: Expr) -> list[Number]:
    """The numbers of an expression that were read from an input."""
    return [each for each in numbers(expr) if isinstance(each, Number) and each.source]


def node_of(expr: Expr, rules: Iterator[Rule], *, seen: bool) -> Node:
    """The expression with rules where its places and constants were."""

    def walk(part: Expr) -> Node:
        match part:
            case Number(_, source):
                if source is None:
                    return ["number", next(rules)]
                return ["read", source.position, [next(rules) for _ in source.cell]]
            case Sum(parts):
                return ["sum", [walk(each) for each in parts]]
            case Product(parts):
                return ["product", [walk(each) for each in parts]]
            case Difference(left, right):
                return ["difference", walk(left), walk(right)]
            case Quotient(above, below):
                return ["quotient", walk(above), walk(below)]
            case Call(name, inside):
                return ["seen", walk(inside)] if seen and name == "exp" else ["call", name, walk(inside)]
            case Rest():
                raise IrregularError

    return walk(expr)


# --- generalising ---


class Learner:
    """Asks an op about cells of a step, and finds what is true of all of them."""

    def __init__(self, op: Op, shape: Shape, inputs: Sequence[Array], hidden: Array | None) -> None:
        self.op, self.shape, self.inputs, self.hidden = op, shape, inputs, hidden
        self.draw = np.random.RandomState(0)
        self.asked = 0
        self.tables: list[Array] = []

    def terms(self, cell: Cell) -> Expr:
        """What the op says of a cell."""
        self.asked += 1
        if self.asked > MOST_EVALUATED + 1000:
            raise IrregularError
        return self.op.terms(cell, *self.inputs)

    def some(self, places: Sequence[Sequence[int]]) -> list[Cell]:
        """Cells at the corners of these places, and others drawn."""
        corners = [tuple(each[end] for each in places) for end in (0, -1)]
        drawn = [tuple(int(self.draw.choice(each)) for each in places) for _ in range(PROBES)]
        return list(dict.fromkeys([*corners, *drawn]))

    def form(self, *, seen: bool) -> Form:
        """The form of every cell. Raises IrregularError where there is none."""
        if isinstance(self.op, Hide):
            return self.by_hidden()
        every = [range(size) for size in self.shape]
        if len({taken_apart(self.terms(cell))[0] for cell in self.some(every)}) == 1:
            return Form([], {(): self.learnt(self.some(every), every, seen=seen)}, self.tables)
        by = [(axis, parts) for axis in range(len(self.shape)) if len(set(parts := self.along(axis))) > 1]
        nodes: dict[Cell, Node] = {}
        for key in product(*(sorted(set(parts)) for _, parts in by)):
            places: list[Sequence[int]] = list(every)
            for (axis, parts), part in zip(by, key, strict=True):
                places[axis] = [at for at, each in enumerate(parts) if each == part]
            nodes[key] = self.learnt(self.some(places), places, seen=seen)
        return Form(by, nodes, self.tables)

    def by_hidden(self) -> Form:
        """The forms of cells that are hidden and of those that are not."""
        assert self.hidden is not None
        wide = np.broadcast_to(self.hidden, self.shape)
        nodes: dict[Cell, Node] = {}
        for part in (0, 1):
            cells = np.argwhere((wide > 0) == part)
            if len(cells):
                chosen = cells[self.draw.randint(len(cells), size=PROBES)]
                probes = [tuple(map(int, cells[0])), *(tuple(map(int, each)) for each in chosen)]
                nodes[(part,)] = self.learnt(probes, None, seen=False)
        return Form(None, nodes, self.tables)

    def along(self, axis: int) -> list[int]:
        """For each place along an axis a number that says how expressions are built there."""
        every = [range(size) for size in self.shape]
        kinds: dict[tuple[str, ...], int] = {}
        out = []
        bases = self.some(every)[:3]
        for at in range(self.shape[axis]):
            cells = [(*base[:axis], at, *base[axis + 1 :]) for base in bases]
            built = tuple(taken_apart(self.terms(cell))[0] for cell in cells)
            out.append(kinds.setdefault(built, len(kinds)))
        return out

    def learnt(self, cells: list[Cell], places: Sequence[Sequence[int]] | None, *, seen: bool) -> Node:
        """The form that these cells have in common; `places` are those that tables may be made over."""
        exprs = [self.terms(cell) for cell in cells]
        apart = [taken_apart(expr) for expr in exprs]
        if len({built for built, _, _ in apart}) != 1:
            raise IrregularError
        values = np.array([each for _, each, _ in apart])
        largest = np.array([each for _, _, each in apart])
        where = np.array(cells)
        rules: list[Rule] = [None] * values.shape[1]
        for slot, is_constant in enumerate(constants(apart[0][0])):
            rules[slot] = plain_rule(values[:, slot], where, largest if is_constant else None)
        left = [slot for slot, rule in enumerate(rules) if rule is None]
        if left:
            if places is None:
                raise IrregularError
            for slot, rule in zip(left, self.looked_up(left, places), strict=True):
                rules[slot] = rule
        return node_of(exprs[0], iter(rules), seen=seen)

    def looked_up(self, slots: list[int], places: Sequence[Sequence[int]]) -> Iterator[Rule]:
        """Tables for numbers that follow no simple rule, each over the axes that it depends on."""
        over = dict(zip(slots, self.axes_of(slots, places), strict=True))
        table_of: dict[int, int] = {}
        for axes in dict.fromkeys(over.values()):
            mine = [slot for slot in slots if over[slot] == axes]
            for slot, table in zip(mine, self.table(mine, axes, places), strict=True):
                table_of[slot] = len(self.tables)
                self.tables.append(table)
        for slot in slots:
            yield ["table", list(over[slot]), table_of[slot]]

    def table(self, slots: list[int], axes: tuple[int, ...], places: Sequence[Sequence[int]]) -> Array:
        """These numbers of the cells at these places, which depend on these axes alone."""
        sizes = [self.shape[axis] for axis in axes]
        if prod(sizes) > MOST_EVALUATED:
            raise IrregularError
        table = np.full((*sizes, len(slots)), np.nan)
        for at in product(*(places[axis] for axis in axes)):
            cell = [each[0] for each in places]
            for axis, place in zip(axes, at, strict=True):
                cell[axis] = place
            values = taken_apart(self.terms(tuple(cell)))[1]
            table[at] = [values[slot] for slot in slots]
        return np.moveaxis(table, -1, 0)

    def axes_of(self, slots: list[int], places: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """The axes that each of these numbers depends on."""
        found: list[set[int]] = [set() for _ in slots]
        for base, axis in product(self.some(places)[:4], range(len(self.shape))):
            looked_at = np.unique(np.linspace(0, len(places[axis]) - 1, MOST_LOOKED_AT).astype(int))
            cells = [(*base[:axis], places[axis][at], *base[axis + 1 :]) for at in looked_at]
            values = [taken_apart(self.terms(cell))[1] for cell in cells]
            for own, slot in zip(found, slots, strict=True):
                if len({each[slot] for each in values}) > 1:
                    own.add(axis)
        return [tuple(sorted(own)) for own in found]


def constants(built: str) -> list[bool]:
    """For each number of an expression that is built so, whether it is a constant or a place."""
    out: list[bool] = []
    for word in built.split():
        if word == "n":
            out.append(True)
        elif word[0] == "r" and "." in word:
            out += [False] * int(word.split(".")[1])
    return out


def plain_rule(values: Array, cells: Array, largest: Array | None) -> Rule | None:
    """The rule that these numbers follow from their cells, None where that needs a table.

    `largest` holds the largest number read in each cell, for constants.
    """
    if (values == values[0]).all() or np.isnan(values).all():
        return float(values[0]) if largest is not None else int(values[0])
    if largest is not None:
        return ["largest"] if np.array_equal(values, largest, equal_nan=True) else None
    for axis in range(cells.shape[1]):
        more = values - cells[:, axis]
        if (more == more[0]).all():
            return ["axis", axis, int(more[0])]
    return None


# --- a form filled in ---


@dataclass
class Filling:
    """A form filled in with the numbers of one cell; the page does the same (arithmetic.mjs)."""

    form: Form
    cell: Cell
    inputs: Sequence[Array]
    largest: float = 0.0

    def rule(self, given: Rule) -> Any:
        """The number that a rule gives."""
        match given:
            case ["axis", axis, more]:
                return self.cell[axis] + more
            case ["table", axes, number]:
                return self.form.tables[number][tuple(self.cell[axis] for axis in axes)]
            case ["largest"]:
                return self.largest
        return given

    def walk(self, node: Node) -> Expr | None:
        """The expression of a node; None for what is hidden."""
        match node:
            case ["read", position, places]:
                own = tuple(int(self.rule(each)) for each in places)
                return Number(float(self.inputs[position][own]), Source(position, own))
            case ["number", value]:
                return Number(float(self.rule(value)))
            case ["sum" | "product" as kind, parts]:
                found = tuple(each for part in parts if (each := self.walk(part)) is not None)
                return Sum(found) if kind == "sum" else Product(found)
            case ["difference", left, right]:
                return Difference(some(self.walk(left)), some(self.walk(right)))
            case ["quotient", above, below]:
                top = self.walk(above)
                return None if top is None else Quotient(top, some(self.walk(below)))
            case ["seen", inside]:
                score = some(self.walk(inside))
                hidden = any(each.value == -inf for each in read_in(score))
                return None if hidden else Call("exp", score)
        _, name, inside = node
        return Call(name, some(self.walk(inside)))


def filled(form: Form, cell: Cell, inputs: Sequence[Array], hidden: Array | None) -> Expr:
    """The arithmetic of a cell from its form."""
    node = form.nodes[form.class_of(cell, hidden)]
    filling = Filling(form, cell, inputs)
    first = some(filling.walk(node))
    read = [each.value for each in read_in(first)]
    filling.largest = float(np.max(read)) if read else 0.0
    return some(filling.walk(node))


def some(expr: Expr | None) -> Expr:
    """The expression; 0 where it is nothing, as what is hidden is."""
    return Number(0.0) if expr is None else expr


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are built alike of the same numbers, NaN equal to itself."""
    (built, values, _), (other, others, _) = taken_apart(a), taken_apart(b)
    return built == other and all(
        x == y or (isnan(x) and isnan(y)) for x, y in zip(values, others, strict=True)
    )


def fits(form: Form, learner: Learner) -> bool:
    """Whether a form says of other cells what the op says."""
    probes = learner.some([range(size) for size in learner.shape])
    try:
        with np.errstate(all="ignore"):
            return all(
                same(filled(form, cell, learner.inputs, learner.hidden), learner.terms(cell))
                for cell in probes
            )
    except (KeyError, IndexError, ValueError):
        return False


def fits_inputs(
    form: Form, op: Op, shape: Shape, inputs: Sequence[Array], hidden: Array | None = None
) -> bool:
    """Whether a form that was found for other numbers of these shapes fits these."""
    return fits(form, Learner(op, shape, inputs, hidden))


def form_of(op: Op, shape: Shape, inputs: Sequence[Array], hidden: Array | None = None) -> Form | None:
    """The arithmetic of every cell of a step as data; None where it cannot be generalised.

    `hidden` is greater than 0 where a rule hides the score, for the step that hides scores.
    """
    if not prod(shape):
        return None
    real = Learner(op, shape, inputs, hidden)
    shown = [np.random.RandomState(0).standard_normal(each.shape) for each in inputs]
    for seen, learner in ((False, real), (True, Learner(op, shape, shown, hidden))):
        try:
            with np.errstate(all="ignore"):
                form = learner.form(seen=seen)
                if fits(form, Learner(op, shape, inputs, hidden)):
                    return form
        except (IrregularError, ArithmeticError, LookupError, TypeError, ValueError):
            continue
    return None
