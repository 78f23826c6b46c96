"""The tally of a corpus: sums that no order changes, counts, a histogram, the largest weights.

What a row adds to a sum is rounded to a multiple of 2^-60 and added as a whole number. So the sums are
the same to the last digit in whatever order sentences come and however they are divided into parts.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from attnctl.verbs.stats.measure import MEASURES

GRID = 60
"""Sums are multiples of 2 to the minus this."""

BINS, BINS_A_BIT = 64, 4
"""Of the histogram of entropies: a quarter of a bit each, the last with all that is more."""

EXAMPLES = 5
"""Largest weights that are kept of a head, one a sentence at most, and lines of those left out."""


class Example(NamedTuple):
    """A large weight: the line of its sentence, its place, and its tokens. The larger stands first."""

    value: float
    line: int
    query: int
    key: int
    tokens: tuple[str, str]

    @property
    def rank(self) -> tuple[float, int, int, int]:
        """Order examples: the larger first, then the earlier sentence, then the earlier cell."""
        return -self.value, self.line, self.query, self.key


@dataclass
class GridSum:
    """A sum on the grid over so many rows."""

    units: int = 0
    rows: int = 0

    def add(self, units: int, rows: int) -> None:
        """Take in what a sentence, or another part, has."""
        self.units += units
        self.rows += rows

    @property
    def sum(self) -> float:
        return float(Fraction(self.units, 1 << GRID))

    @property
    def mean(self) -> float | None:
        """The mean over the rows, rounded once; None where there are none."""
        return float(Fraction(self.units, self.rows << GRID)) if self.rows else None


@dataclass
class SkippedLines:
    """The lines that were left out for one reason: how many, and the numbers of the first."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, count: int, first: Iterable[int]) -> None:
        """Take in what another part left out."""
        self.count += count
        self.first = sorted([*self.first, *first])[:EXAMPLES]


@dataclass
class HeadTally:
    """The sums of one head so far."""

    sums: dict[str, GridSum] = field(default_factory=lambda: {name: GridSum() for name in MEASURES})
    entropies: list[int] = field(default_factory=lambda: [0] * BINS)
    examples: list[Example] = field(default_factory=list)
    empty_rows: int = 0
    uneven_rows: int = 0

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each measure; None where no row has it."""
        return {name: each.mean for name, each in self.sums.items()}

    def note(self, example: Example) -> None:
        """Keep an example where it is one of the largest."""
        insort(self.examples, example, key=lambda each: each.rank)
        del self.examples[EXAMPLES:]

    def add(self, other: HeadTally) -> None:
        """Take in what another part found of this head."""
        for name, own in self.sums.items():
            own.add(other.sums[name].units, other.sums[name].rows)
        self.entropies = [a + b for a, b in zip(self.entropies, other.entropies, strict=True)]
        both = [*self.examples, *other.examples]
        self.examples = sorted(both, key=lambda each: each.rank)[:EXAMPLES]
        self.empty_rows += other.empty_rows
        self.uneven_rows += other.uneven_rows


@dataclass
class LayerTally:
    """The heads of one layer, and how far each two are apart where that is asked for."""

    heads: list[HeadTally]
    pairs: dict[tuple[int, int], GridSum] = field(default_factory=dict)

    def add(self, other: LayerTally) -> None:
        """Take in what another part found of this layer."""
        for head, theirs in zip(self.heads, other.heads, strict=True):
            head.add(theirs)
        for pair, theirs_apart in other.pairs.items():
            self.pairs.setdefault(pair, GridSum()).add(theirs_apart.units, theirs_apart.rows)
