"""The causal rule: no query sees the future."""

from __future__ import annotations

from typing import ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import SWITCH
from attnctl.math.rules.base import Mask, Positions, Span, VisibilityRule, within


@dataclass(frozen=True)
class Causal(VisibilityRule):
    """A query sees itself and what came before it."""

    name: ClassVar[str] = "causal"
    words: ClassVar[str] = "A query sees no key that comes after it."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        SWITCH,
        "Query i sees key j only when j <= i + offset (top-left aligned unless there is a cache).",
        flag=Flag("--causal"),
    )

    def allows(self, query: Positions, key: Positions) -> Mask:
        """key <= query."""
        return key <= query

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """The keys that the last query sees."""
        return 0, within(last + 1, keys)

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The keys that the first query sees."""
        return 0, within(first + 1, keys)
