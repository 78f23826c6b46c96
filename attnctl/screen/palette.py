"""Styles: words keep the terminal's own colours, shades bring their own.

No one colour of text reaches a contrast of 4.5 : 1 on black, on white and on both Solarized
backgrounds, so words are told apart by bold and italic alone. A shade sets both its background and
the colour of its digits; its contrast does not depend on the terminal.
"""

from __future__ import annotations

STYLES = {
    "sentence": "bold",
    "name": "bold",
    "label": "bold",
    "aside": "italic",
    "bad": "bold reverse",
}
"""The styles of words; a name that is not here is shown as the terminal shows text."""

STEPS = 8
"""Levels of the ramp behind attention weights: one blue, lighter with every level."""

TRUECOLOR = (
    *("#ffffff on #00468c", "#ffffff on #10569c", "#ffffff on #1f65ad", "#ffffff on #2f75bd"),
    *("#000000 on #3f85ce", "#000000 on #4f95de", "#000000 on #5ea4ef", "#000000 on #6eb4ff"),
)

FIXED = (
    *("#ffffff on color(25)", "#ffffff on color(25)", "#ffffff on color(26)", "#ffffff on color(27)"),
    *("#000000 on color(33)", "#000000 on color(33)", "#000000 on color(75)", "#000000 on color(75)"),
)
"""Of the 256 colours those that no theme changes."""

THEMED = ("", "", "bold", "bold", *4 * ("black on bright_cyan",))
"""Of 8 or 16 colours the one pair with a hue that is readable in every theme."""


def ramp(color_system: str) -> tuple[str, ...]:
    """The styles of the ramp, least first, for what Rich calls this terminal's colours."""
    return {"truecolor": TRUECOLOR, "256": FIXED}.get(color_system, THEMED)
