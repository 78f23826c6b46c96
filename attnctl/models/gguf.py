"""The header of a GGUF file, and its tensors, still in the file: what llama.cpp, Ollama and LM Studio keep.

Nothing that the file says is believed before it fits what is left of it: counts, lengths and offsets are
held to the file's own size first, and texts are made only when they are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.words import quote
from attnctl.math import Array, Shape
from attnctl.math.engine.cost import size_text
from attnctl.store.header import Stored, check_shape
from attnctl.store.raw import File, array_from

MAGIC = b"GGUF"
VERSIONS = (2, 3)

MOST_KEYS = 2**12
MOST_TENSORS = 2**16
MOST_TEXTS = 2**20
"""Texts of all lists together: the largest vocabularies with their merges have about 700 000."""

LONGEST_NAME = 2**9
LONGEST_TEXT = 2**22
"""Bytes of a text that is no name: a template of a chat is the longest there is."""

LONGEST_HEADER = 2**27
MOST_AXES = 4

NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
TRUTH, TEXT, LIST = 7, 8, 9

LEAST_KEY = 8 + 4 + 1
"""Bytes that a key takes at least: the length of its name, a type, a value."""

LEAST_TENSOR = 8 + 4 + 8 + 4 + 8


class Texts(NamedTuple):
    """A list of texts in the file."""

    data: memoryview
    length: int

    def read(self) -> list[str]:
        """All of them; bytes that are no text stand for themselves as � does."""
        texts = []
        place = 0
        for _ in range(self.length):
            (length,) = struct.unpack_from("<Q", self.data, place)
            texts.append(str(self.data[place + 8 : place + 8 + length], "utf-8", "replace"))
            place += 8 + length
        return texts


Value = Any
"""A number, true or false, a text, an array of numbers, or `Texts`."""


class NumberKind(NamedTuple):
    """A type of numbers: how many stand together, and in how many bytes."""

    name: str
    numbers: int
    bytes: int


KINDS = {
    0: NumberKind("F32", 1, 4),
    1: NumberKind("F16", 1, 2),
    2: NumberKind("Q4_0", 32, 18),
    3: NumberKind("Q4_1", 32, 20),
    6: NumberKind("Q5_0", 32, 22),
    7: NumberKind("Q5_1", 32, 24),
    8: NumberKind("Q8_0", 32, 34),
    10: NumberKind("Q2_K", 256, 84),
    11: NumberKind("Q3_K", 256, 110),
    12: NumberKind("Q4_K", 256, 144),
    13: NumberKind("Q5_K", 256, 176),
    14: NumberKind("Q6_K", 256, 210),
    16: NumberKind("IQ2_XXS", 256, 66),
    17: NumberKind("IQ2_XS", 256, 74),
    18: NumberKind("IQ3_XXS", 256, 98),
    19: NumberKind("IQ1_S", 256, 50),
    20: NumberKind("IQ4_NL", 32, 18),
    21: NumberKind("IQ3_S", 256, 110),
    22: NumberKind("IQ2_S", 256, 82),
    23: NumberKind("IQ4_XS", 256, 136),
    30: NumberKind("BF16", 1, 2),
    39: NumberKind("MXFP4", 32, 17),
}
"""The types that are read, by the numbers that GGUF has for them."""

OTHERS = {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0"}
"""Types that there are besides, for what is said of them."""


class Packed(NamedTuple):
    """A tensor as the file has it: blocks of numbers, a row after the other."""

    kind: NumberKind
    shape: Shape
    offset: int
    """Where it begins in the file."""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.kind.numbers * self.kind.bytes


class GGUF(NamedTuple):
    """What a file holds: its metadata, and where its tensors are."""

    file: File
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Packed]


def is_gguf(path: Path) -> bool:
    """Whether a file says that it is one."""
    if not path.is_file():
        return False
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
        return stream.read(4) == MAGIC


def read_gguf(path: Path) -> GGUF:
    """The header of a file. Raises AttnError for what is none, or says what cannot be."""
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
        file = File(stream.fileno(), str(path))
    cursor = Cursor(file.map(0, min(file.length, LONGEST_HEADER)), str(path), file.length)
    if cursor.take(4).tobytes() != MAGIC:
        raise AttnError(f"{path}: not a GGUF file")

    version = cursor.number("<u4")
    if version not in VERSIONS:
        turned = int.from_bytes(int(version).to_bytes(4, "little"), "big")
        what = "its numbers are big-endian" if turned in VERSIONS else f"GGUF version {version}"
        raise AttnError(f"{path}: {what}; versions 2 and 3, little-endian, are read")

    tensors = cursor.count("tensors", MOST_TENSORS, LEAST_TENSOR)
    keys = cursor.count("keys", MOST_KEYS, LEAST_KEY)
    metadata = read_metadata(cursor, keys)
    placed = read_placed(cursor, tensors)
    start = data_start(cursor, metadata)
    packed = {name: each._replace(offset=start + each.offset) for name, each in placed.items()}
    refuse_overlaps(packed, file.length, str(path))
    return GGUF(file, metadata, packed)


class Cursor:
    """Reads on in a header, never past its end."""

    def __init__(self, data: memoryview, place: str, whole: int) -> None:
        self.data = data
        self.place = place
        self.at = 0
        self.texts = 0
        self.is_whole = whole == len(data)

    def take(self, length: int) -> memoryview:
        end = self.at + length
        if end > len(self.data):
            limit = (
                "the file" if self.is_whole else f"the {size_text(LONGEST_HEADER)} that a header may have"
            )
            raise AttnError(f"{self.place}: {size_text(length)} at byte {self.at}, past the end of {limit}")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, kind: str) -> Any:
        dtype = np.dtype(kind)
        number = np.frombuffer(self.take(dtype.itemsize), dtype)[0]
        # As it is written: 1e-06, not the float32 beside it.
        return float(str(number)) if kind == "<f4" else number.item()

    def count(self, of: str, most: int, least: int) -> int:
        """How many of something follow, each of which takes `least` bytes or more."""
        count = int(self.number("<u8"))
        room = (len(self.data) - self.at) // least
        if count > min(most, room):
            what = f"{most} are the most" if count > most else f"there is room for {room}"
            raise AttnError(f"{self.place}: {count} {of}; {what}")
        return count

    def text(self, longest: int) -> str:
        length = int(self.number("<u8"))
        if length > longest:
            most = size_text(longest)
            raise AttnError(
                f"{self.place}: a text of {size_text(length)} at byte {self.at}; the most are {most}"
            )
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise AttnError(f"{self.place}: a text at byte {self.at - length} is not UTF-8") from None

    def value(self, kind: int) -> Value:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TRUTH:
            return bool(self.number("<u1"))
        if kind == TEXT:
            return self.text(LONGEST_TEXT)
        if kind == LIST:
            return self.list()
        raise AttnError(
            f"{self.place}: a value of type {kind} at byte {self.at}; GGUF has none of that number"
        )

    def list(self) -> Value:
        kind = int(self.number("<u4"))
        if kind == TEXT:
            return self.list_of_texts()
        dtype = np.dtype("<u1" if kind == TRUTH else NUMBERS.get(kind, "V0"))
        if not dtype.itemsize:
            raise AttnError(
                f"{self.place}: a list of type {kind} at byte {self.at}; lists are of numbers or texts"
            )
        count = self.count("numbers", LONGEST_HEADER, dtype.itemsize)
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def list_of_texts(self) -> Texts:
        count = self.count("texts", MOST_TEXTS - self.texts, 8)
        self.texts += count
        start = self.at
        place = start
        last = len(self.data) - 8
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if place > last:
                self.take(len(self.data))  # which says that it is past the end
            (length,) = unpack(self.data, place)
            place += 8 + length
        self.at = start
        return Texts(self.take(place - start), count)


def read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        name = cursor.text(LONGEST_NAME)
        kind = int(cursor.number("<u4"))
        if name in metadata:
            raise AttnError(f"{cursor.place}: {quote(name)} is there twice")
        metadata[name] = cursor.value(kind)
    return metadata


def read_placed(cursor: Cursor, count: int) -> dict[str, Packed]:
    """The tensors, with offsets from where the numbers begin."""
    placed: dict[str, Packed] = {}
    for _ in range(count):
        name = cursor.text(LONGEST_NAME)
        axes = int(cursor.number("<u4"))
        if not 1 <= axes <= MOST_AXES:
            raise AttnError(f"{cursor.place}: {quote(name)} has {axes} axes; 1 to {MOST_AXES} are possible")
        sizes = [int(cursor.number("<u8")) for _ in range(axes)]
        number = int(cursor.number("<u4"))
        offset = int(cursor.number("<u8"))
        if name in placed:
            raise AttnError(f"{cursor.place}: the tensor {quote(name)} is there twice")
        placed[name] = packed_tensor(name, sizes, number, offset, cursor.place)
    return placed


def packed_tensor(name: str, sizes: list[int], number: int, offset: int, place: str) -> Packed:
    kind = KINDS.get(number)
    if kind is None:
        known = ", ".join(each.name for each in KINDS.values())
        what = OTHERS.get(number, f"type {number}")
        raise AttnError(f"{place}: {quote(name)} is in {what}, which is not read; read are {known}")

    shape = tuple(reversed(sizes))
    check_shape(shape, f"{place}: {name}")
    if 0 in shape or shape[-1] % kind.numbers:
        raise AttnError(f"{place}: {quote(name)} has rows of {shape[-1]}, which {kind.name} cannot hold")
    return Packed(kind, shape, offset)


def data_start(cursor: Cursor, metadata: Mapping[str, Value]) -> int:
    """Where the numbers begin: behind the header, at a multiple of the alignment."""
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise AttnError(
            f"{cursor.place}: general.alignment: {quote(str(alignment))}, expected 1 to {2**20}"
        )
    return -(-cursor.at // alignment) * alignment


def refuse_overlaps(tensors: Mapping[str, Packed], length: int, place: str) -> None:
    """Refuse tensors that are not in the file in whole, or lie over each other."""
    end, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        if tensor.offset < end:
            raise AttnError(f"{place}: {quote(name)} begins within {quote(before)}")
        end, before = tensor.offset + tensor.nbytes, name
        if end > length:
            raise AttnError(f"{place}: {quote(name)} ends at byte {end} of {length}; the file is cut off")


# --- numbers of tensors: a block of rows at a time is made wide ---


def stored_tensor(gguf: GGUF, packed: Packed, order: Array | None = None, shift: float = 0.0) -> Stored:
    """A tensor, still in the file; its rows in this order, each number less `shift`."""
    stays_half = packed.kind.name == "F16" and not shift
    return Stored(
        shape=packed.shape,
        dtype=np.dtype("f2" if stays_half else "f4"),
        load=partial(load_packed, gguf.file, packed, order, np.float32(shift)),
        type_name=packed.kind.name,
        nbytes=packed.nbytes,
    )


def load_packed(
    file: File,
    packed: Packed,
    order: Array | None,
    shift: np.float32,
    part: Any = ...,
    room: Array | None = None,
) -> Array:
    """Its numbers, or those at an index; only rows that are asked for are made wide."""
    *lead, columns = packed.shape
    row_bytes = columns // packed.kind.numbers * packed.kind.bytes
    data = array_from(file.map(packed.offset, packed.nbytes), (*lead, row_bytes), np.dtype(np.uint8))

    if not lead:
        numbers = widen(data, packed.kind, file.place) - shift
        return (numbers if order is None else numbers[order])[part]

    taken: Any = slice(None)
    rows = part
    if isinstance(part, tuple):
        rows, taken = part
    if order is not None:
        rows = order if rows is ... else order[rows]

    wide = widen(data[rows], packed.kind, file.place)
    if shift:
        wide = wide - shift
    return wide[..., taken]


def widen(data: Array, kind: NumberKind, place: str) -> Array:
    """Blocks (…, bytes) as numbers (…, columns)."""
    match kind.name:
        case "F32":
            return np.ascontiguousarray(data).view("<f4")
        case "F16":
            return np.ascontiguousarray(data).view("<f2")
        case "BF16":
            upper = np.ascontiguousarray(data).view("<u2").astype(np.uint32)
            return (upper << 16).view(np.float32)
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise AttnError(f"{place}: its tensors are in {kind.name}; pip install 'attnctl[gguf]'") from None

    rows = np.ascontiguousarray(data).reshape(-1, data.shape[-1])
    with np.errstate(all="ignore"):  # a scale that is no number shows in what it makes
        wide: Array = dequantize(rows, GGMLQuantizationType[kind.name])
    return wide.reshape(*data.shape[:-1], -1)
