"""Bytes of arrays into files and out of them, without copies of the whole."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from attnctl.math import Array

PIECE = 1 << 17
"""Numbers of an array written at a time: what a processor's cache holds."""


def pieces(array: Array) -> Iterator[memoryview]:
    """The array's numbers in C order, lowest byte first, whatever its layout."""
    little = array.dtype.newbyteorder("<")
    walk = np.nditer(  # type: ignore[call-overload]  # its types misspell "contig"
        np.atleast_1d(array),  # NumPy 1.24 loses the buffer of a single number
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[["readonly", "contig"]],
        op_dtypes=[little],
        casting="equiv",
        buffersize=PIECE,
        order="C",
    )
    for piece in walk:
        if piece.size:
            yield piece.view(np.uint8).data


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


def array_from(
    data: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any], *, fortran: bool = False
) -> Array:
    """An array on these bytes; a copy of them where a processor could not read it in place."""
    array: Array = np.ndarray(shape[::-1], dtype, data).T if fortran else np.ndarray(shape, dtype, data)
    return array if array.flags.aligned and dtype.isnative else array.astype(dtype.newbyteorder("="))
