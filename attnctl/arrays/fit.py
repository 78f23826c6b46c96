"""Whether arrays can be attended over: what is missing, not finite, or does not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from attnctl.array import Array, Shape
from attnctl.arrays.layouts import FROM_X, PAST, PROJECTED, Named, from_x
from attnctl.config.settings import SINUSOIDAL, Settings
from attnctl.derivation import Rotary
from attnctl.words import dims


class Facts(NamedTuple):
    """What the arrays show of the run: sizes and whether there is a batch axis."""

    batch: int | None
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_k: int
    past: int


def missing(found: Mapping[str, Array], settings: Settings) -> Iterator[str]:
    """What a file lacks to be attended over."""
    wanted = FROM_X if "X" in found and "Q" not in found else PROJECTED
    lacking = [name for name in wanted if name not in found]
    if lacking and not from_x(found):
        yield (
            f"no {', '.join(lacking)} in the arrays; attention needs Q, K and V, or X with W_Q, W_K "
            "and W_V (--name THEIRS=OURS renames)"
        )
    if adds_positions(settings) and not from_x(found):
        yield "sinusoidal and learned positions are added to X; give X, W_Q, W_K and W_V"
    if ("past_key" in found) != ("past_value" in found):
        yield "past_key and past_value go together; give both"
    if "b_O" in found and "W_O" not in found:
        yield "b_O is added to concat W_O; give W_O too"
    if {"mask", "bias"} <= found.keys() and found["mask"].dtype.kind == "f":
        yield "mask holds floats, so it is added to the scores as bias is; give their sum as bias"


def adds_positions(settings: Settings) -> bool:
    """Whether positions are added to X: sinusoids, or a learned table."""
    return settings.positions == SINUSOIDAL or isinstance(settings.positions, list)


def unusable(name: str, array: Array, dtype: str) -> Iterator[str]:
    """Why an array cannot be computed with in this type of number."""
    if array.dtype.kind not in ("fiub" if name == "mask" else "fiu"):
        yield f"{name}: numbers of type {array.dtype}, expected floats"
        return
    if not array.size:
        if name not in PAST:
            yield f"{name}: {dims(array.shape)}, nothing to attend with"
        return
    low, high, wanted = limits(name, array, dtype)
    if low <= float(array.min()) and float(array.max()) <= high:
        return
    numbers = array.astype(np.float64)
    bad = np.argwhere(~((numbers >= low) & (numbers <= high))).tolist()
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    yield f"{name}: {array[tuple(bad[0])]} at {bad[0]}{more}; {wanted}"


def limits(name: str, array: Array, dtype: str) -> tuple[float, float, str]:
    """The least and the greatest number an array may hold, and how to say so.

    −∞ is fine in a bias or a float mask; so is what this type of number turns into it.
    """
    if name == "mask" and array.dtype.kind in "iu":
        return 0, 1, "write 0 (hidden) or 1 (may attend), or floats to be added to the scores"
    if name == "key_lengths":
        return 0, np.inf, "write how many keys are real"
    greatest = float(np.finfo(dtype).max)
    low = -np.inf if name in {"mask", "bias"} else -greatest
    return low, greatest, f"every number must be finite and within ±{greatest:.5g} ({dtype})"


def projected_shapes(named: Named) -> dict[str, Shape]:
    """The shapes of Q, K and V, whether given or to be computed."""
    shapes = {name: array.shape for name, (array, _) in named.items()}
    if "X" not in shapes:
        return {name: shapes[name] for name in PROJECTED}
    *batch, n, _ = shapes["X"]
    *_, m, _ = shapes.get("memory", shapes["X"])
    rows = {"Q": n, "K": m, "V": m}
    return {s: (*batch, shapes[f"W_{s}"][0], rows[s], shapes[f"W_{s}"][-1]) for s in PROJECTED}


def facts_of(named: Named) -> Facts:
    """Sizes, read off the arrays once they are known to fit."""
    shapes = projected_shapes(named)
    q, k = shapes["Q"], shapes["K"]
    past = named["past_key"][0].shape[-2] if "past_key" in named else 0
    return Facts(q[0] if len(q) == 4 else None, q[-3], k[-3], q[-2], k[-2] + past, q[-1], past)


def misfits(named: Named, settings: Settings) -> Iterator[str]:
    """Every pair of arrays whose shapes do not go together."""
    for name in ("X", "memory"):
        if name in named and named[name][0].ndim not in {2, 3}:
            yield f"{name}: {dims(named[name][0].shape)}, expected (n, d_model) or (batch, n, d_model)"
            return
    if "memory" in named and named["memory"][0].shape[:-2] != named["X"][0].shape[:-2]:
        x, memory = named["X"][0].shape, named["memory"][0].shape
        yield f"X is {dims(x)}, memory {dims(memory)}: give both with the same batch, or neither with one"
        return
    yield from weight_misfits(named)
    shapes = projected_shapes(named)
    q, k, v = shapes["Q"], shapes["K"], shapes["V"]
    if len({len(q), len(k), len(v)}) > 1:
        yield f"Q is {dims(q)}, K {dims(k)}, V {dims(v)}: give all with the same axes"
        return
    if q[-1] != k[-1]:
        yield f"Q has d_k {q[-1]} but K has {k[-1]}; they must be equal"
    if k[:-1] != v[:-1]:
        yield f"K is {dims(k)} but V is {dims(v)}; they must agree in all but d_k and d_v"
    if q[:-3] != k[:-3]:
        yield f"Q has a batch of {q[0]} but K of {k[0]}"
    if not k[-3] or q[-3] % k[-3]:
        yield f"{k[-3]} kv heads do not divide {q[-3]} heads"
    yield from past_misfits(named, k, v)
    yield from option_misfits(settings, q, k, v)


def past_misfits(named: Named, k: Shape, v: Shape) -> Iterator[str]:
    """A cache that does not continue in K and V."""
    lengths = set()
    for name, new in (("past_key", k), ("past_value", v)):
        if name in named:
            past = named[name][0].shape
            lengths.add(past[-2])
            if past[:-2] + past[-1:] != new[:-2] + new[-1:]:
                yield (
                    f"{name}: {dims(past)} does not continue in {dims(new)}; "
                    "all but the key axis must agree"
                )
    if len(lengths) > 1:
        yield f"past_key and past_value hold different numbers of keys: {sorted(lengths)}"


def option_misfits(settings: Settings, q: Shape, k: Shape, v: Shape) -> Iterator[str]:
    """Options that say other than the arrays show, or ask what these arrays cannot give."""
    shown = {"heads": q[-3], "kv_heads": k[-3], "d_k": q[-1], "d_v": v[-1]}
    for option, size in shown.items():
        asked = getattr(settings, option)
        if asked is not None and asked != size:
            yield f"{settings.where((option,))}: {asked}, but the arrays have {size}"
    yield from unrotatable(settings, q[-1])


def weight_misfits(named: Named) -> Iterator[str]:
    """Weights whose rows or columns do not fit what they are multiplied with."""
    if "X" not in named:
        return
    heads, d_v = named["W_Q"][0].shape[0], named["W_V"][0].shape[-1]
    for name in ("W_Q", "W_K", "W_V"):
        source = "memory" if name != "W_Q" and "memory" in named else "X"
        rows, columns = named[name][0].shape[-2], named[source][0].shape[-1]
        if rows != columns:
            yield f"{name}: {rows} rows, but {source} has {columns} columns"
        bias = named.get(f"b_{name[-1]}")
        expected = (named[name][0].shape[0], named[name][0].shape[-1])
        if bias is not None and bias[0].shape != expected:
            yield (
                f"b_{name[-1]}: {dims(bias[0].shape)}, expected {dims(expected)} (head × columns of {name})"
            )
    if "W_O" not in named:
        return
    w_o = named["W_O"][0].shape
    if len(w_o) != 2 or w_o[0] != heads * d_v:
        yield f"W_O: {dims(w_o)}, expected {heads * d_v} rows (heads·d_v)"
    if "b_O" in named and named["b_O"][0].shape != w_o[1:]:
        yield f"b_O: {dims(named['b_O'][0].shape)}, expected {dims(w_o[1:])} (the columns of W_O)"


def mask_misfits(named: Named, facts: Facts) -> Iterator[str]:
    """A mask or bias that does not broadcast against the scores."""
    batch = () if facts.batch is None else (facts.batch,)
    scores = (*batch, facts.heads, facts.queries, facts.keys)
    for name in ("mask", "bias"):
        if name not in named:
            continue
        shape = named[name][0].shape
        fits = 1 <= len(shape) <= len(scores) and all(
            a in {1, b} for a, b in zip(reversed(shape), reversed(scores), strict=False)
        )
        if not fits:
            yield (
                f"{name}: {dims(shape)} does not fit scores of {dims(scores)} "
                "([batch ×] head × query × key)"
            )


def rotary(settings: Settings) -> Rotary | None:
    """The rotary positions, if these are the ones that were asked for."""
    return settings.positions if isinstance(settings.positions, Rotary) else None


def unrotatable(settings: Settings, d_k: int) -> Iterator[str]:
    """Rotary positions that this size of head cannot have."""
    turns = rotary(settings)
    dims = d_k if turns is None else turns.dims or d_k
    if turns is not None and (dims > d_k or dims % 2):
        place = settings.where(("positions",))
        yield f"{place}: rotating {dims} of d_k {d_k} columns; they turn in pairs: use an even number"
