"""A capture: an .npz that grows by one call of attention at a time, and is read one call at a time.

Its arrays are named by their call, `12/Q`, and the header of a call is its last: a call without one was
not written whole. Writer and reader share every limit, and neither holds more than one call in memory and,
the reader, a row of numbers for each array.
"""

from __future__ import annotations

import io
import os
import re
import struct
from array import array as Numbers  # noqa: N812  (a type)
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload
from zipfile import ZipInfo
from zlib import crc32

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.store.files import encode_json, json_text
from attnctl.store.header import DTYPES, MOST_AXES, Contents
from attnctl.store.raw import File, byte_pieces

HEADER = "attnctl.json"

MOST_CALLS = 1_000_000
"""Calls of one capture, as many as are written and as are read."""

LONGEST_HEADER = 1 << 20
"""Bytes of the header of a call; what a program passes may be a text of any length."""

MEMBER = re.compile(rb"(\d{1,18})/([^/\0]{1,1000})\.npy")
"""The name of an array of a call."""

Read = Callable[[int, int], bytes]
"""Gives the bytes of a file from an offset on, so many of them or, at its end, fewer."""

PIECE = 1 << 20

# --- the parts of a zip file, as PKWARE's note describes them ---

LOCAL = struct.Struct("<4s5H3L2H")
"""What stands before a member: signature, version, flags, method, time, date, checksum, sizes, lengths."""

ENTRY = struct.Struct("<4s6H3L5H2L")
"""The same in the directory, which stands at the end, and where the member begins."""

ENDING = struct.Struct("<4s4H2LH")
ENDING_64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR_64 = struct.Struct("<4sLQL")

VERSION_64, YEAR_1980, NORMAL_FILE = 45, 0x21, 0o600 << 16
UTF_8 = 0x800
IN_64_BITS = 0xFFFFFFFF
"""Stands for a size or a place that is written in 64 bits behind the name."""
ALIGNED = 64
PADDING_FIELD, SIZES_FIELD = 0xD935, 1
"""The ids of what may stand behind a name: bytes that align the numbers, and sizes of 64 bits."""


LONGEST_ENTRY = ENTRY.size + 2 * 0xFFFF
"""Bytes of an entry whose name and extra field are as long as can be; nothing of ours has a comment."""


class MemberPlace(NamedTuple):
    """What a zip file says of a member: its name, checksum and length, and where it begins and ends."""

    name: bytes
    checksum: int
    method: int
    flags: int
    packed: int
    size: int
    begin: int
    end: int


# --- writing ---


def refuse_unreadable(name: str, array: Array) -> None:
    """Raise AttnError for an array that no reader of ours would take."""
    if array.dtype.name not in DTYPES:
        raise AttnError(f"{name} holds numbers of type {array.dtype}, which no dump can")
    if array.ndim > MOST_AXES:
        raise AttnError(f"{name} has {array.ndim} axes; {MOST_AXES} are the most")


def header_bytes(header: Mapping[str, Any]) -> Array:
    """A header as the array that holds it. Raises AttnError for one that would not be read."""
    data = encode_json(json_text(header))
    if len(data) > LONGEST_HEADER:
        raise AttnError(f"what it was passed takes {len(data)} bytes to say; {LONGEST_HEADER} are the most")
    return np.array(data)


