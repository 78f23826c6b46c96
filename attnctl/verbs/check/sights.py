"""Who sees whom: what weights show beside what the rules say, as a sentence and a small picture.

It needs no known mistake, and holds for any mask: of trees, images, windows, packed texts. A key is seen
where it has weight, as softmax leaves none at 0; of scores that are written down, where it is not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from attnctl.base.words import all_of, plural
from attnctl.math import Array
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.mistakes.mistake import WrongStep

MOST_LISTED = 4
"""Queries whose keys are told one by one, and heads of one query."""

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
    sheets: tuple[str, ...] = ("",)
    """Which head of which member each is; nothing where all are alike."""
    members: int = 1
    """How many members there are, where they differ and each has several heads that do."""

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
    elif (found < 0).any():
        return None  # no weight says that a key is not seen by being less than 0
    else:
        seen = found > 0
        should = right > 0
        least = case.record.precision(WEIGHTS).smallest
        should |= (right == 0) & seen & (np.abs(found) <= least)  # weight that is too small to be told
    if (seen == should).all() or not seen.any():
        return None
    return fold_alike(seen, should)


def fold_alike(seen: Array, right: Array) -> Sight:
    """A sheet for each head of each member; one for all heads, or all members, that see the same."""
    sizes = (1, 1, *seen.shape)[-4:]
    seen, right = seen.reshape(sizes), right.reshape(sizes)
    words: list[list[str]] = []
    for at, name in enumerate(("member", "head")):
        first_seen, first_right = seen.take([0], axis=at), right.take([0], axis=at)
        if (seen == first_seen).all() and (right == first_right).all():
            seen, right = first_seen, first_right
            words.append([""])
        else:
            words.append([f"{name} {place}" for place in range(seen.shape[at])])

    sheets = tuple(" of ".join(filter(None, (head, member))) for member, head in product(*words))
    shape = (-1, *sizes[-2:])
    members = len(words[0]) if words[1] != [""] else 1
    return Sight(seen.reshape(shape), right.reshape(shape), sheets, members)


def say_sight(case: WrongStep) -> str:
    """How what is seen differs from what should be: query by query if few differ, or of all alike."""
    sight = sight_of(case)
    if sight is None:
        return ""
    rows = np.argwhere((sight.more | sight.fewer).any(axis=-1))
    told = say_alike(sight, rows, case.begin) or say_each(sight, rows, case.begin) or say_many(sight, rows)
    return f"Who sees whom differs: {told}{picture(sight)}"


def say_alike(sight: Sight, rows: Array, begin: int) -> str:
    """The change of every row that differs, if it is the same for all, counted from the query."""
    if len(rows) < 2:
        return ""
    changes = {
        change_of(sight.more[at, query], sight.fewer[at, query], query + begin) for at, query in rows
    }
    changes.discard("")
    if len(changes) != 1:
        return ""
    count = f"in {'all' if len(rows) == sight.seen[..., 0].size else len(rows)} rows"
    sheets = {int(at) for at, _ in rows}
    where = f" of {sight.sheets[sheets.pop()]}" if 1 == len(sheets) < len(sight.sheets) else ""
    return f"{count}{where} {changes.pop()}."


def change_of(more: Array, fewer: Array, query: int) -> str:
    """The keys of one row that are seen and should not be, or the other way round, from the query on."""
    parts = []
    for marks, one, several in (
        (more, "is seen that should not be", "are seen that should not be"),
        (fewer, "should be seen and is not", "should be seen and are not"),
    ):
        keys = np.flatnonzero(marks) - query
        if len(keys):
            noun, verb = ("key", one) if len(keys) == 1 else ("keys", several)
            parts.append(f"the {noun} {said_distance(keys)} {verb}")
    return " and ".join(parts)


def said_distance(keys: Array) -> str:
    """1 after the query; 4 to 5 before the query; from 1 before to 2 after the query."""
    if len(keys) > 1 and (np.diff(keys) != 1).any():
        return f"at {', '.join(f'{key:+d}' for key in keys)} from the query"
    first = int(keys[0])
    last = int(keys[-1])
    if first == last == 0:
        return "that the query is"
    if first < 0 < last:
        return f"from {-first} before to {last} after the query"
    span = str(abs(first)) if first == last else f"{abs(first)} to {abs(last)}"
    return f"{span} {'after' if last > 0 else 'before'} the query"


def say_each(sight: Sight, rows: Array, begin: int) -> str:
    """Query 4 sees key 5 and not key 4, in which heads; nothing where that would be a long list."""
    sheets_of: dict[str, list[str]] = {}
    for at, query in rows:
        told = say_row(sight.more[at, query], sight.fewer[at, query], query + begin)
        sheets_of.setdefault(told, []).append(sight.sheets[at])
    if len(sheets_of) > MOST_LISTED:
        return ""

    parts = []
    for told, sheets in sheets_of.items():
        if len(sheets) == len(sight.sheets):
            parts.append(told)
        elif len(named := name_sheets(sheets, sight.members)) <= MOST_LISTED:
            parts.append(f"{told} in {all_of(named)}")
        else:
            return ""
    return f"{'; '.join(parts)}."


def name_sheets(sheets: Sequence[str], members: int) -> list[str]:
    """Head 1 of member 0; or a head of each member, where it is in all of them."""
    if members == 1:
        return list(sheets)
    members_of: dict[str, list[str]] = {}
    for sheet in sheets:
        head, member = sheet.split(" of ")
        members_of.setdefault(head, []).append(member)

    named: list[str] = []
    for head, its_members in members_of.items():
        if len(its_members) == members:
            named.append(f"{head} of each member")
        else:
            named += [f"{head} of {member}" for member in its_members]
    return named


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
    more, fewer = int(sight.more.sum()), int(sight.fewer.sum())
    if more:
        parts.append(f"{plural(more, 'key')} {'is' if more == 1 else 'are'} seen that should not be")
    if fewer:
        keys = str(fewer) if more else plural(fewer, "key")
        parts.append(f"{keys} should be seen and {'is' if fewer == 1 else 'are'} not")
    return f"in {len(rows)} of {sight.seen[..., 0].size} rows, {' and '.join(parts)}."


def picture(sight: Sight) -> str:
    """The queries as rows and the keys as columns, on lines of their own; nothing of many."""
    queries, keys = sight.seen.shape[-2:]
    if queries < 2 or max(queries, keys) > LARGEST_PICTURE:
        return ""
    at = int(np.argmax((sight.more | sight.fewer).any(axis=(-1, -2))))
    pairs = zip(sight.seen[at], sight.right[at], strict=True)
    lines = (
        "".join(SIGNS[bool(seen), bool(right)] for seen, right in zip(*row, strict=True)) for row in pairs
    )
    whose = f" of {sight.sheets[at]}" if sight.sheets[at] else ""
    legend = f"(a row for each query{whose}: + is seen and should not be, − the other way round)"
    return "\n".join(["", *lines, legend])
