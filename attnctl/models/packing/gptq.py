"""GPTQ, as AutoGPTQ and GPTQModel write it: (in, out), rows packed, a scale and a zero for groups of rows.

A number is scale · (q − zero); the first format has each zero less one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnctl.math import Array
from attnctl.models.packing.matrix import (
    WORD,
    PackedMatrix,
    PackedParts,
    bits_of,
    ceiling,
    group_size,
    listed_groups,
    read,
    refuse_bits,
    scale_rows,
    unpack_columns,
    unpack_rows,
)

ONE_LESS = ("gptq", None)
"""The formats whose zeros are one less."""


def refused(entries: Mapping[str, Any]) -> Iterator[str]:
    yield from refuse_bits(bits_of(entries))
    form = entries.get("checkpoint_format")
    if form not in {*ONE_LESS, "gptq_v2"}:
        yield f"checkpoint_format {form}; gptq and gptq_v2 are read"


def matrices(parts: PackedParts, entries: Mapping[str, Any]) -> Iterator[PackedMatrix]:
    for module in parts.modules("qweight"):
        yield matrix_of(parts, entries, module)


def matrix_of(parts: PackedParts, entries: Mapping[str, Any], module: str) -> PackedMatrix:
    bits = bits_of(entries)
    less = int(entries.get("checkpoint_format") in ONE_LESS)
    in_word = WORD // bits
    words = parts.words(f"{module}.qweight")
    rows = words.shape[0] * in_word
    columns = words.shape[1]
    size = group_size(entries, rows)
    groups = ceiling(rows, size)
    scales = parts.floats(f"{module}.scales", (groups, columns))
    zeros = parts.words(f"{module}.qzeros", (groups, ceiling(columns, in_word)))

    names = [f"{module}.{part}" for part in ("qweight", "scales", "qzeros")]
    group_of_row = np.arange(rows) // size
    if parts.has(f"{module}.g_idx"):
        names.append(f"{module}.g_idx")
        group_of_row = listed_groups(parts, f"{module}.g_idx", rows, groups)

    def numbers(outs: Array, ins: Array) -> Array:
        group = group_of_row[ins]
        q = unpack_rows(read(words), ins, outs, bits)
        zero = unpack_columns(read(zeros), group, outs, bits) + less
        return scale_rows(scales, group, outs, q=q, zero=zero)

    return PackedMatrix(f"{module}.weight", tuple(names), (columns, rows), bits, numbers)
