"""The heads of one dump, measured; and attention through layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.plan.sentence import text_queries
from attnctl.math import Array
from attnctl.math.names import MEMORY, WEIGHTS
from attnctl.math.rules import RULES
from attnctl.record import CALL, Trace
from attnctl.sources.dump import OfArrays, settings_to_attend
from attnctl.verbs.stats import DumpStats
from attnctl.verbs.stats.tally import HeadTally, LayerTally, Sentences, as_stats, tally_of

OF_PLACES, OF_WORDS = ("distance", "previous", "self"), ("same_token",)
"""The measures that mean nothing where queries have no place among the keys, or have no tokens."""


def measure_heads(trace: Trace, name: str = "") -> DumpStats:
    """Every head of one dump. Raises AttnError where it has no attention weights, or impossible ones."""
    weights = weights_of(trace)
    members, heads, queries, _ = weights.shape
    places, words = places_of(trace, weights.shape), words_of(trace, weights.shape)
    text = text_queries(trace.tokens, queries)
    layer = LayerTally([HeadTally() for _ in range(heads)])
    for member in range(members):
        sentence = Sentences([member], *words, places[member] if places else None, text)
        layer.add(tally_of(weights[member : member + 1], sentence, pairs=True))
    meaningless = [*OF_PLACES * (places is None), *OF_WORDS * (not words[0])]
    return as_stats(name, layer, meaningless, trace.sentence, batch=members > 1)


def weights_of(trace: Trace) -> Array:
    """The attention weights as (batch, head, query, key)."""
    if WEIGHTS not in trace and CALL in trace.header:  # a kernel keeps none
        trace = OfArrays(trace, settings_to_attend(trace, None, {})).run(keep=[WEIGHTS])[0]
    if WEIGHTS not in trace:
        has = ", ".join(trace) or "nothing"
        raise AttnError(f"no {WEIGHTS} in this dump; it has {has} (--name THEIRS=OURS renames)")
    weights = trace[WEIGHTS]
    if not 2 <= weights.ndim <= 4 or 0 in weights.shape:
        raise AttnError(f"{WEIGHTS}: shape {weights.shape}, expected ([batch,] [head,] query, key)")
    return weights.reshape((1,) * (4 - weights.ndim) + weights.shape)


def words_of(trace: Trace, shape: tuple[int, ...]) -> tuple[list[list[str]], list[list[str]]]:
    """The tokens of queries and keys, as those of one sentence; none where they are not there."""
    tokens, key_tokens = trace.tokens, trace.key_tokens
    if shape[0] > 1 or not tokens or not key_tokens or (len(tokens), len(key_tokens)) != shape[2:]:
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
            what = f"layer {number}: {members} × {queries} × {keys} (batch, query, key)"
            raise AttnError(f"{what}; rollout needs one sentence that attends to itself")
        if trace.tokens != layers[0].tokens or (out is not None and len(out) != queries):
            raise AttnError(f"layer {number}: not the sentence of layer 0; give the layers of one sentence")
        layer = (weights[0].mean(axis=0, dtype=np.float64) + np.eye(queries)) / 2
        layer /= layer.sum(axis=-1, keepdims=True)
        out = layer if out is None else layer @ out
    if out is None:
        raise AttnError("no layers to roll attention out over")
    return out
