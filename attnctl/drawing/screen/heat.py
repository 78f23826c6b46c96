"""Heat maps in characters: cells with a coloured background, or shading without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.palette import STEPS
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.math import Array

if TYPE_CHECKING:
    from attnctl.drawing.pictures import ColourScale, Plot

UNSHADED = 1.0  # the part of a level below which a number has no colour
HIDDEN = 100  # the level of what is hidden
STRANGE = 101  # the level of what is no number

SHADING = " ░▒▓█"
ASCII_SHADING = " .:-=+*#@"
MARKS = {HIDDEN: "╱", STRANGE: "?"}
ASCII_MARKS = {HIDDEN: "/", STRANGE: "?"}

MOST_ROWS = 48
"""Rows of a large map, after which cells are merged into blocks."""

FEWEST = 24
"""Rows or columns that one of many maps has before its cells are merged."""

LABEL = 14
"""Cells of the label of a row, at most."""

WIDEST = 8
"""Cells of the label of a column, at most."""

CAPTION = 12
"""Cells of a caption that makes a map wider, at most."""

WIDE = 100  # cells of a wide screen
ROOMY = 4  # cells of a column on a wide screen, where there is room for all
GAP = 2


class Sizes(NamedTuple):
    """Cells of the label of a row, of a column, and of a panel with all its columns."""

    label: int
    column: int
    panel: int


def levels_of(shares: Array) -> Array:
    """The level, −8 to 8, of shares of the largest number, −1 to 1; 0 is not shaded."""
    size = np.clip(np.abs(shares), 0.0, 1.0) ** 0.7  # below 1, so that small numbers differ visibly too
    levels = np.maximum(np.ceil(size * (STEPS + UNSHADED) - UNSHADED), 0)
    return (np.sign(shares) * levels).astype(int)


def heat_lines(plot: Plot, screen: Screen) -> Iterator[Line]:
    """The panels of a plot side by side, as many as fit; below them what the colours mean."""
    if not plot.panels:
        return

    widest_label = max(map(cells, plot.rows), default=0)
    label = min(LABEL, widest_label, screen.width // 4)
    room = max(8, screen.width - label - 1)
    merged = merge_to_fit(plot, room)

    scale = merged.scale()
    column = column_width(merged, room, screen)
    widest_caption = max(cells(panel.caption) for panel in merged.panels)
    panel_width = max(column * len(merged.columns), min(CAPTION, widest_caption))
    sizes = Sizes(label, column, panel_width)

    across = max(1, (room + GAP) // (panel_width + GAP))
    for start in range(0, len(merged.panels), across):
        band = replace(merged, panels=merged.panels[start : start + across])
        yield from band_lines(band, scale, screen, sizes)

    yield legend(scale, plot.hidden, screen)
    for note in merged.notes:
        yield from screen.flow([("  ", ""), (screen.printable(note), "aside")], "")


def merge_to_fit(plot: Plot, room: int) -> Plot:
    """Merge cells into blocks until a panel is small enough: one alone may fill the screen."""
    side = room
    if len(plot.panels) > 1:
        across = min(len(plot.panels), 3)
        side = max(FEWEST, (room + GAP) // across - GAP)

    most_rows = min(MOST_ROWS, max(FEWEST, side))
    return plot.merge_cells(most_rows, min(side, room))


def column_width(plot: Plot, room: int, screen: Screen) -> int:
    """The cells of a column: as wide as its label where all panels fit side by side, or 2, or 1."""
    columns = max(1, len(plot.columns))
    panels = len(plot.panels)
    widest_label = max(map(cells, plot.columns), default=1)
    widest = min(WIDEST, widest_label + 1)
    if screen.width >= WIDE:
        widest = max(widest, ROOMY)

    for size in range(max(2, widest), 1, -1):
        across = (room + GAP) // (columns * size + GAP)
        # Columns of 2 cells are square, and worth a second row of panels.
        needed = panels if size > 2 else -(-panels // 2)
        if across >= needed:
            return size
    return 1


def band_lines(plot: Plot, scale: ColourScale, screen: Screen, sizes: Sizes) -> Iterator[Line]:
    """Panels side by side."""
    gap = " " * GAP
    blank = " " * (sizes.label + 1)

    captions = [screen.printable(panel.caption) for panel in plot.panels]
    if any(captions):
        shown = [pad_right(fit_label(caption, sizes.panel, screen), sizes.panel) for caption in captions]
        yield [(blank + gap.join(shown).rstrip(), "aside")]

    if any(plot.columns):
        names = pad_right(column_names(plot.columns, sizes, screen), sizes.panel)
        yield [(blank + gap.join([names] * len(captions)).rstrip(), "label")]

    levels = [levels_on(scale, panel.values) for panel in plot.panels]
    # A panel is wider than its columns where its caption is.
    between = gap + " " * (sizes.panel - sizes.column * len(plot.columns))
    for row, label in enumerate(plot.rows):
        line: Line = [(f"{pad_left(fit_label(label, sizes.label, screen), sizes.label)} ", "label")]
        for number, panel_levels in enumerate(levels):
            if number > 0:
                line.append((between, ""))
            line += row_spans(panel_levels[row].tolist(), sizes.column, scale, screen)
        yield line


def row_spans(levels: Sequence[int], size: int, scale: ColourScale, screen: Screen) -> Iterator[Span]:
    """A row of one panel; cells of one style that touch are one span."""
    spans = (cell(level, size, scale, screen) for level in levels)
    for style, alike in groupby(spans, key=lambda span: span[1]):
        yield "".join(text for text, _ in alike), style


def levels_on(scale: ColourScale, values: Array) -> Array:
    shares = scale.shares(values)
    known = np.where(np.isfinite(shares), shares, 0.0)
    levels = np.ceil(known * (STEPS - 1)).astype(int) + 1 if scale.log else levels_of(known)
    levels[np.isneginf(shares)] = HIDDEN
    levels[np.isnan(shares)] = STRANGE
    return levels


def column_names(names: Sequence[str], sizes: Sizes, screen: Screen) -> str:
    """The names of columns, each where its column begins; those without room are left out."""
    line = ""
    for number, name in enumerate(names):
        start = number * sizes.column
        word = fit_label(name, max(sizes.column - 1, WIDEST), screen)

        first_free = cells(line) + 1 if line else 0
        if start >= first_free and start + cells(word) <= sizes.panel:
            line = pad_right(line, start) + word
    return line


def fit_label(label: str, width: int, screen: Screen) -> str:
    return screen._replace(fits=True).short(label.strip(), width)


def cell(level: int, size: int, scale: ColourScale, screen: Screen) -> Span:
    if level in MARKS:
        marks = ASCII_MARKS if screen.ascii_only else MARKS
        return marks[level] * size, "aside"
    if screen.shades:
        return " " * size, f"shade {level}" if level else ""

    shading = ASCII_SHADING if screen.ascii_only else SHADING
    share = (level + STEPS) / (2 * STEPS) if scale.signed else level / STEPS
    darkest = len(shading) - 1
    rounded_up = int(-(-share * darkest // 1))  # so that only 0 is blank
    return shading[rounded_up] * size, ""


def legend(scale: ColourScale, hidden: str, screen: Screen) -> Line:
    low = f"{scale.low + 0.0:.3g}"  # + 0.0 makes 0 of -0
    high = f"{scale.high + 0.0:.3g}"
    first_level = -STEPS if scale.signed else 0

    spans: Line = [(f"  {low} ", "aside")]
    for level in range(first_level, STEPS + 1):
        spans.append(cell(level, 1, scale, screen))
    spans.append((f" {high}, by logarithm" if scale.log else f" {high}", "aside"))

    marks = []
    if scale.hidden or scale.zero:
        only_zeros = scale.log and not scale.hidden
        marks.append((HIDDEN, "0" if only_zeros else hidden))
    if scale.strange:
        marks.append((STRANGE, "NaN or ∞"))
    for mark, words in marks:
        spans += [("   ", ""), cell(mark, 1, scale, screen), (screen.printable(f" {words}"), "aside")]
    return spans
