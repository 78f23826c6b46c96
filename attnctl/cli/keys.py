"""One key from a terminal; a line where the system has no single keys."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from attnctl.drawing.screen.output import say


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
