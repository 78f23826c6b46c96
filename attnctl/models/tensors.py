"""The tensors of a checkpoint: one safetensors file or several with an index, mapped, by name.

Only what is asked for is read. Nothing here runs what it reads: pickles are left to torch, for weights.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import note_input, open_found, refuse_os_errors
from attnctl.base.words import dims, nearest, one_of, quote
from attnctl.math import Array, Shape
from attnctl.math.engine.tiles import blas_alone, cores, results_in_order
from attnctl.models.family import Names
from attnctl.models.packing import Packing, unpack
from attnctl.models.packing.matrix import places
from attnctl.store.header import Stored
from attnctl.store.json_file import header_of
from attnctl.store.raw import File
from attnctl.store.safetensors import NAMES as TYPE_NAMES
from attnctl.store.safetensors import contents
from attnctl.store.torch_file import read_torch

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

LONGEST_CONFIG = 2**22
"""Bytes of a config.json."""

LONGEST_INDEX = 2**27
"""Bytes of an index of tensors."""

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth")
"""What torch saves, and transformers did before safetensors: read by torch, which runs nothing of them."""

TORCH_INDEX = PICKLES[1]


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

    root = folder.resolve()
    allowed = [root]
    if root.parent.name == "snapshots":  # the hub's cache, which links to files by their hash
        allowed.append(root.parent.parent / "blobs")

    path = folder / name
    target = path.resolve()
    if not any(target.is_relative_to(place) for place in allowed):
        raise AttnError(f"{path}: a link that leads out of {folder}")
    return path


OLDER = {".weight": ".gamma", ".bias": ".beta"}


class Checkpoint:
    """The tensors of a folder that save_pretrained wrote, or of a snapshot of the hub.

    Where it does not look (`looks`), numbers may be NaN or infinite: what only costs a layer needs none.
    """

    def __init__(
        self,
        folder: Path,
        block: Block | None = None,
        tensors: Mapping[str, Stored] | None = None,
    ) -> None:
        self.folder = folder
        self.block = block
        self.tensors = read_tensors(folder, block) if tensors is None else dict(tensors)
        self.names = sorted(self.tensors)
        self.used: set[str] = set()
        self.finite: set[str] = set()
        self.looks = True
        self.rooms: list[Array] = []

    def under(self, prefix: str) -> list[str]:
        """The names that start so, which are beside each other among sorted ones."""
        start = bisect_left(self.names, prefix)
        stop = bisect_left(self.names, prefix + chr(0x10FFFF))
        return self.names[start:stop]

    def find_name(self, name: str) -> str:
        """The name as this checkpoint has it: those that were TensorFlow's have norms of gamma and beta."""
        if name in self.tensors:
            return name
        for ending, older in OLDER.items():
            old = name.removesuffix(ending) + older
            if name.endswith(ending) and old in self.tensors:
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
        """A tensor that is still in its file. Raises AttnError where it is missing, or another."""
        name = self.find_name(name)
        if name not in self.tensors:
            near = nearest(name, self.tensors)
            hint = f"; there is {near[0]}" if near else ""
            raise AttnError(f"{self.folder}: no tensor {name}{hint}")

        tensor = self.tensors[name]
        if tensor.shape != shape:
            stored = dims(tensor.shape)
            raise AttnError(f"{self.folder}: {name} is {stored}, but config.json asks for {dims(shape)}")
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
        largest = max(block.stop - block.start for block in blocks) * x.shape[-1]
        # Threads of our own only where BLAS is held to one: together they would be more than the cores.
        with blas_alone() if len(blocks) > 1 else nullcontext(False) as is_held:
            threads = min(cores(), len(blocks)) if is_held else 1
            rooms = [self.take_room(largest) for _ in range(threads)]

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
        with suppress(IndexError):
            room = self.rooms.pop()
            if room.size >= numbers:
                return room
        return np.empty(numbers, np.uint32)


def read_tensors(
    folder: Path, block: Block | None = None, packing: Packing | None = None
) -> dict[str, Stored]:
    """The tensors of a folder, still in their files, those in fewer bits joined with their scales."""
    stored: dict[str, Stored] = {}
    for name in shards(folder):
        path = path_inside(folder, name)
        with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
            file = File(stream.fileno(), str(path))
            if path.suffix == ".safetensors":
                _, tensors = contents(file, quantised=True)
            else:
                tensors = in_memory(read_torch(file).members)
        stored.update(tensors)
    if packing is not None:
        stored = unpack(stored, packing, str(folder))
    return with_scales(stored, block, str(folder))


