"""What a person types as an answer: numbers with the digits they are written to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnctl.array import Array
from attnctl.config import yaml
from attnctl.errors import AttnError
from attnctl.words import quoted

NUMBER = re.compile(r"([-+−]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,2}))?\s*(%?)")
MINUS_INFINITY = {"-inf", "-.inf", "-infinity", "−∞", "-∞"}

ENOUGH, CUT = 0.1, 0.01
"""The last place that is typed must be at most so much of the number: two digits that count; three, where
they are cut rather than rounded."""

NEARLY, NOTHING = 1e-9, 1e-12
"""What is this near, relatively or at all, is the same."""


@dataclass(frozen=True)
class Typed:
    """Numbers as they were typed, and what a unit of the last place that was typed is."""

    numbers: Array
    unit: float

    def could_be(self, right: Array) -> bool:
        """Whether these are the right numbers, rounded or cut at the last place that was typed."""
        if right.shape != self.numbers.shape or not right.size:
            return False
        if (np.isneginf(right) != np.isneginf(self.numbers)).any():
            return False
        finite = np.isfinite(right)
        off = np.abs(np.where(finite, self.numbers - np.where(finite, right, 0), 0))
        slack = np.maximum(NOTHING, NEARLY * np.abs(np.where(finite, right, 0)))
        if (off <= slack).all():
            return True
        cut = (np.abs(self.numbers) <= np.abs(right) + slack) & (self.unit <= CUT * self.size(right))
        allowed = np.where(cut, self.unit, self.unit / 2)
        return bool((off <= allowed * (1 + 1e-9) + slack).all()) and self.enough(right)

    def enough(self, right: Array) -> bool:
        """Whether so few digits tell these numbers from others."""
        return self.unit <= ENOUGH * self.size(right)

    def size(self, right: Array) -> float:
        """How large the numbers are, as a root mean square."""
        finite = right[np.isfinite(right)]
        return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0

    def too_short(self, right: Array) -> bool:
        """Whether the numbers would be right if so few digits told anything."""
        return not self.could_be(right) and Typed(self.numbers, self.unit).roughly(right)

    def roughly(self, right: Array) -> bool:
        """Whether the numbers are these at the digits that were typed, however few, and not 0 for all."""
        if right.shape != self.numbers.shape or not np.isfinite(right).all() or not self.numbers.any():
            return False
        return bool((np.abs(self.numbers - right) <= self.unit / 2).all()) and not self.enough(right)


def read_number(text: str) -> Typed:
    """0.62, 62 %, 1e-3, -inf. Raises AttnError for what is no number."""
    word = text.strip()
    if word.lower() in MINUS_INFINITY:
        return Typed(np.array(-np.inf), 1.0)
    found = NUMBER.fullmatch(word)
    if not found or not (found[2] or found[3]):
        comma = "; write a point for the comma" if re.fullmatch(r"[-+]?[0-9]+,[0-9]+", word) else ""
        raise AttnError(f"{quoted(word) if word else 'nothing'} is not a number{comma or '; like 0.62'}")
    sign, whole, part, power, percent = found.groups()
    shift = int(power or 0) - (2 if percent else 0)
    value = float(f"{'-' if sign in {'-', '−'} else ''}{whole or '0'}.{part or '0'}e{shift}")
    return Typed(np.array(value), 10.0 ** (shift - len(part or "")))


def read_matrix(value: Any) -> Typed:
    """Nested lists of numbers as YAML has them, from a text or read already. Raises AttnError."""
    data = value
    if isinstance(value, str):
        data, _ = yaml.read(value, "the answer")
    cells: list[Typed] = []

    def nested(each: Any, depth: int) -> Any:
        if isinstance(each, Sequence) and not isinstance(each, str):
            if depth > 4:
                raise AttnError("too many brackets; write rows, like [[0.1, 0.9], [0.5, 0.5]]")
            return [nested(one, depth + 1) for one in each]
        cells.append(read_number(str(each)))
        return float(cells[-1].numbers)

    rows = nested(data, 0)
    if not isinstance(rows, list) or not cells:
        raise AttnError("no matrix; write its rows, like [[0.1, 0.9], [0.5, 0.5]]")
    try:
        array = np.array(rows, dtype=np.float64)
    except ValueError:
        raise AttnError("rows of different lengths; write them all as long as the first") from None
    return Typed(array, min(cell.unit for cell in cells))


def fitted(typed: Typed, shape: tuple[int, ...]) -> Typed:
    """The same in a shape that only has axes of size 1 more or fewer."""
    own = [size for size in typed.numbers.shape if size != 1]
    if own == [size for size in shape if size != 1]:
        return Typed(typed.numbers.reshape(shape), typed.unit)
    return typed
