"""Plots: matrices side by side on one scale of colours, and the blocks that large ones are merged into.

One hue for numbers from 0 up, two where there are negative ones. Every ramp is straight lines in sRGB
between a few anchors, so that its levels and an SVG gradient with the same stops are the same colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, isqrt, log

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing.screen.grid import Panel
from attnctl.math import Array


@dataclass(frozen=True)
class ColourScale:
    """Numbers from `low` to `high` as colours, by logarithm if asked; what else there is beside them."""

    low: float
    high: float
    log: bool = False
    hidden: bool = False  # some number is −∞,
    zero: bool = False  # 0, which has no logarithm,
    strange: bool = False  # NaN or ∞,
    clipped: bool = False  # below the low end of a logarithmic scale

    @property
    def signed(self) -> bool:
        return self.low < 0

    @property
    def colours(self) -> tuple[RGB, ...]:
        return ramp_colours(TWO_HUES if self.signed else BLUE)

    def shares(self, values: Array) -> Array:
        """The place of each number along the scale: from 0 to 1, or from −1 where there are two hues.

        What is hidden is −∞ (and so is 0 where there is a logarithm), what is strange NaN.
        """
        values = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(values)
        known = np.where(finite, values, self.low)
        if self.log:
            span = log(self.high / self.low) or 1.0
            shares = np.log(np.maximum(known, self.low) / self.low) / span
        else:
            shares = known / (self.high or 1.0)
        shares[~finite] = np.nan
        shares[np.isneginf(values) | ((values == 0) & self.log)] = -np.inf
        return shares

    def levels(self, values: Array) -> Array:
        shares = self.shares(values)
        known = np.where(np.isfinite(shares), shares, 0.0)
        if self.signed:
            known = known / 2 + 0.5
        levels = np.floor(np.clip(known, 0, 1) * (LEVELS - 1) + 0.5).astype(np.uint8)
        levels[np.isnan(shares)] = STRANGE
        levels[np.isneginf(shares)] = HATCHED
        return levels


RGB = tuple[int, int, int]

BLUE = ("#eaf1fa", "#b3cfe9", "#6ea5d6", "#2f75b6", "#0c2f6b")  # from 0 to the largest number
ORANGE = ("#f9f0e6", "#eec79b", "#da9045", "#a65a12", "#5b2a06")  # from 0 to the most negative number
TWO_HUES = (*ORANGE[:0:-1], "#f3f3f3", *BLUE[1:])  # from the most negative number over 0 to the largest
ODD = "#c2185b"  # what is no number of this scale: NaN, ∞

PAPER = "#ffffff"  # background
INK = "#1a1a1a"  # text
FAINT = "#595959"  # lesser text
HATCH = "#b5b5b5"  # the lines of the hatching behind what is hidden

LEVELS = 65  # colours of a ramp: an odd number, so that 0 has the middle one of two hues
HATCHED = LEVELS  # the level of what is hidden
STRANGE = LEVELS + 1  # the level of what is no number of the scale


def rgb(colour: str) -> RGB:
    """'#ff8000' -> (255, 128, 0)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=4)
def ramp_colours(anchors: tuple[str, ...]) -> tuple[RGB, ...]:
    """`LEVELS` colours from the first anchor to the last; whole numbers throughout, so exact."""
    stops = [rgb(anchor) for anchor in anchors]
    last_stop = len(stops) - 1
    last_level = LEVELS - 1

    colours = []
    for level in range(LEVELS):
        stop, part = divmod(level * last_stop, last_level)
        low = stops[stop]
        high = stops[min(stop + 1, last_stop)]
        red, green, blue = (
            (2 * (a * (last_level - part) + b * part) + last_level) // (2 * last_level)
            for a, b in zip(low, high, strict=True)
        )
        colours.append((red, green, blue))
    return tuple(colours)