def in_memory(arrays: Mapping[str, Any]) -> dict[str, Stored]:
    """Arrays that are read already, as those of a file are asked for."""
    found: dict[str, Stored] = {}
    for name, whole in arrays.items():
        array = np.asarray(whole)

        def load(part: Any = ..., room: Array | None = None, array: Array = array) -> Array:
            return array[part]

        size_name = TYPE_NAMES.get(array.dtype, str(array.dtype))
        found[name] = Stored(array.shape, array.dtype, load, size_name, array.nbytes)
    return found


LEAST = 2**19
"""The fewest numbers of a matrix in a block: BLAS may sum the terms of small products in another order."""


def blocks_of(columns: int, rows: int) -> list[slice]:
    """Blocks of columns, a multiple of 64 but for the last, each of LEAST numbers if all have so many."""
    size = -(-LEAST // (64 * rows)) * 64
    # The last block has what is left over besides, as it would be too small by itself.
    starts = range(0, max(1, columns - size + 1), size)
    ends = (*starts, columns)
    return [slice(start, stop) for start, stop in pairwise(ends)]


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

        # Large numbers overflow in the sum, too: only a look at each tells whether one is wrong.
        wrong = start + np.flatnonzero(~np.isfinite(piece))
        if len(wrong):
            first = int(wrong[0])
            index = [int(axis) for axis in np.unravel_index(first, array.shape)]
            whole_index = index_in_tensor(index, part)
            raise AttnError(f"{place}{whole_index} is {flat[first]}; weights are finite numbers")


def index_in_tensor(index: list[int], part: Any) -> list[int]:
    """The index in a whole tensor of a number in the part that was read."""
    if part is ...:
        return index
    if isinstance(part, int):
        return [part, *index]
    if isinstance(part, tuple):
        return [place + (cut.start or 0) for place, cut in zip(index, part, strict=True)]

    row, *columns = index
    return [int(part[row]), *columns]


def shards(folder: Path) -> list[str]:
    """The files that hold the tensors. Raises AttnError where there are none that are safe to read."""
    if (folder / WHOLE).exists():
        return [WHOLE]
    if (folder / INDEX).exists():
        return shards_of_index(folder, INDEX)

    if unindexed := shards_without_index(folder):
        return unindexed

    for name in PICKLES:
        if not (folder / name).exists():
            continue
        if find_spec("torch") is None:
            raise AttnError(
                f"{folder}: {name} is a pickle, which can run code; save the model as safetensors "
                "(model.save_pretrained), or pip install torch, which reads its weights and runs nothing"
            )
        return shards_of_index(folder, name) if name == TORCH_INDEX else [name]
    if (folder / MISTRALS).exists():
        raise AttnError(
            f"{folder}: {MISTRALS} has Mistral's own names, and the rows of Q and K in another order; give "
            f"the folder with {WHOLE}, which is the same model as transformers saves it"
        )
    raise AttnError(f"{folder}: no {WHOLE} and no {INDEX}{other_tensors(folder)}")


MISTRALS = "consolidated.safetensors"
SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


def other_tensors(folder: Path) -> str:
    """The names of what else there is, where it is one file."""
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    return f"; there is {others[0]}, which another program wrote" if len(others) == 1 else ""


def shards_without_index(folder: Path) -> list[str]:
    """Shards that stand without their index, all of them. Raises AttnError where one is missing."""
    found = {path.name for path in folder.glob("model-*-of-*.safetensors") if SHARD.fullmatch(path.name)}
    if not found:
        return []
    counts = {int(SHARD.sub(r"\2", name)) for name in found}
    if len(counts) > 1:
        raise AttnError(
            f"{folder}: shards of {one_of(map(str, sorted(counts)))} files; keep those of one model"
        )

    (count,) = counts
    if count > len(found):
        expected = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, len(found) + 2)]
        missing = next(name for name in expected if name not in found)
        raise AttnError(f"{folder}: {missing} is missing; there are {len(found)} of {count} shards")
    names = sorted(found)
    for name in names:
        note_input(path_inside(folder, name))
    return names


