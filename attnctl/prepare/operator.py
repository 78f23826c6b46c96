"""The operator itself, on anyone's arrays: the reference an engineer holds a kernel against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.config.settings import SINUSOIDAL, Settings
from attnctl.derivation import Variant
from attnctl.errors import AttnError, raise_all
from attnctl.ops import Sinusoid
from attnctl.prepare.fit import Facts, facts_of, mask_misfits, misfits, missing, unusable
from attnctl.prepare.layouts import INPUTS, laid_out
from attnctl.prepare.prepared import Named, Prepared, by, mask_axes, rotary
from attnctl.rules import Padding, PerBatch

Array = NDArray[Any]


def prepare(arrays: Mapping[str, Array], settings: Settings, header: Mapping[str, Any]) -> Prepared:
    """Everything attention on these arrays needs.

    Arrays are Q K V, or X [memory] W_Q W_K W_V [W_O b_Q b_K b_V b_O]; beside them mask, bias,
    past_key, past_value, key_lengths. Q, K, V are (n, d), (head, n, d), (batch, head, n, d), or
    (n, heads·d) and (batch, n, heads·d) when `settings.heads` is given. `header` may bring tokens.

    Raises AttnError with every array that is missing, not finite or does not fit.
    """
    found = {name: np.asarray(arrays[name]) for name in INPUTS if name in arrays}
    raise_all(missing(found, settings))
    raise_all(problem for name, array in found.items() for problem in unusable(name, array))
    named = {name: (array, "given") for name, array in laid_out(found, settings).items()}
    raise_all(misfits(named, settings))
    facts = facts_of(named)
    lengths = key_lengths(found, facts)
    named |= {name: (widen(named[name][0], facts), "given") for name in ("mask", "bias") if name in named}
    raise_all(mask_misfits(named, facts))
    settings = with_padding(settings, lengths)
    offset = causal_offset(settings, facts, lengths)
    if settings.positions == SINUSOIDAL:
        named = with_sinusoids(named)
    kind = variant(settings, named, facts, offset)
    config = settings.to_dict() | {"heads": facts.heads, "kv_heads": facts.kv_heads}
    config["causal_offset"] = offset if isinstance(offset, int) else list(offset)
    out = {**words(header, facts), "config": config}
    return Prepared(kind, {name: array for name, (array, _) in named.items()}, out, settings.dtype)


def widen(mask: Array, facts: Facts) -> Array:
    """A mask shorter than the keys hides the rest."""
    short = facts.keys - mask.shape[-1] if mask.ndim and mask.shape[-1] != 1 else 0
    if short <= 0:
        return mask
    fill = False if mask.dtype == bool else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=fill)


def key_lengths(found: Mapping[str, Array], facts: Facts) -> PerBatch | None:
    """How many keys are real: one number, or one for each member of the batch."""
    if "key_lengths" not in found:
        return None
    lengths = np.asarray(found["key_lengths"])
    shape = () if facts.batch is None else (facts.batch,)
    if lengths.size != (facts.batch or 1) or (lengths != lengths.astype(int)).any():
        raise AttnError(f"key_lengths: {lengths.tolist()}, expected a whole number for each of {by(shape)}")
    whole = lengths.astype(int).reshape(-1).tolist()
    if min(whole) < 0 or max(whole) > facts.keys:
        raise AttnError(f"key_lengths: {whole}, expected 0 to {facts.keys} (the keys there are)")
    return whole[0] if facts.batch is None else tuple(whole)


def with_padding(settings: Settings, lengths: PerBatch | None) -> Settings:
    """The settings with padding hidden, where lengths are given."""
    return settings if lengths is None else replace(settings, rules=(*settings.rules, Padding(lengths)))


def causal_offset(settings: Settings, facts: Facts, lengths: PerBatch | None) -> PerBatch:
    """The number of keys before query 0: as asked, the cache's, lengths − queries, else 0 (top-left)."""
    if settings.causal_offset is not None:
        return settings.causal_offset
    if facts.past or lengths is None:
        return facts.past
    if isinstance(lengths, int):
        return lengths - facts.queries
    return tuple(length - facts.queries for length in lengths)


def with_sinusoids(named: Named) -> Named:
    """X as embeddings that positions are yet to be added to, and memory with its own added."""
    x, how = named["X"]
    out = {"embeddings": (x, how), **{name: each for name, each in named.items() if name != "X"}}
    if "memory" in out:
        memory = out["memory"][0]
        out["memory"] = memory + Sinusoid(*memory.shape[-2:]).apply(), "given, with positions"
    return out


def variant(settings: Settings, named: Named, facts: Facts, offset: PerBatch) -> Variant:
    """The kind of attention these arrays and settings ask for."""
    x = named["embeddings"][0] if settings.positions == SINUSOIDAL else None
    return Variant(
        given={name: how for name, (_, how) in named.items()},
        d_k=facts.d_k,
        kv_share=facts.heads // facts.kv_heads,
        scale=settings.scale,
        rules=settings.rules,
        sinusoid=None if x is None else Sinusoid(*x.shape[-2:]),
        rotary=rotary(settings),
        offset=offset,
        past=facts.past,
        batch=facts.batch is not None,
        axes=mask_axes(named),
    )


def words(header: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """The sentence and tokens of a header, where they are of this length."""
    tokens, keys = header.get("tokens"), header.get("key_tokens", header.get("tokens"))
    if not tokens or facts.batch is not None or (len(tokens), len(keys)) != (facts.queries, facts.keys):
        return {}
    kept = ("sentence", "context", "tokens", "ids", "key_tokens")
    return {name: header[name] for name in kept if name in header}
