"""The lines of a corpus: which of them a shard has, one at a time, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import BinaryIO, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input, open_found
from attnctl.base.values import BadValueError, Reader
from attnctl.store.elsewhere import is_address, require_fsspec

LONGEST = 2**20  # bytes of a line; a longer one is no sentence
CHUNK = 2**20

BLOCKS = 256  # of a file, for workers; each of at least so many bytes, and at most
LEAST_BYTES = 2**14
MOST_BYTES = 2**26

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
BOM = b"\xef\xbb\xbf"


class Shard(NamedTuple):
    """Part `number` of `of`, from 1, of the lines of a corpus."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def span(self, lines: int) -> range:
        """Which of so many lines it has, from 0."""
        start = (self.number - 1) * lines // self.of
        stop = self.number * lines // self.of
        return range(start, stop)


WHOLE = Shard(1, 1)


def read_shard(text: str) -> Shard:
    """'3/8' -> the third of eight."""
    parts = text.split("/")
    if len(parts) != 2 or not all(map(is_short_number, parts)):
        raise BadValueError(f"{text!r} is no shard; write 3/8 for the third of eight")
    number, count = map(int, parts)
    if not count:
        raise BadValueError(f"{text} is of no shards; write 1/1 for all in one")
    if not 1 <= number <= count:
        raise BadValueError(f"{text}: no such shard; they go from 1/{count} to {count}/{count}")
    return Shard(number, count)


def is_short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


SHARD = Reader(read_shard, {}, "I/N")


class BadLineError(AttnError):
    """A line that is no sentence, or none for this model, and the reason that it is counted under."""

    def __init__(self, reason: str, problems: str | Iterable[str]) -> None:
        super().__init__(problems)
        self.reason = reason


@contextmanager
def bad_for(reason: str) -> Iterator[None]:
    """Count what goes wrong with a line in this block as this reason."""
    try:
        yield
    except AttnError as error:
        raise BadLineError(reason, error.problems) from None


class CorpusBlock(NamedTuple):
    """Whole lines of a corpus: where their bytes stand, and the hash of these."""

    path: str
    offset: int
    length: int
    first: int
    """The number of its first line, from 0."""
    lines: int
    sha256: str

    @property
    def stop(self) -> int:
        return self.first + self.lines


class CorpusSurvey(NamedTuple):
    sha256: str
    lines: int
    blocks: Sequence[CorpusBlock] = ()
    """The corpus in blocks, for workers and shards that each read their own bytes."""


class CorpusBlocks(NamedTuple):
    """A file in blocks that were surveyed, of which those with the lines that are asked for are read."""

    path: str
    blocks: Sequence[CorpusBlock]


Lines = str | tuple[str, ...] | CorpusBlock | CorpusBlocks
"""The file of a corpus, its sentences, a block of a file, or all of its blocks."""


def source_name(source: Lines) -> str:
    if isinstance(source, (CorpusBlock, CorpusBlocks)):
        return source.path
    return source if isinstance(source, str) else "sentences"


def survey(source: Lines) -> CorpusSurvey:
    """The hash of a corpus and how many lines it has. Raises AttnError where it has no sentence."""
    digest = sha256()
    newlines = 0
    last = b"\n"
    empty = True
    with refuse_unreadable(source):
        for chunk in chunks_of(source):
            digest.update(chunk)
            newlines += chunk.count(b"\n")
            last = chunk[-1:]
            empty = empty and not chunk.removeprefix(BOM).strip()
    refuse_empty(source, empty=empty)

    if not isinstance(source, str):
        lines = len(source)  # a sentence with a line break in it is one bad line, not two
    elif last == b"\n":
        lines = newlines
    else:
        lines = newlines + 1
    return CorpusSurvey(digest.hexdigest(), lines)


def survey_blocks(path: str, size: int | None = None) -> CorpusSurvey:
    """The same of a file, and its blocks: of about so many bytes each, cut at ends of lines."""
    whole = sha256()
    blocks: list[CorpusBlock] = []
    offset = first = 0
    empty = True
    with refuse_unreadable(path), open_corpus(path) as stream:
        size = size or block_size(path)
        while data := stream.read(size):
            digest = sha256()
            length = newlines = 0
            for piece in (data, *rest_of_line(stream, data)):
                whole.update(piece)
                digest.update(piece)
                length += len(piece)
                newlines += piece.count(b"\n")
                is_ended = piece.endswith(b"\n")
                empty = empty and not piece.removeprefix(BOM).strip()

            lines = newlines if is_ended else newlines + 1
            blocks.append(
                CorpusBlock(path, offset, length, first=first, lines=lines, sha256=digest.hexdigest())
            )
            offset += length
            first += lines

    refuse_empty(path, empty=empty)
    return CorpusSurvey(whole.hexdigest(), first, blocks)


