"""Positions that a target is handed: those of a batch of ragged texts, packed texts and chunks of a prompt.

Rotary positions turn each token by its own. What rules go by is a convention: the places of queries and
keys as they stand in memory, as in most layers that rotate; their positions; or the positions of queries
and the places of keys, as in a cache whose slots are as many from the first call on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attnctl.math import Array
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import Alibi, Documents, Rule, VisibilityRule, alibi_slopes
from attnctl.verbs.conform.case import Case

LEFT_PADDING = "left padding"
PACKED = "packed"
OFFSET = "offset"
FAR = "far"

KEY_POSITIONS = "key_positions"
"""What positions of keys are called, where those of queries are passed apart."""

PATTERNS = (LEFT_PADDING, PACKED, OFFSET, FAR)
"""The positions of tokens: 0 as long as a text has not begun, 0 again where the next one does, from
another number on in each member, and from so far on that few types hold every whole number."""

FARTHEST = 5000

BY_PLACES = "places"
BY_POSITIONS = "positions"
BY_QUERIES = "positions of queries, places of keys"

OF_MEMBERS = "(batch, n)"
OF_ALL = "(n)"
OF_IMAGES = "(3, batch, n)"
"""The shapes of positions: those of each member, of all alike, and of time, height and width."""

ROW = 3
"""The tokens in a row of an image."""


def draw_positions(case: Case, pattern: str, shape: str) -> Array:
    """The positions of the new tokens, (1 or 3, batch, token), which begin behind those of a cache."""
    tokens = case.queries
    members = np.zeros((case.batch, 1), np.int64)
    if shape != OF_ALL:
        members = np.arange(case.batch)[:, None]
    place = np.arange(tokens) + 0 * members

    if pattern == LEFT_PADDING:
        padding = np.minimum(2 + 3 * members, tokens - 1)
        positions = np.maximum(place - padding, 0)
    elif pattern == PACKED:
        starts = [0, *start_texts(tokens)]
        text = np.searchsorted(starts, place, side="right") - 1
        positions = place - np.array(starts)[text]
    else:
        first = FARTHEST if pattern == FAR else 5
        positions = place + first * (1 + members)

    positions = positions + case.past
    if shape != OF_IMAGES:
        return positions[None]
    return np.stack([positions, positions // ROW, positions % ROW])


def start_texts(tokens: int) -> Sequence[int]:
    """Where the second text and the third begin, of a few tokens at least."""
    return sorted({tokens // 3, tokens // 2 + 1} - {0})


def positions_of_keys(positions: Array, case: Case) -> Array:
    """Those of all keys, of a cache in its places: (1 or 3, batch, key)."""
    before = np.broadcast_to(np.arange(case.past), (*positions.shape[:2], case.past))
    return np.concatenate([before, positions], axis=-1)


def shape_positions(positions: Array, shape: str) -> Array:
    """The positions as they are passed."""
    if shape == OF_IMAGES:
        return positions
    of_members = positions[0]
    return of_members[0] if shape == OF_ALL else of_members


def as_given_places(positions: Array) -> GivenPlaces:
    return tuple(tuple(tuple(row) for row in part) for part in positions.tolist())


# --- rules by positions ---

GO_BY_POSITIONS = ("causal", "window", "sliding_window", "alibi")
"""Options that may go by positions."""


class RulesByPositions(NamedTuple):
    """The rules of a call as arrays, where they go by positions, and those that do not."""

    rules: tuple[Rule, ...]
    allowed: Array | None
    """(batch, 1, query, key)."""
    bias: Array | None
    """(batch, head, query, key)."""


def goes_by_positions(rule: Rule) -> bool:
    """Whether a rule may go by positions; where documents begin is said in places."""
    return rule.relative and not isinstance(rule, Documents)


def lay_rules(rules: Iterable[Rule], positions: Array, case: Case, how: str) -> RulesByPositions:
    """Lay rules down by positions (batch, token); keys of a cache have those before them."""
    query = positions[:, None, :, None]
    key = np.arange(case.keys)
    if how == BY_POSITIONS:
        key = positions_of_keys(positions[None], case)[0, :, None, None]

    kept: list[Rule] = []
    allowed: Array | None = None
    bias: Array | None = None
    for rule in rules:
        if not goes_by_positions(rule):
            kept.append(rule)
        elif isinstance(rule, Alibi):
            bias = -alibi_slopes(case.heads)[:, None, None] * np.abs(query - key)
        elif isinstance(rule, VisibilityRule):
            seen = rule.allows(query, key)
            allowed = seen if allowed is None else allowed & seen
    return RulesByPositions(tuple(kept), allowed, bias)
