"""What stands in one step, read for the cells that are visible; and a small picture of each step."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.grid import CellStyle, NumberFormat, matrix_format
from attnctl.drawing.screen.heat import levels_of
from attnctl.drawing.screen.text import cells, distinct, pad_left, pad_right
from attnctl.drawing.show import Marks, marks
from attnctl.drawing.show.frames import shorten_labels
from attnctl.math import Array, Cell
from attnctl.record import Trace
from attnctl.verbs.explore.walk import (
    DIFFERENCE,
    HEAT,
    NUMBERS,
    ExplorerState,
    TracedLayer,
    carry_place,
    share_text,
)

ROW_LABEL, COLUMN_LABEL = 14, 10  # cells of the labels of a row and of a column, at most

SHADES, PLAIN_SHADES = " ░░▒▒▓▓██", " ..::++##"
"""What stands for a level without colours."""

HEAT_CELL = 2
SAMPLED = 64  # rows and columns that a thumbnail reads at most


class Matrix:
    """The numbers of one step at one head (and member of a batch), (row, column)."""

    def __init__(
        self,
        trace: Trace,
        step: str,
        lead: Cell,
        screen: Screen,
        precision: int = 4,
        difference: Array | None = None,
        corner: str = "",
    ) -> None:
        self.trace, self.step, self.lead, self.screen = trace, step, lead, screen
        self.precision, self.corner = precision, corner
        self.format = lru_cache(maxsize=None)(self.format_of)
        self.ndim = trace[step].ndim
        self.values = matrix_at(trace[step], lead)
        self.rows, self.columns = self.values.shape
        self.difference = None if difference is None else matrix_at(difference, lead)

    def labels(self, axis: int, width: int) -> list[str]:
        """The label of each place along an axis: tokens, told apart and visible, or numbers."""
        if axis < 0 or self.ndim == 0:
            return [""]
        tokens = self.trace.tokens_along(self.step, axis)
        if tokens is None:
            return [str(place) for place in range(self.trace[self.step].shape[axis])]
        return shorten_labels(distinct(map(self.screen.token, tokens)), self.screen, width)

    @cached_property
    def row_labels(self) -> list[str]:
        return self.labels(self.ndim - 2, ROW_LABEL)

    @cached_property
    def column_labels(self) -> list[str]:
        return self.labels(self.ndim - 1, COLUMN_LABEL)

    @cached_property
    def label_width(self) -> int:
        return max(map(cells, [self.corner, *self.row_labels])) + 1

    @cached_property
    def widest_label(self) -> int:
        return max(map(cells, self.column_labels), default=0)

    @cached_property
    def marks(self) -> Marks:
        """The kinds of cell: a number, a shaded weight, the name of the rule that hid a score."""
        return marks(self.trace, self.step, self.values, self.screen)

    def shown(self, mode: str) -> Array:
        return self.values if mode != DIFFERENCE or self.difference is None else self.difference

    def format_of(self, mode: str) -> NumberFormat:
        """The number format of this mode: the same decimals and width for every cell."""
        shown = self.shown(mode)
        if shown.dtype == bool:
            return NumberFormat("d", 1)
        return matrix_format(shown, self.precision, ascii_only=self.screen.ascii_only)

    def cell_width(self, mode: str, room: int = 0) -> int:
        """In cells, a blank on either side; narrow in a heat map, unless there is `room` for all labels."""
        if mode == HEAT:
            wide = self.widest_label + 2
            return wide if wide * self.columns <= room else HEAT_CELL
        words = [cells(kind.word) for kind in self.marks.kinds if kind.word] if mode == NUMBERS else []
        return max([self.format(mode).width, self.widest_label, *words]) + 2

    def row(self, mode: str, row: int, columns: range, cell: int) -> list[Line]:
        if mode == HEAT:  # a shade for each cell; a minus says that the number is below zero
            numbers = self.values[row, columns.start : columns.stop].astype(np.float64)
            found = zip(levels(numbers, self.top).tolist(), numbers.tolist(), strict=True)
            return [self.shade(level, value, cell) for level, value in found]
        width = cell - 2
        values = self.shown(mode)[row, columns.start : columns.stop].tolist()
        form = self.format(mode)
        kinds, changed = [CellStyle()] * len(columns), [False] * len(columns)
        codes = self.marks.codes(self.lead)(range(row, row + 1), columns) if mode == NUMBERS else None
        if codes is not None:
            kinds = [self.marks.kinds[code] for code in codes[0].tolist()]
        if self.difference is not None:
            changed = (self.difference[row, columns.start : columns.stop] != 0).tolist()
        out: list[Line] = []
        for value, kind, moved in zip(values, kinds, changed, strict=True):
            text = form(value) if kind.word is None else kind.word
            style = f"{kind.style}+changed" if moved else kind.style
            out.append([(f" {pad_left(text, width)} ", style)])
        return out

    @cached_property
    def top(self) -> float:
        finite = self.values[np.isfinite(self.values)] if self.values.dtype != bool else self.values
        return float(np.abs(finite.astype(np.float64)).max(initial=0.0)) or 1.0

    def shade(self, level: int, value: float, cell: int) -> Line:
        if not np.isfinite(value):
            sign = "NaN" if np.isnan(value) else f"{'-' if value < 0 else ''}{self.screen.printable('∞')}"
            return [(pad_right(sign[:cell], cell), "aside")]
        if self.screen.shades:
            return [(" " * cell, f"shade {level}" if level else "")]
        filled = (PLAIN_SHADES if self.screen.ascii_only else SHADES)[abs(level)] * cell
        return [(f"-{filled[1:]}" if level < 0 else filled, "")]


def matrix_at(array: Array, lead: Cell) -> Array:
    """The matrix of a head (and member of a batch); a vector is a row, a number a matrix of one cell."""
    return array.reshape(1, -1) if array.ndim < 2 else array[lead] if array.ndim > 2 else array


def levels(values: Array, top: float) -> Array:
    """The level of each number by its share of the largest magnitude; what is no number has none."""
    return levels_of(np.nan_to_num(values / top, nan=0.0))


# --- the list of steps ---

WIDE = 6  # columns of a picture

Pixels = frozenset[tuple[int, int]]

GUTTER, PLAIN_GUTTER = " ▘▖▌", " '.:"
"""Which of the two rows of a line are read: none, the upper, the lower, both."""


@dataclass(frozen=True)
class Entry:
    name: str
    levels: Array
    lit: Pixels
    note: str
    more: str

    def level(self, row: int, column: int) -> int:
        """The level of a pixel: 0 outside of the matrix."""
        rows, columns = self.levels.shape
        return int(self.levels[row, column]) if row < rows and column < columns else 0

    def gutter(self, part: int, *, ascii_only: bool) -> str:
        read = {row for row, _ in self.lit}
        signs = PLAIN_GUTTER if ascii_only else GUTTER
        return signs[(2 * part in read) + 2 * (2 * part + 1 in read)]

    def shades(self, part: int, *, ascii_only: bool) -> str:
        """Two rows of the picture without colours."""
        signs = PLAIN_SHADES if ascii_only else SHADES
        rows = (2 * part, 2 * part + 1)
        return "".join(signs[max(self.level(row, column) for row in rows)] for column in range(WIDE))


def entries(walk: ExplorerState, screen: Screen, rows: int) -> list[Entry]:
    """An entry for each step, its picture of so many rows: the cells that were read are lit in it."""
    read: dict[str, list[Cell]] = {}
    for step, cell in walk.operands:
        read.setdefault(step, []).append(cell)
    found = walk.node.explanation if walk.node else None
    unlisted = found is not None and found.unlisted > 0
    out = []
    for step in walk.layer.steps:
        cells = read.get(step, [])
        cell = cells[0] if cells else carry_place(walk, walk.trace, step)
        high, wide = (1, 1, *walk.trace[step].shape)[-2:]
        places = [(0, 0, *place)[-2:] for place in cells]
        pixels = frozenset((pixel(row, high, rows), pixel(column, wide, WIDE)) for row, column in places)
        if unlisted:
            pixels = fill_bars(pixels)
        note, more = "", " x ".join(map(str, walk.trace[step].shape))
        cells_changed, total, greatest = walk.layer.changed(step) or (0, 0, 0.0)
        if cells_changed:
            note = share_text(cells_changed, total)
            more = f"{note}, most by {greatest:.3g}"
        drawn = picture(walk.layer, step, cell[:-2], rows)
        out.append(Entry(screen.printable(step), drawn, pixels, note, more))
    return out


@lru_cache(maxsize=4096)
def picture(layer: TracedLayer, step: str, lead: Cell, rows: int) -> Array:
    """The largest magnitudes of a matrix in so many blocks, as levels; large ones are sampled."""
    matrix = matrix_at(layer.trace[step], lead)
    if not matrix.size:
        return np.zeros((0, 0), dtype=int)
    steps = [max(1, size // SAMPLED) for size in matrix.shape]
    sizes = np.abs(matrix[:: steps[0], :: steps[1]].astype(np.float64))
    sizes[~np.isfinite(sizes)] = 0.0
    for axis, most in enumerate((rows, WIDE)):
        size = sizes.shape[axis]
        starts = np.arange(min(size, most)) * size // min(size, most)
        sizes = np.maximum.reduceat(sizes, starts, axis=axis)
    return levels(sizes, float(sizes.max()) or 1.0)


def fill_bars(pixels: Pixels) -> Pixels:
    """The whole row or column that these pixels lie in: of a long sum not every cell is listed."""
    rows, columns = ({pixel[axis] for pixel in pixels} for axis in (0, 1))
    if len(rows) == 1:
        return frozenset((row, column) for row in rows for column in range(WIDE))
    if len(columns) == 1:
        return frozenset((row, column) for row in range(max(rows) + 1) for column in columns)
    return pixels


def pixel(at: int, size: int, pixels: int) -> int:
    """Which of so many blocks a place along an axis falls into."""
    blocks = min(size, pixels)
    return ((at + 1) * blocks - 1) // size
