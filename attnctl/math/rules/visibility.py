"""Rules of who may attend to whom: by order, distance, padding and document; and rules made of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import (
    SIZE,
    SWITCH,
    BadValueError,
    Json,
    Plain,
    Reader,
    each,
    is_unlimited,
    unfit,
    whole_number,
)
from attnctl.math import Array
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
        raise unfit(value, f"of {len(value)}; write [back, ahead], like [3, 0], or one number for both")
    left, right = each(value, read_end)
    return left, right


def ends_of_text(text: str) -> Any:
    """'3,0' -> ['3', '0'], as a config has it; '3' -> '3'."""
    ends = [Plain(part.strip()) for part in text.split(",")]
    if len(ends) > 2 or not all(ends):
        raise unfit(Plain(text), "is not L or L,R; write whole numbers or inf, like 3,0")
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
        Flag("--window", more="A model's sliding_window W is --causal --window W-1.", parts=ends_of_text),
    )
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None and side < 0:
                what = "use 0 or more, or None for no limit"
                raise AttnError(f"window: {side} is not a number of keys; {what}")

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
        return self.visible_to_any(last, first, keys)

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """One end or both are one off: of a window that reaches as far on both sides, both first."""
        both = ((-1, -1), (1, 1))
        one = ((-1, 0), (1, 0), (0, -1), (0, 1))
        for left, right in (*both, *one) if self.left == self.right else (*one, *both):
            moved = (self.left, left), (self.right, right)
            ends = [None if end is None else end + by for end, by in moved]
            if all(end is None or end >= 0 for end in ends):
                detail = ", ".join("∞" if end is None else str(end) for end in ends)
                yield "window-off-by-one", detail, Window(*ends)


@dataclass(frozen=True)
class BlockLocal(VisibilityRule):
    """A query sees the keys of its own block of `size` positions (Llama 4's chunked attention)."""

    name: ClassVar[str] = "block_local"
    words: ClassVar[str] = "A query sees the keys of its own block of {size}."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        SIZE,
        "Query i sees only keys of its own block of this many.",
        4,
        Flag("--block-local", metavar="N"),
    )
    size: int

    def allows(self, query: Positions, key: Positions) -> Mask:
        """⌊query / size⌋ = ⌊key / size⌋."""
        return query // self.size == key // self.size

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From the first query's block to the last one's."""
        start = first // self.size
        stop = last // self.size + 1
        return within(start * self.size, keys), within(stop * self.size, keys)


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


# --- documents, one behind the other in one row of tokens ---

Starts = tuple[int, ...]
"""The position at which each document begins."""

POSITION = whole_number(0)
LIST: Json = {"type": "array", "items": POSITION.schema, "minItems": 1}


def read_starts(value: Any) -> Starts:
    """Where documents begin. Raises BadValueError where that does not go up from 0."""
    if not isinstance(value, list):
        raise BadValueError("expected the starts of documents; write them like 0,5,12")
    starts = tuple(POSITION(start) for start in value)
    if starts[:1] != (0,) or any(later < start for start, later in pairwise(starts)):
        found = ", ".join(map(str, starts))
        raise BadValueError(f"[{found}] does not go up from 0; write where each document begins: 0,5,12")
    return starts


def read_documents(value: Any) -> Starts | tuple[Starts, Starts]:
    """The starts among the keys; and those among the queries, where there are others of these."""
    if isinstance(value, list) and [type(part) for part in value] == [list, list]:
        return read_starts(value[0]), read_starts(value[1])
    return read_starts(value)


def starts_of_text(text: str) -> Any:
    """'0,5,12' -> ['0', '5', '12'], as a config has it; '0:5:12,0:1:2' are those of keys and of queries."""
    if ":" in text:
        return [[Plain(start.strip()) for start in part.split(":")] for part in text.split(",")]
    return [Plain(start.strip()) for start in text.split(",")]


@dataclass(frozen=True)
class Documents(VisibilityRule):
    """A query sees the keys of its own document.

    Documents begin at `starts`; `of_queries` are their starts among queries that are not the keys' tokens
    (flash-attention's cu_seqlens_q and cu_seqlens_k).
    """

    name: ClassVar[str] = "documents"
    words: ClassVar[str] = "A query sees the keys of its own document; documents begin at {starts}."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        Reader(
            read_documents,
            {"anyOf": [LIST, {"type": "array", "items": LIST, "minItems": 2, "maxItems": 2}]},
            "0,N,…",
        ),
        "Where documents begin in one row of tokens: a query sees its own; positions start again in each.",
        [0, 2],
        Flag("--documents", parts=starts_of_text),
    )
    starts: Starts
    of_queries: Starts = ()

    @classmethod
    def of(cls, value: Any) -> Documents:
        """The rule with the starts among keys, or these and those among queries."""
        return cls(value) if type(value[0]) is int else cls(*value)

    def plain(self) -> Any:
        """{documents: [0, 5, 12]}."""
        starts = list(self.starts)
        return {self.name: [starts, list(self.of_queries)] if self.of_queries else starts}

    @property
    def borders(self) -> tuple[int, ...]:
        """Where documents begin."""
        return self.of_queries or self.starts

    def apart(self, query: Positions, key: Positions) -> Array:
        """How many documents a key is before a query."""
        return document_of(query, self.borders) - document_of(key, self.starts)

    def allows(self, query: Positions, key: Positions) -> Mask:
        """document(key) = document(query)."""
        return self.apart(query, key) == 0

    def reaching(self, least: int, most: int, beside: int = 0) -> Seen:
        """The rule that shows documents so far before a query's own, and keys so far beside these."""

        def reaches(query: Positions, key: Positions) -> Mask:
            apart = self.apart(query, key)
            return (least <= apart) & (apart <= most)

        return Seen(lambda query, key: reaches(query, key) | reaches(query, key + beside))

    def keys_of(self, query: int, keys: int) -> Span:
        """The keys of the document of a query; none where it has none."""
        borders = [0, *sorted(self.starts), keys, keys]
        at = min(int(document_of(query, self.borders)), len(borders) - 2)
        begin, end = borders[at : at + 2]
        return within(begin, keys), within(end, keys)

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From the begin of the first query's document to the end of the last one's."""
        return self.keys_of(first, keys)[0], self.keys_of(last, keys)[1]

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """The document of all these queries, if it is one."""
        begin = self.keys_of(first, keys)
        end = self.keys_of(last, keys)
        return begin if begin == end else (0, 0)

    def mistaken(self, keys: int) -> Iterator[NearMiss]:
        """Other documents are seen, counts stand for offsets, the last document is lost."""
        starts = self.starts
        last = max(self.borders)
        counts = [end - start for start, end in pairwise([*starts, keys])]
        many = len(starts)

        yield "documents-leak", "all documents", self.reaching(-many, many)
        yield "documents-leak", "the documents before its own, too", self.reaching(0, many)
        yield "documents-leak", "the documents behind its own, too", self.reaching(-many, 0)

        for by, whose in (
            (-1, "the first token of the next document"),
            (1, "the last token of the one before"),
        ):
            moved = tuple(start and start - by for start in starts)
            yield "documents-leak", f"{whose} as its own", Documents(moved, self.of_queries)
            yield "documents-leak", f"{whose}, too", self.reaching(0, 0, by)

        # Counts for where each document begins, with a 0 before them or not.
        yield "documents-counts", "", Documents(tuple(sorted(counts)))
        yield "documents-counts", "", Documents(tuple(sorted({0, *counts})))

        without_last = Seen(lambda query, key: self.allows(query, key) & (query < last))
        yield "documents-last-dropped", "the last document is left out", without_last
        yield (
            "documents-last-dropped",
            "the last document is taken for a part of the one before",
            replace(self, starts=starts[:-1], of_queries=self.of_queries[:-1]),
        )


def document_of(position: Any, starts: Starts) -> Any:
    """The number of the document that holds a position, from 1 on; 0 before the first."""
    import numpy as np

    return np.searchsorted(np.sort(starts), position, side="right")


def place_in_document(position: Positions, starts: Starts) -> Positions:
    """Positions that start again in each document; as they are where there are none."""
    import numpy as np

    if not starts:
        return position
    return position - np.array([0, *starts])[document_of(position, starts)]


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
        parts = (rule.said[0].lower() + rule.said[1:].rstrip(".") for rule in self.rules)
        return f"{self.words}: {f'; {self.between} '.join(parts)}."

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
