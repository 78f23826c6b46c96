"""AWQ, as AutoAWQ writes it for its gemm kernels: (in, out), columns packed out of order.

A number is scale · (q − zero), a scale and a zero for each group of rows.
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
    read,
    scale_rows,
    unpack_columns,
)

BITS = 4
ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""The place in its word of each of eight columns: the even ones come first."""


def refused(entries: Mapping[str, Any]) -> Iterator[str]:
    bits = bits_of(entries, "bits" if "bits" in entries else "w_bit")
    if bits != BITS:
        yield f"{bits} bits; {BITS} are read"
    version = str(entries.get("version", "gemm")).lower()
    if version != "gemm":
        yield f"version {version}; gemm is read"
    if entries.get("zero_point") is False:
        yield "without zeros; those with a zero for each group are read"


def matrices(parts: PackedParts, entries: Mapping[str, Any]) -> Iterator[PackedMatrix]:
    for module in parts.modules("qweight"):
        yield matrix_of(parts, entries, module)


def matrix_of(parts: PackedParts, entries: Mapping[str, Any], module: str) -> PackedMatrix:
    words = parts.words(f"{module}.qweight")
    rows = words.shape[0]
    columns = words.shape[1] * (WORD // BITS)
    size = group_size(entries, rows, "group_size" if "group_size" in entries else "q_group_size")
    groups = ceiling(rows, size)
    scales = parts.floats(f"{module}.scales", (groups, columns))
    zeros = parts.words(f"{module}.qzeros", (groups, words.shape[1]))
    names = tuple(f"{module}.{part}" for part in ("qweight", "scales", "qzeros"))

    def numbers(outs: Array, ins: Array) -> Array:
        group = ins // size
        q = unpack_columns(read(words), ins, outs, BITS, ORDER)
        zero = unpack_columns(read(zeros), group, outs, BITS, ORDER)
        return scale_rows(scales, group, outs, q=q, zero=zero)

    return PackedMatrix(f"{module}.weight", names, (columns, rows), BITS, numbers)