def hexadecimal(colour: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: RGB) -> str:
    """Black or white, whichever contrasts more with this colour: 4.5 : 1 at least (WCAG 2.2, 1.4.3)."""
    linear = [
        (channel / 255 / 12.92) if channel <= 10 else ((channel / 255 + 0.055) / 1.055) ** 2.4
        for channel in colour
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else PAPER


# Of more than these, cells are merged into blocks.
MOST_SIDE = 1024  # rows or columns of a panel
MOST_CELLS = 1 << 22  # cells of a plot
THUMBNAIL_SIDE = 72  # rows or columns of a thumbnail

LEAST_PART = 1e-6
"""The least part of the largest number that a logarithmic scale goes down to."""


@dataclass(frozen=True)
class Plot:
    """Matrices that share their labels, their axes and one scale.

    Labels are ready to be shown. `across` is how many stand in a row (None: as many as fit);
    `beside` labels the rows of a grid of thumbnails, which have no labels of their own.
    """

    title: str
    about: tuple[str, ...]
    panels: Sequence[Panel]
    rows: Sequence[str]
    columns: Sequence[str]
    notes: tuple[str, ...] = ()
    across: int | None = None
    beside: tuple[str, ...] = ()
    log: bool = False
    precision: int = 2
    signed: bool = False  # two hues, even where nothing is below 0
    hidden: str = "hidden (−∞)"  # what −∞ means here

    def merge_cells(self, rows: int = 0, columns: int = 0) -> Plot:
        """The plot, cells merged into blocks where there are more than so many (0: a picture holds)."""
        cells_of_panel = MOST_CELLS // max(1, len(self.panels))
        side = min(MOST_SIDE, max(1, isqrt(cells_of_panel)))
        if self.beside:
            side = THUMBNAIL_SIDE

        tall = max(1, -(-len(self.rows) // (rows or side)))
        wide = max(1, -(-len(self.columns) // (columns or side)))
        if tall == wide == 1:
            return self

        note = f"Each cell is the mean of what is not hidden of {tall} × {wide} numbers."
        return replace(
            self,
            panels=[Panel(panel.caption, blocks(panel.values, tall, wide)) for panel in self.panels],
            rows=self.rows[::tall],
            columns=self.columns[::wide],
            notes=(*self.notes, note),
        )

    def scale(self) -> ColourScale:
        """The scale that fits all panels: from 0, or as far below 0 as above it (also if `signed`).

        Raises AttnError where a logarithm is asked of negative numbers.
        """
        low = inf
        high = -inf
        least = inf  # of the numbers above 0
        hidden = zero = strange = False
        for panel in self.panels:
            values = np.asarray(panel.values, dtype=np.float64)
            finite = values[np.isfinite(values)]
            hidden |= bool(np.isneginf(values).any())
            strange |= bool((np.isnan(values) | np.isposinf(values)).any())
            if not finite.size:
                continue
            zero |= bool((finite == 0).any())
            low = min(low, float(finite.min()))
            high = max(high, float(finite.max()))
            least = min(least, float(finite[finite > 0].min(initial=inf)))

        if low < 0 or (self.signed and high > 0):
            if self.log:
                raise AttnError(
                    f"--log: {self.title} has numbers below 0, which have no logarithm; "
                    "leave it out, or name a step without them, like attention_weights"
                )
            bound = max(-low, high)
            return ColourScale(-bound, bound, hidden=hidden, strange=strange)

        high = max(high, 0.0)
        if self.log and high > 0:
            floor = max(least, high * LEAST_PART)
            return ColourScale(
                floor, high, log=True, hidden=hidden, zero=zero, strange=strange, clipped=least < floor
            )
        return ColourScale(0.0, high, hidden=hidden, strange=strange)


def blocks(values: Array, tall: int, wide: int) -> Array:
    """The mean of each block of so many rows and columns.

    Of what is −∞ nothing counts, and a block of nothing else is −∞; NaN and ∞ make the block NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        strange = sum_blocks(~(finite | np.isneginf(values)), tall, wide) > 0

    counts = sum_blocks(finite, tall, wide)
    sums = sum_blocks(np.where(finite, values, 0.0), tall, wide)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    return np.where(strange, np.nan, means)


def sum_blocks(values: Array, tall: int, wide: int) -> Array:
    rows, columns = values.shape
    by_row = np.add.reduceat(values.astype(np.float64), np.arange(0, rows, tall), axis=0)
    return np.add.reduceat(by_row, np.arange(0, columns, wide), axis=1)
