"""Who sees whom: what weights show beside what the rules say, as a sentence and a small picture.

It needs no known mistake, and holds for any mask: of trees, images, windows, packed texts. A key is seen
where it has weight, as softmax leaves none at 0; of scores that are written down, where it is not hidden.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attnctl.base.words import all_of
from attnctl.math import Array
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.mistakes.mistake import WrongStep

MOST_LISTED = 4
"""Queries whose keys are told one by one."""

MOST_KEYS = 8
"""Keys of a query that are told one by one."""

LARGEST_PICTURE = 16
"""Queries and keys that a picture may have."""

SIGNS = {(True, True): "■", (False, False): "·", (True, False): "+", (False, True): "−"}
"""A cell that is seen and should be, neither, is seen and should not be, should be and is not."""


class Sight(NamedTuple):
    """Which keys each query sees, and which it should: (sheet, query, key), a sheet for each head."""

    seen: Array
    right: Array

    @property
    def more(self) -> Array:
        return self.seen & ~self.right

    @property
    def fewer(self) -> Array:
        return self.right & ~self.seen


def sight_of(case: WrongStep) -> Sight | None:
    """What masked scores or weights show; None where they show no more than numbers that are off."""
    found = case.found
    right = case.expected.value
    if case.first not in {MASKED, WEIGHTS} or np.isnan(found).any() or found.ndim < 2:
        return None
    if case.first == MASKED:
        top = np.where(np.isneginf(found), -np.inf, found).max(axis=-1, keepdims=True)
        seen = found - top > case.record.precision(MASKED).vanishing
        should = ~np.isneginf(right)
    else:
        seen = found > 0
        should = right > 0
        least = case.record.precision(WEIGHTS).smallest
        should |= (right == 0) & seen & (np.abs(found) <= least)  # weight that is too small to be told
    if (seen == should).all() or not seen.any():
        return None

    sheets = (-1, *found.shape[-2:])
    return without_repeats(Sight(seen.reshape(sheets), should.reshape(sheets)))


def without_repeats(sight: Sight) -> Sight:
    """One sheet where all heads and members see the same."""
    alike = (sight.seen == sight.seen[:1]).all() and (sight.right == sight.right[:1]).all()
    return Sight(sight.seen[:1], sight.right[:1]) if alike else sight


def say_sight(case: WrongStep) -> str:
    """How what is seen differs from what should be: query by query if few differ, or of all alike."""
    sight = sight_of(case)
    if sight is None:
        return ""
    rows = np.argwhere((sight.more | sight.fewer).any(axis=-1))
    told = say_alike(sight, rows, case.begin)
    if not told and len({int(query) for _, query in rows}) <= MOST_LISTED:
        told = say_each(sight, rows, case.begin)
    if not told:
        told = say_many(sight, rows)
    return f"Who sees whom differs: {told}{picture(sight)}"


def say_alike(sight: Sight, rows: Array, begin: int) -> str:
    """The change of every row that differs, if it is the same for all, counted from the query."""
    if len(rows) < 2:
        return ""
    changes = {
        change_of(sight.more[at, query], sight.fewer[at, query], query + begin) for at, query in rows
    }
    changes.discard("")
    count = f"in {'all' if len(rows) == sight.seen[..., 0].size else len(rows)} rows"
    return f"{count} {changes.pop()}." if len(changes) == 1 else ""


def change_of(more: Array, fewer: Array, query: int) -> str:
    """The keys of one row that are seen and should not be, or the other way round, from the query on."""
    parts = []
    for marks, verb in ((more, "is seen that should not be"), (fewer, "should be seen and is not")):
        keys = np.flatnonzero(marks) - query
        if len(keys):
            parts.append(f"the key {said_distance(keys)} {verb}")
    return " and ".join(parts)


def said_distance(keys: Array) -> str:
    """1 after the query; 4 to 5 before the query."""
    if len(keys) > 1 and (np.diff(keys) != 1).any():
        return f"at {', '.join(f'{key:+d}' for key in keys)} from the query"
    first = int(keys[0])
    last = int(keys[-1])
    if first == last == 0:
        return "that the query is"
    span = str(abs(first)) if first == last else f"{abs(first)} to {abs(last)}"
    return f"{span} {'after' if last > 0 else 'before'} the query"


def say_each(sight: Sight, rows: Array, begin: int) -> str:
    """Query 4 sees key 5 and not key 4."""
    said = dict.fromkeys(
        say_row(sight.more[at, query], sight.fewer[at, query], query + begin) for at, query in rows
    )
    return f"{'; '.join(said)}."


def say_row(more: Array, fewer: Array, query: int) -> str:
    parts = []
    if more.any():
        parts.append(f"sees {list_keys(np.flatnonzero(more))}")
    if fewer.any():
        joint = "and not" if more.any() else "does not see"
        parts.append(f"{joint} {list_keys(np.flatnonzero(fewer))}")
    return f"query {query} {' '.join(parts)}"


def list_keys(keys: Array) -> str:
    """Key 5; keys 4 to 9; keys 1, 3 and 5."""
    if len(keys) == 1:
        return f"key {keys[0]}"
    if (np.diff(keys) == 1).all():
        return f"keys {keys[0]} to {keys[-1]}"
    shown = [str(key) for key in keys[:MOST_KEYS]]
    if len(keys) > MOST_KEYS:
        return f"keys {', '.join(shown)} and {len(keys) - MOST_KEYS} more"
    return f"keys {all_of(shown)}"


def say_many(sight: Sight, rows: Array) -> str:
    parts = []
    if sight.more.any():
        parts.append(f"{int(sight.more.sum())} keys are seen that should not be")
    if sight.fewer.any():
        parts.append(f"{int(sight.fewer.sum())} should be seen and are not")
    return f"in {len(rows)} of {sight.seen[..., 0].size} rows, {' and '.join(parts)}."


def picture(sight: Sight) -> str:
    """The queries as rows and the keys as columns, on lines of their own; nothing of many."""
    sheets, queries, keys = sight.seen.shape
    if queries < 2 or max(queries, keys) > LARGEST_PICTURE:
        return ""
    at = int(np.argmax((sight.more | sight.fewer).any(axis=(-1, -2)))) if sheets > 1 else 0
    pairs = zip(sight.seen[at], sight.right[at], strict=True)
    lines = (
        "".join(SIGNS[bool(seen), bool(right)] for seen, right in zip(*row, strict=True)) for row in pairs
    )
    legend = "(a row for each query: + is seen and should not be, − the other way round)"
    return "\n".join(["", *lines, legend])