def member_bytes(name: str, array: Array, offset: int) -> Iterator[bytes | memoryview]:
    """The bytes of a member that begins at this offset, its numbers at a multiple of 64."""
    written = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype.newbyteorder("<"))
    shape = {"descr": descr, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(written, shape)
    head = written.getvalue()
    path = f"{name}.npy".encode()

    checksum = crc32(head)
    for piece in byte_pieces(array):
        checksum = crc32(piece, checksum)
    size = len(head) + array.nbytes

    # What does not fit in 32 bits stands behind the name, and here only that it does.
    is_large = size >= IN_64_BITS
    sizes = struct.pack("<HHQQ", SIZES_FIELD, 16, size, size) if is_large else b""
    stated_size = min(size, IN_64_BITS)
    version = VERSION_64 if is_large else 20

    before_numbers = offset + LOCAL.size + len(path) + 4 + len(sizes)
    padding = -before_numbers % ALIGNED
    extra = struct.pack("<HH", PADDING_FIELD, padding) + bytes(padding) + sizes

    fields = (version, 0, 0, 0, YEAR_1980, checksum, stated_size, stated_size, len(path), len(extra))
    yield LOCAL.pack(b"PK\3\4", *fields) + path + extra + head
    yield from byte_pieces(array)


def directory_of(read: Read, length: int) -> Iterator[bytes]:
    """The directory of an archive of so many bytes, made of what stands before each member, and its end."""
    size = count = 0
    for member in members_by_place(read, 0, length):
        sizes = struct.pack("<QQQ", member.size, member.packed, member.begin)
        large = max(member.size, member.begin) >= IN_64_BITS
        extra = struct.pack("<HH", SIZES_FIELD, len(sizes)) + sizes if large else b""
        packed, whole, begin = (IN_64_BITS,) * 3 if large else (member.packed, member.size, member.begin)
        version = VERSION_64 if large else 20
        yield ENTRY.pack(
            *(b"PK\1\2", version | 3 << 8, version, member.flags, member.method, 0, YEAR_1980),
            *(member.checksum, packed, whole, len(member.name), len(extra), 0, 0, 0, NORMAL_FILE, begin),
        ) + member.name + extra  # fmt: skip
        size += ENTRY.size + len(member.name) + len(extra)
        count += 1

    if count >= 0xFFFF or length + size >= IN_64_BITS:
        rest = ENDING_64.size - 12
        yield ENDING_64.pack(b"PK\6\6", rest, 45, 45, 0, 0, count, count, size, length)
        yield LOCATOR_64.pack(b"PK\6\7", 0, length + size, 1)
    few = min(count, 0xFFFF)
    yield ENDING.pack(b"PK\5\6", 0, 0, few, few, min(size, IN_64_BITS), min(length, IN_64_BITS), 0)


# --- where the members of an archive are ---


def members_by_place(read: Read, at: int, length: int) -> Iterator[MemberPlace]:
    """The members that are whole, one behind the other from here on, as a killed writer left them."""
    while at < length:
        head = read(at, LOCAL.size + 256)
        if len(head) < LOCAL.size or not head.startswith(b"PK\3\4"):
            return
        _, _, flags, method, _, _, checksum, packed, size, names, extras = LOCAL.unpack_from(head)
        if LOCAL.size + names + extras > len(head):
            head = read(at, LOCAL.size + names + extras)
        name = head[LOCAL.size : LOCAL.size + names]
        if size == IN_64_BITS:
            size, packed = sizes_in(head[LOCAL.size + names :][:extras], 2) or (size, packed)

        end = at + LOCAL.size + names + extras + packed
        if end > length or not packed:  # it was being written
            return
        yield MemberPlace(
            name=name,
            checksum=checksum,
            method=method,
            flags=flags,
            packed=packed,
            size=size,
            begin=at,
            end=end,
        )
        at = end


def sizes_in(extra: bytes, count: int) -> tuple[int, ...] | None:
    """The first numbers of 64 bits among what stands behind a name; None where there are not so many."""
    while len(extra) >= 4:
        field, length = struct.unpack_from("<HH", extra)
        if field == SIZES_FIELD and len(extra) >= 4 + length >= 4 + 8 * count:
            return struct.unpack_from(f"<{count}Q", extra, 4)
        extra = extra[4 + length :]
    return None


class Directory(NamedTuple):
    begin: int
    length: int


def find_directory(read: Read, length: int) -> Directory | None:
    """Where the directory of an archive is; None where it was never written, or is none."""
    first = max(0, length - ENDING.size - 0xFFFF)
    tail = read(first, length - first)
    ending = tail.rfind(b"PK\5\6")
    if ending < 0 or len(tail) - ending < ENDING.size:
        return None
    *_, size, begin, _ = ENDING.unpack_from(tail, ending)
    place = first + ending

    # A large archive says in 64 bits before that where its directory is.
    locator = read(max(0, place - LOCATOR_64.size), LOCATOR_64.size)
    if locator.startswith(b"PK\6\7"):
        _, _, place, _ = LOCATOR_64.unpack(locator)
        whole = read(place, ENDING_64.size)
        if len(whole) < ENDING_64.size or not whole.startswith(b"PK\6\6"):
            return None
        *_, size, begin = ENDING_64.unpack(whole)

    return Directory(begin, size) if begin + size == place else None


def members_in(read: Read, directory: Directory) -> Iterator[tuple[int, MemberPlace]]:
    """What the directory says of each member, and where it says so. Raises AttnError where it is broken."""
    entry = directory.begin
    end = directory.begin + directory.length
    piece = b""  # what was read of it last, and where that begins
    piece_begin = entry

    while entry < end:
        left = len(piece) - (entry - piece_begin)
        if left < LONGEST_ENTRY and piece_begin + len(piece) < end:
            piece_begin = entry
            piece = read(entry, min(PIECE, end - entry))

        member, length = member_at(piece, entry - piece_begin)
        yield entry, member
        entry += length


def member_at(data: bytes, at: int) -> tuple[MemberPlace, int]:
    """The member of an entry of the directory, and the length of the entry."""
    if len(data) - at < ENTRY.size or data[at : at + 4] != b"PK\1\2":
        raise AttnError("its directory is broken")
    _, _, _, flags, method, _, _, checksum, packed, size, names, extras, comment, *_, begin = (
        ENTRY.unpack_from(data, at)
    )
    name = data[at + ENTRY.size : at + ENTRY.size + names]
    if IN_64_BITS in (size, packed, begin):
        extra = data[at + ENTRY.size + names :][:extras]
        count = [size, packed, begin].count(IN_64_BITS)
        wide = iter(sizes_in(extra, count) or ())
        size, packed, begin = (
            next(wide, number) if number == IN_64_BITS else number for number in (size, packed, begin)
        )

    member = MemberPlace(
        name=name,
        checksum=checksum,
        method=method,
        flags=flags,
        packed=packed,
        size=size,
        begin=begin,
        end=0,  # which only what stands before the member tells
    )
    return member, ENTRY.size + names + extras + comment


# --- reading ---

ReadCall = Callable[[dict[str, ZipInfo], str], Contents]
"""Makes the contents of a call of its members, by their names in it; takes how messages call it."""


class CallMembers(Sequence[Contents]):
    """The calls of a capture, in the order in which they returned; each is read when it is asked for.

    Of each array two numbers are kept: its call, and where the directory names it, or, in a file that was
    never ended, where it begins.
    """

    def __init__(self, file: File, read_call: ReadCall) -> None:
        """Find all arrays. Raises AttnError for too many calls, or a broken directory."""
        self.file = file
        self.read_call = read_call
        self.directory = find_directory(self.read, file.length)

        calls = Numbers("q")
        places = Numbers("q")
        numbers = Numbers("q")
        for place, member in self.members():
            named = MEMBER.fullmatch(member.name)
            if named is None:
                continue
            call = int(named[1])
            calls.append(call)
            places.append(place)
            if named[2] == HEADER.encode():  # the last of a call: it is whole
                numbers.append(call)
            if len(numbers) > MOST_CALLS:
                raise AttnError(f"{file.place}: more than {MOST_CALLS} calls, which are the most")

        order = np.argsort(np.array(calls, np.int64), kind="stable")
        self.call_of_member = np.array(calls, np.int64)[order]
        self.place_of_member = np.array(places, np.int64)[order]
        self.numbers: Sequence[int] = numbers

    def read(self, offset: int, count: int) -> bytes:
        return read_at(self.file.descriptor, offset, count)

    def members(self) -> Iterator[tuple[int, MemberPlace]]:
        if self.directory is not None:
            yield from members_in(self.read, self.directory)
            return
        for member in members_by_place(self.read, 0, self.file.length):
            yield member.begin, member

    def member(self, place: int) -> MemberPlace:
        if self.directory is None:
            return next(members_by_place(self.read, place, self.file.length))
        return member_at(self.read(place, LONGEST_ENTRY), 0)[0]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Contents: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Contents]: ...
    def __getitem__(self, at: int | slice) -> Contents | Sequence[Contents]:
        """One call, or several. Raises AttnError for one that cannot be read."""
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]

        number = self.numbers[at]
        first, last = np.searchsorted(self.call_of_member, [number, number + 1])
        place = f"{self.file.place}[{number}]"
        infos: dict[str, ZipInfo] = {}
        for where in self.place_of_member[first:last].tolist():
            info = info_of(self.member(where))
            name = info.filename.partition("/")[2].removesuffix(".npy")
            if name in infos:
                raise AttnError(f"{place}: two arrays of one name")
            infos[name] = info
        return self.read_call(infos, place)


def info_of(member: MemberPlace) -> ZipInfo:
    info = ZipInfo(member.name.decode("utf-8" if member.flags & UTF_8 else "cp437", "replace"))
    info.header_offset = member.begin
    info.compress_type = member.method
    info.flag_bits = member.flags
    info.CRC = member.checksum
    info.compress_size = member.packed
    info.file_size = member.size
    return info


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Bytes of a file from an offset on; fewer at its end, and none where there can be none."""
    if offset < 0 or count < 0 or offset >= 1 << 63:
        return b""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, count)
