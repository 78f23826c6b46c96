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
    "cursor": "bold reverse",
    "operand": "underline",
    "chosen": "bold underline",
    "changed": "bold underline",
    "key": "bold",
}
"""The styles of words; a name that is not here is shown as the terminal shows text."""

STEPS = 8
"""Levels of the ramp behind attention weights: one hue, from slate to blue.

A level is lighter than the one before, which shows on dark terminals, and more vivid, which shows
on light ones too.
"""

TRUECOLOR = (
    *("#ffffff on #5f6d80", "#ffffff on #587392", "#ffffff on #5178a4", "#000000 on #4a7eb6"),
    *("#000000 on #4283c9", "#000000 on #3b89db", "#000000 on #348eed", "#000000 on #2d94ff"),
)

FIXED = (
    *("#000000 on color(67)", "#000000 on color(67)", "#000000 on color(33)", "#000000 on color(33)"),
    *("#000000 on color(39)", "#000000 on color(39)", "#000000 on color(75)", "#000000 on color(75)"),
)
"""Of the 256 colours those that no theme changes."""

COLD_TRUECOLOR = ("#807060", "#8f7255", "#9e754b", "#ae7942", "#be7e3a", "#cf8433", "#e08b2d", "#f29328")
COLD_FIXED = tuple(f"color({code})" for code in (137, 137, 173, 173, 172, 172, 208, 208))
"""The backgrounds of negative numbers in heat maps, from brown to orange; nothing is written on them."""

THEMED = ("", "", "bold", "bold", *4 * ("black on bright_cyan",))
"""Of 8 or 16 colours the one pair with a hue that is readable in every theme."""


def ramp(color_system: str) -> tuple[str, ...]:
    """The styles of the ramp, least first, for what Rich calls this terminal's colours."""
    return {"truecolor": TRUECOLOR, "256": FIXED}.get(color_system, THEMED)


def backgrounds(color_system: str) -> dict[int, str]:
    """The colours of heat maps by level, −8 to 8 without 0; none where there are too few to tell."""
    warm = {"truecolor": TRUECOLOR, "256": FIXED}.get(color_system, ())
    cold = {"truecolor": COLD_TRUECOLOR, "256": COLD_FIXED}.get(color_system, ())
    levels = {level: style.split(" on ")[1] for level, style in enumerate(warm, start=1)}
    return levels | {-level: colour for level, colour in enumerate(cold, start=1)}
