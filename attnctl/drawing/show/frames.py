"""One step of a trace: its title, and frames of its matrices, fitted where they must be, or a heat map."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import number_repeats
from attnctl.drawing.screen import CAPTION_FRAME, Screen
from attnctl.drawing.screen.grid import (
    Grid,
    NumberFormat,
    Panel,
    Pieces,
    blocks_of,
    columns_shown,
    matrix_format,
    reachable,
    rows_shown,
)
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import cells
from attnctl.drawing.show import Sheet, View, formula_of, marks, shape_of, sheet_of
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace

MAX_PANELS = 16  # matrices of one step in the default view on a terminal

MAX_LINES = 60
"""Lines of one step in that view, where its matrices are shown whole."""

FEW_LINES = 24
"""Lines of one step in that view, where its matrices are shortened anyway."""

ROWS_OF_A_BAND = 12
"""Matrices of more rows than this each repeat the labels of their columns."""

LABEL = 20
"""Cells of the label of a row on a terminal, at most: long tokens must leave room."""

COLUMN_LABEL = 12
"""Cells of the label of a column there, at most."""


@dataclass(eq=False, repr=False)
class Frames:
    """The matrices of one step and how they are drawn; `fitted` leaves out what is too much."""

    sheet: Sheet
    grid: Grid
    panels: tuple[Panel, ...]
    fitted: bool
    notes: tuple[str, ...] = ()

    def lines(self) -> Generator[Element, None, bool]:
        """The frames, then what is left out; returns whether nothing is."""
        if not self.panels:
            return True

        blocks = self.blocks()
        if len(blocks) == 1:
            shown = yield from self.print_stacked(blocks[0])
        else:
            shown = yield from self.split(blocks)

        if shown < len(self.panels):
            words = self.grid.screen.printable(self.sheet.left_out(shown))
            yield from self.grid.screen.flow([("  ", ""), (words, "aside")], "")
        return shown == len(self.panels) and self.whole(blocks[0])

    def whole(self, block: Pieces) -> bool:
        return not any(isinstance(piece, int) for piece in (*self.grid.rows, *block))

    def blocks(self) -> list[Pieces]:
        screen = self.grid.screen
        size = len(self.sheet.columns)
        if not screen.fits:
            return [(range(size),)]
        if not self.fitted:
            return blocks_of(size, self.grid.column_width, self.room)
        left_out = cells(screen.left_out(size)) + 2
        return columns_shown(size, self.grid.column_width, self.room, left_out)

    @property
    def at_a_glance(self) -> bool:
        count = len(self.panels)
        if count > MAX_PANELS or count * line_count(self.grid.rows) > MAX_LINES:
            return False
        blocks = self.blocks()
        return len(blocks) == 1 and self.whole(blocks[0])

    @property
    def room(self) -> int:
        return self.grid.screen.width - self.grid.frame_width - 1

    def count_shown(self, block: Pieces, lines: int, across: int = 1) -> int:
        """Count the matrices to show, where `across` of them take so many lines; never all but one."""
        total = len(self.panels)
        if not self.fitted:
            return total
        limit = MAX_LINES if self.whole(block) else FEW_LINES
        few = min(across * max(1, limit // lines), MAX_PANELS - 1)
        return few if few < total - 1 else total

    def print_stacked(self, block: Pieces) -> Generator[Element, None, int]:
        """As many matrices side by side as fit, then the next below; returns how many are shown."""
        width = self.grid.panel_width(self.sheet.captions, block) + 1
        across = max(1, (self.grid.screen.width - self.grid.frame_width) // width)
        rows = line_count(self.grid.rows)
        shown = self.panels[: self.count_shown(block, rows + 1, across)]

        band_count = -(-len(shown) // across)
        across = -(-len(shown) // band_count)  # as many in the last band as in the others, or nearly
        bands = [shown[start : start + across] for start in range(0, len(shown), across)]
        if 0 < rows <= ROWS_OF_A_BAND:
            yield self.grid.frame(bands, block)
        else:
            for band in bands:
                yield self.grid.frame([band], block)
        return len(shown)

    def split(self, blocks: Sequence[Pieces]) -> Generator[Element, None, int]:
        """A frame for each block of columns of each matrix; returns how many matrices are shown."""
        height = line_count(self.grid.rows) + 4  # the labels of columns, and three borders
        shown = self.panels[: self.count_shown(blocks[0], height * len(blocks))]
        for panel in shown:
            for block in blocks:
                captioned = panel._replace(caption=self.caption_of_block(panel, block))
                yield self.grid.frame([[captioned]], block)
        return len(shown)

    def caption_of_block(self, panel: Panel, block: Pieces) -> str:
        """`head 0 · key 0–9 of 40`."""
        screen = self.grid.screen
        columns = [column for piece in block if isinstance(piece, range) for column in piece]
        place = f"{self.sheet.column_axis} {columns[0]}–{columns[-1]} of {len(self.sheet.columns)}"
        words = screen.dot.join(filter(None, [panel.caption, screen.printable(place)]))
        return screen.short(words, self.room - CAPTION_FRAME)


def frames(trace: Trace, name: str, screen: Screen, view: View, heads: int) -> Frames:
    sheet = sheet_of(trace, name, heads, view.heads, screen.encoding)
    fitted = screen.fits and not view.full
    if fitted:
        rows = rows_shown(len(sheet.rows))
        columns = reachable(len(sheet.columns), screen.width)
        sample = sample_numbers(sheet, rows, columns, MAX_PANELS)
    else:
        rows = (range(len(sheet.rows)),)
        columns = (range(len(sheet.columns)),)
        sample = sample_numbers(sheet, rows, columns, len(sheet.indices))

    marked = marks(trace, name, sample, screen)
    panels = []
    for caption, index in zip(sheet.captions, sheet.indices, strict=True):
        panels.append(Panel(screen.printable(caption), sheet.array[index], marked.codes(index)))

    grid = Grid(
        screen,
        row_labels=shorten_labels(sheet.rows, screen, min(LABEL, screen.width // 4)),
        column_labels=shorten_labels(sheet.columns, screen, COLUMN_LABEL),
        format=number_format(sample, view.precision, screen),
        rows=rows,
        kinds=marked.kinds,
    )
    return Frames(sheet, grid, tuple(panels), fitted, marked.notes)


def id_frames(trace: Trace, screen: Screen, *, full: bool) -> Generator[Element, None, bool]:
    """The tokens with their ids, the context's below; returns whether all of them were shown."""
    all_shown = True
    for words, ids in ((trace.tokens, trace.ids), (trace.key_tokens, trace.header.get("key_ids"))):
        if not words or not ids or len(words) != len(ids):
            continue
        if not all(isinstance(id_, int) for id_ in ids):
            continue

        labels = number_repeats(map(screen.token, words))
        array = np.array([ids])
        if array.dtype.kind not in "iu":  # no vocabulary is so large
            continue

        sheet = Sheet(array, ((),), ("",), rows=["id"], columns=labels, column_axis="token")
        grid = Grid(
            screen,
            row_labels=["id"],
            column_labels=shorten_labels(labels, screen, COLUMN_LABEL),
            format=matrix_format(array),
            rows=(range(1),),
        )
        framed = Frames(sheet, grid, (Panel("", array),), fitted=screen.fits and not full)
        all_shown &= yield from framed.lines()
    return all_shown


