"""Where the wrong numbers of a step are: heads, rows, columns, or a band beside the diagonal."""

from __future__ import annotations

import numpy as np

from attnctl.math import Array
from attnctl.mistakes.mistake import WrongStep

MOST_LISTED = 8

PURE = 0.98
"""Share of the numbers of a part that differ when all of it is said to be wrong."""


def few(case: WrongStep) -> str:
    """Where the wrong numbers are, if they are not everywhere."""
    return in_one_place(case) or in_a_band(case) or in_some(case)


def in_one_place(case: WrongStep) -> str:
    """That all of them are in one head, row or column."""
    axes = case.record.trace.steps[case.first].axes
    places = np.argwhere(case.differs)
    if len(places) < 2:
        return ""
    alone = [
        f"{axis} {places[0, at]}"
        for at, axis in enumerate(axes)
        if case.differs.shape[at] > 1 and (places[:, at] == places[0, at]).all()
    ]
    return f"All of them are at {', '.join(alone)}." if alone else ""


def in_a_band(case: WrongStep) -> str:
    """That it is distance from the diagonal that tells them from the others."""
    axes = case.record.trace.steps[case.first].axes
    if axes[-2:] != ("query", "key"):
        return ""
    wrong, able = (over_heads(each) for each in (case.differs, shown(case)))
    queries, keys = wrong.shape
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    for said, distance in (("key − query", ahead), ("|query − key|", np.abs(ahead))):
        least, most = int(distance[wrong].min()), int(distance[wrong].max())
        inside = (distance >= least) & (distance <= most)
        if not inside[able].all() and wrong[inside & able].mean() > PURE:
            return f"They are where {said} is {between(least, most, distance)}."
    return ""


def over_heads(differs: Array) -> Array:
    """Whether any head has it, (query, key)."""
    return np.asarray(differs.reshape(-1, *differs.shape[-2:]).any(axis=0))


def shown(case: WrongStep) -> Array:
    """The numbers that say something: not those of hidden keys, where they are as they should be."""
    right = case.expected.value
    return np.asarray(case.differs | (np.isfinite(right) & (right != 0)))


def between(least: int, most: int, distance: Array) -> str:
    """0, 1 to 3, 4 or more."""
    if least == most:
        return str(least)
    if most == distance.max():
        return f"{least} or more"
    return f"{most} or less" if least == distance.min() else f"{least} to {most}"


def in_some(case: WrongStep) -> str:
    """Which heads, rows or columns have any, if not all do."""
    axes = case.record.trace.steps[case.first].axes
    said = []
    for at, axis in enumerate(axes):
        others = tuple(other for other in range(len(axes)) if other != at)
        has = np.flatnonzero(case.differs.any(axis=others))
        if 0 < len(has) < np.count_nonzero(shown(case).any(axis=others)):
            said.append(f"{axis} {list_places(has)}")
    return f"They are at {', '.join(said)} only." if said else ""


def list_places(places: Array) -> str:
    """1, 4 and 5; 3 to 9; the first of many."""
    if len(places) > 2 and (np.diff(places) == 1).all():
        return f"{places[0]} to {places[-1]}"
    shown = [str(place) for place in places[:MOST_LISTED]]
    if len(places) > MOST_LISTED:
        return f"{', '.join(shown)} and {len(places) - MOST_LISTED} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def spread(case: WrongStep) -> str:
    """How large the differences are beside the numbers, where nothing else is to be said."""
    told = np.isfinite(case.found) & np.isfinite(case.expected.value)
    found, right = case.found[told], case.expected.value[told]
    if found.size < 2 or not np.ptp(right) or not np.ptp(found):
        return "Nothing relates it to what it should be."
    off = float(np.sqrt(np.mean(np.square(found - right))) / np.std(right))
    alike = float(np.corrcoef(found, right)[0, 1])
    return (
        f"The wrong numbers are everywhere: the differences are {off:.2g} times the spread of the right "
        f"ones, and found and right numbers correlate by {alike:.2f}."
    )
