"""Dumps as safetensors: a length, a JSON header of where each array is, and the arrays.

The header of a dump stands in `__metadata__`, which may hold only strings, as JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import IO, Any, NamedTuple

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
MOST_HEADER = 100_000_000  # bytes, as the format allows
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

    header = encode_json(json_text(header_data(trace))).decode()
    write_tensors(trace, stream, {METADATA: {HEADER: header}})


def write_tensors(
    arrays: Mapping[str, Array],
    stream: IO[bytes],
    metadata: Mapping[str, Any],
    types: Mapping[str, str] = NO_TYPES,
) -> None:
    """Write arrays with what stands in the header beside them; `types` are those that NumPy has not."""
    header: dict[str, Any] = {**metadata}
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    begin = 0
    for name in names:
        array = arrays[name]
        end = begin + array.nbytes
        dtype = types.get(name) or NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end

    text = encode_json(json_text(header))
    text += b" " * (-len(text) % 8)  # so that the numbers begin aligned
    stream.write(struct.pack("<Q", len(text)) + text)

    for name in names:
        for piece in byte_pieces(arrays[name]):
            stream.write(piece)


def stored_tensor(file: File, start: int, dtype: str, shape: Shape) -> Stored:
    stored = np.dtype({**DTYPES, **EIGHTS}[dtype])
    is_bfloat16 = dtype == "BF16"
    nbytes = prod(shape) * stored.itemsize

    def load(part: Any = ..., room: Array | None = None) -> Array:
        """Its numbers, or those at an index; bfloat16 as float32, widened in `room` (uint32) if given."""
        array = array_from(file.map(start, nbytes), shape, stored)[part]
        if not is_bfloat16:
            return array

        # A bfloat16 is the upper half of a float32.
        wide = np.empty(array.shape, np.uint32) if room is None else room[: array.size].reshape(array.shape)
        wide[...] = array
        wide <<= 16
        return wide.view(np.float32)

    loaded = np.dtype(np.float32) if is_bfloat16 else stored.newbyteorder("=")
    return Stored(shape, loaded, load, type_name=dtype, nbytes=nbytes)


def read_safetensors(file: File) -> Contents:
    metadata, tensors = contents(file)
    text = metadata.get(HEADER)
    header = None if text is None else header_of(encode_json(text), f"{file.place}: {HEADER}")
    return Contents(header, tensors, file.place)


class PlacedTensor(NamedTuple):
    """A tensor, and from which byte to which it stands behind the header."""

    begin: int
    end: int
    name: str
    tensor: Stored


def contents(file: File, *, quantised: bool = False) -> tuple[dict[str, str], dict[str, Stored]]:
    """The metadata, and the arrays, still in the file. Raises AttnError for a header that does not fit."""
    place = file.place
    length = int.from_bytes(file.read(0, 8), "little")
    if length > MOST_HEADER or 8 + length > file.length:
        raise AttnError(f"{place}: a safetensors header of {size_text(length)} in {size_text(file.length)}")

    header = header_of(file.read(8, length), place)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise AttnError(f"{place}: $.{METADATA}: expected strings by name")

    known = {**DTYPES, **EIGHTS} if quantised else DTYPES
    start = 8 + length
    problems: list[str] = []
    placed: list[PlacedTensor] = []
    for name, data in header.items():
        with collect_problems(problems):
            placed.append(tensor_of(name, data, file, start, known))

    problems += gaps(placed, file.length - start)
    raise_first([f"{place}: {problem}" for problem in problems])
    return metadata, {each.name: each.tensor for each in placed}


def tensor_of(name: str, data: Any, file: File, start: int, known: Mapping[str, str]) -> PlacedTensor:
    """What the header says of one tensor; the numbers begin at `start` of the file."""
    path = under("$", name)
    if not isinstance(data, dict) or set(data) != {"dtype", "shape", "data_offsets"}:
        raise AttnError(f"{path}: expected dtype, shape and data_offsets, found {show_value(data)}")

    dtype = data["dtype"]
    if isinstance(dtype, str) and dtype.startswith(("F8_", "F4")) and dtype not in known:
        instead = "give float32, float16 or bfloat16"
        raise AttnError(f"{path}.dtype: {dtype}; quantised numbers are not read: {instead}")
    if not isinstance(dtype, str) or dtype not in known:
        raise AttnError(f"{path}.dtype: {show_value(dtype)} is none of {', '.join(known)}")

    shape = data["shape"]
    if not counts(shape):
        raise AttnError(f"{path}.shape: expected sizes, found {show_value(shape)}")
    check_shape(tuple(shape), f"{path}.shape")

    offsets = data["data_offsets"]
    if not counts(offsets) or len(offsets) != 2:
        raise AttnError(f"{path}.data_offsets: expected two offsets, found {show_value(offsets)}")

    begin, end = offsets
    tensor = stored_tensor(file, start + begin, dtype, tuple(shape))
    if end - begin != tensor.nbytes:
        what = f"{size_text(max(0, end - begin))} where shape and dtype need {size_text(tensor.nbytes)}"
        raise AttnError(f"{path}: shape and data disagree: {what}")
    return PlacedTensor(begin, end, name, tensor)


def counts(data: Any) -> bool:
    return isinstance(data, list) and all(type(number) is int and number >= 0 for number in data)


def gaps(placed: list[PlacedTensor], length: int) -> list[str]:
    """The problem of arrays that overlap, leave a gap, or do not end at the end of the file, if any."""
    last_end = 0
    for each in sorted(placed, key=lambda each: (each.begin, each.end)):
        if each.begin != last_end:
            problem = f"begins at byte {each.begin} where the array before it ends at {last_end}"
            return [f"{under('$', each.name)}: {problem}"]
        last_end = each.end

    return [] if last_end == length else [f"the arrays end at byte {last_end} of {length}"]
