"""Cases of attention that Hypothesis draws: arrays and options, and the same for the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle import Kind, attend

from attnctl.math.derivation import Rotary
from attnctl.math.kind import HeadNorm

NORMS = ("Q_norm_weight", "K_norm_weight", "Q_norm_bias", "K_norm_bias")
NEVER_BATCHED = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "sink", *NORMS)


@dataclass
class Case:
    """What `attnctl.attend` is called with, and what the oracle says of each member of the batch."""

    arrays: dict[str, Any]
    options: dict[str, Any]
    kinds: list[Kind]
    bias: Any = None
    mask: Any = None
    whole: dict[str, Any] | None = None
    batched: bool = False

    def expected(self) -> dict[str, Any]:
        """Every derived step by the oracle, a batch stacked."""
        members = [attend(self.member(number), kind) for number, kind in enumerate(self.kinds)]
        if not self.batched:
            return members[0]
        out = {name: [member[name] for member in members] for name in members[0]}
        return {**out, **({"positions": members[0]["positions"]} if "positions" in out else {})}

    def member(self, number: int) -> dict[str, Any]:
        """The arrays of one member as lists, heads split, masks spread over every score."""
        assert self.whole is not None
        beside = {"bias": self.bias, "mask": self.mask}
        out = {**self.whole, **{name: array for name, array in beside.items() if array is not None}}
        return {
            name: (array[number] if self.batched and name not in NEVER_BATCHED else array).tolist()
            for name, array in out.items()
        }


@st.composite
def cases(draw: Any, dtype: str = "float64") -> Case:
    """Any shapes, any layout, any rules together."""
    rng = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))

    def some(low: int, high: int) -> int:
        return int(draw(st.integers(low, high)))

    def maybe(strategy: Any) -> Any:
        return draw(st.none() | strategy)

    def numbers(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    batch, kv_heads, share = maybe(st.integers(1, 3)), some(1, 2), some(1, 3)
    heads, d_k, d_v, queries = kv_heads * share, some(1, 5), some(1, 4), some(1, 4)
    from_x, past = draw(st.booleans()), maybe(st.integers(0, 3))
    own_keys = some(1, 5)
    lead = () if batch is None else (batch,)
    if from_x:
        d_model, memory = some(1, 5), draw(st.booleans())
        whole = {"X": numbers(*lead, queries, d_model)}
        whole |= {"memory": numbers(*lead, own_keys, d_model)} if memory else {}
        own_keys = own_keys if memory else queries
        for name, count, size in (("Q", heads, d_k), ("K", kv_heads, d_k), ("V", kv_heads, d_v)):
            whole[f"W_{name}"] = numbers(count, d_model, size)
            if draw(st.booleans()):
                whole[f"b_{name}"] = numbers(count, size)
    else:
        whole = {
            "Q": numbers(*lead, heads, queries, d_k),
            "K": numbers(*lead, kv_heads, own_keys, d_k),
            "V": numbers(*lead, kv_heads, own_keys, d_v),
        }
    if draw(st.booleans()):
        columns = some(1, 4)
        whole["W_O"] = numbers(heads * d_v, columns)
        whole |= {"b_O": numbers(columns)} if draw(st.booleans()) else {}
    if past is not None:
        whole["past_key"] = numbers(*lead, kv_heads, past, d_k)
        whole["past_value"] = numbers(*lead, kv_heads, past, d_v)
    keys = own_keys + (past or 0)
    if draw(st.booleans()):
        whole["sink"] = numbers(heads) * 3
    wide = [1e-6] * (dtype == "float64")  # or what is left of a row without its mean is rounding
    kinds_of_norm = st.sampled_from(["rms", "layer"]), st.sampled_from([*wide, 0.1])
    norm = maybe(st.tuples(*kinds_of_norm, st.booleans(), st.booleans()))
    norm_last = norm is not None and draw(st.booleans())
    if norm is not None:
        whole |= draw_factors(draw, numbers, heads, kv_heads, d_k, one_row=norm[2])

    arrays: dict[str, Any] = dict(whole)
    options: dict[str, Any] = {"dtype": dtype}
    spread = (*lead, heads, queries, keys)
    mask = bias = None
    if draw(st.booleans()):
        arrays["mask"], mask = draw_mask(draw, rng, spread, boolean=True)
    if draw(st.booleans()):
        name = "bias" if "mask" in arrays or draw(st.booleans()) else "mask"
        arrays[name], bias = draw_mask(draw, rng, spread, boolean=False)
    if draw(st.booleans()):
        arrays |= fused(whole)
        options |= {"heads": heads, "kv_heads": kv_heads}
        options |= {} if from_x else {"layout": "nd" if batch is None else "bnd"}
    elif batch is not None and not from_x and draw(st.booleans()):
        vectors = ("Q", "K", "V", "past_key", "past_value")
        arrays |= {name: whole[name].swapaxes(1, 2) for name in vectors if name in whole}
        options |= {"layout": "bnhd"}
    elif batch is None and heads == kv_heads == 1 and not from_x:
        arrays |= {name: whole[name][0] for name in ("Q", "K", "V")}

    lengths = maybe(st.lists(st.integers(0, keys), min_size=batch or 1, max_size=batch or 1))
    if lengths is not None:
        arrays["key_lengths"] = np.array(lengths)
    offset = maybe(st.integers(-3, 4))
    options |= {} if offset is None else {"causal_offset": offset}
    window = maybe(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)))
    rules = {"causal": draw(st.booleans()), "window": window, "softcap": maybe(st.sampled_from([0.3, 2.0]))}
    scale = maybe(st.sampled_from([0.0, 0.1, -1.0, 1.5]))
    options |= {**rules, "scale": scale}
    positions, rotary = draw_positions(draw, d_k, from_x=from_x)
    options |= {} if positions is None else {"positions": positions}
    unrotated = rotary is not None and past is not None and draw(st.booleans())
    options |= {"cache_unrotated": True} if unrotated else {}
    if norm is not None:
        kind, eps, one_row, plus_one = norm
        rows = "heads" if one_row else "head"
        options["qk_norm"] = HeadNorm(kind, eps, rows, plus_one, after_rotation=norm_last)

    kinds = [
        Kind(
            scale=scale,
            softcap=rules["softcap"],
            alibi=positions == "alibi",
            causal=rules["causal"],
            window=window,
            length=None if lengths is None else lengths[number],
            offset=offset_of(
                offset, past or 0, None if lengths is None else lengths[number], queries, keys
            ),
            sinusoidal=positions == "sinusoidal",
            rotary=rotary,
            norm=norm,
            norm_last=norm_last,
            unrotated=unrotated,
            dtype=dtype,
        )
        for number in range(batch or 1)
    ]
    return Case(arrays, options, kinds, bias, mask, whole, batched=batch is not None)


def draw_factors(
    draw: Any, numbers: Any, heads: int, kv_heads: int, d_k: int, *, one_row: bool
) -> dict[str, Any]:
    """Weights and biases of norms of Q and K, or none: one row, or one for each head."""
    given = draw(st.sampled_from([(), NORMS[:2], NORMS]))
    by_head = one_row or draw(st.booleans())
    counts = {"Q": heads, "K": kv_heads}
    return {name: numbers(*((counts[name[0]],) if by_head else ()), d_k) for name in given}


def offset_of(asked: int | None, past: int, length: int | None, queries: int, keys: int) -> int:
    """The number of keys before query 0.

    As asked, or the cache's, or lengths − queries where there are fewer queries than keys, or none.
    """
    if asked is not None:
        return asked
    return length - queries if length is not None and not past and queries < keys else past


def draw_positions(draw: Any, d_k: int, *, from_x: bool) -> tuple[Any, tuple[float, int, bool] | None]:
    """Positions as an option, and the rotary ones for the oracle."""
    choices = ["none", "alibi"] + ["sinusoidal"] * from_x + ["rope"] * 3 * (d_k > 1)
    chosen = draw(st.sampled_from(choices))
    if chosen != "rope":
        return (None if chosen == "none" else chosen), None
    theta, neighbours = draw(st.sampled_from([10000.0, 30.0])), draw(st.booleans())
    dims = draw(st.sampled_from([*range(2, d_k + 1, 2), *([None] if d_k % 2 == 0 else [])]))
    return Rotary(theta, dims, neighbours), (theta, dims or d_k, neighbours)


def draw_mask(draw: Any, rng: Any, spread: tuple[int, ...], *, boolean: bool) -> tuple[Any, Any]:
    """A mask of any rank that broadcasts against the scores (or is short), and the same spread out."""
    rank = draw(st.integers(1, len(spread)))
    keys = spread[-1]
    shape = [draw(st.sampled_from([1, size])) for size in spread[-rank:-1]]
    shape.append(draw(st.sampled_from([1, keys, *range(2, keys)])))
    if boolean:
        mask, rest = rng.uniform(size=shape) < 0.7, False
    else:
        mask, rest = rng.uniform(-1, 1, shape), -np.inf
        mask[rng.uniform(size=shape) < 0.2] = -np.inf
    short = 0 if shape[-1] == 1 else keys - shape[-1]
    long = np.pad(mask, [(0, 0)] * (rank - 1) + [(0, short)], constant_values=rest)
    return mask, np.broadcast_to(long, spread)


def fused(whole: dict[str, Any]) -> dict[str, Any]:
    """Whatever has heads with its heads side by side: (…, n, heads·d), (d_model, heads·d), (heads·d,)."""
    out = {}
    for name, array in whole.items():
        if name in {"Q", "K", "V", "past_key", "past_value", "W_Q", "W_K", "W_V"}:
            *lead, heads, n, d = array.shape
            out[name] = array.swapaxes(-3, -2).reshape(*lead, n, heads * d)
        elif name in {"b_Q", "b_K", "b_V", *NORMS}:
            out[name] = array.reshape(-1)
    return out
