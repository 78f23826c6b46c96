"""What a rule is: who may attend to whom, or how scores bend.

Rules are functions of absolute positions, combined by "and", and evaluated for whatever block of
positions is asked for: no (query, key) mask is ever built whole for them. `True` means *may
attend*, everywhere.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from attnctl.array import Array

Positions = Array
Mask = Array
Span = tuple[int, int]
"""Keys [from, to), by absolute position."""

PerBatch = int | tuple[int, ...]
"""One number for all, or one for each member of the batch."""


class Rule:
    """One rule of a kind of attention: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    """What it is called in a config, in a dump and in tables."""

    relative: ClassVar[bool] = False
    """Whether it depends on where a query stands among the keys."""

    def of_member(self, member: int) -> Rule:
        """The same rule for one member of the batch."""
        return self


class VisibilityRule(Rule):
    """A rule that hides keys from queries.

    Only `allows` is needed. The two promises let attention skip work on blocks; each is a bound,
    and one that is not made (the defaults) costs time, never a wrong number.
    """

    def allows(self, query: Positions, key: Positions) -> Mask:
        """Who sees whom: (..., queries, 1), (keys,) -> (..., queries, keys)."""
        raise NotImplementedError

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """No query at positions first…last sees a key outside of this: it need not be computed."""
        return 0, keys

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """Every query at positions first…last sees every key in this: it need not be checked."""
        return 0, 0

    def of_member(self, member: int) -> VisibilityRule:
        """The same rule for one member of the batch."""
        return self


def within(position: int, keys: int) -> int:
    """The position, or the nearest end of the keys: queries may stand before or behind them."""
    return min(max(position, 0), keys)


def per_batch(value: PerBatch, axes: int = 3) -> Array:
    """One number as it is; one for each member as (batch, 1, …), to broadcast against `axes` more axes."""
    array = np.asarray(value)
    return array.reshape(*array.shape, *(1,) * axes) if array.ndim else array


def of_member(value: PerBatch, member: int) -> int:
    """The number of one member of the batch."""
    return value if isinstance(value, int) else value[member]
