"""The soft cap: scores squeezed into a range."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import POSITIVE
from attnctl.math.rules.base import Rule


@dataclass(frozen=True)
class Softcap(Rule):
    """Scores are squeezed smoothly into (−cap, cap): cap · tanh(S / cap) (Gemma 2, section 2)."""

    name: ClassVar[str] = "softcap"
    words: ClassVar[str] = "No score gets beyond ±{cap:g}."
    setting: ClassVar[Setting] = Setting(
        name,
        POSITIVE,
        "The cap c: scaled scores become c · tanh(scores / c), before bias and mask.",
        30,
        Flag("--softcap"),
    )
    cap: float

    def __post_init__(self) -> None:
        if not 0 < self.cap < inf:
            raise AttnError(f"softcap: {self.cap} is not a positive finite number; leave it out for no cap")
