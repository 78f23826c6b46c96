"""The padding rule: nobody sees the keys that only fill up a batch."""

from __future__ import annotations

from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.setting import Setting
from attnctl.base.values import SWITCH
from attnctl.math.rules.base import (
    Mask,
    PerBatch,
    Positions,
    Span,
    VisibilityRule,
    of_member,
    per_batch,
    within,
)


@dataclass(frozen=True)
class Padding(VisibilityRule):
    """Keys from `lengths` on are padding and seen by nobody, and so are the keys `also`.

    As it is asked for, `lengths` is None: the tokens, or what comes with the arrays, say which
    keys are padding.
    """

    name: ClassVar[str] = "padding"
    words: ClassVar[str] = "Nobody sees padding."
    setting: ClassVar[Setting] = Setting(name, SWITCH, "Nobody sees a key that is [PAD].")
    lengths: PerBatch | None = None
    also: tuple[int, ...] = ()

    def plain(self) -> Any:
        """Its name alone: which keys are padding follows from what is attended to."""
        return self.name

    def allows(self, query: Positions, key: Positions) -> Mask:
        """key < lengths and not one of `also`, ([batch, 1,] 1, keys)."""
        import numpy as np

        real = key < per_batch(self.known)
        return real & ~np.isin(key, self.also) if self.also else real

    @property
    def known(self) -> PerBatch:
        """The lengths. Raises ValueError where the rule is only asked for."""
        if self.lengths is None:
            raise ValueError("padding: nothing says yet which keys are padding")
        return self.lengths

    @property
    def each(self) -> tuple[int, ...]:
        """The length of every member."""
        return (self.known,) if isinstance(self.known, int) else self.known

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """The keys of the longest member."""
        return 0, within(int(max(self.each)), keys)

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The keys of the shortest member, up to the first padding between them."""
        return 0, within(int(min([*self.each, *self.also])), keys)

    def of_member(self, member: int) -> Padding:
        """With the length of this member."""
        return Padding(of_member(self.known, member), self.also)
