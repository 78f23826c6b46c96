"""Colours: few, and readable on dark and light terminals alike.

Text keeps the terminal's own foreground wherever it can. The ramp behind attention weights sets
both foreground and background, so its contrast does not depend on the terminal's.
"""

from __future__ import annotations

STYLES = {
    "sentence": "bold",
    "name": "bold",
    "formula": "not bold",
    "label": "cyan",
    "caption": "not dim",
    "frame": "bright_black",
    "dim": "bright_black",
    "good": "green",
    "bad": "bold red",
}

STEPS = 8
"""Levels of the ramp."""

START, END = (112, 122, 140), (0, 96, 223)
"""Slate to blue: equally far from black and from white all along, more vivid with every step."""

SOME = (243, 67, 67, 68, 68, 26, 26, 27)
"""The same in the 256 colours that every terminal has fixed."""

FEW = ("white on blue",) * 4 + ("black on cyan",) * 2 + ("black on yellow",) * 2
"""Where there are but 8 or 16."""


def ramp(color_system: str) -> tuple[str, ...]:
    """The styles of the ramp, least first, for what Rich calls this terminal's colours."""
    if color_system == "256":
        return tuple(f"#ffffff on color({number})" for number in SOME)
    if color_system != "truecolor":
        return FEW
    shares = [i / (STEPS - 1) for i in range(STEPS)]
    mixed = [[round(a + (b - a) * share) for a, b in zip(START, END, strict=True)] for share in shares]
    return tuple(f"#ffffff on #{red:02x}{green:02x}{blue:02x}" for red, green, blue in mixed)
