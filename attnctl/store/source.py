"""Reading dumps of every format from a path or a stream, told apart by what is in them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, overload

from attnctl.base.errors import AttnError
from attnctl.base.files import STANDARD_INPUT, open_found, open_input
from attnctl.base.format import function
from attnctl.base.values import MOST_DIGITS, WHOLE, short
from attnctl.base.words import did_you_mean, plural, quote
from attnctl.math import Array
from attnctl.math.engine.cost import available
from attnctl.record import Trace, numbers_of
from attnctl.store import DUMPS
from attnctl.store.header import Contents, assemble_trace, require_bytes, show_value
from attnctl.store.json_file import check_length

if TYPE_CHECKING:
    from attnctl.store.calls import CallMembers
    from attnctl.store.raw import File

CHUNK = 1 << 20
HEAD = 512  # first bytes of a file that tell its format

Renames = Mapping[str, str] | None
"""What the arrays of someone else's file are called here: ``{"theirs": "ours"}``."""


def read(
    source: str | Path, stdin: BinaryIO | None = None, rename: Renames = None, *, named: bool = True
) -> Sequence[Trace]:
    """Every trace of a dump: one, or several of a JSON array or JSON Lines, or the calls of a capture.

    `source` is a path, perhaps of a folder, or ``-`` for standard input; behind it may stand which trace is
    meant, by number or by sentence: ``s.jsonl[3]``, ``-[I love AI]``. Arrays of .npy, .npz and .safetensors
    stay in the file until they are asked for. A path that no person `named`, but a file, is that of a
    regular file.
    """
    path, which = split_selection(str(source))
    place = "standard input" if path == STANDARD_INPUT else path
    try:
        if os.path.isdir(path):  # noqa: PTH112  (never raises)
            from attnctl.store.folder import read_folder

            traces: Sequence[Trace] = [
                assemble_trace(contents, rename or {}) for contents in read_folder(path)
            ]
        else:
            with stream_of(path, stdin, named=named) as stream:
                traces = traces_in(stream, place, rename)
        return traces if which is None else [choose_trace(traces, which, place)]
    except MemoryError:
        raise AttnError(f"{place}: not enough memory to read it") from None
    except OSError as error:
        raise AttnError(f"{place}: cannot be read: {error.strerror or error}") from None


def read_one(
    source: str | Path, stdin: BinaryIO | None = None, rename: Renames = None, *, named: bool = True
) -> Trace:
    return only_one(read(source, stdin, rename, named=named), source)


def only_one(traces: Sequence[Trace], place: str | Path | None) -> Trace:
    if len(traces) > 1:
        raise AttnError(f"{place}: {len(traces)} traces where one was expected; {pick_one(place, traces)}")
    return traces[0]


def split_selection(source: str) -> tuple[str, str | None]:
    """'s.jsonl[3]' -> ('s.jsonl', '3'); a file that is called so itself is meant whole."""
    if not source.endswith("]") or is_readable(source):
        return source, None
    brackets = (at for at, character in enumerate(source) if character == "[")
    at = next((at for at in brackets if is_readable(source[:at])), None)
    return (source, None) if at is None else (source[:at], source[at + 1 : -1])


def is_readable(source: str) -> bool:
    """True if this names something that can be read: standard input or a file that is there."""
    return source == STANDARD_INPUT or os.path.exists(source)  # noqa: PTH110  never raises


def choose_trace(traces: Sequence[Trace], which: str, place: str) -> Trace:
    """The trace with this number or sentence. Raises AttnError where there is none, or more than one."""
    if re.fullmatch(WHOLE, which):
        number = int(which[:MOST_DIGITS])
        numbers = numbers_of(traces)
        if number in numbers:
            return traces[numbers.index(number)]
        if not -len(traces) <= number < 0:
            there = f"there are {plural(len(traces), 'trace')}, from {numbers[0]}"
            raise AttnError(f"{place}[{short(which)}]: {there}")
        return traces[number]

    of_sentence = [trace for trace in traces if trace.sentence == which]
    if len(of_sentence) == 1:
        return of_sentence[0]

    known = [trace.sentence for trace in traces if trace.sentence is not None]
    how_many = plural(len(of_sentence), "trace") if of_sentence else "no trace"
    near = did_you_mean(which, known, pick_one(place, traces))
    raise AttnError(f"{place}: {how_many} of the sentence {quote(which)}; {near}")


def pick_one(source: str | Path | None, traces: Sequence[Trace]) -> str:
    return f"pick one by number, {source}[0] to {source}[{len(traces) - 1}], or by sentence"


def arrays(path: str | Path) -> dict[str, Array]:
    """Just the arrays of a dump or of anyone's file, which another file names, by name."""
    return dict(read_one(path, named=False).items())


@contextmanager
def stream_of(source: str, stdin: BinaryIO | None, *, named: bool) -> Iterator[BinaryIO]:
    if source == STANDARD_INPUT and stdin is not None:
        yield stdin
        return
    if "\0" in source:
        raise AttnError(f"{show_value(source)}: not the name of a file")
    with (open_input if named else open_found)(source) as stream:
        yield stream


def traces_in(stream: BinaryIO, place: str, rename: Renames) -> Sequence[Trace]:
    head = stream.read(HEAD)
    if not head:
        raise AttnError(f"{place}: empty; expected a dump")
    reader = next((reader for reader in DUMPS if reader.starts(head)), None)
    if reader is None:
        *names, last = (reader.name for reader in DUMPS)
        raise AttnError(f"{place}: not a dump: neither {', '.join(names)} nor {last}")

    read_format = function(reader.reader)
    several: Iterable[Contents]
    if reader.text:
        several = read_format(bytes_in(head, stream, place), place)
    else:
        from attnctl.store.calls import CallMembers

        one_or_more = read_format(file_of(head, stream, place))
        if isinstance(one_or_more, CallMembers):
            return CapturedCalls(one_or_more, rename or {})
        several = one_or_more if isinstance(one_or_more, list) else [one_or_more]
    return [assemble_trace(contents, rename or {}) for contents in several]


class CapturedCalls(Sequence[Trace]):
    """The traces of a capture, each read when it is asked for."""

    def __init__(self, members: CallMembers, rename: Mapping[str, str]) -> None:
        self.members = members
        self.rename = rename
        self.numbers = members.numbers

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, at: int) -> Trace: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Trace]: ...
    def __getitem__(self, at: int | slice) -> Trace | Sequence[Trace]:
        """Raises AttnError for a call that cannot be read."""
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        return assemble_trace(self.members[at], self.rename)


def bytes_in(head: bytes, stream: BinaryIO, place: str) -> bytearray:
    """All of a stream, which is read into memory only up to the longest text that is read at all."""
    data = bytearray()
    limit = available()
    piece = head
    while piece:
        data += piece
        check_length(len(data), place)
        require_bytes(len(data), f"{place}: reading it", limit)
        piece = stream.read(CHUNK)
    return data


def file_of(head: bytes, stream: BinaryIO, place: str) -> File:
    """The file of a stream, or a temporary one of what comes out of a pipe, gone with its last holder."""
    from attnctl.store.raw import File

    try:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and stream.tell() == len(head):
            return File(stream.fileno(), place)
    except OSError:  # no file behind it, or none that has places
        pass
    import tempfile

    limit = available()
    with tempfile.TemporaryFile() as file:
        file.write(head)
        while piece := stream.read(CHUNK):
            file.write(piece)
            require_bytes(file.tell(), f"{place}: reading this stream", limit)
        file.flush()
        return File(file.fileno(), place)
