"""The parts of the explorer on Textual's line API: only what is visible is drawn, no markup is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip

from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.terminal import styles_for
from attnctl.drawing.screen.text import cells, pad_left, pad_right, shorten
from attnctl.verbs.explore.matrix import HEAT_CELL, WIDE, Entry, Matrix, entries
from attnctl.verbs.explore.view import Parts, TextSpan
from attnctl.verbs.explore.walk import NUMBERS, ExplorerState

styles_known = lru_cache(maxsize=4)(styles_for)


@lru_cache(maxsize=512)
def style_of(name: str, system: str) -> Style:
    """The style of a name; several are joined by +. Without colours words keep bold, italic and reverse."""
    known = styles_known(system or "standard", ask=True)
    out = Style()
    for word in name.split("+"):
        if system or not word.startswith(("heat", "shade")):
            out += known(word) or Style()
    return out


def strip_of(parts: Parts, system: str) -> Strip:
    return Strip([Segment(part.text, style_of(part.style, system)) for part in parts])


class LineView(ScrollView, can_focus=False):
    @property
    def system(self) -> str:
        """Rich's name for the colours there are; "" for none."""
        return "" if self.app.no_color else (self.app.console.color_system or "")

    def into_view(self) -> None:
        """Scroll as little as brings what one looks at into view; lines stay where they are."""

    def on_resize(self) -> None:
        self.into_view()


