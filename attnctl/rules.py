"""Who may attend to whom, and how scores bend: rules on absolute positions.

A visibility rule is a function of a query position and a key position, nothing else; rules
compose by "and". They are evaluated for whatever block of positions is asked for, so no
(query, key) mask is ever built whole for them. `True` means *may attend*, everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnctl.array import Array
from attnctl.errors import AttnError

Positions = Array
Mask = Array
PerBatch = int | tuple[int, ...]
"""One number for all, or one for each member of the batch."""

FAR = 2**53
"""Further than any two positions are apart: larger limits need not fit NumPy's integers."""


@dataclass(frozen=True)
class Causal:
    """A query sees itself and what came before it."""

    name: ClassVar[str] = "causal"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(..., queries, 1), (keys,) -> (..., queries, keys)."""
        return key <= query

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The keys [from, to) that queries at positions first…last can see at all."""
        return 0, clamp(last + 1, keys)


@dataclass(frozen=True)
class Window:
    """A query sees `left` keys back and `right` keys ahead, ends included; None is no limit.

    Mistral's ``sliding_window: W`` is Causal with ``Window(W - 1)`` (a query sees W keys, itself
    among them).
    """

    name: ClassVar[str] = "window"
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None and side < 0:
                raise AttnError(
                    f"window: {side} is not a number of keys; use 0 or more, or None for no limit"
                )

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(..., queries, 1), (keys,) -> (..., queries, keys)."""
        near = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
        if self.left is not None:
            near &= key >= query - min(self.left, FAR)
        if self.right is not None:
            near &= key <= query + min(self.right, FAR)
        return near

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The keys [from, to) that queries at positions first…last can see at all."""
        start = 0 if self.left is None else clamp(first - self.left, keys)
        stop = keys if self.right is None else clamp(last + self.right + 1, keys)
        return start, stop


@dataclass(frozen=True)
class Padding:
    """Keys from `lengths` on are padding and seen by nobody."""

    name: ClassVar[str] = "padding"
    lengths: PerBatch

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(..., queries, 1), (keys,) -> ([batch, 1,] 1, keys)."""
        return key < per_batch(self.lengths)

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The keys [from, to) that queries at positions first…last can see at all."""
        return 0, clamp(int(np.max(self.lengths)), keys)


VisibilityRule = Causal | Window | Padding


@dataclass(frozen=True)
class Softcap:
    """Scores are squeezed smoothly into (−cap, cap): cap · tanh(S / cap) (Gemma 2, section 2)."""

    name: ClassVar[str] = "softcap"
    cap: float

    def __post_init__(self) -> None:
        if not 0 < self.cap < np.inf:
            raise AttnError(f"softcap: {self.cap} is not a positive finite number; leave it out for no cap")


@dataclass(frozen=True)
class Alibi:
    """Scores lose slope · distance, a slope for each head (Press et al. 2022, section 3)."""

    name: ClassVar[str] = "alibi"


Rule = VisibilityRule | Softcap | Alibi


def clamp(position: int, keys: int) -> int:
    """The position itself, or the nearest end of the keys: queries may stand before or behind them."""
    return min(max(position, 0), keys)


def per_batch(value: PerBatch, axes: int = 3) -> Array:
    """One number as it is; one a member as (batch, 1, …), to broadcast against `axes` more axes."""
    array = np.asarray(value)
    return array.reshape(*array.shape, *(1,) * axes) if array.ndim else array


def of_member(value: PerBatch, member: int) -> int:
    """The number of one member of the batch."""
    return value if isinstance(value, int) else value[member]


def alibi_slopes(heads: int) -> Array:
    """The slope of each head, (head,): 2^(−8/n), 2^(−16/n), … for n a power of two.

    For other n the paper's reference code takes the slopes of the next lower power of two and
    fills up with every other slope of the next higher one (Press et al. 2022, `get_slopes`).
    """

    def geometric(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    lower = 2 ** (heads.bit_length() - 1)
    extra = geometric(2 * lower)[0::2][: heads - lower]
    return np.array(geometric(lower) + extra)
