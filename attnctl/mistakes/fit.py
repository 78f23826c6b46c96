"""Fitting a mistake's number to the recorded ones: a factor, a base, an end of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, isfinite, nan, sqrt
from typing import TypeVar

import numpy as np

from attnctl.evidence.precision import FLOAT64
from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.mistakes.mistake import Plant, WrongStep

T = TypeVar("T")

STEPS = 12
"""Steps of Gauss and Newton's method; from a start that is near, five are enough."""

HOPEFUL = 2
"""Starts that are followed: the best of those given."""

AS_WELL = 1.02
"""A shorter number fits as well when it leaves at most so many times what the best one leaves."""

MOST_UNDER_ROOT = 100_000
"""Above this every number is near the root of a whole one."""

MOST_DIGITS = 15
"""Digits that a number in a sentence may have."""


def fit_value(
    case: WrongStep, make: Callable[[float], Derivation], starts: Sequence[float]
) -> float | None:
    """The value with which a program best reproduces the step that disagrees; None where none does.

    A few starts, the best of them refined by Gauss and Newton's method on all finite numbers.
    """
    far = case.misfit(case.expected.value)
    tried = sorted((case.misfit(case.value(make(start))), start) for start in starts)
    for misfit, start in tried[:HOPEFUL]:
        value = refine_value(case, make, start) if isfinite(misfit) else 0.0
        if value and case.misfit(case.value(make(value))) < far:
            return value
    return None


def refine_value(case: WrongStep, make: Callable[[float], Derivation], start: float) -> float:
    """The value near this one at which the squares of what is left are least; 0 where none is near."""
    value, last = start, inf
    for _ in range(STEPS):
        step = newton(case, make, value)
        if not isfinite(step) or abs(step) > 2 * last:
            return 0.0
        value, last = value + float(np.clip(step, -abs(value) / 2, abs(value))), max(abs(step), abs(value))
        if abs(step) <= 1e-12 * abs(value):
            break
    return value


def newton(case: WrongStep, make: Callable[[float], Derivation], value: float) -> float:
    """The step of Gauss and Newton: ⟨slope, what is left⟩ / ⟨slope, slope⟩."""
    width = 1e-6 * abs(value)
    here, beside = case.value(make(value)), case.value(make(value + width))
    if here is None or beside is None:
        return nan
    slope = (beside - here) / width
    told = np.isfinite(case.found) & np.isfinite(slope) & np.isfinite(here)
    slope, left = slope[told], (case.found - here)[told]
    return float((slope * left).sum() / (slope * slope).sum()) if slope.any() else nan


def closest(case: WrongStep, make: Callable[[T], Derivation | None], candidates: Iterable[T]) -> T | None:
    """The candidate with which a program best reproduces the step that disagrees."""
    least, found = case.misfit(case.expected.value), None
    for each in candidates:
        derivation = make(each)
        misfit = case.misfit(None if derivation is None else case.value(derivation))
        if misfit < least:
            least, found = misfit, each
    return found


def planted_best(
    case: WrongStep,
    make: Callable[[T], Derivation | None],
    candidates: Iterable[T],
    say: Callable[[T], str] = str,
) -> Iterator[Plant]:
    """The plant of the candidate that fits best, if one fits better than the right program."""
    best = closest(case, make, candidates)
    if best is not None:
        derivation = make(best)
        assert derivation is not None  # it fits
        yield Plant(derivation, say(best))


def planted_fit(
    case: WrongStep,
    make: Callable[[float], Derivation],
    starts: Sequence[float],
    say: Callable[[float], str],
) -> Iterator[Plant]:
    """The plant of the value that fits best, or of a number that people write if that fits as well."""
    value = fit_value(case, make, starts)
    if value:
        value = nice(case, make, value)
        yield Plant(make(value), say(value))


def nice(case: WrongStep, make: Callable[[float], Derivation], value: float) -> float:
    """The shortest number near this one that fits as well: few digits, or the root of a whole number."""
    most = AS_WELL * case.misfit(case.value(make(value))) + 64 * FLOAT64.unit * size_of(case.found)
    for short in people_write(value):
        if abs(short - value) <= abs(value) / 4 and case.misfit(case.value(make(short))) <= most:
            return short
    return value


def people_write(value: float) -> Iterator[float]:
    """Numbers near this one: one or two digits, roots of whole numbers and one over them, three digits."""
    sign = 1.0 if value > 0 else -1.0
    for digits in (1, 2):
        yield float(f"{value:.{digits}g}")
    for power in (2, -2):
        whole = round(abs(value) ** power) if 1e-9 < abs(value) < 1e9 else 0
        if 0 < whole < MOST_UNDER_ROOT:
            yield float(sign * whole ** (1 / power))
    yield float(f"{value:.3g}")


def size_of(array: Array) -> float:
    told = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(np.square(told)))) if told.size else 0.0


def spoken(value: float, right: float = 1.0) -> str:
    """Four digits or so, and the root that the number is: "4.123 (√17)"."""
    text = in_digits(abs(value), right)
    sign = "−" if value < 0 else ""
    whole = round(value * value)
    root = value * value > 1.5 and abs(value * value - whole) < 1e-9 * whole
    if root and round(sqrt(whole)) ** 2 != whole:
        return f"{sign}{text} ({sign}√{whole})"
    return sign + text


def in_digits(value: float, right: float = 1.0, fewest: int = 4) -> str:
    """As few digits as tell a number from the `right` one: 1.000001, not 1."""
    texts = ((f"{value:.{digits}g}", f"{right:.{digits}g}") for digits in range(fewest, MOST_DIGITS + 1))
    return next((text for text, other in texts if text != other), f"{value:.{fewest}g}")


def ends(size: int) -> list[int]:
    """Distances to try on an axis of this size: all near ones, then powers of two and those beside them."""
    far = {2**power + by for power in range(6, size.bit_length() + 1) for by in (-1, 0, 1)}
    return [at for at in range(size) if at <= NEAR_ENDS or at in far or size - at <= NEAR_ENDS // 2]


NEAR_ENDS = 64


def blocks(size: int) -> list[int]:
    """Sizes of blocks that an axis of this size may be cut into."""
    usual = {2**power for power in range(1, 12)} | {3, 5, 6, 10, 12, 20, 24, 40, 48, 80, 96, 100, 160, 192}
    return sorted(block for block in usual if block < size)
