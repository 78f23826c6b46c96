"""Heat maps in characters: cells with a coloured background, or shading without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.palette import STEPS
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.math import Array

if TYPE_CHECKING:
    from attnctl.drawing.pictures import Plot

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
    scale = merged.scale()
    size = column_width(merged, room, screen)
    own = Map(screen, merged, label, size, scale.signed)
    across = max(1, (room + GAP) // (own.width + GAP))
    for start in range(0, len(merged.panels), across):
        shown = merged.panels[start : start + across]
        levels = []
        for panel in shown:
            shares = scale.shares(panel.values)
            known = levels_of(np.where(np.isfinite(shares), shares, 0.0))
            if scale.log:
                known = np.ceil(np.where(np.isfinite(shares), shares, 0.0) * (STEPS - 1)).astype(int) + 1
            known[np.isneginf(shares)], known[np.isnan(shares)] = HIDDEN, STRANGE
            levels.append(known)
        yield from own.band([screen.printable(panel.caption) for panel in shown], levels)
    low, high = (f"{value + 0.0:.3g}" for value in (scale.low, scale.high))
    nothing = "0" if scale.log and not scale.hidden else plot.hidden
    marked = [(HIDDEN, nothing)] * (scale.hidden or scale.zero)
    marked += [(STRANGE, "NaN or ∞")] * scale.strange
    yield own.legend(low, high + ", by logarithm" * scale.log, marked)
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


@dataclass(frozen=True)
class Map:
    screen: Screen
    plot: Plot
    label: int
    size: int
    signed: bool

    @property
    def width(self) -> int:
        captions = (cells(panel.caption) for panel in self.plot.panels)
        return max(self.size * len(self.plot.columns), min(CAPTION, max(captions, default=0)))

    def band(self, captions: Sequence[str], levels: Sequence[Array]) -> Iterator[Line]:
        gap, blank = " " * GAP, " " * (self.label + 1)
        if any(captions):
            shown = [pad_right(self.fit_label(caption, self.width), self.width) for caption in captions]
            yield [(blank + gap.join(shown).rstrip(), "aside")]
        if any(self.plot.columns):
            names = pad_right(self.column_names(), self.width)
            yield [(blank + gap.join([names] * len(levels)).rstrip(), "label")]
        for row, label in enumerate(self.plot.rows):
            words = self.fit_label(label, self.label)
            line: Line = [(f"{pad_left(words, self.label)} ", "label")]
            for number, level in enumerate(levels):
                line += [(gap + " " * (self.width - self.size * len(self.plot.columns)), "")] * (number > 0)
                line += self.row(level[row])
            yield line

    def column_names(self) -> str:
        """The names of columns, each where its column begins; those without room are left out."""
        out = ""
        for at, name in enumerate(self.plot.columns):
            start = at * self.size
            word = self.fit_label(name, max(self.size - 1, WIDEST))
            if start >= cells(out) + bool(out) and start + cells(word) <= self.width:
                out = pad_right(out, start) + word
        return out

    def fit_label(self, label: str, width: int) -> str:
        return self.screen._replace(fits=True).short(label.strip(), width)

    def row(self, levels: Array) -> Iterator[Span]:
        spans = map(self.cell, levels.tolist())
        for style, own in groupby(spans, key=lambda span: span[1]):
            yield "".join(text for text, _ in own), style

    def cell(self, level: int) -> Span:
        if level in MARKS:
            return (ASCII_MARKS if self.screen.ascii_only else MARKS)[level] * self.size, "aside"
        if self.screen.shades:
            return " " * self.size, f"shade {level}" if level else ""
        shading = ASCII_SHADING if self.screen.ascii_only else SHADING
        share = (level + STEPS) / (2 * STEPS) if self.signed else level / STEPS
        return shading[int(-(-share * (len(shading) - 1) // 1))] * self.size, ""

    def legend(self, low: str, high: str, marked: Sequence[tuple[int, str]]) -> Line:
        levels = range(-STEPS if self.signed else 0, STEPS + 1)
        bar = replace(self, size=1)
        spans: Line = [(f"  {low} ", "aside"), *map(bar.cell, levels), (f" {high}", "aside")]
        for level, words in marked:
            spans += [("   ", ""), bar.cell(level), (self.screen.printable(f" {words}"), "aside")]
        return spans
