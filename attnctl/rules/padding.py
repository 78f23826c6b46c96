"""The padding rule: nobody sees the keys that only fill up a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnctl.rules.base import Mask, PerBatch, Positions, Span, VisibilityRule, of_member, per_batch, within


@dataclass(frozen=True)
class Padding(VisibilityRule):
    """Keys from `lengths` on are padding and seen by nobody."""

    name: ClassVar[str] = "padding"
    lengths: PerBatch

    def allows(self, query: Positions, key: Positions) -> Mask:
        """key < lengths, ([batch, 1,] 1, keys)."""
        return key < per_batch(self.lengths)

    @property
    def each(self) -> tuple[int, ...]:
        """The length of every member."""
        return (self.lengths,) if isinstance(self.lengths, int) else self.lengths

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """The keys of the longest member."""
        return 0, within(int(max(self.each)), keys)

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The keys of the shortest member."""
        return 0, within(int(min(self.each)), keys)

    def of_member(self, member: int) -> Padding:
        """With the length of this member."""
        return Padding(of_member(self.lengths, member))
