"""Where right numbers are: in other heads, rows, columns or members than they should be, or other steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from attnctl.base.words import all_of, plural
from attnctl.math import Array
from attnctl.math.ops import Given, Unstated
from attnctl.mistakes.mistake import WrongStep

SAME = 1e-3
"""Numbers are others when what is left of them is less than this part."""

EXACT = 1e-6
"""The same of a single factor and of single rows, in parts of the largest number: less would be chance."""

MOST_COMPARED = 20_000_000
"""Numbers that looking for slices among others may compare."""

MOST_LISTED = 4

NOWHERE = -1

PLURALS = {"batch": "members", "query": "queries", "key": "keys", "head": "heads", "kv_head": "kv heads"}


class Moved(NamedTuple):
    """A slice of a step, and the slice of the right one that it holds: `NOWHERE` of one that is all 0."""

    here: int
    there: int


class MovedRow(NamedTuple):
    """A row, and the place where the right numbers that it holds should be."""

    here: tuple[int, ...]
    there: tuple[int, ...]


def find_other_places(case: WrongStep) -> str:
    """Say which slices of the right numbers the found ones are, along some axis; nothing if none are."""
    axes = case.record.trace.steps[case.first].axes
    found = case.found
    right = case.expected.value
    if not (np.isfinite(found).all() and np.isfinite(right).all()):
        return ""
    return (
        along_one_axis(found, right, axes, case.begin)
        or by_factors(found, right, axes)
        or in_another_view(case)
    )


def find_other_rows(case: WrongStep) -> str:
    """Say which rows hold the right numbers of others, where that is true of all that are wrong."""
    axes = case.record.trace.steps[case.first].axes
    return say_moved_rows(case.found, case.expected.value, axes, case.begin)


def say_pattern(found: Array, right: Array, axes: Sequence[str]) -> str:
    """What wrong numbers have in common with the right ones, explained by a known mistake or not."""
    if found.shape != right.shape or len(axes) != found.ndim:
        return ""
    if not (np.isfinite(found).all() and np.isfinite(right).all()):
        return ""
    return (
        by_one_factor(found, right)
        or along_one_axis(found, right, axes, 0)
        or by_factors(found, right, axes)
        or say_moved_rows(found, right, axes, 0)
    )


def slices_along(array: Array, at: int) -> Array:
    return np.moveaxis(array, at, 0).reshape(array.shape[at], -1)


def match_slices(found: Array, right: Array) -> list[Moved] | None:
    """For each row of one array the row of another that it is, its own if that is; None if one is none."""
    norms = np.square(right).sum(axis=1)
    moves: list[Moved] = []
    for here, row in enumerate(found):
        size = float(np.square(row).sum())
        if size == 0:
            moves.append(Moved(here, NOWHERE))
            continue

        gaps = np.square(right - row).sum(axis=1)
        is_in_place = here < len(right) and gaps[here] <= SAME**2 * size
        there = here if is_in_place else int(np.argmin(gaps))
        if gaps[there] > SAME**2 * size or norms[there] == 0:
            return None
        moves.append(Moved(here, there))
    return moves


def along_one_axis(found: Array, right: Array, axes: Sequence[str], begin: int) -> str:
    """Say which slices stand in other places along the first axis where that explains all."""
    for number, axis in enumerate(axes):
        size = found.shape[number]
        if size < 2 or size * found.size > MOST_COMPARED:
            continue
        moves = match_slices(slices_along(found, number), slices_along(right, number)) or []
        moved = [move for move in moves if move.there not in {move.here, NOWHERE}]
        if not moved:
            continue

        first = begin if axis == "query" else 0
        empty = [f"{axis} {first + move.here}" for move in moves if move.there == NOWHERE]
        zeros = f" All of {all_of(empty)} is 0." if empty else ""
        return say_moves(axis, moved, size, first) + zeros
    return ""


def say_moves(axis: str, moved: Sequence[Moved], size: int, begin: int) -> str:
    """Head 0 holds head 1 …; every row holds the one after it; all hold one."""
    sources = {move.there for move in moved}
    if len(sources) == 1 and len(moved) >= size - 1:
        every = PLURALS.get(axis, axis)
        return f"All {every} hold the right numbers of {axis} {begin + sources.pop()}."

    steps = {move.there - move.here for move in moved}
    if len(steps) == 1 and len(moved) > 2:
        (step,) = steps
        sign = "+" if step > 0 else "−"
        there = f"{axis} i {sign} {abs(step)}"
        return f"{axis.capitalize()} i holds the right numbers of {there}, {len(moved)} times."

    listed = [f"{axis} {begin + move.here} holds {begin + move.there}" for move in moved[:MOST_LISTED]]
    more = ", …" if len(moved) > MOST_LISTED else ""
    return f"The right numbers stand in other places: {', '.join(listed)}{more}."


def by_one_factor(found: Array, right: Array) -> str:
    size = float(np.square(right).sum())
    if not size or found.size < 4:
        return ""

    factor = float((found * right).sum()) / size
    is_factor = np.abs(found - factor * right).max() <= EXACT * np.abs(found).max()
    if is_factor and abs(factor - 1) > EXACT:
        return f"Every number is {factor:.4g} times what it should be."
    return ""


def by_factors(found: Array, right: Array, axes: Sequence[str]) -> str:
    """A factor for each head, row or member, or for each column."""
    for number, axis in enumerate(axes):
        count = found.shape[number]
        # Of fewer than four numbers each a factor fits by chance.
        if count < 2 or found.size < 4 * count:
            continue
        ours = slices_along(right, number)
        theirs = slices_along(found, number)
        norms = np.square(ours).sum(axis=1)
        if (norms == 0).any():
            continue

        factors = (ours * theirs).sum(axis=1) / norms
        left = np.square(theirs - factors[:, None] * ours).sum()
        is_explained = left <= SAME**2 * np.square(theirs).sum()
        are_several = np.ptp(factors) > SAME * np.abs(factors).max()
        if is_explained and are_several:
            return f"The numbers are right but for a factor by {axis}: {say_factors(factors)}."
    return ""


def say_moved_rows(found: Array, right: Array, axes: Sequence[str], begin: int) -> str:
    """Which rows hold the right numbers of others; "" unless that explains every wrong row."""
    is_row = found.ndim >= 2 and found.shape[-1] >= 2
    if not is_row or found.size * (found.size // found.shape[-1]) > MOST_COMPARED:
        return ""
    if found.shape != right.shape or not np.isfinite(right).all():
        return ""
    moved = match_rows(found, right)
    if not moved:
        return ""

    firsts = [begin if axis == "query" else 0 for axis in axes[:-1]]
    near = [row for row in moved if row.here[:-1] == row.there[:-1]]
    if not near:
        first = moved[:MOST_LISTED]
        names = [
            (spell_place(axes, row.here, firsts), spell_place(axes, row.there, firsts)) for row in first
        ]
        listed = [f"{here} holds {there}" for here, there in names]
        return f"The right rows stand in other places: {'; '.join(listed)}{say_rest(moved, listed)}."

    lead = near[0].here[:-1]
    where = f"in {spell_place(axes, lead, firsts)} " if lead else ""
    listed = []
    for row in near[:MOST_LISTED]:
        if row.here[:-1] == lead:
            here, there = (spell_place(axes[-2:], place[-1:], firsts[-1:]) for place in row)
            listed.append(f"{here} holds {there}")
    return f"The right rows stand in other places: {where}{', '.join(listed)}{say_rest(moved, listed)}."


def match_rows(found: Array, right: Array) -> list[MovedRow]:
    """The rows that are wrong, each with the place of its numbers; none if one of them is nowhere."""
    right_rows = right.reshape(-1, found.shape[-1])
    allowed = EXACT * max(float(np.abs(right).max()), 1e-300)
    moved: list[MovedRow] = []
    for here in np.ndindex(found.shape[:-1]):
        row = found[here]
        if np.abs(row - right[here]).max() <= allowed:
            continue
        gaps = np.abs(right_rows - row).max(axis=1)
        nearest = int(gaps.argmin())
        if not gaps[nearest] <= allowed:
            return []
        there = np.unravel_index(nearest, found.shape[:-1])
        moved.append(MovedRow(here, tuple(map(int, there))))
    return moved


def spell_place(axes: Sequence[str], place: Sequence[int], firsts: Sequence[int]) -> str:
    """head 0 query 4."""
    parts = zip(axes, place, firsts, strict=False)
    return " ".join(f"{axis} {first + number}" for axis, number, first in parts)


def say_rest(moved: Sequence[MovedRow], listed: Sequence[str]) -> str:
    rest = len(moved) - len(listed)
    return f"; {plural(rest, 'other row')} likewise" if rest else ""


def say_factors(factors: Array) -> str:
    if len(factors) <= 2 * MOST_LISTED:
        return ", ".join(f"{factor:.4g}" for factor in factors)
    return f"{factors.min():.4g} to {factors.max():.4g}"


def in_another_view(case: WrongStep) -> str:
    """Say so, if the numbers are those that the step reads, with axes exchanged or folded otherwise."""
    step = case.derivation[case.first]
    read = case.array_of(step.inputs[0]) if step.inputs else None
    if read is None or read.size != case.found.size or read.ndim < 2:
        return ""

    name = step.inputs[0]
    axes = ("batch", *case.derivation[name].axes)[-read.ndim :]
    for one, other, viewed in views_of(read):
        if is_same(viewed.reshape(case.found.shape), case.found):
            return f"It is {name} with {axes[one]} and {axes[other]} exchanged, laid out anew."

    if read.ndim != 4 or read.shape[0] == 1:
        return ""
    members, heads, *rest = read.shape
    refolded = read.reshape(heads, members, *rest)
    for order in permutations(range(4)):
        if is_same(refolded.transpose(order).reshape(case.found.shape), case.found):
            return f"It is {name} viewed as (head, batch, …) where its axes are (batch, head, …)."
    return ""


def is_same(made: Array, found: Array) -> bool:
    return bool(np.square(made - found).sum() <= SAME**2 * np.square(found).sum())


def views_of(read: Array) -> Iterator[tuple[int, int, Array]]:
    for one, other in combinations(range(read.ndim), 2):
        if read.shape[one] > 1 and read.shape[other] > 1:
            yield one, other, read.swapaxes(one, other)


def find_heads_of_others(case: WrongStep) -> str:
    """Say which heads of other steps stand in heads of this one: Q's head 2 is K's head 0."""
    axes = case.record.trace.steps[case.first].axes
    head_axis = next((number for number, axis in enumerate(axes) if axis in {"head", "kv_head"}), None)
    if head_axis is None or not np.isfinite(case.found).all():
        return ""

    right = slices_along(case.expected.value, head_axis)
    holds = []
    for here, row in enumerate(slices_along(case.found, head_axis)):
        size = SAME**2 * float(np.square(row).sum())
        if np.square(row - right[here]).sum() <= size:
            continue
        source = next(matching_heads(case, row, size, head_axis), None)
        if source is None:
            return ""
        name, head = source
        holds.append(f"head {here} holds head {head} of {name}")
    return f"The right numbers of others stand here: {', '.join(holds[:MOST_LISTED])}." if holds else ""


def matching_heads(case: WrongStep, row: Array, size: float, at: int) -> Iterator[tuple[str, int]]:
    for name in ("Q", "K", "V"):
        computed = name in case.derivation and not isinstance(case.op(name), (Given, Unstated))
        known = case.walk.expect(name) if computed else None
        array = known.value if known else case.array_of(name)
        if array is None or array.ndim != case.found.ndim or array[0].size != case.found[0].size:
            continue
        for head, numbers in enumerate(slices_along(array, at)):
            if numbers.shape == row.shape and np.square(numbers - row).sum() <= size:
                yield name, head
