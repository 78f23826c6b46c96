"""From numbers to colours: which level of which ramp a number has, and what its ends are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, log

import numpy as np

from attnctl.array import Array
from attnctl.errors import AttnError
from attnctl.pictures.colours import BLUE, LEVELS, RGB, TWO_HUES, ramp

HATCHED, STRANGE = LEVELS, LEVELS + 1
"""The levels of what is hidden, and of what is no number of the scale."""

DEPTH = 1e-6
"""The least part of the largest number that a logarithmic scale goes down to."""


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` as colours, by logarithm if asked; what else there is beside them."""

    low: float
    high: float
    log: bool = False
    hidden: bool = False
    """Some number is −∞."""
    zero: bool = False
    """Some number is 0, which has no logarithm."""
    strange: bool = False
    """Some number is NaN or ∞."""
    clipped: bool = False
    """Some number is below the low end of a logarithmic scale."""

    @property
    def signed(self) -> bool:
        return self.low < 0

    @property
    def anchors(self) -> tuple[str, ...]:
        return TWO_HUES if self.signed else BLUE

    @property
    def colours(self) -> tuple[RGB, ...]:
        return ramp(self.anchors)

    def shares(self, values: Array) -> Array:
        """How far along the scale each number is: from 0 to 1, or from −1 where there are two hues.

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
        """The level of each number, as bytes."""
        shares = self.shares(values)
        known = np.where(np.isfinite(shares), shares, 0.0)
        if self.signed:
            known = known / 2 + 0.5
        levels = np.floor(np.clip(known, 0, 1) * (LEVELS - 1) + 0.5).astype(np.uint8)
        levels[np.isnan(shares)] = STRANGE
        levels[np.isneginf(shares)] = HATCHED
        return levels


def scale_of(
    matrices: Iterable[Array], *, log: bool = False, signed: bool = False, name: str = "this"
) -> Scale:
    """The scale that fits all of these: from 0, or as far below 0 as above it (also if `signed`).

    Raises AttnError where a logarithm is asked of negative numbers.
    """
    low, high, least = inf, -inf, inf
    hidden = zero = strange = False
    for each in matrices:
        values = np.asarray(each, dtype=np.float64)
        finite = values[np.isfinite(values)]
        hidden |= bool(np.isneginf(values).any())
        strange |= bool((np.isnan(values) | np.isposinf(values)).any())
        if not finite.size:
            continue
        zero |= bool((finite == 0).any())
        low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        least = min(least, float(finite[finite > 0].min(initial=inf)))
    if low < 0 or (signed and high > 0):
        if log:
            raise AttnError(
                f"--log: {name} has numbers below 0, which have no logarithm; "
                "leave it out, or name a step without them, like attention_weights"
            )
        bound = max(-low, high)
        return Scale(-bound, bound, hidden=hidden, strange=strange)
    high = max(high, 0.0)
    if log and high > 0:
        floor = max(least, high * DEPTH)
        return Scale(floor, high, True, hidden, zero, strange, clipped=least < floor)
    return Scale(0.0, high, hidden=hidden, strange=strange)
