"""A rule: a query sees every n-th key."""

from dataclasses import dataclass
from typing import ClassVar

from attnctl.base.setting import Flag, Setting
from attnctl.base.values import SIZE
from attnctl.math.rules.base import VisibilityRule


@dataclass(frozen=True)
class Strided(VisibilityRule):
    """A query sees every `size`-th key, itself among them."""

    name: ClassVar = "strided"
    words: ClassVar = "A query sees every {size}th key, counted from its own."
    relative: ClassVar = True
    setting: ClassVar = Setting(
        name,
        SIZE,
        "Query i sees only keys that are a multiple of this many from it.",
        4,
        Flag("--strided", metavar="N"),
    )
    size: int

    def allows(self, query, key):
        return (query - key) % self.size == 0
