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
from attnctl.verbs.corpus.tally import BINS, BINS_A_BIT, Example, GridSum, HeadTally, LayerTally, on_grid
from attnctl.verbs.stats.measure import BLOCK, UNEVEN, check, entropy, measure


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
    """What the weights (sentence, head, query, key) of one layer add up to.

    Raises AttnError for what are no weights: NaN, infinity, a negative number.
    """
    count, heads, queries, keys = weights.shape
    uneven = UNEVEN.get(weights.dtype.name, 0.0)
    same = sentences.same()
    found = SentenceRows(count, heads)
    rows = max(1, BLOCK // (count * heads * keys))
    for first in range(0, queries, rows):
        block = np.asarray(weights[:, :, first : first + rows], np.float64)
        stop = first + block.shape[2]
        for member in block:
            check(member, (0, first))
        at = None if sentences.start is None else np.arange(first, stop) + sentences.start
        found.add(block, at, same[:, None, first:stop], first, pairs=pairs, uneven=uneven)
    tally = LayerTally([HeadTally() for _ in range(heads)])
    found.give(tally, sentences)
    return tally


class SentenceRows:
    """The rows of a few sentences so far, by measure, sentence and head."""

    def __init__(self, count: int, heads: int) -> None:
        self.count, self.heads = count, heads
        self.rows: dict[str, list[list[list[float]]]] = {}
        self.apart: dict[tuple[int, int], list[list[float]]] = {}
        self.bins = np.zeros((heads, BINS), np.int64)
        self.largest = np.zeros((count, heads))
        self.at = np.zeros((count, heads, 2), np.int64)
        self.empty = np.zeros(heads, np.int64)
        self.uneven = np.zeros(heads, np.int64)

    def add(
        self, block: Array, at: Array | None, same: Array, first: int, *, pairs: bool, uneven: float
    ) -> None:
        """Measure a block of queries (sentence, head, query, key) that begins at query `first`."""
        total = block.sum(axis=-1)
        seen = total > 0
        p = block / np.where(seen, total, 1)[..., None]
        bits = entropy(p)
        for name, values, there in measure(p, bits, at, same):
            own = self.rows.setdefault(name, [[[] for _ in range(self.heads)] for _ in range(self.count)])
            valid = np.broadcast_to(seen & there, values.shape)
            for member, head in np.ndindex(self.count, self.heads):
                own[member][head] += values[member, head][valid[member, head]].tolist()
        self.note_largest(block, first)
        place = np.minimum((bits * BINS_A_BIT).astype(np.int64), BINS - 1)
        for head in range(self.heads):
            self.bins[head] += np.bincount(place[:, head][seen[:, head]], minlength=BINS)
        self.empty += (~seen).sum(axis=(0, 2))
        self.uneven += (seen & (np.abs(total - 1) > uneven)).sum(axis=(0, 2))
        for a, b in combinations(range(self.heads), 2) if pairs else ():
            both = seen[:, a] & seen[:, b]
            apart = entropy((p[:, a] + p[:, b]) / 2) - (bits[:, a] + bits[:, b]) / 2
            lists = self.apart.setdefault((a, b), [[] for _ in range(self.count)])
            for member in range(self.count):
                lists[member] += np.maximum(0, apart[member][both[member]]).tolist()

    def note_largest(self, block: Array, first: int) -> None:
        """Keep the largest weight of each sentence and head, the first of those that are equal."""
        flat = block.reshape(self.count, self.heads, -1)
        best = flat.argmax(axis=-1)
        value = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        larger = value > self.largest
        query, key = np.divmod(best, block.shape[-1])
        place = np.stack([query + first, key], axis=-1)
        self.largest = np.where(larger, value, self.largest)
        self.at = np.where(larger[..., None], place, self.at)

    def give(self, tally: LayerTally, sentences: Sentences) -> None:
        """Add it all to the tally of the layer."""
        for number, head in enumerate(tally.heads):
            for name, own in self.rows.items():
                for member in range(self.count):
                    head.sums[name].add(on_grid(own[member][number]), len(own[member][number]))
            head.entropies = [
                a + b for a, b in zip(head.entropies, self.bins[number].tolist(), strict=True)
            ]
            head.empty_rows += int(self.empty[number])
            head.uneven_rows += int(self.uneven[number])
            self.give_examples(head, number, sentences)
        for pair, lists in self.apart.items():
            for rows in lists:
                tally.pairs.setdefault(pair, GridSum()).add(on_grid(rows), len(rows))

    def give_examples(self, head: HeadTally, number: int, sentences: Sentences) -> None:
        for member, line in enumerate(sentences.lines):
            value = float(self.largest[member, number])
            if value and head.may_keep(value):
                query, key = self.at[member, number].tolist()
                words = sentences.tokens[member][query], sentences.key_tokens[member][key]
                head.note(Example(value, line, query, key, words))
