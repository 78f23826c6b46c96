"""Plots: matrices side by side on one scale, and the blocks that large ones are merged into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.pictures.scale import ColourScale, scale_of
from attnctl.math import Array

MOST_SIDE = 1024
"""Rows or columns of a panel; where there are more, cells are merged into blocks."""

MOST_CELLS = 1 << 22
"""Cells of a plot: many large panels are merged further."""

THUMBNAIL_SIDE = 72
"""Rows or columns of a thumbnail."""


class Panel(NamedTuple):
    """A matrix, (row, column), and the caption above it."""

    caption: str
    values: Array


@dataclass(frozen=True)
class Plot:
    """Matrices that share their labels, their axes and one scale.

    Labels are ready to be shown. `across` is how many stand in a row (None: as many as fit);
    `beside` labels the rows of a grid of thumbnails, which have no labels of their own.
    """

    title: str
    about: tuple[str, ...]
    panels: Sequence[Panel]
    rows: Sequence[str]
    columns: Sequence[str]
    notes: tuple[str, ...] = ()
    across: int | None = None
    beside: tuple[str, ...] = ()
    log: bool = False
    precision: int = 2
    signed: bool = False
    """Two hues, even where nothing is below 0."""
    hidden: str = "hidden (−∞)"
    """What −∞ means here."""

    @property
    def side(self) -> int:
        if self.beside:
            return THUMBNAIL_SIDE
        return min(MOST_SIDE, max(1, isqrt(MOST_CELLS // max(1, len(self.panels)))))

    def merge_cells(self, rows: int = 0, columns: int = 0) -> Plot:
        """The plot with cells merged into blocks where there are more than so many; its notes then say so.

        Left out, as many as a picture holds.
        """
        sizes = (len(self.rows), rows or self.side), (len(self.columns), columns or self.side)
        tall, wide = (max(1, -(-size // most)) for size, most in sizes)
        if tall == wide == 1:
            return self
        note = f"Each cell is the mean of what is not hidden of {tall} × {wide} numbers."
        return replace(
            self,
            panels=[Panel(each.caption, blocks(each.values, tall, wide)) for each in self.panels],
            rows=self.rows[::tall],
            columns=self.columns[::wide],
            notes=(*self.notes, note),
        )

    def scale(self) -> ColourScale:
        return scale_of(
            (each.values for each in self.panels), log=self.log, signed=self.signed, name=self.title
        )


class Figure(NamedTuple):
    """Plots below each other under one title."""

    title: str
    lines: tuple[str, ...]
    plots: Sequence[Plot]


def blocks(values: Array, tall: int, wide: int) -> Array:
    """The mean of each block of so many rows and columns.

    Of what is −∞ nothing counts, and a block of nothing else is −∞; NaN and ∞ make the block NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        strange = sum_blocks(~(finite | np.isneginf(values)), tall, wide) > 0
    counts = sum_blocks(finite, tall, wide)
    sums = sum_blocks(np.where(finite, values, 0.0), tall, wide)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    return np.where(strange, np.nan, means)


def sum_blocks(values: Array, tall: int, wide: int) -> Array:
    rows, columns = values.shape
    by_row = np.add.reduceat(values.astype(np.float64), np.arange(0, rows, tall), axis=0)
    return np.add.reduceat(by_row, np.arange(0, columns, wide), axis=1)
