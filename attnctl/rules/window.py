"""The window rule: a query sees only keys near it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnctl.errors import AttnError
from attnctl.rules.base import Mask, Positions, Span, VisibilityRule, within

FAR = 2**53
"""Further than any two positions are apart: larger limits need not fit NumPy's integers."""


@dataclass(frozen=True)
class Window(VisibilityRule):
    """A query sees `left` keys back and `right` keys ahead, ends included; None is no limit.

    Mistral's ``sliding_window: W`` is Causal with ``Window(W - 1)`` (a query sees W keys, itself
    among them).
    """

    name: ClassVar[str] = "window"
    relative: ClassVar[bool] = True
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None and side < 0:
                raise AttnError(
                    f"window: {side} is not a number of keys; use 0 or more, or None for no limit"
                )

    def allows(self, query: Positions, key: Positions) -> Mask:
        """query − left <= key <= query + right."""
        near = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
        if self.left is not None:
            near &= key >= query - min(self.left, FAR)
        if self.right is not None:
            near &= key <= query + min(self.right, FAR)
        return near

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the first query's window to the right end of the last one's."""
        start = 0 if self.left is None else within(first - self.left, keys)
        stop = keys if self.right is None else within(last + self.right + 1, keys)
        return start, stop

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the last query's window to the right end of the first one's."""
        start = 0 if self.left is None else within(last - self.left, keys)
        stop = keys if self.right is None else within(first + self.right + 1, keys)
        return start, stop
