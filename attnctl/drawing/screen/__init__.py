"""The screen that views draw on, and the tables that stand on it as cells of text, with frames around them.

A pipe gets the text of its lines, a terminal these in their styles (`palette.py`); Rich is not imported
for a pipe. A matrix is one column and a row of numbers one cell, so that shaded cells touch and large
prints stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing.screen.text import cells, encodable, fold_text, shorten, token_text, visible

Span = tuple[str, str]  # text, and the name of its style ("" for none)
Line = list[Span]

Box = tuple[str, str, str, str]
"""The characters of a frame, top, bar, separator and bottom: a line has its ends, a dash and a divider."""

ROUND: Box = ("╭─┬╮", "│", "├─┼┤", "╰─┴╯")
ASCII: Box = ("+-++", "|", "+-++", "+-++")


class Screen(NamedTuple):
    """A terminal, where views are fitted to the width, or anything else, where they are whole."""

    width: int = 80
    fits: bool = False
    encoding: str = "utf-8"
    colours: bool = False
    shades: bool = False  # colours enough for heat maps
    height: int = 0

    @property
    def ascii_only(self) -> bool:
        return not self.encoding.lower().startswith("utf")

    @property
    def box(self) -> Box:
        return ASCII if self.ascii_only else ROUND

    @property
    def dot(self) -> str:
        return " | " if self.ascii_only else " · "

    def printable(self, text: str) -> str:
        """A formula, a caption: our own words, or what a file has in their place."""
        return encodable(visible(text), self.encoding)

    def token(self, token: str) -> str:
        return token_text(token, self.encoding)

    def short(self, text: str, width: int) -> str:
        """The text in at most `width` cells where views are fitted; whole elsewhere."""
        return shorten(text, width, self.printable("…")) if self.fits else text

    def flow(self, spans: Line, gap: str) -> list[Line]:
        """The spans one after the other, going on below (and folded) where views are fitted."""
        lines: list[Line] = [[]]
        used = 0
        for text, style in spans:
            is_first = not lines[-1]
            if not is_first and (not self.fits or used + len(gap) + cells(text) <= self.width):
                lines[-1].append((gap, "" if gap.isspace() else "aside"))
                used += len(gap)
            elif not is_first:
                lines.append([("  ", "")])
                used = 2

            if not self.fits or used + cells(text) <= self.width:
                lines[-1].append((text, style))
                used += cells(text)
                continue

            first, *rest = fold_text(text, max(1, self.width - max(used, 2)))
            lines[-1].append((first, style))
            used += cells(first)
            for part in rest:
                lines.append([("  ", ""), (part, style)])
                used = 2 + cells(part)
        return lines

    def sentence(self, text: str, style: str = "") -> list[Line]:
        return self.flow([(self.printable(word), style) for word in text.split()], " ")

    def left_out(self, count: int) -> str:
        return self.printable(f"… {count} more")


# --- tables before they are drawn ---

Row = Sequence[Line]  # the cells of a row, each as wide as its column
CAPTION_FRAME = 4  # the cells of a border that a caption needs beside its own


Band = tuple[Iterable[Row], Sequence[str]]
"""Rows that belong together, and the captions in the border above them: one a column, "" for none."""


@dataclass(frozen=True)
class Frame:
    """A table: rows of headings, then bands of rows with a border above each."""

    box: Box
    widths: Sequence[int]
    headings: Sequence[Row]
    bands: Sequence[Band]

    @property
    def width(self) -> int:
        return sum(self.widths) + len(self.widths) + 1

    def lines(self) -> Iterator[Line]:
        top, bar, separator, bottom = self.box
        yield border(top, self.widths, self.bands[0][1])
        for row in self.headings:
            yield row_line(row, bar)
        if self.headings:
            yield border(separator, self.widths)
        for number, (rows, captions) in enumerate(self.bands):
            if number:
                yield border(separator, self.widths, captions)
            for row in rows:
                yield row_line(row, bar)
        yield border(bottom, self.widths)


def row_line(row: Row, bar: str) -> Line:
    line: Line = [(bar, "")]
    for cell in row:
        line += [*cell, (bar, "")]
    return line


def border(characters: str, widths: Sequence[int], captions: Sequence[str] = ()) -> Line:
    first, dash, divider, last = tuple(characters)
    parts = []
    for width, caption in zip_longest(widths, captions, fillvalue=""):
        words = f"{dash} {caption} " if caption else ""
        parts.append(words + dash * (int(width) - cells(words)))
    return [(first + divider.join(parts) + last, "")]


GAP = 2  # blanks between blocks that stand side by side


def lines_beside(blocks: Sequence[Sequence[Line | Frame]], widths: Sequence[int]) -> Iterator[Line]:
    columns = [(line for element in block for line in element_lines(element)) for block in blocks]
    for parts in zip_longest(*columns, fillvalue=()):
        line: Line = []
        for part, width in zip(parts, widths, strict=True):
            gap = GAP if line else 0
            blanks = width - sum(cells(text) for text, _ in part)
            line += [(" " * gap, ""), *part, (" " * blanks, "")]
        yield line


def element_lines(element: Line | Frame) -> Iterable[Line]:
    return element.lines() if isinstance(element, Frame) else [element]


Cell = TypeVar("Cell")


def join(frames: Sequence[Frame], labels: int) -> Frame:
    """Frames with as many bands and the same labels of rows as one; these first columns stand once."""

    def across(parts: Sequence[Sequence[Cell]]) -> list[Cell]:
        return [*parts[0][:labels], *(cell for part in parts for cell in part[labels:])]

    most_headings = max(len(frame.headings) for frame in frames)

    def headings_of(frame: Frame) -> Sequence[Row]:
        """Blank ones, where it has none and others have."""
        blank_row = [[(" " * width, "")] for width in frame.widths]
        return frame.headings or [blank_row] * most_headings

    headings = [across(row) for row in zip(*map(headings_of, frames), strict=True)]
    bands = []
    for level in zip(*(frame.bands for frame in frames), strict=True):
        rows = [across(row) for row in zip(*(rows for rows, _ in level), strict=True)]
        bands.append((rows, across([captions for _, captions in level])))
    return Frame(frames[0].box, across([frame.widths for frame in frames]), headings, bands)
