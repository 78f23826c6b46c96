"""Where a number stands in a workbook: a sheet for each step, its matrices one below the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.math import Cell, Shape

FIRST_ROW = 5
"""The row of the first number: above it stand title, note and the tokens of the columns."""

FIRST_COLUMN = 2
"""The column of the first number: left of it stand the tokens of the rows."""

ROWS_BETWEEN = 2
"""From one matrix to the next: an empty row, and the tokens of the columns again."""

LONGEST_SHEET_NAME = 31
"""Characters of the name of a sheet (ECMA-376, part 1, 18.2.19: as programs have it)."""


class Position(NamedTuple):
    """Counted from 1, as spreadsheets do."""

    row: int
    column: int


def letters(column: int) -> str:
    """The name of a column: A, B, … Z, AA, AB, …"""
    name = ""
    while column:
        column, letter = divmod(column - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


@dataclass(frozen=True)
class StepSheet:
    """The sheet of a step, by its name and the shape of its array."""

    name: str
    shape: Shape

    @cached_property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of one matrix; a vector is a row."""
        rows, columns = (1, 1, *self.shape)[-2:]
        return rows, columns

    @property
    def leads(self) -> list[Cell]:
        """Where each matrix is, along the axes before its own two."""
        return list(product(*map(range, self.shape[:-2])))

    def position(self, cell: Cell) -> Position:
        row, column = (0, 0, *cell)[-2:]
        return Position(self.top(cell[:-2]) + row, FIRST_COLUMN + column)

    def top(self, lead: Cell) -> int:
        """The first row of numbers of a matrix, which is at `lead` of the axes before its own."""
        number = 0
        for place, size in zip(lead, self.shape[:-2], strict=True):
            number = number * size + place
        return FIRST_ROW + number * (self.matrix[0] + ROWS_BETWEEN)

    def range(self, start: Position, stop: Position) -> str:
        """A range, or one cell, as a formula of any sheet names it."""
        first = f"{letters(start.column)}{start.row}"
        last = f"{letters(stop.column)}{stop.row}"
        return f"'{self.name}'!{first}" if first == last else f"'{self.name}'!{first}:{last}"

    def cells_of_matrix(self, lead: Cell, mark: str = "") -> str:
        """A matrix as its own sheet names it: B5:E7; with the mark $ as it stays when it is copied."""
        rows, columns = self.matrix
        top = self.top(lead)
        left = letters(FIRST_COLUMN)
        right = letters(FIRST_COLUMN + columns - 1)
        return f"{mark}{left}{mark}{top}:{mark}{right}{mark}{top + rows - 1}"

    def range_of_matrix(self, lead: Cell) -> str:
        """A matrix as a name of the workbook points to it: 'scores'!$B$5:$E$7."""
        return f"'{self.name}'!{self.cells_of_matrix(lead, '$')}"


def sheet_names(steps: Iterable[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """A name for the sheet of each step: its own, cut if it is too long; no two are equal in capitals."""
    names: dict[str, str] = {}
    used = {name.upper() for name in taken}
    for step in steps:
        name = step[:LONGEST_SHEET_NAME]
        number = 2
        while name.upper() in used:
            ending = f"_{number}"
            name = step[: LONGEST_SHEET_NAME - len(ending)] + ending
            number += 1
        used.add(name.upper())
        names[step] = name
    return names
