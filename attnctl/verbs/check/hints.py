"""Hints on a wrong step that no known mistake explains: its relation to the right one, its wrong places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.evidence.walk import Walk
from attnctl.math import Array
from attnctl.math.ops import Given
from attnctl.mistakes.mistake import WrongStep
from attnctl.mistakes.plants import in_digits
from attnctl.verbs.check.places import find_heads_of_others, find_other_places, find_other_rows
from attnctl.verbs.check.search import EXPLAINED, Search
from attnctl.verbs.check.sights import say_sight

MOST_DECIMALS = 8

SAME = 1e-3
"""Numbers are those of another array when what is left is less than this, relatively."""

MOST_LISTED = 8

PURE = 0.98
"""Share of the numbers of a part that differ when all of it is said to be wrong."""

NOT_ALL_TRIED = (
    "Not every pair of mistakes was tried, nor every number that might explain it: there are too many."
)

WRITTEN_WRONG = "What follows was computed from the right numbers: only those written down here are wrong."

UNRELATED = "No relation that was tried leads from the wrong numbers to what they should be."


def hint(search: Search, differing: int) -> str:
    """One or two sentences on how found and expected numbers are related, and where they differ.

    Of a part, not at which queries, where more numbers are wrong than there: `differing` are in all.
    """
    case = search.case
    only_part = said_of(search)
    axes = [*case.record.trace.steps[case.first].axes]
    if only_part and differing > case.differs.sum():
        axes = ["" if axis == "query" else axis for axis in axes]

    sight = say_sight(case)
    if sight:
        return f"{sight}{only_part}"

    where = locate_alone(case, axes) or locate_band(case) or locate_some(case, axes)
    relation = relate(case)
    if relation:
        return f"{relation} {where}".strip() + only_part
    more = NOT_ALL_TRIED if case.effort.exceeded else ""
    return f"{where or UNRELATED} {more}".strip() + only_part


def hint_written(search: Search) -> str:
    """What is said of a step that nothing was computed from, and of how its numbers came about."""
    relation = relate(search.case)
    if not relation:
        return WRITTEN_WRONG
    return f"{relation}{said_of(search)} {WRITTEN_WRONG}"


def said_of(search: Search) -> str:
    words = search.part.words
    return f" This is said of {words}; the rest was not searched." if words else ""


def relate(case: WrongStep) -> str:
    return (
        relate_by_number(case)
        or find_other_places(case)
        or find_other_array(case)
        or find_other_input(case)
        or find_heads_of_others(case)
        or find_other_rows(case)
    )


def agrees_as_printed(walk: Walk) -> str:
    """Say so, if everything agrees once the numbers are taken as rounded when they were written down."""
    record = walk.record
    computed = [step.name for step in walk.derivation if not isinstance(step.op, Given)]
    steps = [record.trace[name] for name in computed if name in record]
    if record.strictness != Strictness() or all(on_grid(step, FLOAT32.bits) for step in steps):
        return ""
    for decimals in range(2, MOST_DECIMALS + 1):
        if all((np.round(step, decimals) == step)[np.isfinite(step)].all() for step in steps):
            loosely = replace(record, strictness=Strictness(decimals=decimals))
            wrong = Walk.over(loosely, walk.derivation).wrong
            return "" if wrong else f"It agrees to {decimals} decimals: add --decimals {decimals}."
    return ""


# --- one number for all ---


def relate_by_number(case: WrongStep) -> str:
    """Say so, if all numbers are off by one factor, or by as much."""
    found = case.found
    right = case.expected.value
    error = case.expected.error
    if not np.isfinite(right - found)[case.differs].all():
        return ""

    is_told = np.isfinite(found) & np.isfinite(right)
    found = found[is_told]
    right = right[is_told]
    error = error[is_told] + case.record.strictness.last_place
    gap = found - right
    farthest = float(np.abs(gap).max(initial=0.0))

    # Of small numbers the quotient is mostly rounding.
    is_large = np.abs(right) > 100 * error
    if is_large.sum() >= 2:
        ratio = float(np.median(found[is_large] / right[is_large]))
        left = np.abs(found - ratio * right)
        by_rounding = 2 * (abs(ratio) + 1) * error
        if not (left > by_rounding).any() and not left.max() > farthest / 10:
            return f"Every number is {in_digits(ratio, fewest=6)} times what it should be."

    middle = float(np.median(gap)) if gap.size >= 2 else 0.0
    if not middle or (np.abs(gap - middle) > np.minimum(4 * error, farthest / 10)).any():
        return ""
    return f"Every number is {abs(middle):.6g} too {'large' if middle > 0 else 'small'}."


# --- other arrays ---


def find_other_array(case: WrongStep) -> str:
    """Say so, if the numbers, or what they are off by, are those of another array, perhaps turned."""
    right = case.expected.value
    others = [*arrays(case), *expected_arrays(case), ("what it should be", right)]
    for what, numbers in (("The difference equals", case.found - right), ("The numbers are", case.found)):
        if not np.isfinite(numbers).all():
            continue
        for name, array in others:
            title = name
            if numbers is case.found and not name.startswith("what"):
                title = f"those of {name}"
            for words, other in ((title, array), (f"{title} transposed", array.swapaxes(-1, -2))):
                sign = sign_alike(case, numbers, other)
                if sign is not None:
                    return f"{what} {sign}{words}."
    return ""


def sign_alike(case: WrongStep, numbers: Array, other: Array) -> str | None:
    """The sign with which an array gives these numbers; None where it does not."""
    alike = fits_into(other, numbers)
    if alike is None or not np.ptp(alike):  # one number everywhere is like much
        return None
    if explains(case, numbers, alike):
        return ""
    return "−" if explains(case, numbers, -alike) else None


def arrays(case: WrongStep) -> Iterator[tuple[str, Array]]:
    """Every array that is recorded or was computed, but the one that is wrong."""
    for step in case.derivation:
        array = None if step.name == case.first else case.array_of(step.name)
        if array is not None and array.ndim > 1 and array.dtype != bool:
            yield step.name, array


def expected_arrays(case: WrongStep) -> Iterator[tuple[str, Array]]:
    """What the other wrong steps should be: names may be mixed up."""
    for name in case.walk.wrong:
        known = case.walk.expect(name) if name != case.first else None
        if known:
            yield f"what {name} should be", known.value


def find_other_input(case: WrongStep) -> str:
    """Say so, if the step is what its op makes of another array in place of one that it reads."""
    step = case.derivation[case.first]
    inputs = [array for name in step.inputs if (array := case.array_of(name)) is not None]
    if len(inputs) < len(step.inputs):
        return ""
    others = [*arrays(case)]
    for place, name in enumerate(step.inputs):
        for other, array in others:
            if other != name and array.shape == inputs[place].shape:
                with suppress(AttnError, ValueError, IndexError):  # an op may ask more than a shape
                    value = step.op.apply(*inputs[:place], array, *inputs[place + 1 :])
                    if explains(case, case.found, value):
                        return f"It is what {other} gives in place of {name}."
    return ""


def fits_into(array: Array, numbers: Array) -> Array | None:
    """An array of the same shape, or one that broadcasts to it, heads side by side where that helps."""
    if array.ndim == numbers.ndim + 1:
        array = array.swapaxes(-3, -2).reshape(*array.shape[:-3], array.shape[-2], -1)
    try:
        return np.broadcast_to(array, numbers.shape)
    except ValueError:
        return None


def explains(case: WrongStep, numbers: Array, others: Array) -> bool:
    """True where other numbers leave little of these, and of what the step is off by."""
    off = np.where(case.found == case.expected.value, 0.0, case.found - case.expected.value)
    left = np.square(numbers - others).sum()
    size = np.square(numbers).sum()
    return bool(left < SAME**2 * size and left <= EXPLAINED**2 * np.square(off).sum())


# --- where the wrong numbers are ---


def locate_alone(case: WrongStep, axes: Sequence[str]) -> str:
    """Say along which axes all of the wrong numbers are at one place."""
    places = np.argwhere(case.differs)
    if len(places) < 2:
        return ""
    shared = []
    for number, axis in enumerate(axes):
        first = places[0, number]
        has_others = case.differs.shape[number] > 1
        if axis and has_others and (places[:, number] == first).all():
            shared.append(f"{axis} {begin_of(case, axis) + first}")
    return f"All of them are at {', '.join(shared)}." if shared else ""


def locate_band(case: WrongStep) -> str:
    """Say so, if it is distance from the diagonal that tells them from the others."""
    if case.record.trace.steps[case.first].axes[-2:] != ("query", "key"):
        return ""

    # In any head.
    shape = (-1, *case.differs.shape[-2:])
    wrong = np.any(case.differs.reshape(shape), axis=0)
    able = np.any(telling_numbers(case).reshape(shape), axis=0)

    queries, keys = wrong.shape
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - begin_of(case, "query")
    for words, distance in (("key − query", ahead), ("|query − key|", np.abs(ahead))):
        least = int(distance[wrong].min())
        most = int(distance[wrong].max())
        inside = (distance >= least) & (distance <= most)
        if not inside[able].all() and wrong[inside & able].mean() > PURE:
            return f"They are where {words} is {spell_range(least, most, distance)}."
    return ""


def begin_of(case: WrongStep, axis: str) -> int:
    return case.begin if axis == "query" else 0


def telling_numbers(case: WrongStep) -> Array:
    """The numbers that say something: not those of hidden keys, where they are as they should be."""
    right = case.expected.value
    return np.asarray(case.differs | (np.isfinite(right) & (right != 0)))


def spell_range(least: int, most: int, distance: Array) -> str:
    """0, 1 to 3, 4 or more."""
    if least == most:
        return str(least)
    if most == distance.max():
        return f"{least} or more"
    return f"{most} or less" if least == distance.min() else f"{least} to {most}"


def locate_some(case: WrongStep, axes: Sequence[str]) -> str:
    """Say at which places of each axis the wrong numbers are, where those are few."""
    places_said = []
    for number, axis in enumerate(axes):
        if not axis:
            continue
        others = tuple(other for other in range(len(axes)) if other != number)
        places = np.flatnonzero(case.differs.any(axis=others))
        able = np.count_nonzero(telling_numbers(case).any(axis=others))
        if not 0 < len(places) < able:
            continue

        # A few of most of them say little, unless all are listed.
        is_listed_whole = len(places) <= MOST_LISTED or (np.diff(places) == 1).all()
        if is_listed_whole or len(places) <= able / 2:
            places_said.append(f"{axis} {list_places(begin_of(case, axis) + places)}")
    return f"They are at {', '.join(places_said)} only." if places_said else ""


def list_places(places: Array) -> str:
    """1, 4 and 5; 3 to 9; the first of many."""
    if len(places) > 2 and (np.diff(places) == 1).all():
        return f"{places[0]} to {places[-1]}"
    shown = [str(place) for place in places[:MOST_LISTED]]
    if len(places) > MOST_LISTED:
        return f"{', '.join(shown)} and {len(places) - MOST_LISTED} more"
    return all_of(shown)
