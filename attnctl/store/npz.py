"""Dumps as .npz: an array a step under its id, and the header as JSON in an array of bytes.

``json.loads(np.load("x.npz")["attnctl.json"].item())`` is the header. Nothing is ever unpickled,
and nothing allocated before the sizes that a file claims have been held against what it contains.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.engine.cost import available, size_text
from attnctl.record import Trace
from attnctl.store.calls import (
    ALIGNED,
    HEADER,
    MEMBER,
    MOST_CALLS,
    PADDING_FIELD,
    CallMembers,
    header_bytes,
    members_by_place,
    refuse_unreadable,
)
from attnctl.store.files import encode_json, json_text
from attnctl.store.header import Contents, Stored, header_data, require_bytes, room, show_value
from attnctl.store.json_file import header_of
from attnctl.store.raw import MOST_INFLATED, File, byte_pieces, check_bytes, npy_header

LONGEST_HEADER = 100 << 20
MOST_MEMBERS = 100_000
STORED, DEFLATED = 0, 8
CHUNK = 1 << 20

BROKEN = (BadZipFile, RuntimeError, EOFError, struct.error, zlib.error, ValueError, OverflowError)
"""What zipfile raises for damaged archives."""

LARGE = 1 << 30
"""Members of more bytes are written with the 64-bit sizes of zip64, 20 bytes more in their header."""

NO_MEMBERS = b"PK\5\6" + bytes(18)  # the end of an archive that holds nothing


# --- writing ---


def write_traces(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """One trace as its arrays, several in a folder each, as `capture` writes calls."""
    if len(traces) == 1:
        write_npz(traces[0], stream)
        return
    if len(traces) > MOST_CALLS:
        raise AttnError(f"{len(traces)} traces; an .npz holds {MOST_CALLS} at most")

    for trace in traces:
        refuse_names(trace)
    with ZipFile(stream, "w", allowZip64=True) as archive:
        for number, trace in enumerate(traces):
            header = header_bytes(header_data(trace))
            for name in trace:
                refuse_unreadable(name, trace[name])
                add(archive, f"{number}/{name}", trace[name])
            add(archive, f"{number}/{HEADER}", header)  # the last: a reader takes it for whole


def write_npz(trace: Trace, stream: IO[bytes]) -> None:
    refuse_names(trace)
    header = np.array(encode_json(json_text(header_data(trace))))
    if header.nbytes > LONGEST_HEADER:
        raise AttnError(
            f"its header takes {size_text(header.nbytes)}; {size_text(LONGEST_HEADER)} are the most"
        )
    with ZipFile(stream, "w", allowZip64=True) as archive:
        for name in trace:
            add(archive, name, trace[name])
        add(archive, HEADER, header)


def refuse_names(trace: Trace) -> None:
    """Refuse names that no member of an archive can have, and more of them than it holds."""
    for name in trace:  # none that a zip file would change, or that stands for the header
        half_pair = any("\ud800" <= char <= "\udfff" for char in name)
        if name == HEADER or "\0" in name or half_pair or len(name) > 1000:
            raise AttnError(f"step {show_value(name)}: this cannot be the name of an array in an .npz")
    if len(trace) >= MOST_MEMBERS:
        raise AttnError(f"{len(trace)} steps; an .npz holds {MOST_MEMBERS - 1} at most")


def write_arrays(arrays: Mapping[str, Array], stream: IO[bytes]) -> None:
    """Write arrays alone, without a header: what np.load reads, and the same bytes for the same arrays."""
    with ZipFile(stream, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            add(archive, name, array)


def add(archive: ZipFile, name: str, array: Array) -> None:
    head = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype.newbyteorder("<"))
    described = {"descr": descr, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(head, described)
    info = ZipInfo(f"{name}.npy")  # its date is 1980 unless told: the same trace gives the same bytes

    # The numbers begin at a multiple of 64, so that they can be mapped.
    large = len(head.getvalue()) + array.nbytes > LARGE
    local_header = 30 + len(info.filename.encode())
    sizes_field = 20 if large else 0
    before = archive.start_dir + local_header + sizes_field + 4
    padding = -before % ALIGNED
    info.extra = struct.pack("<HH", PADDING_FIELD, padding) + bytes(padding)

    with archive.open(info, "w", force_zip64=large) as entry:
        entry.write(head.getvalue())
        for piece in byte_pieces(array):
            entry.write(piece)


# --- reading ---

Recent = deque[tuple[str, Array]]
"""The arrays of a file that were inflated last, by the name of their member."""


def read_npz(file: File) -> Sequence[Contents]:
    """The trace of an archive, or the calls of a capture, whose arrays stand in folders with a header."""
    begins = next(members_by_place(file.read, 0, file.length), None)
    if begins is not None and MEMBER.fullmatch(begins.name):
        calls = CallMembers(file, lambda infos, place: read_call(file, infos, place))
        if calls:
            return calls
    return read_archive(file)


def read_call(file: File, infos: dict[str, ZipInfo], place: str) -> Contents:
    with bare_archive(file) as archive:
        return contents_of(file, archive, infos, place)


def read_archive(file: File) -> list[Contents]:
    """What an archive of anyone holds: one trace, or some in folders."""
    with open_archive(file) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        infos = {info.filename.removesuffix(".npy"): info for info in arrays}
        count = len(archive.infolist())
        if count > MOST_MEMBERS:
            raise AttnError(f"{file.place}: {count} arrays; {MOST_MEMBERS} are the most")
        if len({*archive.namelist()}) < count:
            raise AttnError(f"{file.place}: two arrays of one name")

        folders = [name.removesuffix(HEADER) for name in infos if name.endswith(f"/{HEADER}")]
        if not folders:
            return [contents_of(file, archive, infos, file.place)]

        calls: dict[str, dict[str, ZipInfo]] = {folder: {} for folder in folders}
        for name, info in infos.items():
            folder, slash, last = name.rpartition("/")
            if folder + slash in calls:
                calls[folder + slash][last] = info
        traces = []
        for folder, members in calls.items():
            place = f"{file.place}[{folder.removesuffix('/')}]"
            traces.append(contents_of(file, archive, members, place))
        return traces


def contents_of(file: File, archive: ZipFile, infos: dict[str, ZipInfo], place: str) -> Contents:
    header = header_in(archive, infos.pop(HEADER, None), place)
    # Inflated arrays kept in memory; mapped arrays are read from the file again at no cost.
    recent = Recent(maxlen=4)
    checked = set[str]()
    members: dict[str, Array | Stored] = {}
    for name, info in infos.items():
        at = f"{place}: {show_value(name)}"
        length, npy = npy_of(archive, info, at)
        if info.compress_type == STORED:
            load = partial(map_member, file, info, length, npy, checked=checked, place=at)
        else:
            load = partial(inflate_member, file, info, length, npy, recent=recent, place=at)
        members[name] = replace(npy, load=load)
    return Contents(header, members, place)


@contextmanager
def open_archive(file: File, suffix: str = ".npz") -> Iterator[ZipFile]:
    with refuse_broken(file, suffix), file.stream() as raw:
        yield ZipFile(raw)


@contextmanager
def bare_archive(file: File) -> Iterator[ZipFile]:
    """The archive of a file whose directory is not read: it opens members that are found already."""
    with refuse_broken(file), file.stream() as raw:
        archive = ZipFile(io.BytesIO(NO_MEMBERS))
        archive.fp = raw
        yield archive


@contextmanager
def refuse_broken(file: File, suffix: str = ".npz") -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        why = ascii(str(error))[1:-1][:80]  # it may quote any part of the file
        raise AttnError(f"{file.place}: not a sound {suffix}: {why}") from None


def header_in(archive: ZipFile, info: ZipInfo | None, place: str) -> dict[str, Any] | None:
    if info is None:
        return None
    require_bytes(info.file_size, f"{place}: its header", min(LONGEST_HEADER, available()))
    with archive.open(info) as entry:
        _, npy = npy_header(entry, f"{place}: {HEADER}")
        if npy.dtype.kind != "S" or npy.shape != ():
            raise AttnError(f"{place}: {HEADER}: expected one string of bytes")
        return header_of(entry.read(info.file_size), f"{place}: {HEADER}")


def npy_of(archive: ZipFile, info: ZipInfo, place: str) -> tuple[int, Stored]:
    """The array header of a member, checked against the size of the member."""
    if info.compress_type not in (STORED, DEFLATED):
        raise AttnError(f"{place}: compressed in a way that np.savez never does")
    with archive.open(info) as entry:
        length, npy = npy_header(entry, place)
    size = info.file_size
    packed = info.compress_size
    check_bytes(length, npy, size, place)
    if info.compress_type == STORED and packed != size:
        raise AttnError(f"{place}: its sizes disagree")
    if size > MOST_INFLATED * (packed + 8):
        raise AttnError(f"{place}: {size_text(size)} cannot come out of {size_text(packed)}")
    return length, npy


def map_member(file: File, info: ZipInfo, length: int, npy: Stored, checked: set[str], place: str) -> Array:
    """The numbers of a member in place; the first time, held against the archive's checksum."""
    names, extra = struct.unpack("<HH", file.read(info.header_offset + 26, 4))
    data = file.map(info.header_offset + 30 + names + extra, info.file_size)
    if info.filename not in checked and zlib.crc32(data) != info.CRC:
        raise AttnError(f"{place}: damaged: its numbers do not have the checksum that was stored")
    checked.add(info.filename)
    return npy.load(data[length:])


def inflate_member(
    file: File, info: ZipInfo, length: int, npy: Stored, recent: Recent, place: str
) -> Array:
    """The numbers of a compressed member, kept while they are among the most recent."""
    for name, array in recent:
        if name == info.filename:
            return array
    if npy.nbytes > available():
        recent.clear()  # they can be inflated again
    data = room(npy.nbytes, place)
    with bare_archive(file) as archive, archive.open(info) as stream:
        stream.read(length)
        at = 0
        while piece := stream.read(min(CHUNK, npy.nbytes - at) or 1):
            data[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            at += len(piece)
    if at != npy.nbytes:
        raise AttnError(f"{place}: ends too soon")
    recent.append((info.filename, npy.load(data.data)))
    return recent[-1][1]
