"""Matrices side by side in one frame: their numbers, words and labels as cells of text.

A matrix is one column of the frame, a row of it one text with a few styles: that is what makes large
prints cheap. It is fitted to a width: whole, in blocks of columns, or head … tail with the count left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import isnan

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing.screen import CAPTION_FRAME, Band, Frame, Line, Row, Screen, Span
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.math import Array

Codes = Callable[[range, range], "Array | None"]
"""For a block of rows and columns the kind of each cell, or None where all are of kind 0."""

Run = tuple[int, int]
"""The column where cells of one kind begin, and the number of the kind."""

CHUNK = 2**15  # cells of a matrix that are formatted at a time: what is in memory stays small


CellStyle = tuple[str | None, str]  # a word that replaces the number of a cell, and the style of either

NUMBER: CellStyle = (None, "")


def all_numbers(rows: range, columns: range) -> None:
    """Every cell is of kind 0."""


class Panel(NamedTuple):
    """A matrix, (row, column), the caption above it, and in text of which kind its cells are."""

    caption: str
    values: Array
    codes: Codes = all_numbers


def runs(codes: Array) -> list[list[Run]]:
    """For each row where a run of cells of one kind starts, and of which kind."""
    if not codes.size:
        return [[] for _ in codes]

    runs_of_rows = [[(0, code)] for code in codes[:, 0].tolist()]
    rows, columns = np.nonzero(codes[:, 1:] != codes[:, :-1])
    kinds = codes[rows, columns + 1]
    for row, column, code in zip(rows.tolist(), columns.tolist(), kinds.tolist(), strict=True):
        runs_of_rows[row].append((column + 1, code))
    return runs_of_rows


class Columns(NamedTuple):
    """Columns that are drawn next to each other, or how many are left out, and how wide each is."""

    piece: Piece
    widths: list[int]

    @property
    def width(self) -> int:
        return sum(self.widths)


@dataclass(eq=False, repr=False)
class Grid:
    screen: Screen
    row_labels: Sequence[str]
    column_labels: Sequence[str]
    format: NumberFormat
    rows: Pieces
    kinds: tuple[CellStyle, ...] = (NUMBER,)
    gap: int = 2  # blanks between numbers; one at each end of a row

    @cached_property
    def label_width(self) -> int:
        shown = [self.row_labels[row] for piece in self.rows if isinstance(piece, range) for row in piece]
        return max(map(cells, shown), default=0)

    @property
    def frame_width(self) -> int:
        return self.label_width + 4 if self.label_width else 1

    @cached_property
    def cell_width(self) -> int:
        return max([self.format.width, *(cells(word) for word, _ in self.kinds if word)])

    def column_width(self, column: int) -> int:
        return max(self.cell_width, cells(self.column_labels[column])) + self.gap

    def lay_out(self, block: Pieces) -> list[Columns]:
        laid = []
        for piece in block:
            if isinstance(piece, int):
                widths = [cells(self.left_out(piece))]
            else:
                widths = [self.column_width(column) for column in piece]
            laid.append(Columns(piece, widths))
        return laid

    def panel_width(self, captions: Iterable[str], block: Pieces) -> int:
        """The cells between the bars of a matrix: its columns, its caption, its rows left out."""
        needed = [1, self.margin + sum(columns.width for columns in self.lay_out(block))]
        needed += [cells(caption) + CAPTION_FRAME for caption in captions if caption]
        needed += [cells(self.left_out(piece)) for piece in self.rows if isinstance(piece, int)]
        return max(needed)

    @property
    def margin(self) -> int:
        """Blanks before the first number of a row, where a number has none of its own."""
        return 2 - self.gap

    def left_out(self, rest: int) -> str:
        return f" {self.screen.left_out(rest)} "

    def frame(self, bands: Sequence[Sequence[Panel]], block: Pieces) -> Frame:
        """The matrices of each band side by side, one band below the other, all with these columns."""
        laid = self.lay_out(block)
        across = len(bands[0])
        width = self.panel_width([panel.caption for band in bands for panel in band], block)

        label_widths = [self.label_width + 2] if self.label_width else []
        headings: list[Row] = []
        if any(self.column_labels):
            header = pad_line(self.header(laid), width)
            headings.append(self.row("", [header] * across))

        framed: list[Band] = []
        for band in bands:
            captions = [""] * len(label_widths) + [panel.caption for panel in band]
            framed.append((self.rows_of(band, laid, across, width), captions))
        return Frame(self.screen.box, label_widths + [width] * across, headings, framed)

    def rows_of(
        self, panels: Sequence[Panel], laid: Sequence[Columns], across: int, width: int
    ) -> Iterator[Row]:
        """The rows of matrices side by side, blank where there are fewer than `across`."""
        blanks: list[Line] = [[(" " * width, "")]] * (across - len(panels))
        spare = width - self.margin - sum(columns.width for columns in laid)
        step = max(1, CHUNK // max(1, len(self.column_labels)))

        for piece in self.rows:
            if isinstance(piece, int):
                gap = pad_line([(self.left_out(piece), "aside")], width)
                yield self.row(self.screen.printable("…"), [*[gap] * len(panels), *blanks])
                continue

            for start in range(piece.start, piece.stop, step):
                chunk = range(start, min(start + step, piece.stop))
                bodies = [self.body(panel, laid, chunk, spare) for panel in panels]
                for number, row in enumerate(chunk):
                    yield self.row(self.row_labels[row], [*(body[number] for body in bodies), *blanks])

    def body(self, panel: Panel, laid: Sequence[Columns], rows: range, spare: int) -> list[Line]:
        """The numbers of these rows of one matrix, and `spare` blanks after them."""
        lines: list[Line] = [[(" " * self.margin, "")] * self.margin for _ in rows]
        for piece, widths in laid:
            if isinstance(piece, int):
                gap = (self.screen.printable("…").center(widths[0]), "aside")
                for line in lines:
                    line.append(gap)
                continue

            values = panel.values[rows.start : rows.stop, piece.start : piece.stop].tolist()
            codes = panel.codes(rows, piece)
            kinds = [[(0, 0)]] * len(rows) if codes is None else runs(codes)
            template = self.format.template([width - self.gap for width in widths], " " * (self.gap - 1))
            edges = list(accumulate(widths, initial=0))
            for line, numbers, row in zip(lines, values, kinds, strict=True):
                line.extend(self.style_row(self.format.write(template, numbers), row, edges))

        if spare:
            for line in lines:
                line.append((" " * spare, ""))
        return lines

    def style_row(self, text: str, row: Sequence[Run], edges: Sequence[int]) -> Iterator[Span]:
        """A row of numbers in its runs, words in place of the numbers of kinds that have one."""
        stops = [start for start, _ in row[1:]] + [len(edges) - 1]
        for (start, code), stop in zip(row, stops, strict=False):
            word, style = self.kinds[code]
            if word is None:
                yield text[edges[start] : edges[stop]], style
            else:
                widths = (edges[column + 1] - edges[column] for column in range(start, stop))
                yield "".join(pad_left(word, width - 1) + " " for width in widths), style

    def header(self, laid: Sequence[Columns]) -> Line:
        spans: Line = [(" " * self.margin, "")] * self.margin
        for piece, widths in laid:
            if isinstance(piece, int):
                spans.append((self.left_out(piece), "aside"))
                continue
            labels = zip(self.column_labels[piece.start : piece.stop], widths, strict=True)
            spans.append(("".join(pad_left(label, width - 1) + " " for label, width in labels), "label"))
        return spans

    def row(self, label: str, bodies: Sequence[Line]) -> Row:
        if not self.label_width:
            return bodies
        return [[(f" {pad_right(label, self.label_width)} ", "label")], *bodies]


def pad_line(line: Line, width: int) -> Line:
    spare = width - sum(cells(text) for text, _ in line)
    return [*line, (" " * spare, "")] if spare else line


# --- what is shown where there is too much ---

Piece = range | int  # rows or columns that are shown, or how many are left out here
Pieces = tuple[Piece, ...]

MAX_ROWS = 24  # rows of a matrix that are all shown; of more the first and the last
HEAD_ROWS = 6
TAIL_ROWS = 2
MAX_BLOCKS = 3  # blocks of columns, one below the other
NARROWEST = 3  # the cells of the narrowest column: a digit, a space on either side


def head_and_tail(size: int, head: int, tail: int) -> Pieces:
    return range(head), size - head - tail, range(size - tail, size)


def rows_shown(size: int) -> Pieces:
    if size <= MAX_ROWS:
        return (range(size),)
    return head_and_tail(size, HEAD_ROWS, TAIL_ROWS)


def reachable(size: int, width: int) -> Pieces:
    """The columns that a view of this width could show at all: what a format must provide for."""
    most = max(1, width // NARROWEST)
    if size <= MAX_BLOCKS * most:
        return (range(size),)
    return head_and_tail(size, most, most)


def blocks_of(size: int, width_of: Callable[[int], int], room: int) -> list[Pieces]:
    """The columns in blocks of at most `room` cells, at least a column each."""
    starts = [0]
    used = 0
    for column in range(size):
        width = width_of(column)
        if used and used + width > room:
            starts.append(column)
            used = 0
        used += width

    stops = [*starts[1:], size]
    return [(range(start, stop),) for start, stop in zip(starts, stops, strict=True)]


def columns_shown(size: int, width_of: Callable[[int], int], room: int, left_out: int) -> list[Pieces]:
    """All columns at once, in a few blocks, or the first and last: whatever `room` allows.

    These stand beside one of `left_out` cells, two first ones for each last.
    """
    if size <= MAX_BLOCKS * max(1, room // NARROWEST):
        blocks = blocks_of(size, width_of, room)
        if len(blocks) <= MAX_BLOCKS:
            return blocks

    head = 0
    tail = 0
    room -= left_out
    while head + tail < size - 1:
        from_tail = tail < (head + 1) // 3
        width = width_of(size - 1 - tail if from_tail else head)
        if width > room and head > 0:
            break
        room -= width
        if from_tail:
            tail += 1
        else:
            head += 1
    return [head_and_tail(size, head, tail)]


# --- one format a matrix: the same decimals and the same width for every cell ---

TINY = 1e-3
"""Of smaller numbers four decimals say too little."""

HUGE = 1e6
"""Of numbers from here on a fixed point says too much."""


class NumberFormat(NamedTuple):
    """A % conversion for the numbers of one matrix, and the width all of them take.

    Rows are written by a template, a single % operation each: the quickest there is in Python.
    """

    conversion: str
    width: int
    infinity: str = "∞"

    def __call__(self, value: float) -> str:
        return self.tidy(f"%{self.width}{self.conversion}" % value)

    def template(self, widths: Sequence[int], before: str = " ") -> str:
        return "".join([f"{before}%{width}{self.conversion} " for width in widths])

    def write(self, template: str, values: list[float]) -> str:
        return self.tidy(template % tuple(values))

    def tidy(self, text: str) -> str:
        """-0.0000 as 0.0000, infinities as symbols, NaN as NaN; widths stay."""
        if "-0" in text and self.conversion != "d":
            text = text.replace(f"%{self.conversion}" % -0.0, f"% {self.conversion}" % 0.0)
        if "n" not in text:
            return text
        text = text.replace("-inf", f"-{self.infinity}".rjust(4))
        return text.replace("inf", self.infinity.rjust(3)).replace("nan", "NaN")


def four_digits(value: float) -> str:
    return "NaN" if isnan(value) else f"{value + 0.0:.4g}".replace("inf", "∞")


def matrix_format(array: Array, precision: int = 4, *, ascii_only: bool = False) -> NumberFormat:
    """`precision` decimals, none for whole numbers; with an exponent below 1e-3 and from 1e6 on."""
    finite = array if np.isfinite(array).all() else array[np.isfinite(array)]
    conversion = conversion_for(finite, precision)
    texts = [f"%{conversion}" % value for value in extremes(finite, conversion)]
    if finite.size < array.size:
        for is_one, text in ((np.isneginf, "-inf"), (np.isnan, "nan"), (np.isposinf, "inf")):
            if is_one(array).any():
                texts.append(text)

    width = max(map(len, texts), default=1)
    return NumberFormat(conversion, width, infinity="inf" if ascii_only else "∞")


def conversion_for(finite: Array, precision: int) -> str:
    if finite.dtype.kind in "iu":
        return "d"
    largest = float(np.abs(finite).max(initial=0.0))
    if largest < HUGE and bool((finite == np.rint(finite)).all()):
        return ".0f"
    small = min(TINY, 10.0 ** (1 - precision))
    return f".{precision}e" if largest < small or largest >= HUGE else f".{precision}f"


def extremes(finite: Array, conversion: str) -> list[float]:
    """The numbers whose text is longest: the ends of the range, the smallest exponent, a -0."""
    if not finite.size:
        return []

    largest = finite.max().item()
    least = finite.min().item()
    longest = [largest, least]
    if conversion.endswith("e") and finite.any():
        smallest = np.abs(finite[finite != 0]).min().item()
        longest.append(smallest)
        if least < 0:
            longest.append(-smallest)
    if finite.dtype.kind == "f" and np.signbit(finite).any():
        longest.append(-0.0)
    return longest
