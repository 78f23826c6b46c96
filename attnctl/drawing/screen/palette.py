"""Styles: words keep the terminal's own colours, shades bring their own, for dark backgrounds or light.

No one colour of text reaches a contrast of 4.5 : 1 on black, on white and on both Solarized
backgrounds, so words are told apart by bold and italic alone. A shade sets both its background and
the colour of its digits; the more it stands for, the further it is from the terminal's own background.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.drawing.screen import Line
from attnctl.drawing.screen.text import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segments
    from rich.style import Style

SIGNS = {"right": "bold green", "wrong": "bold red"}
"""Signs of verdicts in the terminal's own colours: the sign itself tells, so its contrast may be less."""

STYLES = {
    "sentence": "bold",
    "name": "bold",
    "label": "bold",
    "aside": "italic",
    "bad": "bold reverse",
    "changed": "bold underline",
}
"""The styles of words; a name that is not here is shown as the terminal shows text."""

STEPS = 8  # levels of the ramp behind attention weights

WARM = {
    "truecolor dark": "#004d8f #0061b1 #2277ca #3b8de2 #53a4fa #7ebbff #aad1fe #d3e7fe",
    "truecolor light": "#c7e1ff #9ac9fe #6ab1ff #4798ed #2176c4 #0968ba #005297 #003d74",
    "256 dark": "color(24) color(25) color(31) color(32) color(38) color(45) color(117) color(159)",
    "256 light": "color(153) color(117) color(75) color(33) color(27) color(25) color(20) color(18)",
}
"""Blues by the colours and the background of a terminal: each further from it than the one before.

Of the 256 colours only those that no theme changes.
"""

COLD = {
    "truecolor dark": "#733d00 #8f4e00 #ab5f06 #c3752a #db8b43 #f3a15b #ffbe88 #fedec4",
    "truecolor light": "#ffd5b4 #feb272 #e4995a #ca8241 #b16a27 #985302 #7a4100 #5d3000",
    "256 dark": "color(94) color(130) color(136) color(172) color(208) color(214) color(220) color(229)",
    "256 light": "color(223) color(216) color(209) color(172) color(166) color(130) color(94) color(52)",
}
"""Browns of negative numbers in heat maps; nothing is written on them."""

INKS = {"dark": 2 * ("#ffffff",) + 6 * ("#000000",), "light": 4 * ("#000000",) + 4 * ("#ffffff",)}
"""The colour of the digits on each blue."""


def ramp(color_system: str, background: str) -> tuple[str, ...]:
    """The styles of the ramp, least first, for what Rich calls this terminal's colours."""
    blues = WARM.get(f"{color_system} {background}")
    if blues is None:
        return (*4 * ("",), *4 * ("bold",))  # of 8 or 16 colours a theme may make anything
    return tuple(f"{ink} on {blue}" for ink, blue in zip(INKS[background], blues.split(), strict=True))


def backgrounds(color_system: str, background: str) -> dict[int, str]:
    """The colours of heat maps by level, −8 to 8 without 0; none where there are too few to tell."""
    warm, cold = (hue.get(f"{color_system} {background}", "").split() for hue in (WARM, COLD))
    return dict(enumerate(warm, start=1)) | {-level: colour for level, colour in enumerate(cold, start=1)}


VARIABLE = "ATTNCTL_BACKGROUND"
DARK, LIGHT = "dark", "light"
ANSWER = rb"\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})"
STDOUT = 1


def background(environ: Mapping[str, str], *, ask: bool) -> str:
    """`dark` or `light`, as said, or as the terminal answers. Raises AttnError for another word."""
    said = environ.get(VARIABLE, "")
    if said:
        if said not in {DARK, LIGHT}:
            raise AttnError(f"{VARIABLE}: {quote(said)} is no background; use {DARK} or {LIGHT}")
        return said
    colour = environ.get("COLORFGBG", "").rpartition(";")[2]
    if colour.isdecimal():
        return LIGHT if int(colour) in {7, *range(9, 16)} else DARK  # the light ones of the 16
    return background_of_terminal() if ask else DARK


@lru_cache(maxsize=1)
def background_of_terminal() -> str:
    found = re.search(ANSWER, ask_terminal())
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
            # Asks for the background, and then who answers, as every terminal does.
            os.write(terminal, b"\x1b]11;?\x1b\\\x1b[c")
            # Seconds that an answer may take.
            while not answer.endswith(b"c") and select.select([terminal], [], [], 0.1)[0]:
                answer += os.read(terminal, 64)
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
    except (OSError, termios.error):
        return answer
    finally:
        os.close(terminal)
    return answer


# --- Rich, which a pipe does not import ---

Styles: TypeAlias = "Callable[[str], Style | None]"  # the Rich style of a name, if it has one


def segments(lines: Iterable[Line], styles: Styles) -> Segments:
    """Lines in their styles; segments are neither wrapped nor cropped, and take half the time of a Text."""
    from rich.segment import Segment, Segments

    out = []
    for line in lines:
        out += [Segment(safe(text), styles(style)) for text, style in line]
        out.append(Segment.line())
    return Segments(out)


def styles_of(console: Console) -> Styles:
    system = None if console.no_color else console.color_system
    return styles_for(system, ask=console.file.isatty()) if system else lambda _: None


def styles_for(color_system: str, *, ask: bool) -> Styles:
    """The styles of words, levels of the ramp (`heat3`) and shades (`shade 3 -2`) in these colours.

    The terminal is asked for its background, if it may be, where the first shade needs it.
    """
    from rich.style import Style

    @cache
    def style(name: str) -> Style | None:
        if name.startswith("heat"):
            levels = ramp(color_system, background(os.environ, ask=ask))
            return Style.parse(levels[int(name.removeprefix("heat")) - 1])
        if name.startswith("shade "):
            colours = backgrounds(color_system, background(os.environ, ask=ask))
            *front, back = (colours.get(int(level)) for level in name.split()[1:])
            return Style(color=front[0] if front else None, bgcolor=back)
        words = STYLES.get(name) or SIGNS.get(name)
        return Style.parse(words) if words else None

    return style
