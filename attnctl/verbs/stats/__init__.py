"""Measurements as sums and counts: parts of a set of dumps merge to exactly what the whole gives.

A mean is kept as the sum and the number of rows it was taken over. Sums over dumps are rounded
once, correctly (`math.fsum`), so no order and no division into parts changes a digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from math import fsum
from typing import Any

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.math import Array

SCHEMA = "attnctl/stats/1"


@dataclass(frozen=True)
class Tally:
    sum: float
    rows: int

    @property
    def mean(self) -> float | None:
        return self.sum / self.rows if self.rows else None

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        every = list(tallies)
        return cls(fsum(head.sum for head in every), sum(head.rows for head in every))


@dataclass(frozen=True)
class Largest:
    """The largest weight and where it is: ([batch,] query, key), and their tokens where they have any."""

    value: float
    at: tuple[int, ...]
    tokens: tuple[str, str] | None = None
    line: int = 0  # the line of its sentence, in a corpus

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "at": list(self.at),
            "tokens": self.tokens and list(self.tokens),
        }


@dataclass(frozen=True)
class HeadStats:
    """One head: a tally for each measure (None: it means nothing here), and its largest weight."""

    tallies: Mapping[str, Tally | None]
    largest: Largest | None
    empty_rows: int
    uneven_rows: int

    @property
    def means(self) -> dict[str, float | None]:
        return {name: None if tally is None else tally.mean for name, tally in self.tallies.items()}

    def to_dict(self) -> dict[str, Any]:
        """Means by name, then the sums and rows they were made of."""
        return {
            **self.means,
            "largest": self.largest and self.largest.to_dict(),
            "empty_rows": self.empty_rows,
            "uneven_rows": self.uneven_rows,
            "sums": {name: tally and tally.sum for name, tally in self.tallies.items()},
            "rows": {name: tally and tally.rows for name, tally in self.tallies.items()},
        }


@dataclass(frozen=True)
class DumpStats:
    """The heads of one dump, or of several taken together, and how far each two are apart."""

    name: str
    heads: tuple[HeadStats, ...]
    pairs: Mapping[tuple[int, int], Tally]
    sentence: str | None = None

    _repr_mimebundle_ = Displayed._repr_mimebundle_

    def nearest(self, head: int) -> tuple[int, float] | None:
        """The head that does most nearly the same, and how far from it that is."""
        others = []
        for (a, b), tally in self.pairs.items():
            if head in (a, b) and tally.mean is not None:
                others.append((tally.mean, a if b == head else b))
        if not others:
            return None

        divergence, other = min(others)  # of two as near the first
        return other, divergence

    def most_similar(self) -> dict[str, Any] | None:
        """The two heads that are least apart, for JSON."""
        apart = [(tally.mean, pair) for pair, tally in self.pairs.items() if tally.mean is not None]
        if not apart:
            return None
        divergence, pair = min(apart)
        return {"heads": list(pair), "divergence": divergence}

    def to_dict(self) -> dict[str, Any]:
        heads = []
        for number, head in enumerate(self.heads):
            nearest = None
            if near := self.nearest(number):
                other, divergence = near
                nearest = {"head": other, "divergence": divergence}
            heads.append({"head": number, **head.to_dict(), "nearest": nearest})

        return {
            "dump": self.name,
            "sentence": self.sentence,
            "heads": heads,
            "most_similar": self.most_similar(),
            "pairs": [
                {"heads": list(pair), "divergence": tally.mean, "sum": tally.sum, "rows": tally.rows}
                for pair, tally in self.pairs.items()
            ],
        }


@dataclass(frozen=True)
class StatsReport:
    dumps: tuple[DumpStats, ...]
    rolled: Array | None = None  # the rollout, (token, token)
    tokens: Sequence[str] | None = None  # what stands along both axes of the rollout
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def aggregate(self) -> DumpStats | None:
        """All dumps taken together, head by head; None where they have different numbers of heads."""
        if len({len(dump.heads) for dump in self.dumps}) != 1:
            return None

        by_head = zip(*(dump.heads for dump in self.dumps), strict=True)
        heads = tuple(map(total_of_head, by_head))
        pairs = {}
        for pair in self.dumps[0].pairs:
            pairs[pair] = Tally.total(dump.pairs[pair] for dump in self.dumps)
        return DumpStats("all", heads, pairs)

    @property
    def whole(self) -> DumpStats | None:
        """The aggregate of several dumps; of one it would say the same again."""
        return self.aggregate if len(self.dumps) > 1 else None

    @property
    def compared(self) -> bool:
        """True if heads of a dump were held against each other."""
        return any(dump.pairs for dump in self.dumps)

    def to_dict(self) -> dict[str, Any]:
        whole = self.aggregate
        data = {
            "schema": SCHEMA,
            "dumps": [dump.to_dict() for dump in self.dumps],
            "aggregate": whole and whole.to_dict(),
            **self.more,
        }
        if self.rolled is not None:
            data["rollout"] = {"tokens": self.tokens, "data": self.rolled.tolist()}
        return data


def total_of_head(heads: Sequence[HeadStats]) -> HeadStats:
    """A measure counts where it means something."""
    tallies: dict[str, Tally | None] = {}
    for name in heads[0].tallies:
        known = [tally for head in heads if (tally := head.tallies[name]) is not None]
        tallies[name] = Tally.total(known) if known else None

    largest = [head.largest for head in heads if head.largest]
    return HeadStats(
        tallies=tallies,
        largest=max(largest, key=lambda weight: weight.value, default=None),
        empty_rows=sum(head.empty_rows for head in heads),
        uneven_rows=sum(head.uneven_rows for head in heads),
    )
