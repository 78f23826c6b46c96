"""The tensors of a checkpoint: one safetensors file or several with an index, mapped, by name.

Only what is asked for is read. Nothing here runs what it reads: pickles are refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input, open_found, refuse_os_errors
from attnctl.base.words import dims, nearest, quote
from attnctl.math import Array, Shape
from attnctl.math.engine.tiles import blas_alone, cores, results_in_order
from attnctl.models.family import Names
from attnctl.store.header import Stored
from attnctl.store.json_file import header_of
from attnctl.store.raw import File
from attnctl.store.safetensors import contents

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LONGEST_CONFIG, LONGEST_INDEX = 2**22, 2**27
"""Bytes of a config.json, and of an index of tensors."""

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth")


def json_file(path: Path, most: int) -> dict[str, Any]:
    """The object in a JSON file. Raises AttnError where there is none, or it is too long."""
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise AttnError(f"{path}: longer than {most} bytes")
    return header_of(data, str(path))


def path_inside(folder: Path, name: str) -> Path:
    """A file of a checkpoint. Raises AttnError if it leads out, but to the blobs of its repository."""
    if not name or Path(name).name != name or "\0" in name:
        raise AttnError(f"{folder}: {quote(name)} is not the name of a file beside config.json")
    root, path = folder.resolve(), folder / name
    target = path.resolve()
    allowed = [root]
    if root.parent.name == "snapshots":
        allowed.append(root.parent.parent / "blobs")
    if not any(target.is_relative_to(name) for name in allowed):
        raise AttnError(f"{path}: a link that leads out of {folder}")
    return path


OLDER = {".weight": ".gamma", ".bias": ".beta"}


class Checkpoint:
    """The tensors of a folder that save_pretrained wrote, or of a snapshot of the hub.

    Where it does not look (`looks`), numbers may be NaN or infinite: what only costs a layer needs none.
    """

    def __init__(self, folder: Path, block: Block | None = None) -> None:
        self.folder, self.block = folder, block
        found: dict[str, Stored] = {}
        for name in shards(folder):
            path = path_inside(folder, name)
            with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
                found.update(contents(File(stream.fileno(), str(path)), quantised=True)[1])
        self.tensors = with_scales(found, block, str(folder))
        self.names = sorted(self.tensors)
        self.used: set[str] = set()
        self.finite: set[str] = set()
        self.looks = True
        self.rooms: list[Array] = []

    def under(self, prefix: str) -> list[str]:
        start = bisect_left(self.names, prefix)
        return self.names[start : bisect_left(self.names, prefix + chr(0x10FFFF))]

    def find_name(self, name: str) -> str:
        """The name as this checkpoint has it: those that were TensorFlow's have norms of gamma and beta."""
        for ending, older in OLDER.items():
            old = name.removesuffix(ending) + older
            if name not in self.tensors and name.endswith(ending) and old in self.tensors:
                return old
        return name

    def read(
        self, name: str, shape: Shape, dtype: str, part: Any = ..., room: Array | None = None
    ) -> Array:
        """A tensor of this shape, or its part at an index, in this type of number.

        Numbers that are of this type already stay in the file until they are looked at; `room` is
        where bfloat16 is widened.

        Raises AttnError where it is missing, has another shape, or holds what is no finite number.
        """
        tensor = self.tensor(name, shape)
        array = tensor.load(part, room).astype(dtype, copy=False)
        name = self.find_name(name)
        self.used.add(name)
        if self.looks and name not in self.finite:
            refuse_infinite(f"{self.folder}: {name}", array, part)
            if part is ...:
                self.finite.add(name)
        return array

    def tensor(self, name: str, shape: Shape) -> Stored:
        name = self.find_name(name)
        if name not in self.tensors:
            near = nearest(name, self.tensors)
            hint = f"; there is {near[0]}" if near else ""
            raise AttnError(f"{self.folder}: no tensor {name}{hint}")
        tensor = self.tensors[name]
        if tensor.shape != shape:
            found, asked = dims(tensor.shape), dims(shape)
            raise AttnError(f"{self.folder}: {name} is {found}, but config.json asks for {asked}")
        if tensor.dtype.kind != "f":
            raise AttnError(
                f"{self.folder}: {name} holds {tensor.type_name}, and no scales that its config.json "
                "tells of; give blocks of FP8, MXFP4, or float32, float16 or bfloat16"
            )
        return tensor

    def multiply(self, x: Array, name: str, shape: Shape, dtype: str, axis: int) -> Array:
        """Rows times a matrix whose columns stand along this axis of a tensor.

        Blocks of columns are read, looked at and multiplied on every core, so that only one for each
        is ever in this type of number. A column is summed as it is in one product, to the last bit.

        Raises AttnError as `read` does.
        """
        columns = self.tensor(name, shape).shape[axis]
        blocks = blocks_of(columns, x.shape[-1])
        out = np.empty((*x.shape[:-1], columns), dtype)
        with blas_alone() if len(blocks) > 1 else nullcontext(False) as held:
            threads = min(cores(), len(blocks)) if held else 1
            numbers = max(block.stop - block.start for block in blocks) * x.shape[-1]
            rooms = [self.take_room(numbers) for _ in range(threads)]

            def fill(block: slice) -> None:
                room = rooms.pop()
                part = (slice(None), block) if axis else (block, slice(None))
                w = self.read(name, shape, dtype, part, room)
                np.matmul(x, w if axis else w.T, out=out[..., block])
                rooms.append(room)

            list(results_in_order(fill, blocks, threads))
            self.rooms += rooms
        if self.looks:
            self.finite.add(self.find_name(name))
        return out

    def take_room(self, numbers: int) -> Array:
        """Memory for so many numbers: that of an earlier product, as what is new is slow."""
        room = EMPTY
        with suppress(IndexError):
            room = self.rooms.pop()
        return room if room.size >= numbers else np.empty(numbers, np.uint32)


