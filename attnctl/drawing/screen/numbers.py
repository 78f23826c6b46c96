"""One number format a matrix: the same decimals and the same width for every cell."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from attnctl.math import Array

TINY = 1e-3
"""Below this, four decimals say too little."""

HUGE = 1e6
"""From here on, a fixed point says too much."""


class NumberFormat(NamedTuple):
    """A % conversion for the numbers of one matrix, and the width all of them take.

    Rows are written by a template, a single % operation each: the quickest there is in Python.
    """

    conversion: str
    width: int
    infinity: str = "∞"

    def __call__(self, value: float) -> str:
        return self.tidy(f"%{self.width}{self.conversion}" % value)

    def template(self, widths: Sequence[int], before: str = " ", after: str = " ") -> str:
        return "".join([f"{before}%{width}{self.conversion}{after}" for width in widths])

    def write(self, template: str, values: list[float]) -> str:
        """A row of numbers."""
        return self.tidy(template % tuple(values))

    def tidy(self, text: str) -> str:
        """-0.0000 as 0.0000, infinities as symbols, NaN as NaN; widths stay."""
        if "-0" in text and self.conversion != "d":
            text = text.replace(f"%{self.conversion}" % -0.0, f"% {self.conversion}" % 0.0)
        if "n" not in text:
            return text
        text = text.replace("-inf", f"-{self.infinity}".rjust(4))
        return text.replace("inf", self.infinity.rjust(3)).replace("nan", "NaN")


def four_digits(value: float) -> str:
    if isnan(value):
        return "NaN"
    return f"{value + 0.0:.4g}".replace("inf", "∞")


def matrix_format(array: Array, precision: int = 4, *, ascii_only: bool = False) -> NumberFormat:
    """The format for all numbers of this matrix.

    `precision` decimals; scientific where the largest magnitude is below 1e-3 or from 1e6 on; no
    decimals where all are whole numbers.
    """
    finite = array if np.isfinite(array).all() else array[np.isfinite(array)]
    conversion = conversion_for(finite, precision)
    texts = [f"%{conversion}" % value for value in extremes(finite, conversion)]
    if finite.size < array.size:
        texts += [str(float(value)) for value in (-np.inf, np.nan, np.inf) if has(array, value)]
    width = max(map(len, texts), default=1)
    return NumberFormat(conversion, width, "inf" if ascii_only else "∞")


def conversion_for(finite: Array, precision: int) -> str:
    """The % conversion for these numbers, without a width."""
    if finite.dtype.kind in "iu":
        return "d"
    largest = float(np.abs(finite).max(initial=0.0))
    if largest < HUGE and bool((finite == np.rint(finite)).all()):
        return ".0f"
    small = min(TINY, 10.0 ** (1 - precision))
    return f".{precision}e" if largest < small or largest >= HUGE else f".{precision}f"


def extremes(finite: Array, conversion: str) -> list[float]:
    """The numbers whose text is longest: the ends of the range, the smallest exponent, a -0."""
    if not finite.size:
        return []
    ends = [finite.max().item(), finite.min().item()]
    if conversion.endswith("e") and finite.any():
        smallest = np.abs(finite[finite != 0]).min().item()
        ends += [smallest, -smallest] if ends[1] < 0 else [smallest]
    return [*ends, -0.0] if finite.dtype.kind == "f" and np.signbit(finite).any() else ends


def has(array: Array, value: float) -> bool:
    """True where the value (NaN too) is anywhere in the array."""
    return bool((np.isnan(array) if np.isnan(value) else array == value).any())
