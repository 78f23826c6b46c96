"""The dilated rule: a query sees every so many keys."""

from __future__ import annotations

from typing import ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import SIZE
from attnctl.math.rules.base import Mask, Positions, VisibilityRule


@dataclass(frozen=True)
class Dilated(VisibilityRule):
    """A query sees the keys whose distance from it is divisible by `dilation`.

    With a window it is the dilated sliding window of attention-gym, and the pattern inside a
    segment of LongNet (Ding et al. 2023, section 3). It has holes, so it promises nothing about
    whole blocks.
    """

    name: ClassVar[str] = "dilated"
    words: ClassVar[str] = "A query sees every {dilation}th key, counted from itself."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        SIZE,
        "Query i sees only keys whose distance from i is divisible by this number.",
        2,
        Flag("--dilation", metavar="K"),
    )
    dilation: int

    def __post_init__(self) -> None:
        if self.dilation < 1:
            raise AttnError(f"dilation: {self.dilation} is not a distance between keys; use 1, 2, 3, …")

    def allows(self, query: Positions, key: Positions) -> Mask:
        """(query − key) mod dilation = 0."""
        return (query - key) % self.dilation == 0
