"""The screen that views draw on, and the tables that stand on it as cells of text, with frames around them.

A pipe gets a table as this text, a terminal as a `rich.table.Table` (`terminal.py`) that looks the same;
Rich is not imported for a pipe. A matrix is one column and a row of numbers one cell, so that shaded cells
touch and large prints stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeVar

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen.text import cells, encodable, fold_text, pad_right, shorten, token_text, visible

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
            if lines[-1] and (not self.fits or used + len(gap) + cells(text) <= self.width):
                lines[-1].append((gap, "" if gap.isspace() else "aside"))
                used += len(gap)
            elif lines[-1]:
                lines.append([("  ", "")])
                used = 2
            whole = not self.fits or used + cells(text) <= self.width
            first, *rest = [text] if whole else fold_text(text, max(1, self.width - max(used, 2)))
            lines[-1].append((first, style))
            lines += [[("  ", ""), (part, style)] for part in rest]
            used = cells(first) + used if not rest else 2 + cells(rest[-1])
        return lines

    def sentence(self, text: str, style: str = "") -> list[Line]:
        return self.flow([(self.printable(word), style) for word in text.split()], " ")

    def left_out(self, count: int) -> str:
        return self.printable(f"… {count} more")


# --- tables before they are drawn ---

Row = Sequence[Line]  # the cells of a row, each as wide as its column
CAPTION_FRAME = 4  # the cells of a border that a caption needs beside its own


class Band(NamedTuple):
    """Rows that belong together, and the captions in the border above them: one a column, "" for none."""

    rows: Iterable[Row]
    captions: Sequence[str] = ()


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

    def text(self) -> Iterator[str]:
        top, bar, separator, bottom = self.box
        yield border(top, self.widths, self.bands[0].captions)
        for row in self.headings:
            yield row_text(row, bar)
        if self.headings:
            yield border(separator, self.widths)
        for number, band in enumerate(self.bands):
            if number:
                yield border(separator, self.widths, band.captions)
            for row in band.rows:
                yield row_text(row, bar)
        yield border(bottom, self.widths)


def row_text(row: Row, bar: str) -> str:
    inside = bar.join(["".join([text for text, _ in cell]) for cell in row])
    return f"{bar}{inside}{bar}"


def border(characters: str, widths: Sequence[int], captions: Sequence[str] = ()) -> str:
    """A horizontal line of a frame, captions set into it."""
    first, dash, divider, last = tuple(characters)
    parts = []
    for width, caption in zip_longest(widths, captions, fillvalue=""):
        words = f"{dash} {caption} " if caption else ""
        parts.append(words + dash * (int(width) - cells(words)))
    return first + divider.join(parts) + last


GAP = 2  # blanks between blocks on a shelf


@dataclass(frozen=True)
class Shelf:
    """Blocks of lines and tables that stand side by side."""

    blocks: Sequence[Sequence[Line | Frame]]
    widths: Sequence[int]

    def text(self) -> Iterator[str]:
        texts = [(text for element in block for text in element_text(element)) for block in self.blocks]
        for parts in zip_longest(*texts, fillvalue=""):
            padded = (pad_right(text, width) for text, width in zip(parts, self.widths, strict=True))
            yield (" " * GAP).join(padded).rstrip()


def element_text(element: Line | Frame | Shelf) -> Iterable[str]:
    return element.text() if isinstance(element, Frame | Shelf) else ["".join(text for text, _ in element)]


Cell = TypeVar("Cell")


def join(frames: Sequence[Frame], labels: int) -> Frame:
    """Frames whose rows have the same labels as one; their first `labels` columns stand once.

    Where one has fewer bands than another it is blank below.
    """
    tallest = max(frames, key=lambda frame: len(frame.bands))
    bands = [Band(list(band.rows), band.captions) for band in tallest.bands]

    def across(first: Sequence[Cell], parts: Iterable[Sequence[Cell]]) -> list[Cell]:
        return [*first[:labels], *(cell for part in parts for cell in part[labels:])]

    def blank(frame: Frame, rows: int) -> Band:
        return Band([[[(" " * width, "")] for width in frame.widths]] * rows, [""] * len(frame.widths))

    def band_of(frame: Frame, at: int) -> Band:
        if frame is tallest:
            return bands[at]
        return frame.bands[at] if at < len(frame.bands) else blank(frame, len(list(bands[at].rows)))

    def beside(first: Band, parts: Sequence[Band]) -> Band:
        rows = zip(first.rows, *(part.rows for part in parts), strict=True)
        joined = [across(row, own) for row, *own in rows]
        return Band(joined, across(first.captions, [part.captions for part in parts]))

    high = max(len(frame.headings) for frame in frames)
    heads = [Band(frame.headings) if frame.headings else blank(frame, high) for frame in frames]
    widths = across(tallest.widths, [frame.widths for frame in frames])
    joined = [beside(band, [band_of(frame, at) for frame in frames]) for at, band in enumerate(bands)]
    return Frame(tallest.box, widths, list(beside(blank(tallest, high), heads).rows), joined)
