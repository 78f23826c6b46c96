"""A table of words: rows of short texts in a frame, as the matrices have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, zip_longest

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen import Frame, Line, Row, Screen, Span
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import cells, fold_text, pad_left, pad_right

NARROWEST = 12  # cells that a folded column has at least


def list_meanings(meanings: Mapping[str, str], screen: Screen) -> Iterator[Line]:
    widest = max(map(cells, meanings))
    room = max(NARROWEST, screen.width - widest - 2)
    for word, meaning in meanings.items():
        text = screen.printable(meaning)
        lines = fold_text(text, room) if screen.fits else [text]
        for first_column, line in zip_longest([word], lines, fillvalue=""):
            yield [(f"{pad_right(first_column, widest)}  {line}", "")]


@dataclass(frozen=True)
class Listing:
    """Rows of texts, of a line or more, under titles; columns are flush right but for those in `left`."""

    screen: Screen
    titles: Sequence[Sequence[str]]
    rows: Sequence[Sequence[Span]]
    left: AbstractSet[int] = frozenset()

    @property
    def widths(self) -> list[int]:
        columns = zip(*self.titles, *([text for text, _ in row] for row in self.rows), strict=True)
        return [max(cells(line) for text in column for line in text.split("\n")) for column in columns]

    @property
    def width(self) -> int:
        return sum(self.widths) + 3 * len(self.widths) + 1

    @property
    def fits(self) -> bool:
        return not self.screen.fits or self.width <= self.screen.width

    def fit(self, column: int, rest: int | None = None) -> Listing:
        """Return the listing in the width of a terminal, with nothing left out.

        Where there is no room for all columns, those from `rest` on (all after `column`) are
        stacked below `column`; where that is not enough, its texts are folded.
        """
        if self.fits:
            return self

        kept = 1 if rest is None else rest - column

        def stack(texts: Sequence[str]) -> list[str]:
            first, *between = texts[:kept]
            below = self.screen.dot.join(filter(None, texts[kept:]))
            return [f"{first}\n{below}" if below else first, *between]

        stacked = self.rewrite_texts(column, stack)
        if stacked.fits:
            return stacked

        room = max(NARROWEST, self.screen.width - stacked.width + stacked.widths[column])

        def fold(texts: Sequence[str]) -> list[str]:
            first, *others = texts
            lines: list[str] = []
            for line in first.split("\n"):
                lines += fold_text(line, room)
            return ["\n".join(lines), *others]

        return stacked.rewrite_texts(column, fold)

    def rewrite_texts(self, column: int, rewrite: Callable[[Sequence[str]], list[str]]) -> Listing:
        """Return the listing with other texts from this column on; styles stay."""
        titles = [[*line[:column], *rewrite(line[column:])] for line in self.titles]
        rows = []
        for row in self.rows:
            texts, styles = zip(*row[column:], strict=True)
            rows.append([*row[:column], *zip(rewrite(texts), styles, strict=False)])
        return replace(self, titles=titles, rows=rows)

    def lines(self) -> Iterator[Element]:
        """The table; on a terminal too narrow for it a line or more for each row."""
        if self.fits:
            yield self.frame()
            return

        names = [" ".join(" ".join(lines).split()) for lines in zip(*self.titles, strict=True)]
        names[:1] = [""]  # the first cell says itself what it is
        for row in self.rows:
            spans: Line = []
            for name, (text, style) in zip(names, row, strict=True):
                if text:
                    words = f"{name}: {text}" if name else text
                    spans.append((words.replace("\n", " "), style))
            yield from self.screen.flow(spans, self.screen.dot)

    def frame(self) -> Frame:
        widths = self.widths
        pads = [pad_right if column in self.left else pad_left for column in range(len(widths))]

        def rows_of(spans: Sequence[Span]) -> Iterator[Row]:
            """A row of the listing, as many of the frame as its highest text has lines."""
            styles = [style for _, style in spans]
            for texts in zip_longest(*(text.split("\n") for text, _ in spans), fillvalue=""):
                yield [
                    [(f" {pad(text, width)} ", style if text else "")]
                    for text, style, width, pad in zip(texts, styles, widths, pads, strict=True)
                ]

        headings: list[Row] = []
        for titles in self.titles:
            headings += rows_of([(title, "label") for title in titles])
        rows = list(chain.from_iterable(map(rows_of, self.rows)))
        return Frame(self.screen.box, [width + 2 for width in widths], headings, [(rows, ())])


def column_blocks(
    screen: Screen,
    titles: Sequence[str],
    rows: Sequence[Sequence[Span]],
    left: AbstractSet[int] = frozenset(),
) -> Iterator[Frame]:
    """A table, its columns in blocks that fit a terminal; the first stands before each."""
    whole = Listing(screen, [titles], rows, left)
    first, *widths = (width + 3 for width in whole.widths)
    start = 1
    while start < len(titles):
        stop = start + 1
        used = 1 + first + widths[start - 1]
        while stop < len(titles) and (not screen.fits or used + widths[stop - 1] <= screen.width):
            used += widths[stop - 1]
            stop += 1

        kept = [[row[0], *row[start:stop]] for row in rows]
        yield Listing(screen, [[titles[0], *titles[start:stop]]], kept, left).frame()
        start = stop
