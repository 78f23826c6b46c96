"""Lines as Rich prints them, in the colours of a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from attnctl.drawing.screen import Line
from attnctl.drawing.screen.palette import SIGNS, STYLES, background, backgrounds, ramp
from attnctl.drawing.screen.text import safe

Styles = Callable[[str], Style | None]  # the Rich style of a name, if it has one


def segments(lines: Iterable[Line], styles: Styles) -> Segments:
    """Lines in their styles; segments are neither wrapped nor cropped, and take half the time of a Text."""
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
