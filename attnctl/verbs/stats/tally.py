"""Measuring heads: sums that no order changes, counts, a histogram, the largest weights.

A row is one query's weights over the keys, made to sum to 1; rows that see nothing are counted and
otherwise left out, and so are queries that are padding. Every measure is a mean over rows:

entropy         H = −Σ p log2 p, in bits: 0 where one key gets all, log2 n where n keys get the same
effective_keys  2^H: as many keys, equally attended, would give this entropy
distance        Σ p |q − k|, in tokens (Vig & Belinkov 2019, section 4.2)
previous        the share of the token just before the query, over rows that have one
first           the share of the first key
self            the share of the query's own token, over rows that have it among the keys
same_token      the share of keys, other than the query itself, with the query's token on them
                (in cross-attention, of all keys with that token)

Where queries have no place among the keys (cross-attention), distance, previous and self mean
nothing; without tokens, same_token does not. How far two heads are apart is the mean over rows of
the Jensen–Shannon divergence of their weights, in bits: 0 the same, 1 nothing in common (Clark et
al. 2019, section 6).

What a row adds to a sum is rounded to a multiple of 2^-60 and added as a whole number. So the sums are
the same to the last digit in whatever order sentences come and however they are divided into parts. Every
number is a sentence's own: it comes of its own row of weights alone, whichever sentences stand beside it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.plan.sentence import text_queries
from attnctl.math import Array
from attnctl.math.names import MEMORY, WEIGHTS
from attnctl.math.rules import RULES
from attnctl.record import CALL, Trace
from attnctl.sources.dump import OfArrays, settings_to_attend
from attnctl.verbs.stats import DumpStats, HeadStats, Largest, Tally

GRID = 60  # sums are multiples of 2 to the minus this

BINS = 64
BINS_A_BIT = 4
"""Of the histogram of entropies: a quarter of a bit each, the last with all that is more."""

EXAMPLES = 5  # largest weights that are kept of a head, one a sentence at most, and lines of those left out


MEASURES = ("entropy", "effective_keys", "distance", "previous", "first", "self", "same_token")
UNEVEN = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-3}  # how far from 1 a row may sum


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
        return {name: sum_.mean for name, sum_ in self.sums.items()}

    def note(self, example: Largest) -> None:
        insort(self.examples, example, key=rank)
        del self.examples[EXAMPLES:]

    def add(self, other: HeadTally) -> None:
        for name, total in self.sums.items():
            total.add(other.sums[name].units, other.sums[name].rows)
        bins = zip(self.entropies, other.entropies, strict=True)
        self.entropies = [ours + theirs for ours, theirs in bins]
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


BLOCK = 2**17  # weights that are worked on at a time: they stay in cache
HALF_GRID = GRID // 2


@dataclass(frozen=True)
class Sentences:
    """Sentences whose queries and keys are as many: their lines, the tokens of queries and of keys, if any.

    `start` is the place of query 0 among the keys, None where queries have no place there; `text` are the
    queries that are no padding.
    """

    lines: Sequence[int]
    tokens: Sequence[Sequence[str]]
    key_tokens: Sequence[Sequence[str]]
    start: int | None = 0
    text: Array = field(default_factory=lambda: np.array(True))

    def same(self) -> Array | None:
        """True where a key has the query's token, (sentence, 1, query, key); None where there are none."""
        same = []
        for tokens, key_tokens in zip(self.tokens, self.key_tokens, strict=False):
            of_queries, of_keys = number_tokens(tokens, key_tokens)
            same.append(of_queries[:, None] == of_keys)
        return np.stack(same)[:, None] if same else None


