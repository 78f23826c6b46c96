"""A table of words: rows of short texts in a frame, as the matrices have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from attnctl.screen.screen import Line, Screen, Span
from attnctl.screen.text import cells, pad_left, pad_right, shorten


@dataclass(frozen=True)
class Listing:
    """Rows under one or more lines of titles; columns are flush right but for those in `left`."""

    screen: Screen
    titles: Sequence[Sequence[str]]
    rows: Sequence[Sequence[Span]]
    left: AbstractSet[int] = frozenset()

    @property
    def widths(self) -> list[int]:
        """The cells of each column."""
        texts = [*self.titles, *([text for text, _ in row] for row in self.rows)]
        return [max(map(cells, column)) for column in zip(*texts, strict=True)]

    @property
    def width(self) -> int:
        """The cells of the whole."""
        return sum(self.widths) + 3 * len(self.widths) + 1

    def fitted(self, column: int) -> Listing:
        """The same no wider than a terminal, if shortening this column gets it there."""
        over = self.width - self.screen.width
        if not self.screen.fits or over <= 0:
            return self
        room = max(self.widths[column] - over, *(cells(line[column]) for line in self.titles))
        ellipsis = self.screen.ours("…")
        rows = [
            [
                (shorten(text, room, ellipsis) if at == column else text, style)
                for at, (text, style) in enumerate(row)
            ]
            for row in self.rows
        ]
        return replace(self, rows=rows)

    def lines(self) -> Iterator[Line]:
        """The frame, a line at a time."""
        box = self.screen.box
        yield self.border(box[0:4])
        for titles in self.titles:
            yield self.row([(title, "label") for title in titles])
        yield self.border(box[5:9])
        for row in self.rows:
            yield self.row(row)
        yield self.border(box[9:13])

    def border(self, corners: str) -> Line:
        """A horizontal line."""
        dashes = (corners[1] * (width + 2) for width in self.widths)
        return [(corners[0] + corners[2].join(dashes) + corners[3], "frame")]

    def row(self, spans: Sequence[Span]) -> Line:
        """A row between bars."""
        bar = (self.screen.box[4], "frame")
        line: Line = [bar]
        for at, ((text, style), width) in enumerate(zip(spans, self.widths, strict=True)):
            pad = pad_right if at in self.left else pad_left
            line += [(f" {pad(text, width)} ", style), bar]
        return line
