"""Dumps as .npz: an array a step under its id, and the header as JSON in an array of bytes.

``json.loads(np.load("x.npz")["attnctl.json"].item())`` is the header. Nothing is ever unpickled,
and nothing allocated before the sizes that a file claims have been held against what it contains.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from attnctl.errors import AttnError
from attnctl.store.dump_json import encoded, json_text
from attnctl.store.header import DTYPES, MOST_AXES, whole
from attnctl.store.limits import budget, hold, size
from attnctl.store.load_json import header_of
from attnctl.store.members import assembled
from attnctl.store.raw import File, array_from, pieces
from attnctl.trace import Array, Trace

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

HEADER = "attnctl.json"
LONGEST_NPY_HEADER = 10_000
LONGEST_HEADER = 100 << 20
MOST_MEMBERS = 10_000
DENSEST = 1032
"""The most bytes that a byte of deflated data can stand for."""

CHUNK = 1 << 20
RECENT = 4
"""Inflated arrays that are kept; those that are mapped cost nothing to ask for again."""

BROKEN = (
    NotImplementedError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
    ValueError,
    OverflowError,
    TypeError,
)
"""What zipfile and NumPy raise for bytes that make no sense, beside BadZipFile."""

ALIGNED = 64
PADDING_FIELD = 0xD935
"""The id of the extra field of a zip entry that only moves its data to an aligned offset."""


# --- writing ---


def write_npz(trace: Trace, stream: IO[bytes]) -> None:
    """One dump, straight from its arrays."""
    from zipfile import ZipFile

    header = np.array(encoded(json_text(whole(trace))))
    with ZipFile(stream, "w", allowZip64=True) as archive:
        for name in trace:
            add(archive, name, trace[name])
        add(archive, HEADER, header)


def add(archive: ZipFile, name: str, array: Array) -> None:
    """One array, stored so that it can be mapped."""
    from zipfile import ZipInfo

    head = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype.newbyteorder("<"))
    described = {"descr": descr, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(head, described)
    info = ZipInfo(f"{name}.npy")  # its date is 1980 unless told: the same trace gives the same bytes
    zip64 = 20
    before = archive.start_dir + 30 + len(info.filename.encode()) + zip64 + 4
    info.extra = struct.pack("<HH", PADDING_FIELD, -before % ALIGNED) + bytes(-before % ALIGNED)
    with archive.open(info, "w", force_zip64=True) as entry:
        entry.write(head.getvalue())
        for piece in pieces(array):
            entry.write(piece)


# --- reading ---


@dataclass(frozen=True)
class Npy:
    """The header of a .npy: what the numbers after it are."""

    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def nbytes(self) -> int:
        """The bytes that the numbers take."""
        return prod(self.shape) * self.dtype.itemsize


class Entry:
    """An array of an archive that is still in it."""

    def __init__(self, file: File, info: ZipInfo, npy: Npy, inflate: Callable[[Entry], Array]) -> None:
        self.file, self.info, self.npy, self.inflate = file, info, npy, inflate
        self.shape, self.dtype = npy.shape, npy.dtype
        self.place = f"{file.place}: {name_of(info)}"
        self.sound = False

    def load(self) -> Array:
        """Its numbers: mapped where the archive holds them as they are, else inflated."""
        return self.inflate(self) if self.info.compress_type else self.mapped()

    def mapped(self) -> Array:
        """The numbers in place; the first time, held against the archive's checksum."""
        names, extra = struct.unpack("<HH", self.file.read(self.info.header_offset + 26, 4))
        start = self.info.header_offset + 30 + names + extra
        data = self.file.map(start, self.info.file_size)
        if not self.sound and zlib.crc32(data) != self.info.CRC:
            raise AttnError(f"{self.place}: damaged: its numbers do not have the checksum that was stored")
        self.sound = True
        return array_from(data[self.npy.length :], self.shape, self.dtype, fortran=self.npy.fortran)


def read_npz(file: File, rename: Mapping[str, str] | None) -> Trace:
    """The trace of an archive: a dump of ours, or someone's arrays."""
    with opened(file) as archive:
        infos = {name_of(info): info for info in archive.infolist() if info.filename.endswith(".npy")}
        if len(archive.infolist()) > MOST_MEMBERS or len({*archive.namelist()}) < len(archive.infolist()):
            raise AttnError(f"{file.place}: more than {MOST_MEMBERS} arrays, or two of one name")
        header = header_in(archive, infos.pop(HEADER, None), file.place)
        inflate = lru_cache(maxsize=RECENT)(inflated)
        members = {
            name: Entry(file, info, npy_of(archive, info, file), inflate) for name, info in infos.items()
        }
    return assembled(header, members, rename, file.place)