class Lines(LineView, can_focus=False):
    """Lines that can be scrolled; a click on a part that has an action does it."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.parts: Sequence[Parts] = []

    def show(self, lines: Iterable[Parts], *, keep: bool = False) -> None:
        """Show these lines from the first, or from where one had scrolled to."""
        self.parts = list(lines)
        many = len(self.parts) > self.scrollable_content_region.height
        self.virtual_size = Size(0, len(self.parts) if many else 0)  # a change lays the screen out anew
        if not keep and many:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        x, top = self.scroll_offset
        width = self.scrollable_content_region.width
        at = y + top
        if at >= len(self.parts):
            return Strip.blank(width)
        return strip_of(self.parts[at], self.system).crop_extend(x, x + width, Style())

    async def on_click(self, event: events.Click) -> None:
        inside = event.get_content_offset(self)
        if inside is None:
            return
        x, top = self.scroll_offset
        at, place = inside.y + top, inside.x + x
        if not 0 <= at < len(self.parts):
            return
        for part in self.parts[at]:
            place -= cells(part.text)
            if place < 0:
                if part.action:
                    event.stop()
                    await self.app.run_action(part.action)
                return


class MatrixGrid(LineView, can_focus=False):
    """A matrix that scrolls under its labels, `heads_on` from one's own; a click on a cell goes there."""

    def __init__(self, heads_on: int = 0, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own word)
        super().__init__(id=id)
        self.heads_on = heads_on
        self.matrix: Matrix | None = None
        self.mode, self.row, self.column = NUMBERS, 0, 0

    def show(self, matrix: Matrix, mode: str, row: int, column: int) -> None:
        self.matrix, self.mode, self.row, self.column = matrix, mode, row, column
        self.virtual_size = Size(matrix.label_width + matrix.columns * self.cell, matrix.rows + 1)
        self.into_view()
        self.refresh()

    @property
    def cell(self) -> int:
        assert self.matrix is not None
        return self.matrix.cell_width(self.mode, self.size.width - self.matrix.label_width - 1)

    @property
    def page(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def into_view(self) -> None:
        if self.matrix is None:
            return
        cell, region = self.cell, self.scrollable_content_region
        room = max(cell, region.width - self.matrix.label_width)
        x, y = self.scroll_offset
        left, right = self.column * cell, (self.column + 1) * cell
        x = left if left < x else max(x, right - room)
        y = self.row if self.row < y else max(y, self.row - self.page + 1)
        self.scroll_to(x, y, animate=False)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        matrix = self.matrix
        x, top = self.scroll_offset
        row = y - 1 + top
        if matrix is None or row >= matrix.rows or not matrix.columns:
            return Strip.blank(width)
        cell, room = self.cell, width - matrix.label_width
        first = x // cell
        columns = range(first, min(matrix.columns, (x + room) // cell + 1))
        shift = x - first * cell
        if y == 0:
            label: Parts = [TextSpan(pad_right(matrix.corner, matrix.label_width), "aside")]
            body = self.heading(columns, cell)
        else:
            style = "label+cursor" if row == self.row else "label"
            text = pad_right(matrix.row_labels[row], matrix.label_width - 1)
            label = [TextSpan(text, style), TextSpan(" ")]
            body = self.cells(row, columns, cell)
        shown = strip_of(body, self.system).crop_extend(shift, shift + max(0, room), None)
        return Strip.join([strip_of(label, self.system), shown]).crop_extend(0, width, None)

    def heading(self, columns: range, cell: int) -> Parts:
        """The labels of these columns; of a heat map only that of the cursor has room."""
        assert self.matrix is not None
        labels = self.matrix.column_labels
        if cell > HEAT_CELL:
            texts = [f" {pad_left(labels[at], cell - 2)} " for at in columns]
            styles = ["label+cursor" if at == self.column else "label" for at in columns]
            return list(map(TextSpan, texts, styles))
        if self.column not in columns:
            return []
        before = (self.column - columns.start) * cell
        room = len(columns) * cell
        text = shorten(labels[self.column], max(1, room))
        before = min(before, max(0, room - len(text)))
        return [TextSpan(" " * before), TextSpan(text, "label+cursor")]

    def cells(self, row: int, columns: range, cell: int) -> Parts:
        assert self.matrix is not None
        out: Parts = []
        for column, spans in zip(columns, self.matrix.row(self.mode, row, columns, cell), strict=True):
            here = row == self.row and column == self.column and not self.heads_on
            out += [TextSpan(text, f"{style}+cursor" if here else style) for text, style in spans]
        return out

    async def on_click(self, event: events.Click) -> None:
        matrix = self.matrix
        if matrix is None or not matrix.values.size:
            return
        x, top = self.scroll_offset
        row = event.y - 1 + top if event.y else self.row
        column = (event.x - matrix.label_width + x) // self.cell
        column = self.column if event.x < matrix.label_width else column
        if row < matrix.rows and column < matrix.columns:
            event.stop()
            if self.heads_on:
                await self.app.run_action(f"go('along',('head',{self.heads_on}))")
            await self.app.run_action(f"go('at_cell',({row},{column}))")


LIT = Color.parse("bright_yellow")


class Steps(LineView, can_focus=False):
    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own word)
        super().__init__(id=id)
        self.entries: list[Entry] = []
        self.at = 0
        self.height = 1
        self.marks = Screen()

    def show(self, walk: ExplorerState, screen: Screen, height: int) -> None:
        self.height, self.marks = height, screen
        self.entries = entries(walk, screen, 2 * height)
        self.at = walk.layer.steps.index(walk.step)
        self.virtual_size = Size(self.scrollable_content_region.width, height * len(self.entries))
        self.into_view()
        self.refresh()

    def into_view(self) -> None:
        """Scroll as little as brings the step that is shown into view, and its neighbours if they fit."""
        room = self.scrollable_content_region.height
        top, first = self.scroll_offset.y, self.at * self.height
        beside = self.height if room > 4 * self.height else 0
        if first - beside < top:
            self.scroll_to(0, max(0, first - beside), animate=False)
        elif first + self.height + beside > top + room:
            self.scroll_to(0, first + self.height + beside - room, animate=False)

    def render_line(self, y: int) -> Strip:
        """Draw one line of one step: the mark of rows that are read, the picture, the name or a remark."""
        width = self.scrollable_content_region.width
        number, part = divmod(y + self.scroll_offset.y, self.height)
        if number >= len(self.entries):
            return Strip.blank(width)
        entry = self.entries[number]
        room = max(8, width - WIDE - 2)
        if part:
            text, style = shorten(entry.more, room), "aside"
        else:
            note = f" {entry.note}" if entry.note and self.height == 1 else ""
            text = pad_right(shorten(entry.name, room - len(note)), room - len(note)) + note
            style = "name+cursor" if number == self.at else "name" if entry.lit else ""
        segments = [
            Segment(entry.gutter(part, ascii_only=self.marks.ascii_only), style_of("name", self.system)),
            *self.picture(entry, part),
            Segment(" "),
            Segment(text, style_of(style, self.system)),
        ]
        return Strip(segments).crop_extend(0, width, None)

    def picture(self, entry: Entry, part: int) -> list[Segment]:
        """Two rows of the picture as half blocks; without colours one shade for both."""
        if not self.marks.shades or self.marks.ascii_only:
            return [Segment(entry.shades(part, ascii_only=self.marks.ascii_only))]
        upper, lower = (self.colours(entry, 2 * part + half) for half in (0, 1))
        return [half_block(a, b) for a, b in zip(upper, lower, strict=True)]

    def colours(self, entry: Entry, row: int) -> list[Color | None]:
        levels = [entry.level(row, column) for column in range(WIDE)]
        shades = [style_of(f"shade {level}", self.system).bgcolor if level else None for level in levels]
        return [LIT if (row, column) in entry.lit else shade for column, shade in enumerate(shades)]

    async def on_click(self, event: events.Click) -> None:
        number = (event.y + self.scroll_offset.y) // self.height
        if number < len(self.entries):
            event.stop()
            await self.app.run_action(f"to_step({number})")


def half_block(upper: Color | None, lower: Color | None) -> Segment:
    if upper is None:
        return Segment(" ") if lower is None else Segment("▄", Style(color=lower))
    return Segment("▀", Style(color=upper, bgcolor=lower))


# --- what lies over it for a moment: its help, the rules to switch, the shell commands ---


class TextDialog(ModalScreen[None]):
    """Lines in a frame; any key that does nothing else closes it. `actions` are what keys of its own do."""

    SCROLLS: ClassVar[dict[str, int]] = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}

    def __init__(
        self,
        title: str,
        lines: Callable[[int], Iterable[Parts]],
        actions: Mapping[str, str],
        *,
        ascii_only: bool,
    ) -> None:
        super().__init__()
        self.ascii_only, self.actions = ascii_only, actions
        self.heading, self.make = title, lines

    def compose(self) -> ComposeResult:
        yield Lines(classes="ascii" if self.ascii_only else None)

    def on_resize(self) -> None:
        self.fill()

    def fill(self) -> None:
        lines = self.query_one(Lines)
        lines.border_title = None
        width = min(100, self.app.size.width * 9 // 10) - 3
        shown = [[TextSpan(f" {self.heading}", "name")], [], *self.make(width)]
        lines.show(shown, keep=True)
        lines.styles.height = min(len(shown) + 2, self.app.size.height * 9 // 10)

    async def on_key(self, event: events.Key) -> None:
        event.stop()
        if event.key in self.actions:
            event.prevent_default()
            await self.app.run_action(self.actions[event.key])
            self.fill()
        elif event.key in self.SCROLLS:
            self.query_one(Lines).scroll_relative(y=self.SCROLLS[event.key], animate=False)
        elif event.key == "ctrl+c":
            await self.app.run_action("interrupt")
        else:
            self.dismiss()

    def on_click(self, event: events.Click) -> None:
        """A click beside the lines closes it, and so does one on them that does nothing."""
        event.stop()
        if self.app.screen is self:
            self.dismiss()