EMPTY = np.empty(0, np.uint32)

LEAST = 2**19
"""The fewest numbers of a matrix in a block: BLAS may sum the terms of small products in another order."""


def blocks_of(columns: int, rows: int) -> list[slice]:
    """Blocks of columns, a multiple of 64 but for the last, each of LEAST numbers if all have so many."""
    size = -(-LEAST // (64 * rows)) * 64
    starts = range(0, max(1, columns - size + 1), size)
    return [slice(start, stop) for start, stop in pairwise((*starts, columns))]


PIECE = 2**22
"""Numbers that are looked at together."""


def refuse_infinite(place: str, array: Array, part: Any) -> None:
    """Refuse a tensor's first number that is not finite; sums of squares find it with no memory."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        with np.errstate(all="ignore"):
            if np.isfinite(np.vdot(piece, piece)):
                continue
        for wrong in (start + np.flatnonzero(~np.isfinite(piece))).tolist():
            index = [int(place) for place in np.unravel_index(wrong, array.shape)]
            if isinstance(part, int):
                index = [part, *index]
            elif isinstance(part, tuple):
                index = [at + (cut.start or 0) for at, cut in zip(index, part, strict=True)]
            elif part is not ...:
                index[0] = int(part[index[0]])
            raise AttnError(f"{place}{index} is {flat[wrong]}; weights are finite numbers")


def shards(folder: Path) -> list[str]:
    """The files that hold the tensors. Raises AttnError where there are none that are safe to read."""
    if (folder / WHOLE).exists():
        return [WHOLE]
    if (folder / INDEX).exists():
        files = json_file(path_inside(folder, INDEX), LONGEST_INDEX).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise AttnError(f"{folder / INDEX}: $.weight_map: expected the file of each tensor")
        names = sorted(set(files.values()))
        for name in names:
            note_input(path_inside(folder, name))
        return names
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        raise AttnError(
            f"{folder}: {pickles[0]} is a pickle, which can run code; save the model as safetensors "
            "(model.save_pretrained)"
        )
    raise AttnError(f"{folder}: no {WHOLE} and no {INDEX}")


def prefix_of(names: Mapping[str, Stored], wanted: str, within: str, place: str) -> str:
    """The text before the names of a family in this checkpoint: "", "model.", "transformer.", …

    `wanted` is a tensor of the first layer that attends; where it is there several times, the one with
    `within` in its prefix is meant. Raises AttnError where it is not there, or is
    there several times.
    """
    found = [name.removesuffix(wanted) for name in names if name == wanted or name.endswith(f".{wanted}")]
    found = [prefix for prefix in found if within in prefix] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise AttnError(f"{place}: {len(found)} tensors end in {wanted}; which one is meant?")
    raise AttnError(f"{place}: no tensor ends in {wanted}; is it another model, or a part of one?")


def foreign(names: Sequence[str], inner: Names, ignored: tuple[str, ...]) -> Iterator[str]:
    """The names in a layer (without the layer's own) that its family does not know."""
    known = []
    for name in inner.values():
        text = re.escape(name.removesuffix("!")).replace(r"\{e\}", r"\d+").replace(r"\{h\}", r"\d+")
        known.append(text if name.endswith("!") else rf"{text}\.(?:weight|bias|gamma|beta)")
    pattern = re.compile("|".join(known))
    return (name for name in names if not pattern.fullmatch(name) and not name.startswith(ignored))


# --- weights in fewer bits: blocks of FP8 with a scale each, and MXFP4; only what is read is made wide ---

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
