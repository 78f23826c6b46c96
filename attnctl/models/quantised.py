"""Weights in fewer bits: blocks of FP8 with a scale each, and MXFP4; only what is read is made wide."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from attnctl.base.errors import raise_all
from attnctl.base.words import dims
from attnctl.math import Array, Shape
from attnctl.store.header import Stored

Block = tuple[int, int]
"""Rows and columns that have one scale."""

EIGHT, SCALES = "F8_E4M3", ("F32", "BF16", "F8_E8M0", "U8")
PACKED = 32
"""The numbers of MXFP4 that have one scale."""


def bfloat16(x: Array) -> Array:
    """float32 numbers rounded to bfloat16, to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32)


def e4m3() -> Array:
    """The number of each byte: a sign, four bits of exponent, three of a fraction; no infinity, one NaN."""
    byte = np.arange(128)
    exponent, fraction = byte >> 3, byte & 7
    size = np.where(exponent, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    size[-1] = np.nan
    return np.concatenate([size, -size]).astype(np.float32)


def e2m1() -> Array:
    """The number of each half of a byte."""
    size = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    return np.concatenate([size, -size])


def load_blocks(
    weight: Stored, scales: Stored, block: Block, part: Any = ..., room: Array | None = None
) -> Array:
    """A matrix of FP8 times the scale of each block, in bfloat16 as transformers makes it.

    Its numbers, or those at an index; the scales of one row of blocks at a time.
    """
    rows, columns = places(weight.shape, part)
    out, factors = e4m3()[weight.load(part)], scales.load()
    if scales.dtype.kind == "u":
        factors = np.exp2(factors.astype(np.float32) - 127)
    by_row = factors[:, columns // block[1]]
    for first, last in runs(rows // block[0]):
        out[first:last] *= by_row[rows[first] // block[0]]
        out[first:last] = bfloat16(out[first:last])
    return out


def load_packed(blocks: Stored, scales: Stored, part: Any = ..., room: Array | None = None) -> Array:
    """MXFP4, whole or one expert: two numbers a byte, a power of two for each 32.

    (…, out, groups, 16) as (…, in, out).
    """
    packed, powers = blocks.load(part), scales.load(part)
    out = np.empty((*powers.shape, PACKED), np.float32)
    out[..., ::2], out[..., 1::2] = e2m1()[packed & 15], e2m1()[packed >> 4]
    np.ldexp(out, powers[..., None].astype(np.int32) - 127, out=out)
    return out.reshape(*powers.shape[:-1], -1).swapaxes(-1, -2)


def places(shape: Shape, part: Any) -> tuple[Array, Array]:
    """The rows and the columns of a part of a matrix."""
    rows, columns = (np.arange(size) for size in shape)
    if part is ...:
        return rows, columns
    first, second = part if isinstance(part, tuple) else (part, slice(None))
    return rows[first], columns[second]


def runs(numbers: Array) -> Iterator[tuple[int, int]]:
    """The first and the last place of equal numbers beside each other."""
    ends = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    yield from pairwise(ends)


def with_scales(tensors: dict[str, Stored], block: Block | None, place: str) -> dict[str, Stored]:
    """The tensors, those in fewer bits joined with their scales. Raises AttnError for what does not fit."""
    found: dict[str, Stored] = {}
    problems, scales = [], set[str]()
    for name, tensor in tensors.items():
        base, by_row = name.removesuffix("_blocks"), f"{name}_scale_inv"
        shape, number = tensor.shape, tensor.type_name
        if number == EIGHT and len(shape) == 2 and block and by_row in tensors:
            base, expected = name, tuple(-(-size // by) for size, by in zip(shape, block, strict=False))
            load = partial(load_blocks, tensor, tensors[by_row], block)
        elif shape[-1:] == (PACKED // 2,) and base != name and f"{base}_scales" in tensors:
            by_row, expected, number = f"{base}_scales", shape[:-1], "MXFP4"
            load = partial(load_packed, tensor, tensors[by_row])
            *lead, columns, groups, _ = shape
            shape = (*lead, groups * PACKED, columns)
        else:
            found.setdefault(name, tensor)
            continue
        there = tensors[by_row]
        found[base] = Stored(shape, np.dtype(np.float32), load, number, tensor.nbytes + there.nbytes)
        scales.add(by_row)
        if there.shape != expected or there.type_name not in SCALES:
            what = f"{dims(there.shape)} of {there.type_name}, expected {dims(expected)}"
            problems.append(f"{place}: {by_row} is {what}, a scale for each block of {name}")
    raise_all(problems)
    return {name: tensor for name, tensor in found.items() if name not in scales}
