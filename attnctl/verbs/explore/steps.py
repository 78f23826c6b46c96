"""The list of steps: a small picture of each, the cells that were read in it, what edits changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen.screen import Screen
from attnctl.math import Array, Cell, Shape
from attnctl.verbs.explore.layer import TracedLayer
from attnctl.verbs.explore.matrix import PLAIN_SHADES, SHADES, thumbnail
from attnctl.verbs.explore.walk import ExplorerState, carry_place

WIDE = 6
"""Columns of a picture."""

Pixels = frozenset[tuple[int, int]]

GUTTER, PLAIN_GUTTER = " ▘▖▌", " '.:"
"""Which of the two rows of a line are read: none, the upper, the lower, both."""


@dataclass(frozen=True)
class Entry:
    """A step in the list: its name, its picture as levels, the pixels that are lit, a remark."""

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
    """An entry for each step, its picture of so many rows."""
    lit = lit_cells(walk)
    found = walk.node.explanation if walk.node else None
    unlisted = found is not None and found.unlisted > 0
    out = []
    for step in walk.layer.steps:
        cells = lit.get(step, [])
        cell = cells[0] if cells else carry_place(walk, walk.trace, step)
        lead = walk.lead if step == walk.step else cell[:-2]
        pixels = pixels_of(cells, walk.trace[step].shape, rows)
        if unlisted:
            pixels = fill_bars(pixels)
        shape = " x ".join(map(str, walk.trace[step].shape))
        note, changed = change(walk.layer, step)
        out.append(
            Entry(screen.ours(step), picture(walk.layer, step, lead, rows), pixels, note, changed or shape)
        )
    return out


def lit_cells(walk: ExplorerState) -> dict[str, list[Cell]]:
    """The cells that were read for the one that is looked at, by step."""
    out: dict[str, list[Cell]] = {}
    for step, cell in walk.operands:
        out.setdefault(step, []).append(cell)
    return out


@lru_cache(maxsize=4096)
def picture(layer: TracedLayer, step: str, lead: Cell, rows: int) -> Array:
    array = layer.trace[step]
    return thumbnail(array[lead] if array.ndim > 2 else array, rows, WIDE)


def pixels_of(cells: Iterable[Cell], shape: Shape, rows: int) -> Pixels:
    height, width = (*(1, 1), *shape)[-2:]
    return frozenset(
        (pixel((*(0, 0), *cell)[-2], height, rows), pixel((*(0, 0), *cell)[-1], width, WIDE))
        for cell in cells
    )


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


def change(layer: TracedLayer, step: str) -> tuple[str, str]:
    """The share of a step that edits changed, shortest and short: ("6%", "6% changed, 0.68")."""
    changed = layer.changed(step)
    if changed is None or not changed.cells:
        return "", ""
    return changed.percent, f"{changed.percent}, most by {changed.greatest:.3g}"
