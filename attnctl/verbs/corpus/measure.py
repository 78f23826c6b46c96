"""Measure the weights of sentences of one length for the tally of a layer.

Every number is a sentence's own: it comes of its own row of weights by operations on that row alone,
whichever sentences stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attnctl.math import Array
from attnctl.verbs.corpus.tally import (
    BINS,
    BINS_A_BIT,
    EXAMPLES,
    GRID,
    Example,
    GridSum,
    HeadTally,
    LayerTally,
)
from attnctl.verbs.stats.measure import UNEVEN, check, entropy, measure

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
        found = []
        for own, keys in zip(self.tokens, self.key_tokens, strict=True):
            ids = {token: number for number, token in enumerate(dict.fromkeys([*own, *keys]))}
            rows, columns = (np.array([ids[token] for token in each]) for each in (own, keys))
            found.append(rows[:, None] == columns)
        return np.stack(found)


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
                check(member, (0, first))
        at = None if sentences.start is None else np.arange(first, stop) + sentences.start
        add_rows(tally, block, at, same[:, None, first:stop], pairs=pairs, uneven=uneven)
    note_largest(tally, weights, sentences)
    return tally


def add_rows(
    tally: LayerTally, block: Array, at: Array | None, same: Array, *, pairs: bool, uneven: float
) -> None:
    """Add a block of queries (sentence, head, query, key) that stand at these places among the keys."""
    total = block.sum(axis=-1)
    seen = total > 0
    p = block / np.where(seen, total, 1)[..., None]
    bits = entropy(p)
    for name, values, there in measure(p, bits, at, same):
        for head, units, rows in zip(tally.heads, *sum_rows(values, seen & there), strict=True):
            head.sums[name].add(units, rows)
    place = np.minimum((bits * BINS_A_BIT).astype(np.int64), BINS - 1)
    empty = (~seen).sum(axis=(0, 2)).tolist()
    off = (seen & (np.abs(total - 1) > uneven)).sum(axis=(0, 2)).tolist()
    for number, head in enumerate(tally.heads):
        bins = np.bincount(place[:, number][seen[:, number]], minlength=BINS).tolist()
        head.entropies = [a + b for a, b in zip(head.entropies, bins, strict=True)]
        head.empty_rows += empty[number]
        head.uneven_rows += off[number]
    for a, b in combinations(range(len(tally.heads)), 2) if pairs else ():
        apart = entropy((p[:, a] + p[:, b]) / 2) - (bits[:, a] + bits[:, b]) / 2
        (units,), (rows,) = sum_rows(np.maximum(0, apart)[:, None], (seen[:, a] & seen[:, b])[:, None])
        tally.pairs.setdefault((a, b), GridSum()).add(units, rows)


def sum_rows(values: Array, valid: Array) -> tuple[list[int], list[int]]:
    """The valid rows of each head (sentence, head, query), each on the grid, as sums; how many they are.

    A number is split in two, so that sums of whole numbers of 64 bits hold either part.
    """
    values = np.where(valid, values, 0)
    high = np.rint(np.ldexp(values, HALF_GRID))
    low = np.rint(np.ldexp(values - np.ldexp(high, -HALF_GRID), GRID))
    highs, lows = (each.astype(np.int64).sum(axis=(0, 2)).tolist() for each in (high, low))
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
                head.note(Example(value, sentences.lines[member], query, key, words))
