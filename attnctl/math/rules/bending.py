"""Rules that bend scores: ALiBi, by the distance of the key, and the soft cap, into a range."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import POSITIVE, SWITCH
from attnctl.math import Array
from attnctl.math.rules.base import Rule


@dataclass(frozen=True)
class Alibi(Rule):
    """Scores lose slope · distance, a slope for each head (Press et al. 2022, section 3)."""

    name: ClassVar[str] = "alibi"
    words: ClassVar[str] = "A score loses by the distance of its key, each head at a slope of its own."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name, SWITCH, "Scores lose slope · distance, a slope for each head."
    )


def alibi_slopes(heads: int) -> Array:
    """The slope of each head, (head,): 2^(−8/n), 2^(−16/n), … for n a power of two.

    For other n the paper's reference code takes the slopes of the next lower power of two and
    fills up with every other slope of the next higher one (Press et al. 2022, `get_slopes`).
    """
    import numpy as np

    def geometric(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]

    lower = 2 ** (heads.bit_length() - 1)
    return np.array(geometric(lower) + geometric(2 * lower)[0::2][: heads - lower])


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
