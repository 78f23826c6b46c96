"""The nouns for rules: who may attend to whom, and how scores bend.

Rules are functions of absolute positions, combined by "and", and evaluated for whatever block of
positions is asked for: no (query, key) mask is ever built whole for them. `True` means *may
attend*, everywhere.

A rule's file imports NumPy where it computes: help texts list every rule's flag, and come without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from math import inf
from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import POSITIVE, SWITCH
from attnctl.math import Array

Positions = Array
Mask = Array
NearMiss = tuple[str, str, "VisibilityRule"]
"""The name of a mistake, its detail, and the rule that makes it."""

Span = tuple[int, int]
"""Keys [from, to), by absolute position."""

PerBatch = int | tuple[int, ...]
"""One number for all, or one for each member of the batch."""


class Rule:
    """A rule of a kind of attention: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    """What it is called in a config, in a dump and in tables."""
    words: ClassVar[str] = "The rule {name} says who sees whom."
    """What it asks for, a sentence with its parameters in { }; one that is None is any."""
    relative: ClassVar[bool] = False
    """Whether it depends on where a query stands among the keys."""
    setting: ClassVar[Setting | None] = None
    """How a person asks for it: in a config, by a flag, by a keyword. None: no one can."""

    @classmethod
    def of(cls, value: Any) -> Rule:
        """The rule with the value that its setting's reader read; on or off is for rules without any."""
        make: Any = cls
        return make() if value is True else make(*value) if isinstance(value, tuple) else make(value)

    def plain(self) -> Any:
        """The rule in the form a config writes it: causal, {softcap: 30.0}, {window: [3, 0]}."""
        values = astuple(self)  # type: ignore[call-overload]  # every rule is a dataclass
        if not values:
            return self.name
        return {self.name: values[0] if len(values) == 1 else list(values)}

    @property
    def label(self) -> str:
        """What it is called in a cell that it hides, and in sentences."""
        return self.name.replace("_", " ")

    @property
    def said(self) -> str:
        """A sentence on what it asks for."""
        values = {name: "any" if value is None else value for name, value in vars(self).items()}
        return self.words.format(name=self.name, **values)


class VisibilityRule(Rule):
    """A rule that hides keys from queries.

    Only `allows` is needed. The two promises let attention skip work on blocks; each is a bound,
    and one that is not made (the defaults) costs time, never a wrong number.
    """

    @property
    def borders(self) -> tuple[int, ...]:
        """Positions of queries that see no key that queries before them see: blocks may end there."""
        return ()

    def allows(self, query: Positions, key: Positions) -> Mask:
        """True where a query sees a key: (..., queries, 1), (keys,) -> (..., queries, keys)."""
        raise NotImplementedError

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """No query at positions first…last sees a key outside of this: it need not be computed."""
        return 0, keys

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """Every query at positions first…last sees every key in this: it need not be checked."""
        return 0, 0

    def of_member(self, member: int) -> VisibilityRule:
        """The rule as it is for one member of the batch."""
        return self

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """Rules that people write in place of this one, over so many keys; `mistakes/masks.py` names them.

        Its sizes one off; where it goes by the places of queries among keys, also without the half
        that hides the future, and with positions counted from the last key on.
        """
        for name, value in vars(self).items():
            for near in (value - 1, value + 1) if type(value) is int else ():
                if near > 0:
                    yield "rule-off-by-one", f"{name} {near}", replace(self, **{name: near})  # type: ignore[type-var]
        if self.relative:
            both = Seen(lambda query, key: self.allows(query, key) | self.allows(key, query))
            yield "rule-both-ways", "", both
            turned = Seen(lambda query, key: self.allows(keys - 1 - query, keys - 1 - key))
            yield "rule-from-the-end", "", turned


@dataclass(frozen=True)
class Seen(VisibilityRule):
    """A rule that is a function of two positions, which no one asks for by name."""

    seen: Callable[[Positions, Positions], Mask]
    name: ClassVar[str] = "seen"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """As the function has it."""
        return self.seen(query, key)


def within(position: int, keys: int) -> int:
    """The position, or the nearest end of the keys: queries may stand before or behind them."""
    return min(max(position, 0), keys)


def per_batch(value: PerBatch, axes: int = 3) -> Array:
    """A number as it is; one for each member as (batch, 1, …), to broadcast against `axes` more axes."""
    import numpy as np

    array = np.asarray(value)
    return array.reshape(*array.shape, *(1,) * axes) if array.ndim else array


def of_member(value: PerBatch, member: int) -> int:
    """The number of one member of the batch."""
    return value if isinstance(value, int) else value[member]


# --- rules that bend scores: by the distance of the key, and into a range ---


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
