"""Dumps as safetensors: a length, a JSON header of where each array is, and the arrays.

The header of a dump stands in `__metadata__`, which may hold only strings, as JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import IO, Any

import numpy as np

from attnctl.base.errors import AttnError, collect_problems
from attnctl.math import Array, Shape
from attnctl.math.engine.cost import size_text
from attnctl.record import Trace
from attnctl.store.files import encode_json, json_text
from attnctl.store.header import Contents, Stored, check_shape, header_data, raise_first, show_value, under
from attnctl.store.json_file import header_of
from attnctl.store.raw import File, array_from, byte_pieces

METADATA = "__metadata__"
HEADER = "attnctl.json"
WHOLE = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for size in (1, 2, 4, 8) for kind in "ui"}
EIGHTS = {"F8_E4M3": "|u1", "F8_E8M0": "|u1"}
"""Numbers of eight bits, as their bytes: weights of models alone have them (`attnctl.models.tensors`)."""
DTYPES = {"BOOL": "|b1", **WHOLE, "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}
NO_TYPES: Mapping[str, str] = {}
NAMES = {np.dtype(code): name for name, code in DTYPES.items() if name != "BF16"}


def write_safetensors(trace: Trace, stream: IO[bytes]) -> None:
    """Write one dump, straight from its arrays; the widest numbers first, so that all are aligned."""
    if METADATA in trace:
        raise AttnError(f"step {METADATA}: this cannot be the name of an array in a .safetensors file")
    write_tensors(trace, stream, {METADATA: {HEADER: encode_json(json_text(header_data(trace))).decode()}})


def write_tensors(
    arrays: Mapping[str, Array],
    stream: IO[bytes],
    metadata: Mapping[str, Any],
    types: Mapping[str, str] = NO_TYPES,
) -> None:
    """Write arrays with what stands in the header beside them; `types` are those that NumPy has not."""
    header: dict[str, Any] = {**metadata}
    at = 0
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    for name in names:
        array = arrays[name]
        dtype = types.get(name) or NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = encode_json(json_text(header))
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<Q", len(text)) + text)
    for name in names:
        for piece in byte_pieces(arrays[name]):
            stream.write(piece)


def stored_tensor(file: File, start: int, dtype: str, shape: Shape) -> Stored:
    stored, brain = np.dtype({**DTYPES, **EIGHTS}[dtype]), dtype == "BF16"
    nbytes = prod(shape) * stored.itemsize

    def load(part: Any = ..., room: Array | None = None) -> Array:
        """Its numbers, or those at an index; bfloat16 as float32, widened in `room` (uint32) if given."""
        array = array_from(file.map(start, nbytes), shape, stored)[part]
        if not brain:
            return array
        wide = np.empty(array.shape, np.uint32) if room is None else room[: array.size].reshape(array.shape)
        wide[...] = array
        wide <<= 16
        return wide.view(np.float32)

    number = np.dtype(np.float32) if brain else stored.newbyteorder("=")
    return Stored(shape, number, load, dtype, nbytes)


def read_safetensors(file: File) -> Contents:
    metadata, tensors = contents(file)
    text = metadata.get(HEADER)
    told = None if text is None else header_of(encode_json(text), f"{file.place}: {HEADER}")
    return Contents(told, tensors, file.place)


def contents(file: File, *, quantised: bool = False) -> tuple[dict[str, str], dict[str, Stored]]:
    """The metadata, and the arrays, still in the file. Raises AttnError for a header that does not fit."""
    length, place = int.from_bytes(file.read(0, 8), "little"), file.place
    if length > 100_000_000 or 8 + length > file.length:  # as the format allows
        raise AttnError(f"{place}: a safetensors header of {size_text(length)} in {size_text(file.length)}")
    header = header_of(file.read(8, length), place)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise AttnError(f"{place}: $.{METADATA}: expected strings by name")
    known = {**DTYPES, **EIGHTS} if quantised else DTYPES
    problems: list[str] = []
    placed: list[tuple[int, int, str, Stored]] = []
    for name, data in header.items():
        with collect_problems(problems):
            placed.append(tensor_of(name, data, file, 8 + length, known))
    problems += gaps(placed, file.length - 8 - length)
    raise_first([f"{place}: {problem}" for problem in problems])
    return metadata, {name: tensor for _, _, name, tensor in placed}


def tensor_of(
    name: str, data: Any, file: File, start: int, known: Mapping[str, str]
) -> tuple[int, int, str, Stored]:
    path = under("$", name)
    if not isinstance(data, dict) or set(data) != {"dtype", "shape", "data_offsets"}:
        raise AttnError(f"{path}: expected dtype, shape and data_offsets, found {show_value(data)}")
    dtype, shape, offsets = data["dtype"], data["shape"], data["data_offsets"]
    if isinstance(dtype, str) and dtype.startswith(("F8_", "F4")) and dtype not in known:
        instead = "give float32, float16 or bfloat16"
        raise AttnError(f"{path}.dtype: {dtype}; quantised numbers are not read: {instead}")
    if not isinstance(dtype, str) or dtype not in known:
        raise AttnError(f"{path}.dtype: {show_value(dtype)} is none of {', '.join(known)}")
    if not counts(shape):
        raise AttnError(f"{path}.shape: expected sizes, found {show_value(shape)}")
    check_shape(tuple(shape), f"{path}.shape")
    if not counts(offsets) or len(offsets) != 2:
        raise AttnError(f"{path}.data_offsets: expected two offsets, found {show_value(offsets)}")
    begin, end = offsets
    tensor = stored_tensor(file, start + begin, dtype, tuple(shape))
    if end - begin != tensor.nbytes:
        what = f"{size_text(max(0, end - begin))} where shape and dtype need {size_text(tensor.nbytes)}"
        raise AttnError(f"{path}: shape and data disagree: {what}")
    return begin, end, name, tensor


def counts(data: Any) -> bool:
    return isinstance(data, list) and all(type(number) is int and number >= 0 for number in data)


def gaps(placed: list[tuple[int, int, str, Stored]], length: int) -> list[str]:
    """The problem of arrays that overlap, leave a gap, or do not end at the end of the file, if any."""
    at = 0
    for begin, end, name, _ in sorted(placed, key=lambda tensor: tensor[:2]):
        if begin != at:
            return [f"{under('$', name)}: begins at byte {begin} where the array before it ends at {at}"]
        at = end
    return [] if at == length else [f"the arrays end at byte {at} of {length}"]