def shards_of_index(folder: Path, index: str) -> list[str]:
    file_of = json_file(path_inside(folder, index), LONGEST_INDEX).get("weight_map")
    if not isinstance(file_of, dict) or not all(isinstance(file, str) for file in file_of.values()):
        raise AttnError(f"{folder / index}: $.weight_map: expected the file of each tensor")

    names = sorted(set(file_of.values()))
    for name in names:
        note_input(path_inside(folder, name))
    return names


def prefix_of(names: Mapping[str, Stored], wanted: str, within: str, place: str) -> str:
    """The text before the names of a family in this checkpoint: "", "model.", "transformer.", …

    `wanted` is a tensor of the first layer that attends; where it is there several times, the one with
    `within` in its prefix is meant. Raises AttnError where it is not there, or is
    there several times.
    """
    named_so = [name for name in names if name == wanted or name.endswith(f".{wanted}")]
    prefixes = [name.removesuffix(wanted) for name in named_so]
    prefixes = [prefix for prefix in prefixes if within in prefix] or prefixes
    if len(prefixes) == 1:
        return prefixes[0]
    if prefixes:
        raise AttnError(f"{place}: {len(prefixes)} tensors end in {wanted}; which one is meant?")
    raise AttnError(f"{place}: no tensor ends in {wanted}; is it another model, or a part of one?")


def foreign(names: Sequence[str], inner: Names, ignored: tuple[str, ...]) -> Iterator[str]:
    """The names in a layer (without the layer's own) that its family does not know."""
    known = []
    for name in inner.values():
        escaped = re.escape(name.removesuffix("!"))
        with_numbers = escaped.replace(r"\{e\}", r"\d+").replace(r"\{h\}", r"\d+")
        suffix = "" if name.endswith("!") else r"\.(?:weight|bias|gamma|beta)"
        known.append(f"{with_numbers}{suffix}")

    pattern = re.compile("|".join(known))
    for name in names:
        if not pattern.fullmatch(name) and not name.startswith(ignored):
            yield name


# --- weights in fewer bits: blocks of FP8 with a scale each, and MXFP4; only what is read is made wide ---

Block = tuple[int, int]
"""Rows and columns that have one scale."""

EIGHT = "F8_E4M3"
"""The type of numbers in eight bits, as safetensors calls it."""

SCALES = ("F32", "BF16", "F8_E8M0", "U8")
"""The types that scales may have."""

SCALE_ENDINGS = ("_scale_inv", "_scale")
"""What is written behind a matrix's name for its scales: by transformers, and by compressed-tensors."""

OF_INPUTS = ("activation_scale", "input_scale")
"""Scales of a matrix's inputs, which a kernel rounds; here they stay what they are."""

PACKED = 32
"""The numbers of MXFP4 that have one scale."""