def tally_of(weights: Array, sentences: Sentences, *, pairs: bool) -> LayerTally:
    """Add up the weights (sentence, head, query, key) of a layer. Raises AttnError for impossible ones."""
    count, heads, queries, keys = weights.shape
    uneven = UNEVEN.get(weights.dtype.name, 0.0)
    same = sentences.same()
    text = np.broadcast_to(sentences.text, queries)
    tally = LayerTally([HeadTally() for _ in range(heads)])

    rows_at_once = max(1, BLOCK // (count * heads * keys))
    for first in range(0, queries, rows_at_once):
        block = np.asarray(weights[:, :, first : first + rows_at_once], np.float64)
        stop = first + block.shape[2]
        if not ((block >= 0) & (block < np.inf)).all():
            for member in block:
                require_weights(member, (0, first))

        places = None if sentences.start is None else np.arange(first, stop) + sentences.start
        same_here = None if same is None else same[:, :, first:stop]
        rows = WeightRows.of(block, uneven, text[first:stop])
        add_measures(tally, rows, places, same_here)
        add_counts(tally, rows)
        if pairs:
            add_pairs(tally, rows)

    note_largest(tally, weights, sentences)
    return tally


class WeightRows(NamedTuple):
    """A block of queries, (sentence, head, query): their weights as shares, which count, and why not.

    Queries that are padding are in none of the counts.
    """

    shares: Array
    """Made to sum to 1, (sentence, head, query, key)."""
    bits: Array
    """The entropy of each."""
    seen: Array
    blind: Array
    """Those that see nothing."""
    uneven: Array
    """Those that do not sum to 1, by more than rounding."""

    @classmethod
    def of(cls, block: Array, uneven: float, text: Array) -> WeightRows:
        total = block.sum(axis=-1)
        sees = total > 0
        is_uneven = sees & (np.abs(total - 1) > uneven)
        shares = block / np.where(sees, total, 1)[..., None]
        return cls(
            shares,
            entropy(shares),
            seen=sees & text,
            blind=~sees & text,
            uneven=is_uneven & text,
        )


def add_measures(tally: LayerTally, rows: WeightRows, places: Array | None, same: Array | None) -> None:
    """Add the measures of queries that stand at these places among the keys."""
    for measured in measure(rows.shares, rows.bits, places, same):
        counted = rows.seen & measured.valid
        sums, counts = sum_rows(measured.values, counted)
        for head, units, count in zip(tally.heads, sums, counts, strict=True):
            total = head.sums[measured.name]
            total.add(units, count)


def add_counts(tally: LayerTally, rows: WeightRows) -> None:
    """Add to the histograms of entropies, and count the rows that are out of the ordinary."""
    bins = np.minimum((rows.bits * BINS_A_BIT).astype(np.int64), BINS - 1)
    blind = rows.blind.sum(axis=(0, 2)).tolist()
    uneven = rows.uneven.sum(axis=(0, 2)).tolist()
    for number, head in enumerate(tally.heads):
        of_head = bins[:, number][rows.seen[:, number]]
        counts = np.bincount(of_head, minlength=BINS).tolist()
        head.entropies = [before + count for before, count in zip(head.entropies, counts, strict=True)]
        head.empty_rows += blind[number]
        head.uneven_rows += uneven[number]


def add_pairs(tally: LayerTally, rows: WeightRows) -> None:
    """Add how far each two heads are apart, over the rows that both see."""
    heads = range(len(tally.heads))
    shares = [rows.shares[:, head] for head in heads]
    bits = [rows.bits[:, head] for head in heads]
    sees = [rows.seen[:, head] for head in heads]
    for a, b in combinations(heads, 2):
        apart = divergence(shares[a], shares[b], bits[a] + bits[b])
        both_see = sees[a] & sees[b]
        (units,), (count,) = sum_rows(apart[:, None], both_see[:, None])
        total = tally.pairs.setdefault((a, b), GridSum())
        total.add(units, count)


def sum_rows(values: Array, valid: Array) -> tuple[list[int], list[int]]:
    """The valid rows of each head (sentence, head, query), each on the grid, as sums; how many they are.

    A number is split in two, so that sums of whole numbers of 64 bits hold either part.
    """
    values = np.where(valid, values, 0)
    high = np.rint(np.ldexp(values, HALF_GRID))
    rest = values - np.ldexp(high, -HALF_GRID)
    low = np.rint(np.ldexp(rest, GRID))

    but_heads = (0, 2)
    highs = high.astype(np.int64).sum(axis=but_heads).tolist()
    lows = low.astype(np.int64).sum(axis=but_heads).tolist()
    units = [(upper << GRID - HALF_GRID) + lower for upper, lower in zip(highs, lows, strict=True)]
    return units, valid.sum(axis=but_heads).tolist()


def note_largest(tally: LayerTally, weights: Array, sentences: Sentences) -> None:
    """Note the largest weight of each sentence and head, the first of those that are equal."""
    count, heads, _, keys = weights.shape
    flat = weights.reshape(count, heads, -1)
    places = flat.argmax(axis=-1)
    values = np.take_along_axis(flat, places[..., None], axis=-1)
    largest = values[..., 0].astype(np.float64)
    lines = np.array(sentences.lines)
    for number, head in enumerate(tally.heads):
        ranked = np.lexsort((lines, -largest[:, number]))
        for member in ranked[:EXAMPLES].tolist():
            value = float(largest[member, number])
            if not value:
                continue
            query, key = divmod(int(places[member, number]), keys)
            words = None
            if sentences.tokens:
                words = (sentences.tokens[member][query], sentences.key_tokens[member][key])
            head.note(Largest(value, (query, key), words, line=sentences.lines[member]))


def divergence(p: Array, other: Array, bits: Array) -> Array:
    """The Jensen–Shannon divergence of rows, whose entropies sum to `bits`."""
    return np.maximum(0, entropy((p + other) / 2) - bits / 2)


class Measurement(NamedTuple):
    """A measure of a block of queries, (…, query)."""

    name: str
    values: Array
    valid: Array | bool = True
    """The queries that it says something of."""


def measure(p: Array, bits: Array, places: Array | None, same: Array | None) -> Iterator[Measurement]:
    """Each measure of a block (…, query, key), whose queries stand at these places among the keys."""
    keys = np.arange(p.shape[-1])
    yield Measurement("entropy", bits)
    yield Measurement("effective_keys", np.exp2(bits))
    yield Measurement("first", p[..., 0])
    if places is not None:
        distance = np.abs(places[:, None] - keys)
        yield Measurement("distance", (p * distance).sum(axis=-1))
        yield share_of_keys("previous", p, places - 1)
        yield share_of_keys("self", p, places)
        if same is not None:
            same = same & (distance > 0)
    if same is not None:
        yield Measurement("same_token", (p * same).sum(axis=-1))


def share_of_keys(name: str, p: Array, places: Array) -> Measurement:
    """The share that each query gives to the key at a place, where there is one."""
    is_there = (places >= 0) & (places < p.shape[-1])
    queries = np.arange(len(places))
    return Measurement(name, p[..., queries, np.where(is_there, places, 0)], is_there)


def entropy(p: Array) -> Array:
    """−Σ p log2 p along the last axis; 0 log 0 is 0."""
    logs = np.log2(p, out=np.zeros_like(p), where=p > 0)
    logs *= p
    bits: Array = np.abs(logs.sum(axis=-1))
    return bits


def require_weights(block: Array, where: tuple[int, int]) -> None:
    """Refuse what is no weight: NaN, infinity, a negative number."""
    wrong = np.argwhere(~((block >= 0) & (block < np.inf)))
    if len(wrong):
        head, query, key = wrong[0].tolist()
        cell = [head, where[1] + query, key]
        raise AttnError(
            f"{WEIGHTS}: {block[head, query, key]} at {cell} (head, query, key); weights are 0 or more and "
            "finite (attnctl check finds out what went wrong)"
        )


def number_tokens(tokens: Sequence[str], key_tokens: Sequence[str]) -> tuple[Array, Array]:
    """A number for each token of the queries and of the keys, the same for the same token."""
    different = dict.fromkeys([*tokens, *key_tokens])
    numbers = {token: number for number, token in enumerate(different)}
    of_queries = [numbers[token] for token in tokens]
    of_keys = [numbers[token] for token in key_tokens]
    return np.array(of_queries), np.array(of_keys)


# --- as the statistics of a dump ---


def as_stats(
    name: str,
    layer: LayerTally,
    meaningless: Container[str],
    sentence: str | None = None,
    *,
    batch: bool = False,
) -> DumpStats:
    """A layer as a dump; in a `batch` the largest weight is that of a member, not of a line."""
    heads = []
    for head in layer.heads:
        tallies: dict[str, Tally | None] = dict.fromkeys(head.sums)
        for measured, total in head.sums.items():
            if measured not in meaningless:
                tallies[measured] = Tally(total.sum, total.rows)

        largest = head.examples[0] if head.examples else None
        if largest and batch:
            largest = replace(largest, at=(largest.line, *largest.at))
        heads.append(HeadStats(tallies, largest, head.empty_rows, uneven_rows=head.uneven_rows))

    pairs = {pair: Tally(apart.sum, apart.rows) for pair, apart in layer.pairs.items()}
    return DumpStats(name, tuple(heads), pairs, sentence)


# --- the heads of one dump; attention through layers ---

OF_PLACES = ("distance", "previous", "self")
"""The measures that mean nothing where queries have no place among the keys."""

OF_WORDS = ("same_token",)
"""Those that mean nothing without tokens."""


def measure_heads(trace: Trace, name: str = "") -> DumpStats:
    """Every head of one dump. Raises AttnError where it has no attention weights, or impossible ones."""
    weights = weights_of(trace)
    members, heads, queries, _ = weights.shape
    places = places_of(trace, weights.shape)
    tokens, key_tokens = words_of(trace, weights.shape)
    text = text_queries(trace.tokens, queries)

    layer = LayerTally([HeadTally() for _ in range(heads)])
    for member in range(members):
        start = places[member] if places else None
        sentence = Sentences([member], tokens, key_tokens, start=start, text=text)
        layer.add(tally_of(weights[member : member + 1], sentence, pairs=True))

    meaningless: list[str] = []
    if places is None:
        meaningless += OF_PLACES
    if not tokens:
        meaningless += OF_WORDS
    return as_stats(name, layer, meaningless, trace.sentence, batch=members > 1)


def weights_of(trace: Trace) -> Array:
    """The attention weights as (batch, head, query, key)."""
    if WEIGHTS not in trace and CALL in trace.header:  # a kernel keeps none
        source = OfArrays(trace, settings_to_attend(trace, None, {}))
        trace, *_ = source.run(keep=[WEIGHTS])
    if WEIGHTS not in trace:
        has = ", ".join(trace) or "nothing"
        raise AttnError(f"no {WEIGHTS} in this dump; it has {has} (--name THEIRS=OURS renames)")
    weights = trace[WEIGHTS]
    if not 2 <= weights.ndim <= 4 or 0 in weights.shape:
        raise AttnError(f"{WEIGHTS}: shape {weights.shape}, expected ([batch,] [head,] query, key)")
    missing_axes = 4 - weights.ndim
    return weights.reshape((1,) * missing_axes + weights.shape)


def words_of(trace: Trace, shape: tuple[int, ...]) -> tuple[list[list[str]], list[list[str]]]:
    """The tokens of queries and keys, as those of one sentence; none where they are not there."""
    members, _, queries, keys = shape
    tokens = trace.tokens
    key_tokens = trace.key_tokens
    if members > 1 or not tokens or not key_tokens:
        return [], []
    if len(tokens) != queries or len(key_tokens) != keys:
        return [], []
    return [tokens], [key_tokens]


def places_of(trace: Trace, shape: tuple[int, ...]) -> list[int] | None:
    """The place of query 0 among the keys, for each member of the batch; None where there is none.

    In cross-attention there is none. A dump says how many keys precede its queries, or a rule of its run
    where they stand; else queries and keys of one number are the same tokens.
    """
    members, _, queries, keys = shape
    if MEMORY in trace or "key_ids" in trace.header:
        return None

    offset = trace.config.get("causal_offset", 0)
    places = offset if isinstance(offset, list) else [offset] * members
    if len(places) != members or not all(isinstance(place, int) for place in places):
        return None
    if queries == keys or any(places) or has_relative_rule(trace):
        return places
    return None


def has_relative_rule(trace: Trace) -> bool:
    """Whether a rule of a run, as its dump says, goes by how far queries are from keys."""
    rules = trace.config.get("rules")
    if not isinstance(rules, list):
        return False

    for rule in rules:
        # {window: 4}, or only the name of a rule that has no size.
        name = next(iter(rule), None) if isinstance(rule, dict) else rule
        if isinstance(name, str) and name in RULES and RULES[name].relative:
            return True
    return False


def rollout(layers: Sequence[Trace]) -> Array:
    """Attention through all the layers, first one first, (token, token); rows sum to 1.

    Each layer is (A + I) / 2, A the mean over its heads and I the residual connection, its rows
    made to sum to 1; layers multiply: R = Ã_L … Ã_2 Ã_1 (Abnar & Zuidema 2020, section 3).
    Raises AttnError where layers are not all of one sentence, or queries are not its tokens.
    """
    out = None
    for number, trace in enumerate(layers):
        weights = weights_of(trace)
        members, _, queries, keys = weights.shape
        if members != 1 or queries != keys:
            shape = f"{members} × {queries} × {keys} (batch, query, key)"
            raise AttnError(f"layer {number}: {shape}; rollout needs one sentence that attends to itself")
        if trace.tokens != layers[0].tokens or (out is not None and len(out) != queries):
            raise AttnError(f"layer {number}: not the sentence of layer 0; give the layers of one sentence")

        mean = weights[0].mean(axis=0, dtype=np.float64)
        layer = (mean + np.eye(queries)) / 2
        layer /= layer.sum(axis=-1, keepdims=True)
        out = layer if out is None else layer @ out

    if out is None:
        raise AttnError("no layers to roll attention out over")
    return out
