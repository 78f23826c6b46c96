"""Q, K and V stored in few bits, with the scales that they are multiplied by when they are read.

Numbers of eight bits have no room for what attention reads: they are divided by a scale first, so that the
largest of those that share it is near the end of the type. A target that takes no scales is handed numbers
of the type as they are. What is computed of them is held to bfloat16, in which such kernels answer at
least; weights may be rounded to float8_e4m3 where Q has eight bits, as both factors of a product do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnctl.evidence.precision import BFLOAT16, DTYPES, FLOAT8_E4M3, FLOAT8_E5M2, Precision, round_in
from attnctl.math import Array

TYPES: dict[str, Precision] = {
    **{name: DTYPES[name] for name in ("float64", "float32", "float16")},
    BFLOAT16.name: BFLOAT16,
}
"""The types that a target computes in, the finest first."""

EIGHT_BITS = {FLOAT8_E4M3.name: FLOAT8_E4M3, FLOAT8_E5M2.name: FLOAT8_E5M2}
"""The types of Q, K and V in which nothing else is computed."""

ASKED_IN = (*TYPES, *EIGHT_BITS)
"""The types that may be asked for."""

INT8 = "int8"
STORED_IN = (*ASKED_IN, INT8)
"""The types that K, V and a cache may be stored in under another type of Q."""

LARGEST = {**{name: precision.largest for name, precision in EIGHT_BITS.items()}, INT8: 127.0}

ROOM = 4.0
"""The part of the type that is left free: a law doubles values, and another scale is right, too."""

OF_TOKENS = "(batch, head, n)"
OF_HEADS_OF_MEMBERS = "(batch, head)"
OF_HEADS = "(head)"
OF_PAGES = "(page)"
ONE = "one number"
SCALE_SHAPES = (OF_HEADS, OF_HEADS_OF_MEMBERS, OF_TOKENS, OF_PAGES, ONE)
"""The shapes of scales, one number last: who takes several may take one by accident."""

SCALE_OF = {"Q": "q_scale", "K": "k_scale", "V": "v_scale"}


def precision_in(dtype: str) -> Precision:
    """The precision of what is computed of arrays in this type."""
    return TYPES.get(dtype, BFLOAT16)


def type_beside(dtype: str) -> str:
    """The type of the arrays beside Q, K and V: biases, sinks and masks of numbers."""
    return "float32" if dtype in EIGHT_BITS else dtype


def is_small(dtype: str) -> bool:
    return dtype in LARGEST


def store(dtype: str, array: Array) -> Array:
    """The numbers as this type holds them, in float64; what is beyond its largest is that."""
    if dtype == INT8:
        return np.clip(np.nan_to_num(np.rint(array), nan=LARGEST[INT8]), -LARGEST[INT8], LARGEST[INT8])
    if dtype in EIGHT_BITS:
        array = np.clip(array, -LARGEST[dtype], LARGEST[dtype])
    return round_in(dtype, array).astype(np.float64)


class StoredScale(NamedTuple):
    """The scale of one array."""

    passed: Array
    """In the shape in which the target takes it."""
    factor: Array
    """Over (batch, head, row, 1)."""
    of_heads: Array | None
    """The same by head, where the derivation has it as a step of its own."""


AXES_OF: Mapping[str, tuple[int, ...]] = {
    OF_TOKENS: (0, 1, 2),
    OF_HEADS_OF_MEMBERS: (0, 1),
    OF_HEADS: (1,),
    ONE: (),
}
"""The axes of (batch, head, row, column) along which scales differ."""


def choose_scale(array: Array, name: str, dtype: str, shape: str, *, by_step: bool) -> StoredScale:
    """Make scales as those who store numbers do: by the largest of those that share one.

    They are powers of two, so that numbers which are moved to another head are numbers of the type, times
    one and a half where numbers are multiplied by them in a step of their own, which may round them.
    """
    own = AXES_OF[shape]
    shared = tuple(axis for axis in range(4) if axis not in own)
    largest = np.nanmax(np.abs(array), axis=shared, keepdims=True)
    largest = np.where(largest > 0, largest, 1.0)
    room = LARGEST.get(dtype, 16.0) / ROOM
    factor: Array = 2.0 ** np.ceil(np.log2(largest / room))
    if dtype not in LARGEST:
        # What is not stored by its size has scales that tell heads and members apart.
        factor = 2.0 ** (np.arange(factor.size).reshape(factor.shape) % 5 - 2.0)

    is_step = by_step and shape in {OF_HEADS, ONE} and name != "Q"
    if is_step:
        factor = factor * (1.5 if name == "K" else 1.25)
    passed = factor[tuple(slice(None) if axis in own else 0 for axis in range(4))]
    of_heads = np.broadcast_to(factor[0, :, 0, 0], array.shape[1:2]) if is_step else None
    return StoredScale(passed, factor, of_heads)


def scale_pages(array: Array, pages: Array, slots: int, count: int, name: str) -> StoredScale:
    """Give each page a scale of its own: those of its keys, over (batch, head, key, 1)."""
    of_page = 2.0 ** ((np.arange(count) + len(name)) % 5 - 3.0)
    if name == "V":
        of_page = of_page[::-1].copy()
    of_key = of_page[np.repeat(pages, slots, axis=1)]
    return StoredScale(of_page, of_key[:, None, : array.shape[2], None], None)
