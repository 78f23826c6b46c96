"""The axes of a target's arrays, in letters: b batch, h heads, n rows, d columns, m keys.

`bnd` and `nbd` have heads side by side in their columns, `hnd` and `nd` one member, `nd` one head.
`IN:OUT` is said of a target whose output is laid out in another way than Q, K and V.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.math import Array

AXES = ("bhnd", "bnhd", "bnd", "nbd", "hnd", "nd")
"""How Q, K, V and the output may be laid out."""

MASKS = ("bhnm", "b1nm", "bnm", "nm", "b11m", "bm")
"""How a mask may be; 1 is an axis of one."""

USUAL, MERGED = "bhnd", "bnd"


def axes_in(layout: str) -> str:
    return layout.partition(":")[0]


def axes_out(layout: str) -> str:
    before, _, after = layout.partition(":")
    return after or before


def is_merged(axes: str) -> bool:
    return axes in {"bnd", "nbd"}


def apart(axes: str) -> str:
    return axes.replace("d", "hd") if is_merged(axes) else axes


def laid_out(array: Array, axes: str) -> Array:
    """(batch, head, n, d) in a target's axes."""
    whole = apart(axes)
    one = array[tuple(slice(None) if letter in whole else 0 for letter in USUAL)]
    kept = [letter for letter in USUAL if letter in whole]
    turned = one.transpose([kept.index(letter) for letter in whole])
    return turned.reshape(*turned.shape[:-2], -1) if is_merged(axes) else turned


def in_one(arrays: Sequence[Array], packed: str, axes: str) -> Array:
    """Q, K and V, each (batch, head, n, d), in one array; 3 is their axis among those of `packed`."""
    if in_columns(packed, axes):
        return np.concatenate([laid_out(each, axes) for each in arrays], axis=-1)
    stacked = np.stack([laid_out(each, packed.replace("3", "")) for each in arrays], axis=packed.index("3"))
    return stacked.reshape(*stacked.shape[:2], -1) if is_merged(axes) else stacked


def in_columns(packed: str, axes: str) -> bool:
    """Whether the columns of Q, of K and of V stand side by side, however many they are."""
    return is_merged(axes) and packed.endswith("3hd")


def packings(axes: str) -> list[str]:
    """How Q, K and V may stand in one array: one after the other, or by head."""
    if axes == USUAL:
        return ["3bhnd", "b3hnd"]
    whole = apart(axes)
    return [whole.replace("h", "3h"), whole.replace("d", "3d")] if "h" in whole else []


def back(array: Array, axes: str, heads: int) -> Array | None:
    """A target's axes as (batch, head, n, d); None for an array that has not as many."""
    if array.ndim != len(axes) or (is_merged(axes) and array.shape[-1] % heads):
        return None
    whole = apart(axes)
    split = array.reshape(*array.shape[:-1], heads, -1) if is_merged(axes) else array
    kept = [letter for letter in USUAL if letter in whole]
    turned = split.transpose([whole.index(letter) for letter in kept])
    return turned[tuple(slice(None) if letter in whole else None for letter in USUAL)]


def of_scores(array: Array, axes: str) -> Array:
    """(batch, head, query, key) without the axes that a target's arrays have not."""
    lead = (slice(None) if letter in apart(axes) else 0 for letter in "bh")
    return array[tuple(lead)]


def of_mask(array: Array, shape: str, axes: str) -> Array:
    """(batch, head, query, key) in the shape of a mask, which is the same along what it leaves out."""
    if shape == MASKS[0]:
        return of_scores(array, axes)
    left_out = slice(0, 1) if len(shape) == len(MASKS[0]) else 0
    return array[tuple(slice(None) if letter in shape else left_out for letter in MASKS[0])]
