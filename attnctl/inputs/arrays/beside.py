"""Arrays given beside Q, K and V, in any shape that broadcasts: masks, a sink, the weights of norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from attnctl.base.words import dims
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import names_in, parse_axes
from attnctl.math.names import MASK, NORM_WEIGHTS, SINK, TABLE


def place(name: str, array: Array, sizes: Sizes, keys: int) -> Array | None:
    """The array so that it broadcasts against what it goes with; None where it fits in no way."""
    if TABLE[name].of_scores:
        return beside_scores(widen_mask(array, keys), sizes)
    return by_head(name, array, sizes)


def heads_shown(arrays: Mapping[str, Array]) -> dict[str, int]:
    """The number of heads that a sink shows, or norms' weights that each head has its own of."""
    weights = {"head": arrays.get(NORM_WEIGHTS[0]), "kv_head": arrays.get(NORM_WEIGHTS[1])}
    shown = {
        axis: len(array)
        for axis, array in weights.items()
        if array is not None and array.ndim == 2 and len(array) > 1
    }
    return shown | ({"head": int(arrays[SINK].size)} if SINK in arrays else {})


def by_head(name: str, array: Array, sizes: Sizes) -> Array | None:
    """A sink as (head,), a norm's weight or bias as (d_k,) or (head, d_k); None where it is neither.

    Axes of size 1 do not count; one row for all heads is split.
    """
    whole = tuple(sizes.get(axis, array.size) for axis in names_in(parse_axes(TABLE[name].own)))
    plain = without_ones(array.shape)
    if plain in {without_ones(whole), without_ones((prod(whole),))}:
        return array.reshape(whole)
    return array.reshape(whole[-1]) if len(whole) > 1 and plain == without_ones(whole[-1:]) else None


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def is_one_row(name: str, array: Array, sizes: Sizes) -> bool:
    """True if a norm's weight has the columns of all heads in one row, as OLMo2 has it."""
    return (
        name in NORM_WEIGHTS
        and len(without_ones(array.shape)) == 1
        and array.size > sizes.get("d_k", array.size)
    )


def widen_mask(mask: Array, keys: int) -> Array:
    """A mask shorter than the keys hides the rest; one of a single column is that column for all."""
    short = keys - mask.shape[-1] if mask.ndim and mask.shape[-1] != 1 else 0
    if short <= 0:
        return mask
    fill = False if mask.dtype == bool else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=fill)


def score_sizes(sizes: Sizes) -> list[int | str]:
    batch = ["batch"] if "batch" in sizes else []
    return [sizes.get(axis, axis) for axis in (*batch, *TABLE[MASK].axes)]


def beside_scores(mask: Array, sizes: Sizes) -> Array | None:
    """A mask as it broadcasts against the scores; (batch, key) and (batch, query, key) where it does not.

    Without a batch axis a leading one of size 1 goes. None where it fits in no way.
    """
    ways = [mask]
    if "batch" in sizes and mask.ndim in {2, 3}:
        ways.append(mask[:, None, None] if mask.ndim == 2 else mask[:, None])
    elif "batch" not in sizes and mask.shape[:1] == (1,):
        ways.append(mask[0])
    return next((way for way in ways if broadcasts(way.shape, score_sizes(sizes))), None)


def broadcasts(shape: Shape, scores: Sequence[int | str]) -> bool:
    """True if an array of this shape can be laid over the scores; a size that is not known fits any."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    fits = all(a in {1, b} or isinstance(b, str) for a, b in pairs)
    return fits and 1 <= len(shape) <= len(scores)


def ill_placed(name: str, array: Array, sizes: Sizes) -> str:
    """The message that a mask, a sink or a norm's weight does not go with the others."""
    if TABLE[name].of_scores:
        scores = dims(score_sizes(sizes))
        return f"{name}: {dims(array.shape)} does not fit scores of {scores} ([batch ×] head × query × key)"
    *heads, last = (sizes.get(axis, axis) for axis in names_in(parse_axes(TABLE[name].own)))
    ways = (
        f"{last} (d_k) or {dims((*heads, last))} (head × d_k)" if heads else f"{last} (one for each head)"
    )
    return f"{name}: {dims(array.shape)}, expected {ways}"
