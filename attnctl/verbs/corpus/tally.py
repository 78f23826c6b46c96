"""The tally of a corpus: sums that no order changes, counts, a histogram, the largest weights.

What a row adds to a sum is rounded to a multiple of 2^-60 and added as a whole number. So the sums are
the same to the last digit in whatever order sentences come and however they are divided into parts. Every
number is a sentence's own: it comes of its own row of weights alone, whichever sentences stand beside it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import combinations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.verbs.stats.measure import (
    MEASURES,
    UNEVEN,
    as_shares,
    divergence,
    entropy,
    measure,
    number_tokens,
    require_weights,
)
from attnctl.verbs.stats.report import Largest

GRID = 60
"""Sums are multiples of 2 to the minus this."""

BINS, BINS_A_BIT = 64, 4
"""Of the histogram of entropies: a quarter of a bit each, the last with all that is more."""

EXAMPLES = 5
"""Largest weights that are kept of a head, one a sentence at most, and lines of those left out."""


def rank(example: Largest) -> tuple[float, int, tuple[int, ...]]:
    """Order large weights: the larger first, then the earlier sentence, then the earlier cell."""
    return -example.value, example.line, example.at


@dataclass
class GridSum:
    units: int = 0
    rows: int = 0

    def add(self, units: int, rows: int) -> None:
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
        self.count += count
        self.first = sorted([*self.first, *first])[:EXAMPLES]


@dataclass
class HeadTally:
    sums: dict[str, GridSum] = field(default_factory=lambda: {name: GridSum() for name in MEASURES})
    entropies: list[int] = field(default_factory=lambda: [0] * BINS)
    examples: list[Largest] = field(default_factory=list)
    empty_rows: int = 0
    uneven_rows: int = 0

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each measure; None where no row has it."""
        return {name: sum_.mean for name, sum_ in self.sums.items()}

    def note(self, example: Largest) -> None:
        insort(self.examples, example, key=rank)
        del self.examples[EXAMPLES:]

    def add(self, other: HeadTally) -> None:
        for name, own in self.sums.items():
            own.add(other.sums[name].units, other.sums[name].rows)
        self.entropies = [a + b for a, b in zip(self.entropies, other.entropies, strict=True)]
        self.examples = sorted([*self.examples, *other.examples], key=rank)[:EXAMPLES]
        self.empty_rows += other.empty_rows
        self.uneven_rows += other.uneven_rows


@dataclass
class LayerTally:
    """The heads of one layer, and how far each two are apart where that is asked for."""

    heads: list[HeadTally]
    pairs: dict[tuple[int, int], GridSum] = field(default_factory=dict)

    def add(self, other: LayerTally) -> None:
        for head, theirs in zip(self.heads, other.heads, strict=True):
            head.add(theirs)
        for pair, theirs_apart in other.pairs.items():
            self.pairs.setdefault(pair, GridSum()).add(theirs_apart.units, theirs_apart.rows)


BLOCK = 2**17
"""Weights that are worked on at a time: they stay in cache."""

HALF_GRID = GRID // 2


@dataclass(frozen=True)
class Sentences:
    """Sentences whose queries and keys are as many: their lines, the tokens of queries and of keys.

    `start` is the place of query 0 among the keys, None where queries have no place there.
    """

    lines: Sequence[int]
    tokens: Sequence[Sequence[str]]
    key_tokens: Sequence[Sequence[str]]
    start: int | None = 0

    def same(self) -> Array:
        """True where a key has the query's token, (sentence, query, key)."""
        numbers = map(number_tokens, self.tokens, self.key_tokens)
        return np.stack([rows[:, None] == columns for rows, columns in numbers])


def tally_of(weights: Array, sentences: Sentences, *, pairs: bool) -> LayerTally:
    """Add up the weights (sentence, head, query, key) of one layer.

    Raises AttnError for what are no weights: NaN, infinity, a negative number.
    """
    count, heads, queries, keys = weights.shape
    uneven = UNEVEN.get(weights.dtype.name, 0.0)
    same = sentences.same()
    tally = LayerTally([HeadTally() for _ in range(heads)])
    rows = max(1, BLOCK // (count * heads * keys))
    for first in range(0, queries, rows):
        block = np.asarray(weights[:, :, first : first + rows], np.float64)
        stop = first + block.shape[2]
        if not ((block >= 0) & (block < np.inf)).all():
            for member in block:
                require_weights(member, (0, first))
        at = None if sentences.start is None else np.arange(first, stop) + sentences.start
        add_rows(tally, block, at, same[:, None, first:stop], pairs=pairs, uneven=uneven)
    note_largest(tally, weights, sentences)
    return tally


def add_rows(
    tally: LayerTally, block: Array, at: Array | None, same: Array, *, pairs: bool, uneven: float
) -> None:
    """Add a block of queries (sentence, head, query, key) that stand at these places among the keys."""
    p, seen, uneven_rows = as_shares(block, uneven)
    bits = entropy(p)
    for name, values, there in measure(p, bits, at, same):
        for head, units, rows in zip(tally.heads, *sum_rows(values, seen & there), strict=True):
            head.sums[name].add(units, rows)
    place = np.minimum((bits * BINS_A_BIT).astype(np.int64), BINS - 1)
    empty = (~seen).sum(axis=(0, 2)).tolist()
    off = uneven_rows.sum(axis=(0, 2)).tolist()
    for number, head in enumerate(tally.heads):
        bins = np.bincount(place[:, number][seen[:, number]], minlength=BINS).tolist()
        head.entropies = [a + b for a, b in zip(head.entropies, bins, strict=True)]
        head.empty_rows += empty[number]
        head.uneven_rows += off[number]
    for a, b in combinations(range(len(tally.heads)), 2) if pairs else ():
        apart = divergence(p[:, a], p[:, b], bits[:, a] + bits[:, b])
        (units,), (rows,) = sum_rows(apart[:, None], (seen[:, a] & seen[:, b])[:, None])
        tally.pairs.setdefault((a, b), GridSum()).add(units, rows)


def sum_rows(values: Array, valid: Array) -> tuple[list[int], list[int]]:
    """The valid rows of each head (sentence, head, query), each on the grid, as sums; how many they are.

    A number is split in two, so that sums of whole numbers of 64 bits hold either part.
    """
    values = np.where(valid, values, 0)
    high = np.rint(np.ldexp(values, HALF_GRID))
    low = np.rint(np.ldexp(values - np.ldexp(high, -HALF_GRID), GRID))
    highs, lows = (half.astype(np.int64).sum(axis=(0, 2)).tolist() for half in (high, low))
    units = [(a << GRID - HALF_GRID) + b for a, b in zip(highs, lows, strict=True)]
    return units, valid.sum(axis=(0, 2)).tolist()


def note_largest(tally: LayerTally, weights: Array, sentences: Sentences) -> None:
    """Note the largest weight of each sentence and head, the first of those that are equal."""
    count, heads, _, keys = weights.shape
    flat = weights.reshape(count, heads, -1)
    places = flat.argmax(axis=-1)
    largest = np.take_along_axis(flat, places[..., None], axis=-1)[..., 0].astype(np.float64)
    lines = np.array(sentences.lines)
    for number, head in enumerate(tally.heads):
        for member in np.lexsort((lines, -largest[:, number]))[:EXAMPLES].tolist():
            value = float(largest[member, number])
            query, key = divmod(int(places[member, number]), keys)
            words = sentences.tokens[member][query], sentences.key_tokens[member][key]
            if value:
                head.note(Largest(value, (query, key), words, sentences.lines[member]))
