"""What wrong numbers have in common with those that they should be: rows in other places, one factor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attnctl.base.words import plural
from attnctl.math import Array

SAME = 1e-6
"""How far off a number may be of what it is said to be, in parts of the largest."""

MOST_COMPARED = 1 << 22
"""Numbers that are compared when rows are sought in each other's places."""

MOST_LISTED = 3


class MovedRow(NamedTuple):
    """A row of numbers that are right in another place."""

    here: tuple[int, ...]
    there: tuple[int, ...]


def say_pattern(found: Array, right: Array, axes: Sequence[str]) -> str:
    """A sentence on all of the wrong numbers of a step; "" where they have nothing in common."""
    if found.shape != right.shape:
        return ""
    if not (np.isfinite(found).all() and np.isfinite(right).all()):
        return ""
    return say_factor(found, right) or say_moved(found, right, axes)


def say_factor(found: Array, right: Array) -> str:
    """Every number is so many times what it should be."""
    size = float(np.square(right).sum())
    if not size or found.size < 4:
        return ""

    factor = float((found * right).sum()) / size
    allowed = SAME * float(np.abs(found).max())
    is_factor = np.abs(found - factor * right).max() <= allowed
    if is_factor and abs(factor - 1) > SAME:
        return f"Every number is {factor:.4g} times what it should be."
    return ""


def say_moved(found: Array, right: Array, axes: Sequence[str]) -> str:
    """Which rows hold numbers that are right elsewhere, where that is true of all that are wrong."""
    if found.ndim < 2 or found.shape[-1] < 2 or found.size * len(found) > MOST_COMPARED:
        return ""
    moved = [*moved_rows(found, right)]
    if not moved or any(not row.there for row in moved):
        return ""

    near = [row for row in moved if row.here[:-1] == row.there[:-1]]
    if not near:
        first = moved[:MOST_LISTED]
        listed = [f"{place(axes[:-1], row.here)} holds {place(axes[:-1], row.there)}" for row in first]
        return f"The right rows stand in other places: {'; '.join(listed)}{rest_of(moved, listed)}."

    lead = place(axes[:-2], near[0].here[:-1])
    listed = []
    for row in near[:MOST_LISTED]:
        if row.here[:-1] == near[0].here[:-1]:
            listed.append(f"{axes[-2]} {row.here[-1]} holds {axes[-2]} {row.there[-1]}")
    where = f"in {lead} " if lead else ""
    return f"The right rows stand in other places: {where}{', '.join(listed)}{rest_of(moved, listed)}."


def rest_of(moved: Sequence[MovedRow], listed: Sequence[str]) -> str:
    rest = len(moved) - len(listed)
    return f"; {plural(rest, 'other row')} likewise" if rest else ""


def moved_rows(found: Array, right: Array) -> Iterator[MovedRow]:
    """The rows that are wrong, each with the place of its numbers; "nowhere" is an empty place."""
    columns = found.shape[-1]
    right_rows = right.reshape(-1, columns)
    allowed = SAME * max(float(np.abs(right).max()), 1e-300)
    for place_here in np.ndindex(found.shape[:-1]):
        row = found[place_here]
        if np.abs(row - right[place_here]).max() <= allowed:
            continue
        gaps = np.abs(right_rows - row).max(axis=1)
        nearest = int(gaps.argmin())
        there: tuple[int, ...] = ()
        if gaps[nearest] <= allowed:
            index = np.unravel_index(nearest, found.shape[:-1])
            there = tuple(map(int, index))
        yield MovedRow(place_here, there)


def place(axes: Sequence[str], cell: Sequence[int]) -> str:
    """head 0 query 4."""
    return " ".join(f"{axis} {at}" for axis, at in zip(axes, cell, strict=True))
