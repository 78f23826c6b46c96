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
from attnctl.verbs.check.places import find_heads_of_others, find_other_places
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
    only = said_of(search)
    axes = [*case.record.trace.steps[case.first].axes]
    if only and differing > case.differs.sum():
        axes = ["" if axis == "query" else axis for axis in axes]
    if sight := say_sight(case):
        return f"{sight}{only}"
    where = locate_alone(case, axes) or locate_band(case) or locate_some(case, axes)
    if relation := relate(case):
        return f"{relation} {where}".strip() + only
    return f"{where or UNRELATED} {NOT_ALL_TRIED if case.effort.exceeded else ''}".strip() + only


def hint_written(search: Search) -> str:
    """What is said of a step that nothing was computed from, and of how its numbers came about."""
    relation = relate(search.case)
    return f"{relation}{said_of(search)} {WRITTEN_WRONG}" if relation else WRITTEN_WRONG


def said_of(search: Search) -> str:
    return f" This is said of {words}; the rest was not searched." if (words := search.part.words) else ""


def relate(case: WrongStep) -> str:
    return (
        relate_by_number(case)
        or find_other_places(case)
        or find_other_array(case)
        or find_other_input(case)
        or find_heads_of_others(case)
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
    told = np.isfinite(found) & np.isfinite(right)
    found = found[told]
    right = right[told]
    error = error[told] + case.record.strictness.last_place
    gap = found - right
    large = np.abs(right) > 100 * error
    far = float(np.abs(gap).max(initial=0.0))
    if large.sum() >= 2:
        ratio = float(np.median(found[large] / right[large]))
        left = np.abs(found - ratio * right)
        if not (left > 2 * (abs(ratio) + 1) * error).any() and not left.max() > far / 10:
            return f"Every number is {in_digits(ratio, fewest=6)} times what it should be."
    middle = float(np.median(gap)) if gap.size >= 2 else 0.0
    if not middle or (np.abs(gap - middle) > np.minimum(4 * error, far / 10)).any():
        return ""
    return f"Every number is {abs(middle):.6g} too {'large' if middle > 0 else 'small'}."


# --- other arrays ---


def find_other_array(case: WrongStep) -> str:
    right = case.expected.value
    others = [*arrays(case), *expected_arrays(case), ("what it should be", right)]
    related = (("The difference equals", case.found - right), ("The numbers are", case.found))
    for what, numbers in related:
        if not np.isfinite(numbers).all():
            continue
        for name, array in others:
            of = "those of " if numbers is case.found and not name.startswith("what") else ""
            for said, other in ((f"{of}{name}", array), (f"{of}{name} transposed", array.swapaxes(-1, -2))):
                alike = fits_into(other, numbers)
                if alike is not None and np.ptp(alike):
                    for sign, minus in ((1, ""), (-1, "−")):
                        if explains(case, numbers, sign * alike):
                            return f"{what} {minus}{said}."
    return ""


def arrays(case: WrongStep) -> Iterator[tuple[str, Array]]:
    """Every array that is recorded or was computed, but the one that is wrong."""
    for step in case.derivation:
        array = None if step.name == case.first else case.array_of(step.name)
        if array is not None and array.ndim > 1 and array.dtype != bool:
            yield step.name, array


def expected_arrays(case: WrongStep) -> Iterator[tuple[str, Array]]:
    """What the other wrong steps should be: names may be mixed up."""
    for name in case.walk.wrong:
        if name != case.first and (known := case.walk.expect(name)):
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
    off = np.where(case.found == case.expected.value, 0.0, case.found - case.expected.value)
    left = np.square(numbers - others).sum()
    size = np.square(numbers).sum()
    return bool(left < SAME**2 * size and left <= EXPLAINED**2 * np.square(off).sum())


# --- where the wrong numbers are ---


def locate_alone(case: WrongStep, axes: Sequence[str]) -> str:
    places = np.argwhere(case.differs)
    if len(places) < 2:
        return ""
    alone = [
        f"{axis} {begin_of(case, axis) + places[0, at]}"
        for at, axis in enumerate(axes)
        if axis and case.differs.shape[at] > 1 and (places[:, at] == places[0, at]).all()
    ]
    return f"All of them are at {', '.join(alone)}." if alone else ""


def locate_band(case: WrongStep) -> str:
    """Say so, if it is distance from the diagonal that tells them from the others."""
    if case.record.trace.steps[case.first].axes[-2:] != ("query", "key"):
        return ""
    shape = (-1, *case.differs.shape[-2:])
    wrong, able = (  # in any head
        np.any(marks.reshape(shape), axis=0) for marks in (case.differs, telling_numbers(case))
    )
    queries, keys = wrong.shape
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - begin_of(case, "query")
    for said, distance in (("key − query", ahead), ("|query − key|", np.abs(ahead))):
        least = int(distance[wrong].min())
        most = int(distance[wrong].max())
        inside = (distance >= least) & (distance <= most)
        if not inside[able].all() and wrong[inside & able].mean() > PURE:
            return f"They are where {said} is {spell_range(least, most, distance)}."
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
    said = []
    for at, axis in enumerate(axes):
        others = tuple(other for other in range(len(axes)) if other != at)
        has = np.flatnonzero(case.differs.any(axis=others))
        able = np.count_nonzero(telling_numbers(case).any(axis=others))
        whole = len(has) <= MOST_LISTED or (np.diff(has) == 1).all()
        if (
            axis and 0 < len(has) < able and (whole or len(has) <= able / 2)
        ):  # a few of most of them say little
            said.append(f"{axis} {list_places(begin_of(case, axis) + has)}")
    return f"They are at {', '.join(said)} only." if said else ""


def list_places(places: Array) -> str:
    """1, 4 and 5; 3 to 9; the first of many."""
    if len(places) > 2 and (np.diff(places) == 1).all():
        return f"{places[0]} to {places[-1]}"
    shown = [str(place) for place in places[:MOST_LISTED]]
    if len(places) > MOST_LISTED:
        return f"{', '.join(shown)} and {len(places) - MOST_LISTED} more"
    return all_of(shown)
