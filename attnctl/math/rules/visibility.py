"""Rules of who may attend to whom: by order, by distance, by padding; and rules made of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import (
    SWITCH,
    BadValueError,
    Json,
    Plain,
    Reader,
    each,
    is_unlimited,
    short_value,
    whole_number,
)
from attnctl.math.rules.base import (
    Mask,
    NearMiss,
    PerBatch,
    Positions,
    Rule,
    Seen,
    Span,
    VisibilityRule,
    of_member,
    per_batch,
    within,
)


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

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """key < query."""
        yield "causal-strict", "", Seen(lambda query, key: key < query)


# --- windows ---

FAR = 2**53
"""Further than any two positions are apart: larger limits need not fit NumPy's integers."""

KEYS = whole_number(0, 10**30)
END: Json = {"anyOf": [{"type": "integer", "minimum": 0}, {"enum": [None, "inf"]}]}


def read_end(value: Any) -> int | None:
    """Read the reach of a window: a number of keys, or None without limit."""
    return None if is_unlimited(value) else KEYS(value)


def read_ends(value: Any) -> tuple[int | None, int | None]:
    """L or [L, R]: how many keys back and ahead."""
    if not isinstance(value, list):
        return read_end(value), read_end(value)
    if len(value) != 2:
        raise BadValueError(
            f"a list of {len(value)}; write [back, ahead], like [3, 0], or one number for both"
        )
    left, right = each(value, read_end)
    return left, right


def ends_of_text(text: str) -> Any:
    """'3,0' -> ['3', '0'], as a config has it; '3' -> '3'."""
    ends = [Plain(part.strip()) for part in text.split(",")]
    if len(ends) > 2 or not all(ends):
        raise BadValueError(
            f"{short_value(Plain(text))} is not L or L,R; write whole numbers or inf, like 3,0"
        )
    return ends if len(ends) == 2 else ends[0]


ENDS = Reader(
    read_ends, {"anyOf": [END, {"type": "array", "items": END, "minItems": 2, "maxItems": 2}]}, "L[,R]"
)


@dataclass(frozen=True)
class Window(VisibilityRule):
    """A query sees `left` keys back and `right` keys ahead, ends included; None is no limit.

    Mistral's ``sliding_window: W`` is Causal with ``Window(W - 1)`` (a query sees W keys, itself
    among them).
    """

    name: ClassVar[str] = "window"
    words: ClassVar[str] = "A query sees keys from {left} before it to {right} after it."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        ENDS,
        "L and R: query i sees keys i - L to i + R, ends included; one number is both, inf opens a side.",
        [3, 0],
        Flag(
            "--window",
            more="A model's sliding_window W is --causal --window W-1.",
            parts=ends_of_text,
        ),
    )
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None and side < 0:
                raise AttnError(
                    f"window: {side} is not a number of keys; use 0 or more, or None for no limit"
                )

    def allows(self, query: Positions, key: Positions) -> Mask:
        """query − left <= key <= query + right."""
        import numpy as np

        near = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
        if self.left is not None:
            near &= key >= query - min(self.left, FAR)
        if self.right is not None:
            near &= key <= query + min(self.right, FAR)
        return near

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the first query's window to the right end of the last one's."""
        start = 0 if self.left is None else within(first - self.left, keys)
        stop = keys if self.right is None else within(last + self.right + 1, keys)
        return start, stop

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the last query's window to the right end of the first one's."""
        start = 0 if self.left is None else within(last - self.left, keys)
        stop = keys if self.right is None else within(first + self.right + 1, keys)
        return start, stop

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """One end or both are one off."""
        for left, right in ((-1, -1), (1, 1), (-1, 0), (1, 0), (0, -1), (0, 1)):
            ends = [
                None if end is None else end + by for end, by in ((self.left, left), (self.right, right))
            ]
            if all(end is None or end >= 0 for end in ends):
                detail = ", ".join("∞" if end is None else str(end) for end in ends)
                yield "window-off-by-one", detail, Window(*ends)


# --- padding ---


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

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """None: other lengths are fitted, member by member."""
        yield from ()


# --- rules made of rules ---


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

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """One of its rules is mistaken."""
        for at, rule in enumerate(self.rules):
            for mistake, detail, other in rule.mistaken(keys):
                rules = (*self.rules[:at], other, *self.rules[at + 1 :])
                yield mistake, detail, replace(self, rules=rules)


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
