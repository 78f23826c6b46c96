"""How far apart two numbers may be: the one rule that every verdict goes by.

What decent programs scatter around a right number is found by running them (`evidence/rounding.py`). Then

- a number may be off by `FACTOR` times that scatter, and by some units of its own size: `allowed_error`;
- all of them together, as a root mean square, by `typical` times: that is what finds noise that no single
  number shows;
- or by what someone says: atol + rtol · |right| (`Tolerance`), or the decimals that were written down, by
  hand or by a program (`Strictness`).

How many units of its own a number may be off depends on what is judged, and is said there. The arithmetic
of one cell needs no scatter: `math/arithmetic.py` bounds each of its operations.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.math import Array

FACTOR = 6.0
"""How many times its scatter a number may be off."""

TYPICAL = 0.8
"""How many times the scatter all numbers of a large step may be off, as a root mean square."""

LIKELY = 5.0
"""How unlikely a root mean square beyond what is allowed is, in standard deviations."""

SAME = 1e-12
"""Numbers that vary by less than this part of the largest are all the same."""

TOLERANCES = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""rtol and atol for each type of number, coarsest first: those of `torch.testing.assert_close`."""


def allowed_error(
    value: Array,
    scatter: Array,
    units: float,
    *,
    of_row: float = 0.0,
    least: float = 0.0,
    factor: float = FACTOR,
) -> Array:
    """The error that rounding may give: `factor` times the scatter, and `units` of a number's own size.

    A number counts as no smaller than the part `of_row` of the largest of its row, nor than `least`.
    """
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    if of_row:
        size = np.maximum(size, of_row * size.max(axis=-1, keepdims=True))
    return np.asarray(factor * scatter + units * np.maximum(size, least))


def times_scatter(gap: Array, scatter: Array, slack: Array | float = 0.0) -> Array:
    """How many times their scatter numbers are off, beyond what is no error at all."""
    return np.asarray(np.maximum(gap - slack, 0.0) / scatter)


def typical(rows: int) -> float:
    """The multiple of their scatter that numbers of so many rows may be off, as a root mean square.

    Numbers of a row are off together, so each row counts as one. The quantile of χ², by the
    approximation of Wilson and Hilferty (1931).
    """
    part = 2 / (9 * max(rows, 1))
    return TYPICAL * sqrt((1 - part + LIKELY * sqrt(part)) ** 3)


def root_mean_square(x: Array) -> float:
    return float(np.sqrt(np.square(x).mean())) if x.size else 0.0


def spread(numbers: Array) -> float:
    """The standard deviation of the numbers of a step; where they are all the same, their size."""
    largest = float(np.abs(numbers).max(initial=0.0))
    varied = float(numbers.std()) if numbers.size else 0.0
    return varied if varied > SAME * largest else largest or np.inf


@dataclass(frozen=True)
class Tolerance:
    """Numbers differ when |a − b| > atol + rtol·|b|; None follows from the coarser type of the two."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False

    def of(self, *arrays: Array) -> tuple[float, float]:
        """The rtol and atol for arrays of these types; whole numbers and booleans are held to equality."""
        types = {array.dtype.name for array in arrays}
        rtol, atol = next((both for name, both in TOLERANCES.items() if name in types), (0.0, 0.0))
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol


BLUR = 0.05
"""The part of a step's spread that rounding may put its numbers off, as a root mean square; beyond it
nobody can tell a right program from a wrong one."""

BLUR_OF_DECIMALS = 0.3
"""The same where someone says to how many decimals the numbers were rounded."""


@dataclass(frozen=True)
class Strictness:
    """The tolerance of a check: that of rounding, or one that someone asks for.

    `decimals` says that the recorded numbers were rounded (or cut) to so many decimals. Those of an
    exercise are filled in `by_hand`: what is given is exact, and the last decimal may be off by one.
    Of its computed steps those that were `handed_out` are given too: what follows is worked out from them.
    """

    rtol: float | None = None
    atol: float | None = None
    decimals: int | None = None
    by_hand: bool = False
    handed_out: frozenset[str] = frozenset()

    @property
    def told(self) -> bool:
        return self.rtol is not None or self.atol is not None

    @property
    def blur(self) -> float:
        """The part of a step's spread beyond which an allowed error leaves the numbers without meaning."""
        return BLUR if self.decimals is None else BLUR_OF_DECIMALS

    @property
    def last_place(self) -> float:
        return 0.0 if self.decimals is None else 10.0**-self.decimals

    def rounded(self, given: Array) -> bool:
        """True for numbers that were handed in rounded: they have that many decimals, no more."""
        if self.by_hand or self.decimals is None or on_grid(given, FLOAT32.bits):  # 1, 0.5: toy numbers
            return False
        return bool((np.round(given, self.decimals) == given).all())

    def __str__(self) -> str:
        if self.told:
            return "the tolerance"
        if self.by_hand:
            return f"rounding to {self.decimals} decimals (the last may be off by one)"
        return "rounding" if self.decimals is None else f"rounding to {self.decimals} decimals"

    def allowed(self, expected: Array, rounding: Array) -> Array:
        if not self.told:
            return rounding
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return np.asarray(size * (self.rtol or 0.0) + (self.atol or 0.0))
