"""Anyone's arrays, brought to one layout: every input with its head axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnctl.array import Array
from attnctl.config.settings import Settings
from attnctl.errors import AttnError
from attnctl.words import dims

PROJECTED = ("Q", "K", "V")
FROM_X = ("X", "W_Q", "W_K", "W_V")
WEIGHTS = ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")
OUTPUT = ("W_O", "b_O")
PAST = ("past_key", "past_value")
BESIDE = (*PAST, "mask", "bias")
INPUTS = ("X", "memory", *WEIGHTS, *OUTPUT, *PROJECTED, *BESIDE, "key_lengths")
"""Every array that `attend` reads; a file may hold others."""


Named = dict[str, tuple[Array, str]]
"""Arrays by name, each with how it came about."""


def from_x(found: Mapping[str, Array]) -> bool:
    """Whether Q, K and V are to be computed: X and its weights are there."""
    return all(name in found for name in FROM_X)


def laid_out(found: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """Every input with its head axis: weights by head, Q K V as ([batch,] head, n, d).

    A float mask is a bias. Raises AttnError for an array whose axes cannot be told.
    """
    start = ("X", "memory", *WEIGHTS) if from_x(found) else PROJECTED
    kv_heads = settings.kv_heads or settings.heads
    out: dict[str, Array] = {}
    for name in (*start, *OUTPUT, *BESIDE):
        if name not in found:
            continue
        array, heads = found[name], settings.heads if name.endswith("Q") else kv_heads
        if name in PROJECTED:
            out[name] = by_head(name, array, heads if settings.heads else None)
        elif name in PAST:
            whole = found["X"].ndim + 1 if from_x(found) else out["K"].ndim
            out[name] = array if array.ndim == whole else by_head(name, array, heads or 1)
        elif name in WEIGHTS:
            out[name] = weight_by_head(name, array, heads or 1)
        elif name == "mask" and array.dtype.kind != "f":
            out["mask"] = array.astype(bool)
        else:
            out["bias" if name == "mask" else name] = array
    return out


def by_head(name: str, array: Array, heads: int | None) -> Array:
    """Q, K or V as ([batch,] head, n, d)."""
    if array.ndim not in {2, 3, 4}:
        raise AttnError(
            f"{name}: {dims(array.shape)}, expected (n, d), (head, n, d), (batch, head, n, d), "
            "or (batch, n, heads·d) with --heads"
        )
    if array.ndim == 4 or (array.ndim == 3 and heads is None):
        return array
    if heads is None:
        return array[None]
    if array.shape[-1] % heads:
        raise AttnError(
            f"{name}: {dims(array.shape)}, but {heads} heads do not divide {array.shape[-1]} columns"
        )
    *batch, n, columns = array.shape
    return array.reshape(*batch, n, heads, columns // heads).swapaxes(-3, -2)


def weight_by_head(name: str, array: Array, heads: int) -> Array:
    """A projection (d_model, heads·d) or bias (heads·d,) by head; one that is by head already as it is."""
    if array.ndim == (3 if name.startswith("W") else 2):
        return array
    if array.ndim != (2 if name.startswith("W") else 1) or array.shape[-1] % heads:
        shape = "(d_model, heads·d)" if name.startswith("W") else "(heads·d,)"
        raise AttnError(f"{name}: {dims(array.shape)}, expected {shape} with {heads} heads, or by head")
    return split_heads(array, heads)


def split_heads(fused: Array, heads: int) -> Array:
    """(d_model, heads·d), or a bias (heads·d,), split by head: (head, d_model, d) or (head, d)."""
    *rows, columns = fused.shape
    return np.moveaxis(fused.reshape(*rows, heads, columns // heads), -2, 0)
