"""A file that a program left for us: a regular one, of a bounded size, with nothing in it but arrays."""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import IO
from zipfile import BadZipFile, LargeZipFile, ZipFile, ZipInfo

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.store.raw import MALFORMED

MOST_SENT = 2**30
"""Bytes of the arrays of a file that a program leaves."""

BROKEN = (*MALFORMED, EOFError, RuntimeError, BadZipFile, LargeZipFile, zlib.error, struct.error)
"""What zipfile and NumPy raise for files that are none of theirs."""


def read_sent(path: str | os.PathLike[str], place: str, most: int) -> dict[str, Array]:
    """The arrays of an .npz, at most `most`, by name. Raises AttnError, which says what is wrong."""
    why = f"{place}: what it left is no recording of ours"
    try:
        with open_regular_now(path) as stream, ZipFile(stream) as archive:
            require_few(archive.infolist(), most)
            return {
                info.filename.removesuffix(".npy"): read_member(archive.open(info), info.file_size)
                for info in archive.infolist()
            }
    except OSError as error:
        raise AttnError(f"{why}: {error.strerror or error}; it wrote there itself") from None
    except BROKEN as error:
        told = ascii(str(error))[1:-1][:80]  # it may quote any part of the file
        raise AttnError(f"{why}: {told}; it wrote there itself") from None


def require_few(infos: Sequence[ZipInfo], most: int) -> None:
    """Raise ValueError for more arrays, or larger ones, than a recording has."""
    size = sum(info.file_size for info in infos)
    if size > MOST_SENT or len(infos) > most:
        raise ValueError(f"{len(infos)} arrays of {size} bytes")


def read_member(stream: IO[bytes], size: int) -> Array:
    """One array, no larger than its member says. Raises ValueError for one of objects, or a larger one."""
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read_header = np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject or prod(shape) * dtype.itemsize > size:
        raise ValueError("an array of objects, or of more numbers than there are")
    data = stream.read(prod(shape) * dtype.itemsize)
    array = np.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).T.copy() if fortran else array.reshape(shape).copy()


@contextmanager
def open_regular_now(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A regular file, which is opened without waiting for anyone. Raises OSError for a pipe, or a link."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("not a regular file")
        yield stream
