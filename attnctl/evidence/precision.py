"""The type of number that someone's arrays were computed in, as far as the numbers themselves show."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array


@dataclass(frozen=True)
class Precision:
    name: str
    bits: int
    """Of the significand, the leading one among them."""
    largest: float
    smallest: float
    """The smallest normal number: below it, digits are lost."""

    @property
    def unit(self) -> float:
        return 2.0**-self.bits

    @property
    def vanishing(self) -> float:
        """exp of anything below this is 0."""
        return log(self.smallest) - self.bits * log(2.0)


FLOAT8_E4M3 = Precision("float8_e4m3", 4, 448.0, 2.0**-6)
FLOAT8_E5M2 = Precision("float8_e5m2", 3, 57344.0, 2.0**-14)
BFLOAT16 = Precision("bfloat16", 8, 3.3895e38, 2.0**-126)
FLOAT16 = Precision("float16", 11, 65504.0, 2.0**-14)
FLOAT32 = Precision("float32", 24, 3.4028e38, 2.0**-126)
FLOAT64 = Precision("float64", 53, float(np.finfo(np.float64).max), 2.0**-1022)

DTYPES = {precision.name: precision for precision in (FLOAT16, FLOAT32, FLOAT64)}
NOT_OF_NUMPY = {precision.name: precision for precision in (BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)}
COARSE_FIRST = (BFLOAT16, FLOAT16, FLOAT32)


def declared_precision(dtype: Any) -> Precision:
    """The precision that an array's dtype declares; whole numbers are exact."""
    return DTYPES.get(np.dtype(dtype).name, FLOAT64)


def to_float64(array: Array) -> Array:
    """The array in float64; booleans as they are."""
    return array if array.dtype == bool else array.astype(np.float64, copy=False)


def coarser(a: Precision, b: Precision) -> Precision:
    return a if a.bits <= b.bits else b


def round_to(array: Array, precision: Precision) -> Array:
    if array.dtype == np.float64 and precision.bits < FLOAT64.bits and is_normal(array, precision):
        return round_bits(array, precision.bits)
    significand, exponent = np.frexp(array)
    least = int(np.log2(precision.smallest)) + 1  # below it, digits are lost one by one
    lost = np.maximum(least - exponent, 0)
    grid = 2.0 ** (precision.bits - lost)
    near = np.ldexp(np.rint(significand * grid) / grid, exponent)
    return np.where(np.abs(near) > precision.largest, np.copysign(np.inf, near), near)


def round_in(dtype: str, array: Array) -> Array:
    """The numbers rounded to this type; those of types that NumPy has not, as float32."""
    if dtype in NOT_OF_NUMPY:
        return round_to(np.asarray(array, np.float64), NOT_OF_NUMPY[dtype]).astype(np.float32)
    return np.asarray(array, dtype)


def is_normal(array: Array, precision: Precision) -> bool:
    """True for numbers that a type holds with all its digits, and for 0."""
    size = np.abs(array)
    small = size < 2 * precision.smallest
    return not array[small].any() and bool(size.max(initial=0.0) < precision.largest / 2)


def round_bits(array: Array, bits: int) -> Array:
    """Numbers in float64, rounded to a significand of so many bits, ties to even."""
    lost = np.int64(FLOAT64.bits - bits)
    whole = np.ascontiguousarray(array).view(np.int64)
    return cut_bits(whole + (((whole >> lost) & 1) + ((np.int64(1) << (lost - 1)) - 1)), bits)


def cut_bits(array: Array, bits: int, add: float = 0.0) -> Array:
    """Numbers in float64 cut to a significand of so many bits, after a part of the last was added."""
    lost = np.int64(FLOAT64.bits - bits)
    whole = np.ascontiguousarray(array).view(np.int64) + np.int64(add * 2.0**lost)
    cut: Array = ((whole >> lost) << lost).view(np.float64)
    return cut


AT_ONCE = 2**18
"""Numbers that are looked at together."""


def on_grid(array: Array, bits: int) -> bool:
    """True if every finite number has a significand of so many bits."""
    if array.dtype.kind == "f" and declared_precision(array.dtype).bits <= bits:
        return True
    flat = array.reshape(-1)
    starts = [0, *range(64, flat.size, AT_ONCE)]  # most arrays say no at once
    for start, stop in zip(starts, [*starts[1:], flat.size], strict=True):
        numbers = flat[start:stop]
        significand = np.frexp(numbers[np.isfinite(numbers)])[0].astype(np.float64) * 2.0**bits
        if not (significand == np.rint(significand)).all():
            return False
    return True


def evident(array: Array, precision: Precision) -> bool:
    """True if the fractions in the array need (nearly) all digits of this type, which is no coincidence.

    Toy numbers such as 0, 1 and 0.5 fit into any type and tell nothing.
    """
    fractions = array[np.isfinite(array)]
    fractions = fractions[fractions != np.rint(fractions)]
    return bool(fractions.size) and not on_grid(fractions, precision.bits - 2)


def own(array: Array) -> Precision:
    """The precision of one array: its dtype's, or float32 where float64 numbers are all of that type."""
    said = declared_precision(array.dtype)
    return FLOAT32 if said is FLOAT64 and array.dtype.kind == "f" and on_grid(array, 24) else said


def of_run(leaves: Iterable[Array], steps: Iterable[Array]) -> Precision:
    """The precision a whole run was carried out in, judged by the numbers it starts from.

    A run in bfloat16 or float16 that was saved as float32 starts from numbers of that type, and a
    coincidence is ruled out: `evident`. Then every step may have that rounding.
    """
    given = [leaf for leaf in leaves if leaf.dtype.kind == "f"]
    derived = [step for step in steps if step.dtype.kind == "f"]
    for precision in COARSE_FIRST:
        if not all(on_grid(array, precision.bits) for array in given):
            continue
        if any(evident(array, precision) for array in given):
            return precision
        if all(on_grid(x, precision.bits) for x in derived) and any(evident(x, precision) for x in derived):
            return precision
    return FLOAT64


LOOKED_AT = 2**17
"""Numbers that tell how many different ones there are."""


def different(result: Array, precision: Precision) -> float:
    """How many different numbers there are, each by its share of the whole: equal ones round alike."""
    if precision.bits >= FLOAT32.bits:
        return np.inf  # no two are equal
    numbers = np.abs(result.reshape(-1)[:: max(1, result.size // LOOKED_AT)])
    _, which = np.unique(numbers[np.isfinite(numbers)], return_inverse=True)
    share = np.bincount(which, numbers[np.isfinite(numbers)])
    return float(np.square(share.sum()) / np.square(share).sum()) if share.any() else 1.0
