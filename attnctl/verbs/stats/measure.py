"""Measuring the heads of one dump, a block of query rows at a time.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import fsum

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.plan.embed import text_queries
from attnctl.math import Array
from attnctl.math.names import MEMORY, WEIGHTS
from attnctl.math.rules import RULES
from attnctl.record import Trace
from attnctl.verbs.stats.report import DumpStats, HeadStats, Largest, Tally

MEASURES = ("entropy", "effective_keys", "distance", "previous", "first", "self", "same_token")

BLOCK = 2**19
"""Weights that are worked on at a time: what is in memory beside the dump stays small."""

UNEVEN = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-3}
"""How far from 1 a row may sum."""


def measure_heads(trace: Trace, name: str = "") -> DumpStats:
    """Every head of one dump. Raises AttnError where it has no attention weights, or impossible ones."""
    weights = weights_of(trace)
    members, heads, queries, keys = weights.shape
    places, words = places_of(trace, weights.shape), token_numbers(trace, weights.shape)
    text = text_queries(trace.tokens, queries)
    slack = UNEVEN.get(weights.dtype.name, 0.0)
    own: list[dict[str, list[float]]] = [{} for _ in range(heads)]
    empty, uneven = np.zeros((2, heads), dtype=int)
    apart: dict[tuple[int, int], list[float]] = {pair: [] for pair in combinations(range(heads), 2)}
    rows = max(1, BLOCK // max(1, heads * keys))
    for member, start in product(range(members), range(0, queries, rows)):
        block = np.asarray(weights[member, :, start : start + rows], dtype=np.float64)
        require_weights(block, (member, start))
        stop = start + block.shape[1]
        at = None if places is None else np.arange(start, stop) + places[member]
        same = None if words is None else words[0][start:stop, None] == words[1]
        p, seen, off = as_shares(block, slack)
        empty += (~seen & text[start:stop]).sum(axis=1)
        uneven += (off & text[start:stop]).sum(axis=1)
        seen = seen & text[start:stop]
        bits = entropy(p)
        for measured, values, there in measure(p, bits, at, same):
            for number, rows_of in enumerate(own):
                rows_of.setdefault(measured, []).extend(values[number][seen[number] & there].tolist())
        for (a, b), found in apart.items():
            both = seen[a] & seen[b]
            found.extend(divergence(p[a][both], p[b][both], (bits[a] + bits[b])[both]).tolist())
    pairs = {pair: Tally(fsum(found), len(found)) for pair, found in apart.items()}
    sums = [{item: Tally(fsum(kept), len(kept)) for item, kept in rows_of.items()} for rows_of in own]
    tallies = ({each: head.get(each) for each in MEASURES} for head in sums)
    largest = largest_of(weights, None if words is None else trace)
    results = map(HeadStats, tallies, largest, empty.tolist(), uneven.tolist())
    return DumpStats(name, tuple(results), pairs, trace.sentence)


def largest_of(weights: Array, worded: Trace | None) -> Iterator[Largest | None]:
    """The largest weight of each head, None where all are 0; `worded` has tokens for queries and keys."""
    for found in np.moveaxis(weights, 1, 0):
        place = tuple(map(int, np.unravel_index(found.argmax(), found.shape)))
        words = None
        if worded and worded.tokens and worded.key_tokens:
            words = worded.tokens[place[1]], worded.key_tokens[place[2]]
        value, at = float(found[place]), place if len(found) > 1 else place[1:]
        yield Largest(value, at, words) if value else None


def as_shares(block: Array, uneven: float) -> tuple[Array, Array, Array]:
    """Rows made to sum to 1, which of them see anything, and which of those were more than `uneven` off."""
    total = block.sum(axis=-1)
    seen = total > 0
    return block / np.where(seen, total, 1)[..., None], seen, seen & (np.abs(total - 1) > uneven)


def divergence(p: Array, other: Array, bits: Array) -> Array:
    """The Jensen–Shannon divergence of rows, whose entropies sum to `bits`."""
    return np.maximum(0, entropy((p + other) / 2) - bits / 2)


def measure(
    p: Array, bits: Array, at: Array | None, same: Array | None
) -> Iterator[tuple[str, Array, Array | bool]]:
    """Each measure of a block (…, query, key): its values (…, query), and the queries it has them for."""
    columns = np.arange(p.shape[-1])
    yield "entropy", bits, True
    yield "effective_keys", np.exp2(bits), True
    yield "first", p[..., 0], True
    if at is not None:
        distance = np.abs(at[:, None] - columns)
        yield "distance", (p * distance).sum(axis=-1), True
        for name, column in (("previous", at - 1), ("self", at)):
            there = (column >= 0) & (column < len(columns))
            yield name, p[..., np.arange(len(at)), np.where(there, column, 0)], there
        same = None if same is None else same & (distance > 0)
    if same is not None:
        yield "same_token", (p * same).sum(axis=-1), True


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
        at = [head, where[1] + query, key]
        raise AttnError(
            f"{WEIGHTS}: {block[head, query, key]} at {at} (head, query, key); weights are 0 or more and "
            "finite (attnctl check finds out what went wrong)"
        )


# --- what a dump says of its weights ---


def weights_of(trace: Trace) -> Array:
    """The attention weights as (batch, head, query, key)."""
    if WEIGHTS not in trace:
        has = ", ".join(trace) or "nothing"
        raise AttnError(f"no {WEIGHTS} in this dump; it has {has} (--name THEIRS=OURS renames)")
    weights = trace[WEIGHTS]
    if not 2 <= weights.ndim <= 4 or 0 in weights.shape:
        raise AttnError(f"{WEIGHTS}: shape {weights.shape}, expected ([batch,] [head,] query, key)")
    return weights.reshape((1,) * (4 - weights.ndim) + weights.shape)


def token_numbers(trace: Trace, shape: tuple[int, ...]) -> tuple[Array, Array] | None:
    """A number for the token of each query and of each key, where there are tokens."""
    tokens, key_tokens = trace.tokens, trace.key_tokens
    if shape[0] > 1 or not tokens or not key_tokens or (len(tokens), len(key_tokens)) != shape[2:]:
        return None
    return number_tokens(tokens, key_tokens)


def number_tokens(tokens: Sequence[str], key_tokens: Sequence[str]) -> tuple[Array, Array]:
    """A number for each token of the queries and of the keys, the same for the same token."""
    ids = {token: number for number, token in enumerate(dict.fromkeys([*tokens, *key_tokens]))}
    return np.array([ids[token] for token in tokens]), np.array([ids[token] for token in key_tokens])


def places_of(trace: Trace, shape: tuple[int, ...]) -> list[int] | None:
    """The place of query 0 among the keys, for each member of the batch; None where there is none.

    In cross-attention there is none. A dump says how many keys precede its queries, or a rule of its run
    where they stand; else queries and keys of one number are the same tokens.
    """
    members, _, queries, keys = shape
    if MEMORY in trace or "key_ids" in trace.header:
        return None
    said = trace.config.get("causal_offset", 0)
    places = said if isinstance(said, list) else [said] * members
    if len(places) != members or not all(isinstance(place, int) for place in places):
        return None
    rules = trace.config.get("rules")
    rules = rules if isinstance(rules, list) else []
    names = [next(iter(rule), None) if isinstance(rule, dict) else rule for rule in rules]
    relative = any(isinstance(name, str) and name in RULES and RULES[name].relative for name in names)
    return places if queries == keys or any(places) or relative else None


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
            raise AttnError(
                f"layer {number}: {members} × {queries} × {keys} (batch, query, key); rollout needs one "
                "sentence that attends to itself"
            )
        if trace.tokens != layers[0].tokens or (out is not None and len(out) != queries):
            raise AttnError(f"layer {number}: not the sentence of layer 0; give the layers of one sentence")
        layer = (weights[0].mean(axis=0, dtype=np.float64) + np.eye(queries)) / 2
        layer /= layer.sum(axis=-1, keepdims=True)
        out = layer if out is None else layer @ out
    if out is None:
        raise AttnError("no layers to roll attention out over")
    return out