def sample_numbers(sheet: Sheet, rows: Pieces, columns: Pieces, most: int) -> Array:
    """Every number of the first matrices, of these rows and columns: one format and ramp for them all."""
    all_matrices = len(sheet.indices) == prod(sheet.array.shape[:-2]) <= most
    if all_matrices and len(rows) == len(columns) == 1:
        return sheet.array

    row_ranges = [piece for piece in rows if isinstance(piece, range)]
    column_ranges = [piece for piece in columns if isinstance(piece, range)]
    parts = []
    for index, row, column in product(sheet.indices[:most], row_ranges, column_ranges):
        block = sheet.array[index][row.start : row.stop, column.start : column.stop]
        parts.append(block.ravel())
    return np.concatenate(parts)


def number_format(sample: Array, precision: int, screen: Screen) -> NumberFormat:
    """Choose the format of these numbers; truths are written as words, so any format does."""
    if sample.dtype == bool:
        return NumberFormat("d", 1)
    return matrix_format(sample, precision, ascii_only=screen.ascii_only)


def shorten_labels(labels: Sequence[str], screen: Screen, width: int) -> list[str]:
    """Labels that leave room for numbers: on a terminal long ones are shortened."""
    return [screen.short(label, width) for label in labels]


def line_count(rows: Pieces) -> int:
    return sum(1 if isinstance(piece, int) else len(piece) for piece in rows)


def step_lines(
    trace: Trace, step: Step, screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """The title of a step and its matrices; returns whether all of it was shown."""
    if view.heat:
        yield from heat(trace, step, screen, view, heads)
        return True

    framed = frames(trace, step.name, screen, view, heads)
    brief = view.brief and screen.fits and not view.full and step.name == WEIGHTS
    if brief and not (framed.at_a_glance and screen.colours):  # where the numbers themselves are shaded
        yield from heat(trace, step, screen, view, heads)
        if framed.at_a_glance:
            yield from framed.lines()
        return framed.at_a_glance

    title = [(step.name, "name"), (formula_of(step), "formula"), (shape_of(trace, step), "aside")]
    title += [(note, "aside") for note in framed.notes]
    yield from screen.flow([(screen.printable(text), style) for text, style in title], "   ")
    return (yield from framed.lines())


def heat(trace: Trace, step: Step, screen: Screen, view: View, heads: int) -> Iterator[Element]:
    from attnctl.drawing.screen.heat import heat_lines
    from attnctl.drawing.show.picture import USUAL, plot_of

    plot = plot_of(trace, step.name, heads, replace(view, precision=USUAL.precision))
    if step.name == WEIGHTS and not view.log:
        panels = []
        for panel in plot.panels:
            hidden_out = np.where(panel.values == 0, -np.inf, panel.values)
            panels.append(panel._replace(values=hidden_out))
        plot = replace(plot, panels=panels, hidden="0: hidden")

    title = [(step.name, "name"), *((fact, "aside") for fact in plot.about)]
    yield from screen.flow([(screen.printable(text), style) for text, style in title], "   ")
    yield from heat_lines(plot, screen)
