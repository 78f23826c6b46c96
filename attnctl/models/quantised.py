"""Weights in fewer bits: blocks of FP8 with a scale each, and MXFP4; only what is read is made wide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from attnctl.base.errors import raise_all
from attnctl.base.words import dims
from attnctl.math import Array, Shape
from attnctl.store.safetensors import Tensor

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


class BlockScaled:
    """A matrix of FP8 times the scale of each block, in bfloat16 as transformers makes it."""

    type_name, dtype = EIGHT, np.dtype(np.float32)

    def __init__(self, weight: Tensor, scales: Tensor, block: Block) -> None:
        self.weight, self.scales, self.block = weight, scales, block
        self.shape, self.nbytes = weight.shape, weight.nbytes + scales.nbytes

    def load(self, part: Any = ..., room: Array | None = None) -> Array:
        """Its numbers, or those at an index; the scales of one row of blocks at a time."""
        rows, columns = places(self.shape, part)
        out = e4m3()[self.weight.load(part)]
        scales = self.scales.load()
        if self.scales.dtype.kind == "u":
            scales = np.exp2(scales.astype(np.float32) - 127)
        by_row = scales[:, columns // self.block[1]]
        for first, last in runs(rows // self.block[0]):
            out[first:last] *= by_row[rows[first] // self.block[0]]
            out[first:last] = bfloat16(out[first:last])
        return out


class Packed:
    """MXFP4: two numbers a byte, a power of two for each 32; (…, out, groups, 16) as (…, in, out)."""

    type_name, dtype = "MXFP4", np.dtype(np.float32)

    def __init__(self, blocks: Tensor, scales: Tensor) -> None:
        self.blocks, self.scales = blocks, scales
        *lead, columns, groups, _ = blocks.shape
        self.shape: Shape = (*lead, groups * PACKED, columns)
        self.nbytes = blocks.nbytes + scales.nbytes

    def load(self, part: Any = ..., room: Array | None = None) -> Array:
        """Its numbers, or those of one expert."""
        blocks, scales = self.blocks.load(part), self.scales.load(part)
        out = np.empty((*scales.shape, PACKED), np.float32)
        out[..., ::2], out[..., 1::2] = e2m1()[blocks & 15], e2m1()[blocks >> 4]
        np.ldexp(out, scales[..., None].astype(np.int32) - 127, out=out)
        return out.reshape(*scales.shape[:-1], -1).swapaxes(-1, -2)


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


AnyTensor = Tensor | BlockScaled | Packed


def with_scales(tensors: dict[str, Tensor], block: Block | None, place: str) -> dict[str, AnyTensor]:
    """The tensors, those in fewer bits joined with their scales. Raises AttnError for what does not fit."""
    found: dict[str, AnyTensor] = {}
    problems, scales = [], set[str]()
    for name, tensor in tensors.items():
        base, by_row = name.removesuffix("_blocks"), f"{name}_scale_inv"
        if tensor.type_name == EIGHT and len(tensor.shape) == 2 and block and by_row in tensors:
            expected = tuple(-(-size // by) for size, by in zip(tensor.shape, block, strict=False))
            found[name] = BlockScaled(tensor, tensors[by_row], block)
            scales.add(by_row)
        elif tensor.shape[-1:] == (PACKED // 2,) and base != name and f"{base}_scales" in tensors:
            by_row = f"{base}_scales"
            expected = tensor.shape[:-1]
            found[base] = Packed(tensor, tensors[by_row])
            scales.add(by_row)
        else:
            found.setdefault(name, tensor)
            continue
        if (there := tensors[by_row]).shape != expected or there.type_name not in SCALES:
            what = f"{dims(there.shape)} of {there.type_name}, expected {dims(expected)}"
            problems.append(f"{place}: {by_row} is {what}, a scale for each block of {name}")
    raise_all(problems)
    return {name: tensor for name, tensor in found.items() if name not in scales}
