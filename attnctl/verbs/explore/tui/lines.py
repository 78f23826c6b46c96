"""Lines of text on Textual's line API: no markup is read in them, and what is clicked acts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from attnctl.drawing.screen.terminal import styles_for
from attnctl.drawing.screen.text import cells
from attnctl.verbs.explore.view import Parts

styles_known = lru_cache(maxsize=4)(styles_for)


@lru_cache(maxsize=512)
def style_of(name: str, system: str) -> Style:
    """The style of a name; several are joined by +. Without colours words keep bold, italic and reverse."""
    known = styles_known(system or "standard", ask=True)
    out = Style()
    for each in name.split("+"):
        if system or not each.startswith(("heat", "shade")):
            out += known.get(each) or Style()
    return out


def strip_of(parts: Parts, system: str) -> Strip:
    """The spans as a line of the screen."""
    return Strip([Segment(part.text, style_of(part.style, system)) for part in parts])


class LineView(ScrollView, can_focus=False):
    """A part of the screen that is drawn a line at a time."""

    @property
    def system(self) -> str:
        """Rich's name for the colours there are; "" for none."""
        return "" if self.app.no_color else (self.app.console.color_system or "")


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
        """Do what stands where the mouse is."""
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
