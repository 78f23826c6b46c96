"""What stands in one step, read for the cells around the cursor."""

from __future__ import annotations

import numpy as np

from attnctl.base.words import number_repeats
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.grid import matrix_format
from attnctl.drawing.screen.heat import levels_of
from attnctl.drawing.show import marks
from attnctl.drawing.show.frames import shorten_labels
from attnctl.math import Array, Cell
from attnctl.verbs.explore.walk import ExplorerState

ROW_LABEL, COLUMN_LABEL = 14, 10  # cells of the labels of a row and of a column, at most

SHADES = " ░░▒▒▓▓██"  # what stands for a level without colours

MOST = 64  # rows and columns of a table: of a larger matrix those around the cursor are shown


def matrix_at(array: Array, lead: Cell) -> Array:
    """The matrix of a head (and member of a batch); a vector is a row, a number a matrix of one cell."""
    return array.reshape(1, -1) if array.ndim < 2 else array[lead] if array.ndim > 2 else array


def window(at: int, size: int, shown: range) -> range:
    """The places that are shown: those that were while the cursor is among them, else those around it."""
    if at in shown and len(shown) == min(size, MOST) and shown.stop <= size:
        return shown
    start = max(0, min(at - MOST // 2, size - MOST))
    return range(start, min(size, start + MOST))


def labels(walk: ExplorerState, axis: int, places: range, screen: Screen) -> list[str]:
    """The label of each of these places along an axis: tokens, told apart and visible, or numbers."""
    at = walk.array.ndim + axis
    if at < 0:
        return [""]
    tokens = walk.trace.tokens_along(walk.step, at)
    if tokens is None:
        return list(map(str, places))
    width = ROW_LABEL if axis == -2 else COLUMN_LABEL
    return shorten_labels(number_repeats(map(screen.token, tokens)), screen, width)[
        places.start : places.stop
    ]


def table_cells(
    walk: ExplorerState, rows: range, columns: range, screen: Screen, precision: int
) -> list[list[Span]]:
    """The text of each of these cells, a number or a shade, and the name of its style."""
    values = matrix_at(walk.array, walk.lead)
    if walk.heat:
        return heat_cells(values, rows, columns, screen)
    difference = walk.layer.difference(walk.step)
    changed = np.zeros(values.shape, dtype=bool)
    if difference is not None:
        changed = matrix_at(difference, walk.lead) != 0
    write = str if values.dtype == bool else matrix_format(values, precision)
    # hidden scores have the name of their rule, weights a shade
    found = marks(walk.trace, walk.step, values, screen)
    codes = found.codes(walk.lead)(rows, columns)

    def cell(row: int, column: int) -> Span:
        kind = found.kinds[0 if codes is None else codes[row - rows.start, column - columns.start]]
        text = write(values[row, column].item()) if kind.word is None else kind.word
        return text, f"{kind.style}+changed" if changed[row, column] else kind.style

    return [[cell(row, column) for column in columns] for row in rows]


def heat_cells(values: Array, rows: range, columns: range, screen: Screen) -> list[list[Span]]:
    """A shade for each number by its share of the largest; a minus before it where it is below zero."""
    sizes = np.abs(values.astype(np.float64))
    top = float(sizes[np.isfinite(sizes)].max(initial=0.0)) or 1.0

    def cell(value: float) -> Span:
        if not np.isfinite(value):
            return "?" if np.isnan(value) else "-∞" if value < 0 else "∞", "aside"
        level = int(levels_of(np.array(value / top)))
        if screen.shades:
            return "  ", f"shade {level}" if level else ""
        filled = SHADES[abs(level)]
        return f"{'-' if level < 0 else filled}{filled}", ""

    part = values[rows.start : rows.stop, columns.start : columns.stop].astype(np.float64)
    return [[cell(value) for value in row] for row in part.tolist()]
