"""The list of steps, each with a small picture in which the cells that were read light up."""

from __future__ import annotations

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.screen.text import pad_right, shorten
from attnctl.verbs.explore.steps import WIDE, Entry, entries
from attnctl.verbs.explore.tui.lines import LineView, style_of
from attnctl.verbs.explore.walk import ExplorerState

LIT = Color.parse("bright_yellow")


class Steps(LineView, can_focus=False):
    """The steps from top to bottom; a click goes to one."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own word)
        super().__init__(id=id)
        self.entries: list[Entry] = []
        self.at = 0
        self.height = 1
        self.marks = Screen()

    def show(self, walk: ExplorerState, screen: Screen, height: int) -> None:
        """Show the steps of this walk, so many lines each."""
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

    def on_resize(self) -> None:
        """Keep the step that is shown in view."""
        self.into_view()

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
        """The colours of one row of the picture, None for nothing."""
        out: list[Color | None] = []
        for column in range(WIDE):
            level = entry.level(row, column)
            if (row, column) in entry.lit:
                out.append(LIT)
            else:
                out.append(style_of(f"shade {level}", self.system).bgcolor if level else None)
        return out

    async def on_click(self, event: events.Click) -> None:
        """Go to the step under the mouse."""
        number = (event.y + self.scroll_offset.y) // self.height
        if number < len(self.entries):
            event.stop()
            await self.app.run_action(f"to_step({number})")


def half_block(upper: Color | None, lower: Color | None) -> Segment:
    if upper is None:
        return Segment(" ") if lower is None else Segment("▄", Style(color=lower))
    return Segment("▀", Style(color=upper, bgcolor=lower))
