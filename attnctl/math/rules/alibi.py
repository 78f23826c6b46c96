"""ALiBi: scores lose in proportion to distance."""

from __future__ import annotations

from typing import ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.setting import Setting
from attnctl.base.values import SWITCH
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
    extra = geometric(2 * lower)[0::2][: heads - lower]
    return np.array(geometric(lower) + extra)
