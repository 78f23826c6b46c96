"""Lines and tables as Rich renderables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from rich.box import Box as RichBox
from rich.console import Console, ConsoleOptions, Group
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table

from attnctl.drawing.screen import GAP, Box, Frame, Line, Shelf, border
from attnctl.drawing.screen.palette import STYLES, background, backgrounds, ramp
from attnctl.drawing.screen.text import safe

Styles = Mapping[str, Style]
"""A Rich style for each name; a name that is missing has none."""


class CaptionBox(RichBox):
    """A box that sets the captions of each band into the border above it."""

    def __init__(self, box: Box, captions: Sequence[Sequence[str]]) -> None:
        top, bar, separator, bottom = box
        row = f"{bar} {bar}{bar}"
        super().__init__(f"{top}\n{row}\n{separator}\n{row}\n{separator}\n{separator}\n{row}\n{bottom}")
        self.box = box
        self.captions = captions
        self.rest = iter(captions)

    def substitute(self, options: ConsoleOptions, safe: bool = True) -> RichBox:
        """Return this box: its characters were chosen for the screen."""
        return self

    def get_top(self, widths: Sequence[int]) -> str:  # type: ignore[override]
        """The border above the first band; Rich asks for it before any other."""
        self.rest = iter(self.captions)
        return safe(border(self.box.top, widths, next(self.rest)))

    def get_row(  # type: ignore[override]
        self, widths: Sequence[int], level: Literal["head", "row", "foot", "mid"] = "row", edge: bool = True
    ) -> str:
        return safe(border(self.box.separator, widths, () if level == "head" else next(self.rest)))


def renderable(element: Line | Frame | Shelf, styles: Styles) -> Segments | Table:
    """A line as Rich segments, a frame as a Rich table, a shelf as a grid of these."""
    if isinstance(element, Frame):
        return rich_table(element, styles)
    if isinstance(element, Shelf):
        shelf = Table.grid(padding=(0, GAP, 0, 0))
        for width in element.widths:
            shelf.add_column(width=width, no_wrap=True)
        shelf.add_row(*[Group(*[renderable(each, styles) for each in block]) for block in element.blocks])
        return shelf
    return Segments([*segments(element, styles), Segment.line()])


def segments(line: Line, styles: Styles) -> list[Segment]:
    """A line in its styles; segments are neither wrapped nor cropped, and take half the time of a Text."""
    return [Segment(safe(text), styles.get(style)) for text, style in line]


def rich_table(frame: Frame, styles: Styles) -> Table:
    """The frame as a Rich table: its columns are the columns of the frame, its sections the bands."""
    table = Table(
        box=CaptionBox(frame.box, [band.captions for band in frame.bands]),
        width=frame.width,
        padding=0,
        show_header=bool(frame.headings),
        header_style="",
    )
    for column, width in enumerate(frame.widths):
        headings = [Segments([*segments(row[column], styles), Segment.line()]) for row in frame.headings]
        table.add_column(Group(*headings), width=width, no_wrap=True)
    for number, band in enumerate(frame.bands):
        if number:
            table.add_section()
        for row in band.rows:
            table.add_row(*[Segments(segments(cell, styles)) for cell in row])
    return table


def styles_of(console: Console) -> Styles:
    """The styles that a console can show: none where it has no colours."""
    system = None if console.no_color else console.color_system
    return styles_for(system, ask=console.file.isatty()) if system else {}


def styles_for(color_system: str, *, ask: bool = False) -> Styles:
    """The styles of words, and shades in these colours; `ask` for the background if need be."""
    return Shades({name: Style.parse(style) for name, style in STYLES.items()}, color_system, ask=ask)


class Shades(dict[str, Style]):
    """Styles by name; `heat3`, `shade 3` and `shade 3 -2` are made when they are asked for."""

    def __init__(self, styles: Mapping[str, Style], color_system: str, *, ask: bool) -> None:
        super().__init__(styles)
        self.color_system, self.ask = color_system, ask

    @cached_property
    def background(self) -> str:
        return background(os.environ, ask=self.ask)

    @cached_property
    def colours(self) -> Mapping[int, str]:
        return backgrounds(self.color_system, self.background)

    def get(self, name: str, default: Style | None = None) -> Style | None:  # type: ignore[override]
        """The style of this name: a level of the ramp, of a background, or of text and background."""
        if name.startswith("heat") and name not in self:
            styles = enumerate(ramp(self.color_system, self.background), start=1)
            self.update({f"heat{level}": Style.parse(style) for level, style in styles})
        elif name.startswith("shade ") and name not in self:
            *front, back = (self.colours.get(int(level)) for level in name.split()[1:])
            self[name] = Style(color=front[0] if front else None, bgcolor=back)
        return super().get(name, default)
