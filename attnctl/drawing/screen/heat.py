"""Heat maps in characters: cells with a coloured background, or shading without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.palette import STEPS
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.math import Array

if TYPE_CHECKING:
    from attnctl.drawing.pictures import ColourScale, Plot

UNSHADED = 1.0  # the part of a level below which a number has no colour
HIDDEN, STRANGE = 100, 101  # the levels of what is hidden and of what is no number
SHADING, ASCII_SHADING = " ░▒▓█", " .:-=+*#@"
MARKS, ASCII_MARKS = {HIDDEN: "╱", STRANGE: "?"}, {HIDDEN: "/", STRANGE: "?"}

MOST_ROWS, FEWEST = 48, 24
"""Rows of a map, after which cells are merged into blocks: of a large one, and of one of many."""

LABEL, WIDEST, CAPTION = 14, 8, 12
"""Cells of the label of a row, of a column, and of a caption that makes a map wider, at most."""

WIDE, ROOMY = 100, 4  # cells of a wide screen, and of a column on it where there is room for all
GAP = 2


def levels_of(shares: Array) -> Array:
    """The level, −8 to 8, of shares of the largest number, −1 to 1; 0 is not shaded."""
    size = np.clip(np.abs(shares), 0.0, 1.0) ** 0.7  # below 1, so that small numbers differ visibly too
    levels = np.maximum(np.ceil(size * (STEPS + UNSHADED) - UNSHADED), 0)
    return (np.sign(shares) * levels).astype(int)


def heat_lines(plot: Plot, screen: Screen) -> Iterator[Line]:
    """The panels of a plot side by side, as many as fit; below them what the colours mean."""
    if not plot.panels:
        return
    label = min(LABEL, max(map(cells, plot.rows), default=0), screen.width // 4)
    room = max(8, screen.width - label - 1)
    side = room if len(plot.panels) == 1 else max(FEWEST, (room + GAP) // min(len(plot.panels), 3) - GAP)
    merged = plot.merge_cells(min(MOST_ROWS, max(FEWEST, side)), min(side, room))
    scale, size = merged.scale(), column_width(merged, room, screen)
    captions = max(cells(panel.caption) for panel in merged.panels)
    width = max(size * len(merged.columns), min(CAPTION, captions))
    across = max(1, (room + GAP) // (width + GAP))
    for start in range(0, len(merged.panels), across):
        part = replace(merged, panels=merged.panels[start : start + across])
        yield from band_lines(part, scale, screen, (label, size, width))
    yield legend(scale, plot.hidden, screen)
    for note in merged.notes:
        yield from screen.flow([("  ", ""), (screen.printable(note), "aside")], "")


def column_width(plot: Plot, room: int, screen: Screen) -> int:
    """The cells of a column: as wide as its label where all panels fit side by side, or 2, or 1."""
    columns, panels = max(1, len(plot.columns)), len(plot.panels)
    widest = min(WIDEST, max(map(cells, plot.columns), default=1) + 1)
    widest = max(widest, ROOMY if screen.width >= WIDE else 0)
    for size in range(max(2, widest), 1, -1):
        across = (room + GAP) // (columns * size + GAP)
        if across >= (panels if size > 2 else -(-panels // 2)):
            return size
    return 1


def band_lines(
    plot: Plot, scale: ColourScale, screen: Screen, sizes: tuple[int, int, int]
) -> Iterator[Line]:
    """Panels side by side; `sizes` are the cells of a row's label, of a column, of a panel."""
    label, size, width = sizes
    gap, blank = " " * GAP, " " * (label + 1)
    captions = [screen.printable(panel.caption) for panel in plot.panels]
    if any(captions):
        shown = [pad_right(fit_label(caption, width, screen), width) for caption in captions]
        yield [(blank + gap.join(shown).rstrip(), "aside")]
    if any(plot.columns):
        names = pad_right(column_names(plot.columns, size, width, screen), width)
        yield [(blank + gap.join([names] * len(captions)).rstrip(), "label")]
    levels = [levels_on(scale, panel.values) for panel in plot.panels]
    for row, words in enumerate(plot.rows):
        line: Line = [(f"{pad_left(fit_label(words, label, screen), label)} ", "label")]
        for number, level in enumerate(levels):
            line += [(gap + " " * (width - size * len(plot.columns)), "")] * (number > 0)
            spans = (cell(at, size, scale, screen) for at in level[row].tolist())
            for style, own in groupby(spans, key=lambda span: span[1]):
                line.append(("".join(text for text, _ in own), style))
        yield line


def levels_on(scale: ColourScale, values: Array) -> Array:
    shares = scale.shares(values)
    known = np.where(np.isfinite(shares), shares, 0.0)
    levels = np.ceil(known * (STEPS - 1)).astype(int) + 1 if scale.log else levels_of(known)
    levels[np.isneginf(shares)], levels[np.isnan(shares)] = HIDDEN, STRANGE
    return levels


def column_names(names: Sequence[str], size: int, width: int, screen: Screen) -> str:
    """The names of columns, each where its column begins; those without room are left out."""
    out = ""
    for at, name in enumerate(names):
        start, word = at * size, fit_label(name, max(size - 1, WIDEST), screen)
        if start >= cells(out) + bool(out) and start + cells(word) <= width:
            out = pad_right(out, start) + word
    return out


def fit_label(label: str, width: int, screen: Screen) -> str:
    return screen._replace(fits=True).short(label.strip(), width)


def cell(level: int, size: int, scale: ColourScale, screen: Screen) -> Span:
    if level in MARKS:
        return (ASCII_MARKS if screen.ascii_only else MARKS)[level] * size, "aside"
    if screen.shades:
        return " " * size, f"shade {level}" if level else ""
    shading = ASCII_SHADING if screen.ascii_only else SHADING
    share = (level + STEPS) / (2 * STEPS) if scale.signed else level / STEPS
    return shading[int(-(-share * (len(shading) - 1) // 1))] * size, ""


def legend(scale: ColourScale, hidden: str, screen: Screen) -> Line:
    low, high = (f"{value + 0.0:.3g}" for value in (scale.low, scale.high))
    levels = range(-STEPS if scale.signed else 0, STEPS + 1)
    spans: Line = [(f"  {low} ", "aside"), *(cell(level, 1, scale, screen) for level in levels)]
    spans.append((f" {high}" + ", by logarithm" * scale.log, "aside"))
    marked = [(HIDDEN, "0" if scale.log and not scale.hidden else hidden)] * (scale.hidden or scale.zero)
    for level, words in [*marked, *[(STRANGE, "NaN or ∞")] * scale.strange]:
        spans += [("   ", ""), cell(level, 1, scale, screen), (screen.printable(f" {words}"), "aside")]
    return spans
