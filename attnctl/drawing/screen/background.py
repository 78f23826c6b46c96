"""Detect a dark or light terminal: from an option, the environment, or the terminal's own answer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache

from attnctl.base.errors import AttnError
from attnctl.base.words import quote

VARIABLE = "ATTNCTL_BACKGROUND"

DARK, LIGHT = "dark", "light"

WHITES = {7, *range(9, 16)}
"""The light ones of the 16 colours, as COLORFGBG numbers them."""

QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""What is the background? And, which every terminal answers so none is waited for long: who are you?"""

ANSWER = re.compile(rb"\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")

STDOUT = 1

PATIENCE = 0.1
"""Seconds that an answer may take."""


def background(environ: Mapping[str, str], *, ask: bool) -> str:
    """`dark` or `light`; where nobody says, the terminal is asked if it may be, and else is dark.

    Raises AttnError where something else is said.
    """
    said = environ.get(VARIABLE, "")
    if said:
        if said not in {DARK, LIGHT}:
            raise AttnError(f"{VARIABLE}: {quote(said)} is no background; use {DARK} or {LIGHT}")
        return said
    colour = environ.get("COLORFGBG", "").rpartition(";")[2]
    if colour.isdecimal():
        return LIGHT if int(colour) in WHITES else DARK
    return background_of_terminal() if ask else DARK


@lru_cache(maxsize=1)
def background_of_terminal() -> str:
    """Ask the terminal for its background colour."""
    found = ANSWER.search(ask_terminal())
    if found is None:
        return DARK
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return LIGHT if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else DARK


def ask_terminal() -> bytes:
    """The answer to the question; nothing where there is no terminal, or a key was pressed already."""
    try:
        import select
        import termios
        import tty

        terminal = os.open(os.ttyname(STDOUT), os.O_RDWR | os.O_NOCTTY)
    except (ImportError, OSError):
        return b""
    answer = b""
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp() or select.select([terminal], [], [], 0)[0]:
            return b""
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal, termios.TCSANOW)
            os.write(terminal, QUESTION)
            while not answer.endswith(b"c") and select.select([terminal], [], [], PATIENCE)[0]:
                answer += os.read(terminal, 64)
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
    except (OSError, termios.error):
        return answer
    finally:
        os.close(terminal)
    return answer
