"""Lines and tables as Rich renderables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from rich.box import Box
from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnctl.screen.frame import Frame, border
from attnctl.screen.palette import STYLES, ramp
from attnctl.screen.screen import Line

Styles = Mapping[str, Style]
"""A Rich style for each name; a name that is missing has none."""


class CaptionBox(Box):
    """A box that sets the captions of each band into the border above it."""

    def __init__(self, characters: str, captions: Sequence[Sequence[str]]) -> None:
        top, bar, separator, bottom = characters[:4], characters[4], characters[5:9], characters[9:13]
        row = f"{bar} {bar}{bar}"
        super().__init__("\n".join([top, row, separator, row, separator, separator, row, bottom]))
        self.corners = top, separator
        self.captions = captions
        self.rest = iter(captions)

    def substitute(self, options: ConsoleOptions, safe: bool = True) -> Box:  # noqa: FBT001, FBT002
        """Return this box: its characters were chosen for the screen."""
        return self

    def get_top(self, widths: Sequence[int]) -> str:  # type: ignore[override]
        """The border above the first band; Rich asks for it before any other."""
        self.rest = iter(self.captions)
        return border(self.corners[0], widths, next(self.rest))

    def get_row(  # type: ignore[override]
        self,
        widths: Sequence[int],
        level: Literal["head", "row", "foot", "mid"] = "row",
        edge: bool = True,  # noqa: FBT001, FBT002
    ) -> str:
        """The border below the headings, or the one above the next band."""
        return border(self.corners[1], widths, () if level == "head" else next(self.rest))


def renderable(element: Line | Frame, styles: Styles) -> Text | Table:
    """A line as a Rich text, a frame as a Rich table."""
    return rich_table(element, styles) if isinstance(element, Frame) else rich_text(element, styles)


def rich_text(line: Line, styles: Styles) -> Text:
    """A line in its styles, neither wrapped nor cropped."""
    text = Text(no_wrap=True, overflow="ignore", end="\n")
    for part, style in line:
        text.append(part, styles.get(style))
    return text


def rich_table(frame: Frame, styles: Styles) -> Table:
    """The frame as a Rich table: its columns are the columns of the frame, its sections the bands."""
    box = CaptionBox(frame.box, [band.captions for band in frame.bands])
    table = Table(
        box=box, width=frame.width, padding=0, show_header=bool(frame.headings), header_style="", highlight=False
    )
    for column, width in enumerate(frame.widths):
        headings = [rich_text(row[column], styles) for row in frame.headings]
        table.add_column(Text("\n").join(headings), width=width, no_wrap=True)
    for number, band in enumerate(frame.bands):
        if number:
            table.add_section()
        for row in band.rows:
            table.add_row(*[rich_text(cell, styles) for cell in row])
    return table


def styles_of(console: Console) -> Styles:
    """The styles that a console can show: none where it has no colours."""
    system = None if console.no_color else console.color_system
    return styles_for(system) if system else {}


@lru_cache(maxsize=4)
def styles_for(color_system: str) -> Styles:
    """The styles of words, and the ramp of attention weights in these colours."""
    heat = {f"heat{level}": style for level, style in enumerate(ramp(color_system), start=1)}
    return {name: Style.parse(style) for name, style in (STYLES | heat).items()}
