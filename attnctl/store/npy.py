"""The header of a .npy array: what its numbers are, believed only as far as it can be checked."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np

from attnctl.array import Array
from attnctl.engine.memory import size_text
from attnctl.errors import AttnError
from attnctl.store.codec import shown
from attnctl.store.header import check_shape
from attnctl.store.raw import File, array_from

MAGIC = b"\x93NUMPY"
VERSIONS = {b"\1\0": 2, b"\2\0": 4}
"""How many bytes the length of the header has in each."""

LONGEST = 10_000
"""Bytes of a header, as many as NumPy itself allows."""

NUMBERS = re.compile(r"[<>|=]?([biuf][1248])")
TEXT = re.compile(r"\|S\d{1,9}")


@dataclass(frozen=True)
class Npy:
    """What a header says of the numbers after it, and how long it is."""

    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def nbytes(self) -> int:
        """The bytes that the numbers take."""
        return prod(self.shape) * self.dtype.itemsize

    def array(self, data: memoryview) -> Array:
        """The numbers in these bytes."""
        return array_from(data, self.shape, self.dtype, fortran=self.fortran)


@dataclass(frozen=True)
class NpyFile:
    """A .npy file, its array still in it."""

    file: File
    npy: Npy

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each axis."""
        return self.npy.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type of number."""
        return self.npy.dtype

    def load(self) -> Array:
        """Its numbers, in place."""
        return self.npy.array(self.file.map(self.npy.length, self.npy.nbytes))


def npy_file(file: File) -> NpyFile:
    """The array of a .npy file."""
    with file.stream() as stream:
        npy = npy_header(stream, file.place)
    check_bytes(npy, file.length, file.place)
    return NpyFile(file, npy)


def npy_header(stream: IO[bytes], place: str) -> Npy:
    """The header at the start of a stream, which then stands at the numbers."""
    head = stream.read(8)
    if head[:6] != MAGIC or head[6:] not in VERSIONS:
        raise AttnError(f"{place}: not an array that np.save writes")
    width = VERSIONS[head[6:]]
    length = int.from_bytes(stream.read(width), "little")
    if length > LONGEST:
        raise AttnError(
            f"{place}: an array header of {size_text(length)}; {size_text(LONGEST)} are the most"
        )
    text = stream.read(length)
    try:
        told = ast.literal_eval(text.decode("latin-1").strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        told = None
    if not isinstance(told, dict) or set(told) != {"descr", "fortran_order", "shape"}:
        raise AttnError(f"{place}: the array header is not one that np.save writes")
    return Npy(
        len(head) + width + length,
        shape_in(told, place),
        dtype_in(told, place),
        told["fortran_order"] is True,
    )


def shape_in(told: dict[str, Any], place: str) -> tuple[int, ...]:
    """The shape a header says, with sizes that can be."""
    shape = told["shape"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise AttnError(f"{place}: the shape {shown(shape)} is not one of whole numbers")
    check_shape(shape, place)
    return shape


def dtype_in(told: dict[str, Any], place: str) -> np.dtype[Any]:
    """The type a header says, if it is one of numbers (or bytes, for a header of ours)."""
    descr = told["descr"]
    if not isinstance(descr, str) or not (NUMBERS.fullmatch(descr) or TEXT.fullmatch(descr)):
        raise AttnError(f"{place}: type {shown(descr)}: only arrays of numbers, true and false are read")
    try:
        return np.dtype(descr)
    except TypeError:
        raise AttnError(f"{place}: there is no type {shown(descr)}") from None


def check_bytes(npy: Npy, length: int, place: str) -> None:
    """Refuse an array whose bytes are not as many as its shape needs."""
    if npy.dtype.kind == "S":
        raise AttnError(f"{place}: an array of texts; only numbers, true and false are read")
    if npy.length + npy.nbytes != length:
        found = f"{size_text(npy.nbytes)} by its shape, {size_text(max(0, length - npy.length))} there"
        raise AttnError(f"{place}: shape and data disagree: {found}")
