"""The colours of pictures: one hue for numbers from 0 up, two where there are negative ones.

Every ramp is straight lines in sRGB between a few anchors, so that its levels and an SVG gradient with
the same stops are the same colours everywhere. Along a ramp lightness only falls (two hues: from the
middle outwards); blue and orange stay apart in every common kind of colour blindness.
"""

from __future__ import annotations

from functools import lru_cache

RGB = tuple[int, int, int]

BLUE = ("#eaf1fa", "#b3cfe9", "#6ea5d6", "#2f75b6", "#0c2f6b")
"""From 0 to the largest number."""

ORANGE = ("#f9f0e6", "#eec79b", "#da9045", "#a65a12", "#5b2a06")
"""From 0 to the most negative number."""

MIDDLE = "#f3f3f3"
"""0 between the two hues."""

TWO_HUES = (*ORANGE[:0:-1], MIDDLE, *BLUE[1:])
"""From the most negative number over 0 to the largest."""

ODD = "#c2185b"
"""What is no number of this scale: NaN, ∞."""

PAPER, INK, FAINT, HATCH = "#ffffff", "#1a1a1a", "#595959", "#b5b5b5"
"""Background, text, lesser text, and the lines of the hatching behind what is hidden."""

LEVELS = 65
"""Colours of a ramp: an odd number, so that 0 has the middle one of two hues."""


def rgb(colour: str) -> RGB:
    """'#ff8000' -> (255, 128, 0)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=4)
def ramp(anchors: tuple[str, ...]) -> tuple[RGB, ...]:
    """`LEVELS` colours from the first anchor to the last; whole numbers throughout, so exact."""
    stops, last = [rgb(each) for each in anchors], LEVELS - 1
    out = []
    for level in range(LEVELS):
        at, part = divmod(level * (len(stops) - 1), last)
        low, high = stops[at], stops[min(at + 1, len(stops) - 1)]
        red, green, blue = (
            (2 * (a * (last - part) + b * part) + last) // (2 * last)
            for a, b in zip(low, high, strict=True)
        )
        out.append((red, green, blue))
    return tuple(out)


def hexadecimal(colour: RGB) -> str:
    """(255, 128, 0) -> '#ff8000'."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: RGB) -> str:
    """Black or white, whichever contrasts more with this colour: 4.5 : 1 at least (WCAG 2.2, 1.4.3)."""
    linear = [
        (each / 255 / 12.92) if each <= 10 else ((each / 255 + 0.055) / 1.055) ** 2.4 for each in colour
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else PAPER
