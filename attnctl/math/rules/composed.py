"""Rules made of rules: any of them may show a key, or all of them must."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math.rules.base import Mask, Positions, Rule, Span, VisibilityRule
from attnctl.math.rules.padding import Padding


@dataclass(frozen=True)
class Composed(VisibilityRule):
    """Rules that hide keys, put together."""

    rules: tuple[VisibilityRule, ...]
    relative: ClassVar[bool] = True
    between: ClassVar[str]
    """The word between its rules."""

    def __post_init__(self) -> None:
        if not self.rules:
            raise AttnError(f"{self.name}: no rules; write some, like [causal, {{window: 2}}]")
        if any(isinstance(rule, Padding) for rule in self.rules):
            raise AttnError(f"{self.name}: nobody sees padding; write it beside {self.name}, not in it")

    @classmethod
    def of(cls, value: Any) -> Rule:
        """The rule of these rules."""
        return cls(tuple(value))

    def plain(self) -> Any:
        """{any_of: [causal, {window: 2}]}."""
        return {self.name: [rule.plain() for rule in self.rules]}

    @property
    def said(self) -> str:
        """With what each of its rules asks for."""
        each = (rule.said[0].lower() + rule.said[1:].rstrip(".") for rule in self.rules)
        return f"{self.words}: {f'; {self.between} '.join(each)}."

    def of_member(self, member: int) -> Composed:
        """Each rule for this member of the batch."""
        return replace(self, rules=tuple(rule.of_member(member) for rule in self.rules))


@dataclass(frozen=True)
class AnyOf(Composed):
    """A query sees a key that one of the rules shows it (attention-gym's `or_masks`)."""

    name: ClassVar[str] = "any_of"
    words: ClassVar[str] = "A query sees a key that one of these rules lets it see"
    between: ClassVar[str] = "or"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """True where one of them says so."""
        return reduce(lambda a, b: a | b, (rule.allows(query, key) for rule in self.rules))

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From where the first of the spans begins to where the last one ends."""
        spans = [rule.visible_to_any(first, last, keys) for rule in self.rules]
        spans = [span for span in spans if span[0] < span[1]] or [(0, 0)]
        return min(start for start, _ in spans), max(stop for _, stop in spans)

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The widest of the spans."""
        spans = (rule.visible_to_all(first, last, keys) for rule in self.rules)
        return max(spans, key=lambda span: span[1] - span[0])


@dataclass(frozen=True)
class AllOf(Composed):
    """A query sees a key that all of the rules show it, as rules beside each other have it."""

    name: ClassVar[str] = "all_of"
    words: ClassVar[str] = "A query sees a key that all of these rules let it see"
    between: ClassVar[str] = "and"

    def allows(self, query: Positions, key: Positions) -> Mask:
        """All of them do."""
        return reduce(lambda a, b: a & b, (rule.allows(query, key) for rule in self.rules))

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """The keys that all of the spans hold."""
        return common(rule.visible_to_any(first, last, keys) for rule in self.rules)

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The keys that all of the spans hold."""
        return common(rule.visible_to_all(first, last, keys) for rule in self.rules)


def any_of(*rules: VisibilityRule) -> AnyOf:
    """The rule that shows what one of these shows: ``any_of(Causal(), Window(2, 2))``."""
    return AnyOf(rules)


def all_of(*rules: VisibilityRule) -> AllOf:
    """The rule that shows what all of these show."""
    return AllOf(rules)


def common(spans: Iterable[Span]) -> Span:
    """The keys that all spans hold."""
    starts, stops = zip(*spans, strict=True)
    start = max(starts)
    return start, max(start, min(stops))
