"""Answers as a person types them: numbers with the digits they are written to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.inputs.config import yaml
from attnctl.math import Array

NUMBER = re.compile(r"([-+−]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,2}))?\s*(%?)")
BETWEEN = re.compile(r"(?<=[\w.%\]∞])\s+(?=[-+−.\w\[∞])")
"""The space between two numbers, or two rows, where no comma stands."""

ENOUGH, EXACT = 0.1, 0.01
"""The last place that is typed must be at most so much of the number: two digits that count; from three on
the last may be off by one."""


@dataclass(frozen=True)
class Typed:
    """Numbers as they were typed, and what a unit of the last place of each is."""

    numbers: Array
    unit: Array

    def could_be(self, right: Array) -> bool:
        """True where these are the right numbers, each rounded at the last place that was typed.

        A number with fewer places than others may lack zeros at its end: 0.5 beside 0.25 and 0.25.
        """
        if right.shape != self.numbers.shape or not right.size:
            return False
        if (np.isneginf(right) != np.isneginf(self.numbers)).any():
            return False
        slack = np.maximum(1e-12, 1e-9 * np.abs(np.where(np.isfinite(right), right, 0)))
        near = [
            np.where(unit <= ENOUGH * self.size(right), self.tolerance(right, unit), 0.0)
            for unit in (self.unit, np.asarray(self.unit.min()))
        ]
        return bool((self.off(right) <= slack + np.maximum(*near)).all())

    def off(self, right: Array) -> Array:
        """Return each number's error, 0 where not both are finite."""
        finite = np.isfinite(right)
        return np.abs(np.where(finite, self.numbers - np.where(finite, right, 0), 0))

    def tolerance(self, right: Array, unit: Array | None = None) -> Array:
        """Rounding; from three digits on one unit of the last. A whole number without decimals is exact."""
        unit = self.unit if unit is None else unit
        by_one = np.where(unit <= EXACT * self.size(right), 1.5, 0.5)
        return np.where((right == np.round(right)) & (unit >= 1), 0.0, by_one * unit)

    def size(self, right: Array) -> float:
        """Return the root mean square of the finite numbers."""
        finite = right[np.isfinite(right)]
        return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0

    def too_short(self, right: Array) -> bool:
        """True where so few digits are typed that they tell nothing, though they are right."""
        if right.shape != self.numbers.shape or not np.isfinite(right).all() or not self.numbers.any():
            return False
        return not self.could_be(right) and bool((self.off(right) <= self.unit / 2).all())


def read_number(text: str) -> Typed:
    """0.62, 62 %, 1e-3, -inf. Raises AttnError for what is no number."""
    word = text.strip()
    if word.lower() in {"-inf", "-.inf", "-infinity", "−∞", "-∞"}:
        return Typed(np.array(-np.inf), np.array(1.0))
    found = NUMBER.fullmatch(word)
    if not found or not (found[2] or found[3]):
        comma = "; write a point for the comma" if re.fullmatch(r"[-+]?[0-9]+,[0-9]+", word) else ""
        raise AttnError(f"{quote(word) if word else 'nothing'} is not a number{comma or '; like 0.62'}")
    sign, whole, part, power, percent = found.groups()
    shift = int(power or 0) - (2 if percent else 0)
    value = float(f"{'-' if sign in {'-', '−'} else ''}{whole or '0'}.{part or '0'}e{shift}")
    return Typed(np.array(value), np.array(10.0 ** (shift - len(part or ""))))


def read_matrix(value: Any) -> Typed:
    """Nested lists of numbers as YAML has them, or 0.1 0.9; 0.5 0.5 for rows. Raises AttnError."""
    data = split_rows(value) if isinstance(value, str) else value
    cells: list[Typed] = []

    def to_lists(part: Any, depth: int) -> Any:
        if isinstance(part, Mapping):
            raise AttnError("a mapping where numbers are wanted; write rows, like [[0.1, 0.9], [0.5, 0.5]]")
        if isinstance(part, Sequence) and not isinstance(part, str):
            if depth > 4:
                raise AttnError("too many brackets; write rows, like [[0.1, 0.9], [0.5, 0.5]]")
            return [to_lists(inner, depth + 1) for inner in part]
        cells.append(read_number(str(part)))
        return float(cells[-1].numbers)

    rows = to_lists(data, 0)
    if not isinstance(rows, list) or not cells:
        raise AttnError("no matrix; write its rows, like [[0.1, 0.9], [0.5, 0.5]]")
    try:
        array = np.array(rows, dtype=np.float64)
    except ValueError:
        raise AttnError("rows of different lengths; write them all as long as the first") from None
    return Typed(array, np.array([cell.unit for cell in cells]).reshape(array.shape))


def split_rows(text: str) -> Any:
    """Rows as people type them, or as NumPy prints them: spaces between numbers do as well as commas."""
    if text.lstrip().startswith(("[", "{")):
        return yaml.read(BETWEEN.sub(", ", text), "the answer")[0]
    rows = [row.strip() for row in re.split(r"[;\n]", text.replace(" %", "%")) if row.strip()]
    words = [[word.strip(",") for word in row.split()] for row in rows]
    if len(words) == 1 == len(words[0]):  # 0.1,0.9 is two numbers; 0,9 is one, with a comma for the point
        (word,) = words[0]
        return word.split(",") if "," in word and "." in word else yaml.read(text, "the answer")[0]
    return words[0] if len(words) == 1 else words


def fit_shape(typed: Typed, shape: tuple[int, ...]) -> Typed:
    """Return the numbers in a shape that only has axes of size 1 more or fewer."""
    own = [size for size in typed.numbers.shape if size != 1]
    if own == [size for size in shape if size != 1]:
        return Typed(typed.numbers.reshape(shape), typed.unit.reshape(shape))
    return typed
