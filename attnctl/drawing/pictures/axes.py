"""The sizes of a plot's cells, which of them have digits, and the labels that stand beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnctl.drawing.pictures.canvas import cut, text_width
from attnctl.drawing.pictures.plot import Plot

LABEL, DIGITS = 10.0, 10.0
"""Sizes of fonts."""

LONGEST = 16
"""Characters of a label; the middle of a longer token is left out, and its title has all of it."""

ROW_STEP, COLUMN_STEP = 11, 15
"""Pixels from one label to the next, at least: columns' are slanted."""

WITH_NUMBERS, ALL_NUMBERS = 400, 3000
"""Cells of a panel, and of a plot, that have their numbers in them, at most."""

NUMBER_COLUMNS = 16
CELL_HEIGHT, CELL_WIDTH = 24.0, 26.0
"""Of cells with numbers in them, at least."""

PANEL_SIDE, THUMB_SIDE, LARGEST_CELL, THINNEST = 272, 72, 18, 40
"""Pixels of a panel without numbers, of a thumbnail, of a cell, of a panel with few rows or columns."""

Texts = list[list[list[str]]]
"""The digits in each cell of each panel: none where they would not fit."""


class Axis(NamedTuple):
    """The labels along one side of a panel: every `every`-th, `cell` pixels apiece."""

    labels: Sequence[str]
    cell: float
    every: int

    @property
    def length(self) -> float:
        """Pixels from the first cell to the last."""
        return self.cell * len(self.labels)

    def ticks(self) -> list[tuple[float, str]]:
        return [
            ((at + 0.5) * self.cell, self.labels[at])
            for at in range(0, len(self.labels), self.every)
            if self.labels[at]
        ]

    @property
    def widest(self) -> float:
        return max((text_width(cut(text, LONGEST), LABEL) for _, text in self.ticks()), default=0.0)

    @property
    def flat(self) -> bool:
        return self.widest <= self.cell * self.every - 3


def numbers_of(plot: Plot) -> Texts:
    """The digits in each cell of each panel, nothing where they would not fit."""
    rows, columns = len(plot.rows), len(plot.columns)
    if plot.beside or columns > NUMBER_COLUMNS or rows * columns > WITH_NUMBERS:
        return []
    if rows * columns * len(plot.panels) > ALL_NUMBERS:
        return []
    return [
        [[digits(value, plot.precision) for value in row] for row in np.asarray(panel.values).tolist()]
        for panel in plot.panels
    ]


def digits(value: float, precision: int) -> str:
    """A number in a cell; nothing for what is hidden."""
    if value == -np.inf:
        return ""
    if abs(value) >= 10_000:
        return f"{value:.2g}"
    text = f"{float(value):.{precision}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def axes_of(plot: Plot, texts: Texts) -> tuple[Axis, Axis]:
    """The size of cells, and the labels beside them: down and across."""
    rows, columns = ([""] * len(each) if plot.beside else each for each in (plot.rows, plot.columns))
    if texts:
        widest = max(
            (text_width(text, DIGITS) for panel in texts for row in panel for text in row), default=0.0
        )
        return Axis(rows, CELL_HEIGHT, 1), Axis(columns, max(CELL_WIDTH, round(widest + 7)), 1)
    most = max(len(rows), len(columns), 1)
    few = 1.5 if len(plot.panels) <= 2 else 1.0
    room = THUMB_SIDE if plot.beside else int(PANEL_SIDE * few)
    cell = min(LARGEST_CELL, max(1, room // most))

    def axis(labels: Sequence[str], apart: int) -> Axis:
        size = max(cell, min(LARGEST_CELL, THINNEST // max(1, len(labels))))
        return Axis(labels, float(size), max(1, -(-apart // size)))

    return axis(rows, ROW_STEP), axis(columns, COLUMN_STEP)
