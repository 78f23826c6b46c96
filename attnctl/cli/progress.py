"""Progress of work that takes longer than half a second: on stderr, and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

PATIENCE = 0.5
"""Seconds before a person wonders."""


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with this label once the block has run for a while; yields what moves it.

    The bar pulses until it is told (done, total), and is gone when the block ends.
    """
    bar = Bar(label)
    if not sys.stderr.isatty():
        yield bar.move
        return
    timer = Timer(PATIENCE, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.move
    finally:
        timer.cancel()
        bar.hide()


class Bar:
    """A Rich progress bar that may or may not come to be shown."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.lock = Lock()
        self.over = False
        self.shown: Any = None

    def show(self) -> None:
        """Draw it, unless the work is over by now."""
        from rich.console import Console
        from rich.progress import Progress

        with self.lock:
            if not self.over:
                console = Console(file=sys.stderr, markup=False, emoji=False)
                self.shown = Progress(console=console, transient=True)
                self.task = self.shown.add_task(self.label, total=None)
                self.shown.start()

    def move(self, done: int, total: int) -> None:
        """So much of so much is done."""
        if self.shown is not None:
            self.shown.update(self.task, completed=done, total=total)

    def hide(self) -> None:
        """Take it away."""
        with self.lock:
            self.over = True
            if self.shown is not None:
                self.shown.stop()
