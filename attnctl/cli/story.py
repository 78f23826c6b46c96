"""Stories on a terminal, a chapter at a time; in a pipe, whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from attnctl.base.trace import Trace
from attnctl.drawing.screen.output import say

ENDS = {"q", "Q", "\x1b", "\x04", ""}
"""The keys that end a story: q, Escape, and the end of the input."""


def tell(traces: Sequence[Trace], steps: Sequence[Sequence[str] | None]) -> None:
    """Print the story of each trace, of these `steps` of it if named; on a terminal a key goes on."""
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of
    from attnctl.verbs.story import story
    from attnctl.verbs.story.view import chapter_lines, opening

    output = output_for(sys.stdout, os.environ)
    screen = screen_of(output)
    stepwise = sys.stdin.isatty() and sys.stdout.isatty()
    for number, trace in enumerate(traces):
        told = story(trace, steps[number])
        print_lines([[]] * bool(number), output)
        print_lines(opening(told, screen), output)
        for at in range(len(told.chapters)):
            if stepwise and at and ask_key("Enter: next step, q: end") in ENDS:
                return
            print_lines([[], *chapter_lines(told, at, screen)], output)


def ask_key(prompt: str) -> str:
    """The key that a person presses after this prompt, which is gone then; "" at the end of the input."""
    say("", prompt, end=" ")
    try:
        return read_key()
    finally:
        sys.stdout.write("\r\x1b[K\x1b[A")
        sys.stdout.flush()


def read_key() -> str:
    """A key, without waiting for Enter; the first letter of a line where that cannot be had."""
    try:
        termios: Any = import_module("termios")  # Windows has none
        tty: Any = import_module("tty")
        stream = sys.stdin.fileno()
        before = termios.tcgetattr(stream)
    except (ImportError, OSError, ValueError):
        line = sys.stdin.readline()
        return line[:1] if line else ""
    try:
        tty.setcbreak(stream, termios.TCSANOW)  # a key that was pressed already counts
        return sys.stdin.read(1)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
