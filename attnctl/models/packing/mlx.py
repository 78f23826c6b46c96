"""MLX: (out, in), columns packed, a scale and a bias for each group of columns: scale · q + bias."""

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
    refuse_bits,
    unpack_columns,
)


def refused(entries: Mapping[str, Any]) -> Iterator[str]:
    yield from refuse_bits(bits_of(entries))
    mode = entries.get("mode", "affine")
    if mode != "affine":
        yield f"mode {mode}; affine is read"


def matrices(parts: PackedParts, entries: Mapping[str, Any]) -> Iterator[PackedMatrix]:
    for module in parts.modules("scales"):
        own = entries.get(module)  # a module may say its own
        yield matrix_of(parts, {**entries, **own} if isinstance(own, Mapping) else entries, module)


def matrix_of(parts: PackedParts, entries: Mapping[str, Any], module: str) -> PackedMatrix:
    bits = bits_of(entries)
    words = parts.words(f"{module}.weight")
    rows = words.shape[0]
    columns = words.shape[1] * WORD // bits
    size = group_size(entries, columns)
    groups = (rows, ceiling(columns, size))
    scales = parts.floats(f"{module}.scales", groups)
    biases = parts.floats(f"{module}.biases", groups)
    names = tuple(f"{module}.{part}" for part in ("weight", "scales", "biases"))

    def numbers(outs: Array, ins: Array) -> Array:
        q = unpack_columns(read(words), outs, ins, bits).astype(np.float32)
        at = (outs[:, None], ins[None] // size)
        return read(scales, at).astype(np.float32) * q + read(biases, at).astype(np.float32)

    return PackedMatrix(f"{module}.weight", names, (rows, columns), bits, numbers)
