"""Lines and tables as Rich renderables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from rich.box import Box as RichBox
from rich.console import Console, ConsoleOptions, Group
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table

from attnctl.drawing.screen import GAP, Box, Frame, Line, Shelf, border
from attnctl.drawing.screen.palette import SIGNS, STYLES, background, backgrounds, ramp
from attnctl.drawing.screen.text import safe

Styles = Callable[[str], Style | None]  # the Rich style of a name, if it has one


class CaptionBox(RichBox):
    """A box that sets the captions of each band into the border above it."""

    def __init__(self, box: Box, captions: Sequence[Sequence[str]]) -> None:
        top, bar, separator, bottom = self.frame = box
        row = f"{bar} {bar}{bar}"
        super().__init__(f"{top}\n{row}\n{separator}\n{row}\n{separator}\n{separator}\n{row}\n{bottom}")
        self.captions = captions
        self.rest = iter(captions)

    def substitute(self, options: ConsoleOptions, safe: bool = True) -> RichBox:
        """Return this box: its characters were chosen for the screen."""
        return self

    def get_top(self, widths: Sequence[int]) -> str:  # type: ignore[override]
        """The border above the first band; Rich asks for it before any other."""
        self.rest = iter(self.captions)
        return safe(border(self.frame[0], widths, next(self.rest)))

    def get_row(  # type: ignore[override]
        self, widths: Sequence[int], level: Literal["head", "row", "foot", "mid"] = "row", edge: bool = True
    ) -> str:
        return safe(border(self.frame[2], widths, () if level == "head" else next(self.rest)))


def renderable(element: Line | Frame | Shelf, styles: Styles) -> Segments | Table:
    if isinstance(element, Frame):
        return rich_table(element, styles)
    if isinstance(element, Shelf):
        shelf = Table.grid(padding=(0, GAP, 0, 0))
        for width in element.widths:
            shelf.add_column(width=width, no_wrap=True)
        shelf.add_row(*[Group(*[renderable(part, styles) for part in block]) for block in element.blocks])
        return shelf
    return Segments([*segments(element, styles), Segment.line()])


def segments(line: Line, styles: Styles) -> list[Segment]:
    """A line in its styles; segments are neither wrapped nor cropped, and take half the time of a Text."""
    return [Segment(safe(text), styles(style)) for text, style in line]


def rich_table(frame: Frame, styles: Styles) -> Table:
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
    system = None if console.no_color else console.color_system
    return styles_for(system, ask=console.file.isatty()) if system else lambda _: None


def styles_for(color_system: str, *, ask: bool) -> Styles:
    """The styles of words, levels of the ramp (`heat3`) and shades (`shade 3 -2`) in these colours.

    The terminal is asked for its background, if it may be, where the first shade needs it.
    """

    @cache
    def style(name: str) -> Style | None:
        if name.startswith("heat"):
            levels = ramp(color_system, background(os.environ, ask=ask))
            return Style.parse(levels[int(name.removeprefix("heat")) - 1])
        if name.startswith("shade "):
            colours = backgrounds(color_system, background(os.environ, ask=ask))
            *front, back = (colours.get(int(level)) for level in name.split()[1:])
            return Style(color=front[0] if front else None, bgcolor=back)
        words = STYLES.get(name) or SIGNS.get(name)
        return Style.parse(words) if words else None

    return style
