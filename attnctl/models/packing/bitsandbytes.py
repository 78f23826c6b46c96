"""bitsandbytes: NF4 and FP4, two numbers a byte, and int8 with the largest number of each row.

Of four bits each block has its largest number, which may be in few bits itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.models.packing.matrix import PackedMatrix, PackedParts, ceiling, read
from attnctl.store.header import Stored

STATES = ("quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4")
LONGEST_STATE = 2**12
"""Bytes of what is said of a matrix."""


def refused(entries: Mapping[str, Any]) -> Iterator[str]:
    if not entries.get("load_in_4bit") and not entries.get("load_in_8bit"):
        yield "neither load_in_4bit nor load_in_8bit"


def matrices(parts: PackedParts, entries: Mapping[str, Any]) -> Iterator[PackedMatrix]:
    for state in STATES:
        for name in parts.modules(state):
            yield four_bits(parts, name, state)
    for module in parts.modules("SCB"):
        yield eight_bits(parts, module)


def eight_bits(parts: PackedParts, module: str) -> PackedMatrix:
    whole = parts.tensor(f"{module}.weight", 2)
    largest = parts.floats(f"{module}.SCB", (whole.shape[0],))
    names = [f"{module}.weight", f"{module}.SCB"]
    if parts.has(f"{module}.weight_format"):
        names.append(f"{module}.weight_format")
        if np.any(read(parts.tensors[names[-1]])):
            raise AttnError(f"{names[-1]}: rows in another order; those in their own are read")

    def numbers(rows: Array, columns: Array) -> Array:
        q = read(whole, (rows[:, None], columns[None])).astype(np.float32)
        return q * (read(largest)[rows, None].astype(np.float32) / np.float32(127))

    return PackedMatrix(f"{module}.weight", tuple(names), whole.shape, 8, numbers)


class FourBits(NamedTuple):
    """What is said of a matrix of two numbers a byte."""

    shape: tuple[int, int]
    block: int
    nested_block: int
    """Of the largest numbers of blocks, those that have one largest themselves; 0 where they are whole."""
    offset: float


def four_bits(parts: PackedParts, name: str, state: str) -> PackedMatrix:
    said = read_state(parts, f"{name}.{state}")
    rows, columns = said.shape
    count = rows * columns
    pairs = ceiling(count, 2)
    stored = parts.bytes(name, (pairs, 1), (1, pairs), (pairs,))
    code = parts.floats(f"{name}.quant_map", (16,))
    blocks = ceiling(count, said.block)
    absmax = parts.of_shape(f"{name}.absmax", (blocks,))
    if absmax.dtype.kind != ("u" if said.nested_block else "f"):
        raise AttnError(f"{name}.absmax holds {absmax.type_name}, which its state says otherwise")
    used = ["absmax", "quant_map", state]
    nested: tuple[Stored, Stored] | None = None
    if said.nested_block:
        used += ["nested_absmax", "nested_quant_map"]
        largest = parts.floats(f"{name}.nested_absmax", (ceiling(blocks, said.nested_block),))
        nested = parts.floats(f"{name}.nested_quant_map", (256,)), largest

    def numbers(outs: Array, ins: Array) -> Array:
        at = outs[:, None] * columns + ins[None]
        byte = read(stored).reshape(-1)[at // 2]
        half = np.where(at % 2, byte & 15, byte >> 4)
        block = at // said.block
        scale = read(absmax)[block]
        if nested is not None:
            code_of_scales, largest = nested
            of_block = read(largest)[block // said.nested_block]
            scale = read(code_of_scales)[scale] * of_block + np.float32(said.offset)
        return np.asarray(read(code)[half] * scale, np.float32)

    names = (name, *(f"{name}.{each}" for each in used))
    return PackedMatrix(name, names, said.shape, 4, numbers)


def read_state(parts: PackedParts, name: str) -> FourBits:
    """What is said of a matrix, in JSON, as bytes. Raises AttnError for what cannot be."""
    tensor = parts.tensor(name, 1)
    if tensor.shape[0] > LONGEST_STATE:
        raise AttnError(f"{name}: longer than {LONGEST_STATE} bytes")
    try:
        state = json.loads(read(tensor).astype(np.uint8).tobytes())
        shape = tuple(state["shape"])
        rows, columns = shape
        sizes = (rows, columns, state["blocksize"], state.get("nested_blocksize", 0))
        found = FourBits((rows, columns), sizes[2], sizes[3], float(state.get("nested_offset", 0.0)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AttnError(f"{name}: no state of a matrix of bitsandbytes ({error})") from None
    if any(not isinstance(size, int) or not 0 <= size < 2**31 for size in sizes):
        raise AttnError(f"{name}: sizes {sizes}, expected whole numbers")
    if not prod(found.shape) or not found.block:
        raise AttnError(f"{name}: a matrix or a block of nothing")
    return found