def block_size(path: str) -> int:
    """The bytes of a block: a small part of a file whose size is known."""
    if not is_plain(path):
        return MOST_BYTES
    size = os.path.getsize(path)  # noqa: PTH202  (any text)
    return max(LEAST_BYTES, min(size // BLOCKS, MOST_BYTES))


def rest_of_line(stream: BinaryIO, data: bytes) -> Iterator[bytes]:
    """What is left of the line that data ends in, in pieces; the last may be empty."""
    while data and not data.endswith(b"\n"):
        data = stream.readline(CHUNK)
        yield data


@contextmanager
def refuse_unreadable(source: Lines) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not the name of a file"
        raise AttnError(f"{source_name(source)}: {why}") from None


def refuse_empty(source: Lines, *, empty: bool) -> None:
    if empty:
        raise AttnError(f"{source_name(source)}: no sentence in it; write one a line")


def is_plain(path: str) -> bool:
    """True for a file of this machine as it is; others are opened by fsspec."""
    return not is_address(path) and not path.endswith(COMPRESSED)


@contextmanager
def open_corpus(path: str) -> Iterator[BinaryIO]:
    """A file, or what fsspec opens: s3://…, gs://…, hdfs://…, memory://…; compressed by its suffix."""
    if is_plain(path):
        with open_found(path) as plain:
            yield plain
        return
    require_fsspec(path)
    import fsspec

    note_input(path)
    with fsspec.open(path, "rb", compression="infer") as stream:
        yield stream


def chunks_of(source: Lines) -> Iterator[bytes]:
    """The bytes of a corpus; sentences have those of a file that holds them one a line."""
    if isinstance(source, tuple) and not isinstance(source, (CorpusBlock, CorpusBlocks)):
        yield from map(line_bytes, source)
        return
    with open_corpus(source_name(source)) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def line_bytes(sentence: str) -> bytes:
    return sentence.encode("utf-8", "surrogatepass") + b"\n"


def lines_of(source: Lines, span: range) -> Iterator[tuple[int, bytes]]:
    """The lines of a span in order, each with its number, from 1; of one that is too long, its start."""
    if isinstance(source, CorpusBlock):
        yield from lines_of_blocks(source.path, [source], span)
        return
    if isinstance(source, CorpusBlocks):
        its_own = [block for block in source.blocks if block.first < span.stop and block.stop > span.start]
        yield from lines_of_blocks(source.path, its_own, span)
        return
    if not isinstance(source, str):
        for index in span:
            yield index + 1, line_bytes(source[index])
        return
    with open_corpus(source) as stream:
        for index in range(span.stop):
            data, *_ = read_line(stream)
            if index >= span.start:
                yield index + 1, data if index else data.removeprefix(BOM)


def lines_of_blocks(path: str, blocks: Iterable[CorpusBlock], span: range) -> Iterator[tuple[int, bytes]]:
    """The lines of a span that are in these blocks, of which all are read, and nothing else.

    Raises AttnError at the end of a block whose bytes are others than were surveyed.
    """
    with refuse_unreadable(path), open_corpus(path) as stream:
        for block in blocks:
            stream.seek(block.offset)
            digest = sha256()
            for index in range(block.first, block.stop):
                pieces = read_line(stream)
                for piece in pieces:
                    digest.update(piece)
                if index in span:
                    data = pieces[0]
                    yield index + 1, data if index else data.removeprefix(BOM)

            if digest.hexdigest() != block.sha256:
                raise AttnError(f"{path}: changed while it was measured, or since its survey; begin anew")


def read_line(stream: BinaryIO) -> list[bytes]:
    """The next line, of one that is too long its start first."""
    pieces = [stream.readline(LONGEST + 1)]
    while len(pieces[0]) > LONGEST and pieces[-1] and not pieces[-1].endswith(b"\n"):
        pieces.append(stream.readline(LONGEST))
    return pieces


def decode_line(data: bytes) -> str:
    """A line as text, without the newline that ends it. Raises BadLineError for what is no text."""
    if len(data) > LONGEST:
        raise BadLineError("longer than 1 MiB", "longer than 1 MiB; write a sentence a line")
    if b"\0" in data:
        raise BadLineError("a NUL byte", "a NUL byte; save it as UTF-8 text")

    data = data.removesuffix(b"\n").removesuffix(b"\r")
    if b"\n" in data:
        raise BadLineError("a line break", "a line break within a sentence; give them one by one")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"not UTF-8 at byte {error.start} of the line; save it as UTF-8"
        raise BadLineError("not UTF-8", where) from None
