"""Bytes of arrays into files and out of them, without copies of the whole; the header of a .npy array."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib.format import MAGIC_LEN, read_array_header_1_0, read_array_header_2_0, read_magic

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.engine.cost import size_text
from attnctl.store.header import DTYPES, Contents, Stored, check_shape, show_value

PIECE = 1 << 17  # numbers of an array written at a time: what a processor's cache holds


def byte_pieces(array: Array) -> Iterator[memoryview]:
    """The array's numbers in C order, lowest byte first, whatever its layout."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, PIECE):
        piece = flat[start : start + PIECE].astype(array.dtype.newbyteorder("<"), copy=False)
        yield piece.view(np.uint8).data


MOST_INFLATED = 1032  # the most bytes that one byte of deflated data can inflate to


class File:
    """An open file that arrays are mapped from; closed when nobody holds it or them any more."""

    def __init__(self, descriptor: int, place: str) -> None:
        self.descriptor = os.dup(descriptor)
        self.length = os.fstat(self.descriptor).st_size
        self.place = place
        self.lock = threading.Lock()
        weakref.finalize(self, os.close, self.descriptor)

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """The file as a stream from its start, for one thread at a time: all share where it stands."""
        with self.lock, open(self.descriptor, "rb", closefd=False) as stream:
            stream.seek(0)
            yield stream

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from an offset on; fewer at the end of the file."""
        with self.stream() as stream:
            stream.seek(offset)
            return stream.read(count)

    def map(self, offset: int, count: int) -> memoryview:
        """Bytes that are read from the file when they are looked at."""
        if not count:
            return memoryview(b"")
        skip = offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self.descriptor, count + skip, access=mmap.ACCESS_READ, offset=offset - skip)
        return memoryview(mapped)[skip:]


def array_from(data: memoryview, shape: Shape, dtype: np.dtype[Any], *, fortran: bool = False) -> Array:
    """An array on these bytes; a copy of them where a processor could not read it in place."""
    array: Array = np.ndarray(shape[::-1], dtype, data).T if fortran else np.ndarray(shape, dtype, data)
    return array if array.flags.aligned and dtype.isnative else array.astype(dtype.newbyteorder("="))


READERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}
LONGEST = 10_000  # bytes of a header, as many as NumPy allows by default

MALFORMED = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
    *(SyntaxError, TokenError, TypeError, ValueError, Warning),
)
"""Errors that NumPy raises for bytes that are no header: it documents ValueError alone."""


def read_npy(file: File) -> Contents:
    with file.stream() as stream:
        length, npy = npy_header(stream, file.place)
    check_bytes(length, npy, file.length, file.place)
    array = replace(npy, load=lambda: npy.load(file.map(length, npy.nbytes)))
    return Contents(None, {Path(file.place).stem: array}, file.place)


def npy_header(stream: IO[bytes], place: str) -> tuple[int, Stored]:
    """How long the header at the start of a stream is, which then stands at the numbers; what it tells of.

    An array's `load` makes it of the bytes that follow its header.

    NumPy makes types here that are refused afterwards (objects, records), but no array of them. It reads
    a header of any length before it refuses to parse a long one; here none is read.
    """
    start = stream.read(MAGIC_LEN)
    try:
        version = read_magic(BytesIO(start))
        read_header = READERS[version]
        start += stream.read(2 * version[0])  # the length of what follows, in two bytes or in four
        size = int.from_bytes(start[MAGIC_LEN:], "little")
        if size > LONGEST:
            found = size_text(size)
            most = size_text(LONGEST)
            raise AttnError(f"{place}: an array header of {found}; {most} are the most")
        start += stream.read(size)
        shape, fortran, dtype = read_header(BytesIO(start[MAGIC_LEN:]), max_header_size=LONGEST)
    except MALFORMED:
        raise AttnError(f"{place}: the array header is not one that np.save writes") from None
    if not all(type(n) is int and n >= 0 for n in shape):
        raise AttnError(f"{place}: the shape {show_value(shape)} is not one of whole numbers")
    check_shape(shape, place)
    if dtype.name not in DTYPES and dtype.kind != "S":  # S: the header of a dump of ours
        kind = show_value(str(dtype))
        raise AttnError(f"{place}: type {kind}: only arrays of numbers, true and false are read")
    load = partial(array_from, shape=shape, dtype=dtype, fortran=fortran)
    return len(start), Stored(shape, dtype, load, nbytes=prod(shape) * dtype.itemsize)


def check_bytes(header: int, npy: Stored, length: int, place: str) -> None:
    if npy.dtype.kind == "S":
        raise AttnError(f"{place}: an array of texts; only numbers, true and false are read")
    if header + npy.nbytes != length:
        found = f"{size_text(npy.nbytes)} by its shape, {size_text(max(0, length - header))} there"
        raise AttnError(f"{place}: shape and data disagree: {found}")