def bfloat16(x: Array) -> Array:
    """float32 numbers rounded to bfloat16, to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    # 0x7FFF is just under half a step; a last bit of 1 makes it half, so that ties go to even.
    last_bit = (bits >> 16) & 1
    rounded = bits + 0x7FFF + last_bit
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32)


def e4m3() -> Array:
    """The number of each byte: a sign, four bits of exponent, three of a fraction; no infinity, one NaN."""
    byte = np.arange(128)
    exponent = byte >> 3
    fraction = byte & 7
    normal = (8 + fraction) * 2.0 ** (exponent - 10)
    subnormal = fraction * 2.0**-9
    size = np.where(exponent, normal, subnormal)
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
    block_rows, block_columns = block
    rows, columns = places(weight.shape, part)
    out = e4m3()[weight.load(part)]
    factors = np.reshape(scales.load(), of_blocks(weight.shape, block))
    if scales.dtype.kind == "u":  # bytes that are exponents of 2
        factors = np.exp2(factors.astype(np.float32) - 127)

    by_row = factors[:, columns // block_columns]
    for first, last in runs(rows // block_rows):
        out[first:last] *= by_row[rows[first] // block_rows]
        out[first:last] = bfloat16(out[first:last])
    return out


def load_packed(blocks: Stored, scales: Stored, part: Any = ..., room: Array | None = None) -> Array:
    """MXFP4, whole or one expert: two numbers a byte, a power of two for each 32.

    (…, out, groups, 16) as (…, in, out).
    """
    packed = blocks.load(part)
    powers = scales.load(part)
    numbers = e2m1()
    out = np.empty((*powers.shape, PACKED), np.float32)
    out[..., ::2] = numbers[packed & 15]
    out[..., 1::2] = numbers[packed >> 4]

    exponents = powers[..., None].astype(np.int32) - 127
    np.ldexp(out, exponents, out=out)
    return out.reshape(*powers.shape[:-1], -1).swapaxes(-1, -2)


def runs(numbers: Array) -> Iterator[tuple[int, int]]:
    """The first and the last place of equal numbers beside each other."""
    changes = np.flatnonzero(np.diff(numbers)) + 1
    yield from pairwise([0, *changes.tolist(), len(numbers)])


def of_blocks(shape: Shape, block: Block) -> tuple[int, int]:
    """How many blocks of rows and of columns a matrix has."""
    rows, columns = shape
    return -(-rows // block[0]), -(-columns // block[1])


class Scaled(NamedTuple):
    """A tensor in fewer bits and its scales, as the one that they make together."""

    name: str
    scales: str
    expected: Shape
    """That of the scales."""
    joined: Stored


def with_scales(tensors: dict[str, Stored], block: Block | None, place: str) -> dict[str, Stored]:
    """The tensors, those in fewer bits joined with their scales. Raises AttnError for what does not fit."""
    joined: dict[str, Stored] = {}
    problems: list[str] = []
    names_of_scales: set[str] = set()
    for name, tensor in tensors.items():
        scaled = join_fp8(tensors, name, block) or join_mxfp4(tensors, name)
        if scaled is None:
            joined.setdefault(name, tensor)  # where blocks are joined to one of this name, they count
            continue

        joined[scaled.name] = scaled.joined
        names_of_scales.add(scaled.scales)
        module = name.rpartition(".")[0]
        names_of_scales |= {f"{module}.{ending}" for ending in OF_INPUTS}
        scales = tensors[scaled.scales]
        if scales.shape != scaled.expected or scales.type_name not in SCALES:
            stored = f"{dims(scales.shape)} of {scales.type_name}"
            expected = f"{dims(scaled.expected)}, a scale for each block of {name}"
            problems.append(f"{place}: {scaled.scales} is {stored}, expected {expected}")

    raise_all(problems)
    return {name: tensor for name, tensor in joined.items() if name not in names_of_scales}


def join_fp8(tensors: Mapping[str, Stored], name: str, block: Block | None) -> Scaled | None:
    """A matrix of FP8 with its scales; None where it is something else, or has none."""
    weight = tensors[name]
    scales = next((name + ending for ending in SCALE_ENDINGS if name + ending in tensors), None)
    if weight.type_name != EIGHT or len(weight.shape) != 2 or not block or scales is None:
        return None

    joined = Stored(
        shape=weight.shape,
        dtype=np.dtype(np.float32),
        load=partial(load_blocks, weight, tensors[scales], block),
        type_name=EIGHT,
        nbytes=weight.nbytes + tensors[scales].nbytes,
    )
    blocks = of_blocks(weight.shape, block)
    found = tensors[scales].shape
    # One scale may stand by itself.
    expected = found if blocks == (1, 1) and found in {(), (1,)} else blocks
    return Scaled(name, scales, expected, joined=joined)


def join_mxfp4(tensors: Mapping[str, Stored], name: str) -> Scaled | None:
    """Blocks of MXFP4 with their scales, which have names of their own; None where it is something else."""
    blocks = tensors[name]
    whole = name.removesuffix("_blocks")
    scales = f"{whole}_scales"
    if blocks.shape[-1:] != (PACKED // 2,) or whole == name or scales not in tensors:
        return None

    *lead, columns, groups, _ = blocks.shape
    joined = Stored(
        shape=(*lead, groups * PACKED, columns),
        dtype=np.dtype(np.float32),
        load=partial(load_packed, blocks, tensors[scales]),
        type_name="MXFP4",
        nbytes=blocks.nbytes + tensors[scales].nbytes,
    )
    return Scaled(whole, scales, blocks.shape[:-1], joined=joined)
