"""The form of an op as a spreadsheet's formula: every number over the cells that it is made of.

What a formula says is the form itself (`attnctl.math.notation`). A sum over an index is SUMPRODUCT over the
cells that it runs along, MMULT where it runs along a row of one matrix and a column of another, and written
out where these cells are no range. Places, and numbers that an op knows by itself, are worked out here.

−∞ is a number below every score, shown as −∞: no spreadsheet has ∞, and exp of either is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import inf
from typing import Any

from attnctl.drawing.show.workbook.layout import Position, StepSheet
from attnctl.math import Array, Cell
from attnctl.math.derivation import Step
from attnctl.math.filling import PLACES, form_of
from attnctl.math.notation import Operand, Place, Term

HIDDEN = -1e300
"""What stands for −∞."""

VISIBLE_ABOVE = "-1E+299"
"""A score above this is not −∞."""

LONGEST_FORMULA = 8192
"""Characters of a formula that spreadsheets take."""

FUNCTIONS = {"exp": "EXP", "log": "LN", "sqrt": "SQRT", "tanh": "TANH", "cos": "COS", "sin": "SIN"}

Bound = Mapping[Any, int | range]
"""The place of each axis and index; a range for the index that a range of cells stands for."""

CellValue = float | str
"""A number, or a text; one that begins with = is a formula."""


class Along(Enum):
    """How the cells go that a term reads while an index runs."""

    NOWHERE = 0
    ROW = 1
    COLUMN = 2
    BOTH = 3


class NoRangeError(Exception):
    """What an index runs along is no one range of cells."""


class StepFormulas:
    """The formulas of a step over the sheets of its inputs."""

    def __init__(self, step: Step, rank: int, inputs: Sequence[Array], sheets: Sequence[StepSheet]) -> None:
        self.form = form_of(step.op, rank, inputs)
        self.sheets = sheets

    def formula(self, cell: Cell) -> CellValue | None:
        """What stands in a cell; None where no spreadsheet takes so long a formula."""
        text = self.term(self.form, dict(enumerate(cell)))
        try:
            return float(text)  # of a number that follows from its place alone
        except ValueError:
            return f"={text}" if len(text) < LONGEST_FORMULA else None

    # --- terms, by their kind ---

    def term(self, term: Operand, at: Bound) -> str:  # noqa: C901  (a case for each kind)
        if not isinstance(term, Term):
            return number_text(float(term))
        match term.kind, term.parts:
            case "read", (position, *places):
                return self.reference(position, places, at)
            case "table", (_, one, *places):
                return number_text(float(one(tuple(self.place(place, at) for place in places))))
            case "number", (place,):
                return number_text(float(self.place(place, at)))
            case "known", (body,):
                return self.term(body, at)
            case "call", (name, inside):
                return f"{FUNCTIONS[name]}({self.term(inside, at)})"
            case "sum", (name, size, body, *conditions):
                return self.sum(name, size, body, conditions, at)
            case "max", (name, size, body, *others):
                compared = self.along(name, size, body, at)
                compared += [self.term(other, at) for other in others]
                return f"MAX({','.join(compared)})"
            case "where", (condition, yes, no):
                return self.choice(condition, yes, no, at)
            case sign, (left, right):
                return f"({self.term(left, at)}{sign}{self.term(right, at)})"
        raise TypeError(term.kind)

    def along(self, name: str, size: int, body: Operand, at: Bound) -> list[str]:
        """A term while an index runs: one range of cells, or else place by place."""
        try:
            return [self.term(body, {**at, name: range(size)})]
        except NoRangeError:
            return [self.term(body, {**at, name: place}) for place in range(size)]

    def sum(self, name: str, size: int, body: Operand, conditions: Sequence[Term], at: Bound) -> str:
        ranged = {**at, name: range(size)}
        try:
            over_ranges = self.sum_over_ranges(body, conditions, ranged)
        except NoRangeError:
            over_ranges = None
        if over_ranges is not None:
            return over_ranges

        terms = []
        for place in range(size):
            here = {**at, name: place}
            text = self.term(body, here)
            for condition in conditions:
                text = f"IF({self.condition(condition, here)},{text},0)"
            terms.append(text)
        return f"({'+'.join(terms) or '0'})"

    def sum_over_ranges(self, body: Operand, conditions: Sequence[Term], at: Bound) -> str | None:
        """The sum where all goes one way, or a row meets a column. Raises NoRangeError."""
        directions = {self.direction(part, at) for part in (body, *conditions)} - {Along.NOWHERE}
        if directions in ({Along.ROW}, {Along.COLUMN}):
            factors = [self.term(body, at)]
            factors += [f"({self.condition(condition, at)})" for condition in conditions]
            return f"SUMPRODUCT({'*'.join(factors)})"

        if not isinstance(body, Term) or body.kind != "*" or conditions:
            return None
        by_direction = {self.direction(part, at): part for part in body.parts}
        if set(by_direction) != {Along.ROW, Along.COLUMN}:
            return None
        row = self.term(by_direction[Along.ROW], at)
        column = self.term(by_direction[Along.COLUMN], at)
        return f"SUM(MMULT({row},{column}))"

    def direction(self, term: Any, at: Bound) -> Along:
        """How the cells go that a term reads. Raises NoRangeError."""
        if not isinstance(term, Term):
            return Along.NOWHERE
        if term.kind == "read":
            start, stop = self.corners(term.parts[0], term.parts[1:], at)
            if stop.column > start.column:
                return Along.ROW
            return Along.COLUMN if stop.row > start.row else Along.NOWHERE
        if term.kind in {"sum", "max"}:
            # It comes to one number whatever its own index is: any place will do.
            name, _, body, *_ = term.parts
            return self.direction(body, {**at, name: 0})

        directions = {self.direction(part, at) for part in term.parts} - {Along.NOWHERE}
        if not directions:
            return Along.NOWHERE
        return directions.pop() if len(directions) == 1 else Along.BOTH

    def choice(self, condition: Term, yes: Operand, no: Operand, at: Bound) -> str:
        if condition.kind == "<":
            left, right = condition.parts
            return self.term(yes if self.place(left, at) < self.place(right, at) else no, at)
        if condition.kind in {"table", "number"}:
            holds = float(self.term(condition, at)) != 0
            return self.term(yes if holds else no, at)
        return f"IF({self.condition(condition, at)},{self.term(yes, at)},{self.term(no, at)})"

    def condition(self, term: Term, at: Bound) -> str:
        if term.kind == "seen":
            return f"{self.term(term.parts[0], at)}>{VISIBLE_ABOVE}"
        if term.kind == "<":
            left, right = term.parts
            return "TRUE" if self.place(left, at) < self.place(right, at) else "FALSE"
        return f"{self.term(term, at)}<>0"

    # --- places ---

    def place(self, place: Place, at: Bound) -> int:
        """A place worked out. Raises NoRangeError where it depends on the index that a range stands for."""
        if not isinstance(place, Term):
            return place
        match place.kind, place.parts:
            case (("axis" | "index"), (which, *_)):
                known = at[which]
                if isinstance(known, range):
                    raise NoRangeError
                return known
            case "abs", (inside,):
                return abs(self.place(inside, at))
            case "table", (_, one, *places):
                return int(one(tuple(self.place(inner, at) for inner in places)))
            case sign, (left, right):
                result: int = PLACES[sign](self.place(left, at), self.place(right, at))
                return result
        raise TypeError(place.kind)

    def corners(self, position: int, places: Sequence[Place], at: Bound) -> tuple[Position, Position]:
        """The first and the last cell that is read of an input. Raises NoRangeError."""
        first: list[int] = []
        last: list[int] = []
        for place in places:
            known = (
                at[place.parts[0]] if isinstance(place, Term) and place.kind in {"axis", "index"} else None
            )
            if isinstance(known, range):
                first.append(known[0])
                last.append(known[-1])
            else:
                number = self.place(place, at)
                first.append(number)
                last.append(number)
        if first[:-2] != last[:-2]:
            raise NoRangeError  # from one matrix to the next
        sheet = self.sheets[position]
        return sheet.position(tuple(first)), sheet.position(tuple(last))

    def reference(self, position: int, places: Sequence[Place], at: Bound) -> str:
        return self.sheets[position].range(*self.corners(position, places, at))


def number_text(value: float) -> str:
    if value == -inf:
        return repr(HIDDEN)
    return repr(value)
