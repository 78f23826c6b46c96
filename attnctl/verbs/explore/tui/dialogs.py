"""Dialogs that lie over the explorer for a moment: its help, the rules to switch, the shell commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from attnctl.verbs.explore.tui.lines import Lines
from attnctl.verbs.explore.view import Parts, TextSpan


class TextDialog(ModalScreen[None]):
    """Lines in a frame; any key that does nothing else closes it."""

    SCROLLS: ClassVar[dict[str, int]] = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}

    def __init__(
        self, title: str, lines: Callable[[int], Iterable[Parts]], *, ascii_only: bool = False
    ) -> None:
        super().__init__()
        self.ascii_only = ascii_only
        self.heading, self.make = title, lines

    def compose(self) -> ComposeResult:
        yield Lines(classes="ascii" if self.ascii_only else None)

    def on_resize(self) -> None:
        """Lay the lines out for this width."""
        self.fill()

    def on_mount(self) -> None:
        """Show the lines."""
        self.fill()

    def fill(self) -> None:
        """Show the lines at the width there is."""
        lines = self.query_one(Lines)
        lines.border_title = None
        width = min(100, self.app.size.width * 9 // 10) - 3
        shown = [[TextSpan(f" {self.heading}", "name")], [], *self.make(width)]
        lines.show(shown, keep=True)
        lines.styles.height = min(len(shown) + 2, self.app.size.height * 9 // 10)

    async def on_key(self, event: events.Key) -> None:
        """Scroll, or close."""
        event.stop()
        if event.key in self.SCROLLS:
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


class Rules(TextDialog):
    """The rules, each with the number that switches it."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(
        self,
        title: str,
        lines: Callable[[int], Iterable[Parts]],
        names: Sequence[str],
        *,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(title, lines, ascii_only=ascii_only)
        self.names = names

    async def on_key(self, event: events.Key) -> None:
        """A number switches its rule; anything else closes."""
        if event.key.isdecimal() and 1 <= int(event.key) <= len(self.names):
            event.stop()
            event.prevent_default()
            await self.app.run_action(f"switch('{self.names[int(event.key) - 1]}')")
            self.fill()