@contextmanager
def opened(file: File) -> Iterator[ZipFile]:
    """The archive in a file; whatever zipfile makes of a broken one is an AttnError."""
    import zipfile

    try:
        with open(file.descriptor, "rb", closefd=False) as raw, zipfile.ZipFile(raw) as archive:
            yield archive
    except BROKEN as error:
        raise AttnError(f"{file.place}: not a sound .npz: {error or type(error).__name__}") from None
    except zipfile.BadZipFile as error:
        raise AttnError(f"{file.place}: not a sound .npz: {error}") from None


def name_of(info: ZipInfo) -> str:
    """The name that np.load gives a member."""
    return info.filename.removesuffix(".npy")


def header_in(archive: ZipFile, info: ZipInfo | None, place: str) -> dict[str, Any] | None:
    """The header of a dump of ours, if this is one."""
    if info is None:
        return None
    hold(info.file_size, f"{place}: its header", LONGEST_HEADER)
    with archive.open(info) as entry:
        npy = npy_header(entry, f"{place}: {HEADER}")
        if npy.dtype.kind != "S" or npy.shape != ():
            raise AttnError(f"{place}: {HEADER}: expected one string of bytes")
        return header_of(entry.read(info.file_size), f"{place}: {HEADER}")


def npy_of(archive: ZipFile, info: ZipInfo, file: File) -> Npy:
    """What a member says it holds, held against its size."""
    place = f"{file.place}: {name_of(info)}"
    if info.compress_type not in (0, 8):
        raise AttnError(f"{place}: compressed in a way that np.savez never does")
    with archive.open(info) as entry:
        npy = npy_header(entry, place)
    if npy.dtype.newbyteorder("=") not in DTYPES:
        raise AttnError(
            f"{place}: numbers of type {npy.dtype}; expected one of {', '.join(sorted(map(str, DTYPES)))}"
        )
    if len(npy.shape) > MOST_AXES or any(type(n) is not int or n < 0 for n in npy.shape):
        raise AttnError(f"{place}: a shape with more than {MOST_AXES} axes, or a negative one")
    if npy.length + npy.nbytes != info.file_size:
        found = f"{size(npy.nbytes)} of numbers in {size(info.file_size)}"
        raise AttnError(f"{place}: shape and data disagree: {found}")
    hold(prod(max(1, n) for n in npy.shape) * npy.dtype.itemsize, f"{place}: its shape", 1 << 62)
    if info.compress_type:
        hold(info.file_size, f"{place}: inflated", min(budget(), DENSEST * (info.compress_size + 8)))
    elif info.compress_size != info.file_size:
        raise AttnError(f"{place}: its sizes disagree")
    return npy


def npy_header(stream: IO[bytes], place: str) -> Npy:
    """The header of a .npy, of bounded length; the stream then stands at the numbers."""
    head = stream.read(12)
    if head[:6] != b"\x93NUMPY" or head[6:7] not in (b"\1", b"\2") or len(head) < 12:
        raise AttnError(f"{place}: not an array that np.save wrote")
    first = head[6] == 1
    length = 10 + struct.unpack("<H", head[8:10])[0] if first else 12 + struct.unpack("<I", head[8:12])[0]
    if length > LONGEST_NPY_HEADER:
        raise AttnError(f"{place}: an array header of {size(length)}")
    text = io.BytesIO(head[8:] + stream.read(length - 12))
    reader = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header that Python 2 wrote is fine
            shape, fortran, dtype = reader(text)
    except (*BROKEN, SyntaxError, MemoryError) as error:
        raise AttnError(f"{place}: not an array header: {str(error).splitlines()[0][:80]}") from None
    return Npy(length, shape, dtype, fortran)


def inflated(entry: Entry) -> Array:
    """The numbers of a compressed member."""
    npy = entry.npy
    data = np.empty(npy.nbytes, dtype=np.uint8)
    with opened(entry.file) as archive, archive.open(entry.info) as stream:
        stream.read(npy.length)
        at = 0
        while piece := stream.read(CHUNK):
            data[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            at += len(piece)
    if at != npy.nbytes:
        raise AttnError(f"{entry.place}: ends too soon")
    return array_from(data.data, npy.shape, npy.dtype, fortran=npy.fortran)
