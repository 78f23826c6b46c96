"""Weights in whole numbers of few bits, several in a word: a file and a line for each program that packs.

A format says which tensors of a module make its matrix, and the numbers of some rows and columns of it;
only what is asked for is made wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import one_of
from attnctl.math import Array
from attnctl.models.packing import awq, bitsandbytes, compressed, gptq, mlx
from attnctl.models.packing.matrix import PackedMatrix, PackedParts, places
from attnctl.store.header import Stored

Entries = Mapping[str, Any]


class PackedFormat(NamedTuple):
    """How a program packs: the matrices among tensors, and what its config.json may not say."""

    name: str
    matrices: Callable[[PackedParts, Entries], Iterator[PackedMatrix]]
    refused: Callable[[Entries], Iterator[str]]


FORMATS: dict[str, PackedFormat] = {
    "gptq": PackedFormat("GPTQ", gptq.matrices, gptq.refused),
    "awq": PackedFormat("AWQ", awq.matrices, awq.refused),
    "bitsandbytes": PackedFormat("bitsandbytes", bitsandbytes.matrices, bitsandbytes.refused),
    "compressed-tensors": PackedFormat("compressed-tensors", compressed.matrices, compressed.refused),
    "mlx": PackedFormat("MLX", mlx.matrices, mlx.refused),
}
"""By `quant_method`; that of MLX has none, and says `quantization`."""


class Packing(NamedTuple):
    """The format of a checkpoint's weights, and what its config.json says of it."""

    format: PackedFormat
    entries: Entries


def packing_of(config: Entries, place: str) -> Packing | None:
    """How weights are packed; None where they are not. Raises AttnError for what is not read."""
    said = config.get("quantization_config") or config.get("compression_config")
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    if method is None and isinstance(config.get("quantization"), Mapping):
        said = config["quantization"]
        method = "mlx"
    if not isinstance(said, Mapping) or not isinstance(method, str) or method not in FORMATS:
        return None
    if method == "compressed-tensors" and not compressed.is_packed(said):
        return None  # FP8, which has a scale beside each matrix

    found = FORMATS[method]
    raise_all(f"{place}: its weights are quantised ({found.name}): {why}" for why in found.refused(said))
    return Packing(found, said)


def unpack(tensors: Mapping[str, Stored], packing: Packing, place: str) -> dict[str, Stored]:
    """The tensors, those that are packed put together as matrices that are still in their file."""
    try:
        matrices = list(packing.format.matrices(PackedParts(tensors), packing.entries))
    except AttnError as error:
        raise AttnError(f"{place}: {problem}" for problem in error.problems) from None
    if not matrices:
        raise AttnError(f"{place}: config.json speaks of {packing.format.name}, but no tensor is packed so")

    taken = {name for matrix in matrices for name in matrix.names}
    found = {name: tensor for name, tensor in tensors.items() if name not in taken}
    for matrix in matrices:
        found[matrix.name] = Stored(
            shape=matrix.shape,
            dtype=np.dtype(np.float32),
            load=partial(load_part, matrix),
            type_name=f"{packing.format.name}, {matrix.bits} bits",
            nbytes=sum(tensors[name].nbytes for name in matrix.names),
        )
    return found


def load_part(matrix: PackedMatrix, part: Any = ..., room: Array | None = None) -> Array:
    """The numbers of a matrix, or those at an index."""
    rows, columns = places(matrix.shape, part)
    with np.errstate(all="ignore"):  # what a scale makes too large is refused by name
        return matrix.numbers(rows, columns)


def known_formats() -> str:
    names = ["FP8", "MXFP4", *(each.name for each in FORMATS.values())]
    return one_of(names, "or", most=len(names))
