"""compressed-tensors, as vLLM's compressor writes whole numbers: (out, in), columns packed or a byte each.

A number is scale · (q − zero), a scale for a matrix, a row or a group of columns; a packed q is half its
range more than it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.models.packing.matrix import (
    WORD,
    PackedMatrix,
    PackedParts,
    ceiling,
    listed_groups,
    read,
    refuse_bits,
    unpack_columns,
    unpack_rows,
)
from attnctl.store.header import Stored

PACKED, BYTES = "pack-quantized", "int-quantized"


def is_packed(entries: Mapping[str, Any]) -> bool:
    return entries.get("format") in {PACKED, BYTES}


def weights_of(entries: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What each group of modules says of its weights."""
    groups = entries.get("config_groups")
    found = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [group.get("weights") for group in found if isinstance(group, Mapping)]
    return [each for each in weights if isinstance(each, Mapping)]


def refused(entries: Mapping[str, Any]) -> Iterator[str]:
    weights = weights_of(entries)
    if len(weights) != 1:
        yield f"{len(weights)} groups of modules with weights; one is read"
        return
    (said,) = weights
    if said.get("type", "int") != "int":
        yield f"type {said.get('type')}; int is read, and FP8 of the format float-quantized"
    bits = said.get("num_bits")
    if entries["format"] == PACKED:
        yield from refuse_bits(bits if isinstance(bits, int) else 0)
    elif bits != 8:
        yield f"{bits} bits in a byte each; 8 are read"


def matrices(parts: PackedParts, entries: Mapping[str, Any]) -> Iterator[PackedMatrix]:
    bits = int(weights_of(entries)[0]["num_bits"])
    if entries["format"] == BYTES:
        for module in parts.modules("weight_scale"):
            yield bytes_of(parts, module)
        return
    for module in parts.modules("weight_packed"):
        yield packed_of(parts, module, bits)


def bytes_of(parts: PackedParts, module: str) -> PackedMatrix:
    whole = parts.tensor(f"{module}.weight", 2)
    scale = GroupScales(parts, module, whole.shape[0], whole.shape[1])
    zero = f"{module}.weight_zero_point"
    zeros = parts.of_shape(zero, scale.tensor.shape) if parts.has(zero) else None
    names = [f"{module}.weight", f"{module}.weight_scale"]
    names += [name for name in (zero, f"{module}.input_scale") if parts.has(name)]

    def numbers(rows: Array, columns: Array) -> Array:
        q = read(whole, (rows[:, None], columns[None])).astype(np.float32)
        at = scale.at(rows, columns)
        if zeros is not None:
            q = q - read(zeros, at).astype(np.float32)
        return q * read(scale.tensor, at).astype(np.float32)

    return PackedMatrix(f"{module}.weight", tuple(names), whole.shape, 8, numbers)


def packed_of(parts: PackedParts, module: str, bits: int) -> PackedMatrix:
    in_word = WORD // bits
    half = 1 << (bits - 1)
    words = parts.words(f"{module}.weight_packed")
    said = read(parts.of_shape(f"{module}.weight_shape", (2,)))
    rows, columns = (int(size) for size in said)
    if rows != words.shape[0] or ceiling(columns, in_word) != words.shape[1] or columns < 1:
        raise AttnError(f"{module}.weight_shape: {rows} × {columns} are not as many numbers as are packed")

    scale = GroupScales(parts, module, rows, columns)
    zeros = packed_zeros(parts, module, scale, in_word)
    names = [f"{module}.{part}" for part in ("weight_packed", "weight_shape", "weight_scale")]
    beside = ("weight_zero_point", "weight_g_idx", "input_scale")
    names += [f"{module}.{part}" for part in beside if parts.has(f"{module}.{part}")]

    def numbers(outs: Array, ins: Array) -> Array:
        q = unpack_columns(read(words), outs, ins, bits).astype(np.float32) - half
        row, column = scale.at(outs, ins)
        if zeros is not None:
            whole = unpack_rows(read(zeros), outs, np.arange(scale.tensor.shape[1]), bits)
            by_row = whole.astype(np.float32) - half
            q = q - by_row[np.arange(len(outs))[:, None], column]
        return q * read(scale.tensor, (row, column)).astype(np.float32)

    return PackedMatrix(f"{module}.weight", tuple(names), (rows, columns), bits, numbers)


def packed_zeros(parts: PackedParts, module: str, scale: GroupScales, in_word: int) -> Stored | None:
    """The zeros of groups, whose rows are packed; None where all are 0."""
    name = f"{module}.weight_zero_point"
    if not parts.has(name):
        return None
    rows, groups = scale.tensor.shape
    return parts.words(name, (ceiling(rows, in_word), groups))


class GroupScales:
    """The scales of a matrix: of groups of columns beside each other, or as a list of columns says."""

    def __init__(self, parts: PackedParts, module: str, rows: int, columns: int) -> None:
        name = f"{module}.weight_scale"
        found = parts.tensors.get(name)
        groups = found.shape[1] if found is not None and len(found.shape) == 2 else 1
        self.tensor = parts.floats(name, (rows, groups), (1, 1))
        self.has_rows = self.tensor.shape[0] > 1 or rows == 1
        if not groups or columns % groups:
            raise AttnError(f"{name}: {groups} groups do not divide {columns} columns")
        self.group_of_column = np.arange(columns) // (columns // groups)

        listed = f"{module}.weight_g_idx"
        if parts.has(listed):
            self.group_of_column = listed_groups(parts, listed, columns, groups)

    def at(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """Where the scales of some rows and columns stand."""
        row = rows if self.has_rows else np.zeros_like(rows)
        return row[:, None], self.group_of_column[columns][None]
