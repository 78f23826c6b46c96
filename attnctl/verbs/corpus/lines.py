"""The lines of a corpus: which of them a shard has, one at a time, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found
from attnctl.base.values import BadValueError, Reader

LONGEST = 2**20
"""Bytes of a line; a longer one is no sentence."""

CHUNK = 2**20
BOM = b"\xef\xbb\xbf"


class Shard(NamedTuple):
    """Part `number` of `of`, from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def span(self, lines: int) -> range:
        """Which of so many lines it has, from 0."""
        return range((self.number - 1) * lines // self.of, self.number * lines // self.of)


WHOLE = Shard(1, 1)


def read_shard(text: str) -> Shard:
    """'3/8' -> the third of eight."""
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadValueError(f"{text!r} is no shard; write 3/8 for the third of eight")
    number, count = map(int, parts)
    if not count:
        raise BadValueError(f"{text} is of no shards; write 1/1 for all in one")
    if not 1 <= number <= count:
        raise BadValueError(f"{text}: no such shard; they go from 1/{count} to {count}/{count}")
    return Shard(number, count)


SHARD = Reader(read_shard, {}, "I/N")


@dataclass(frozen=True)
class Corpus:
    """A file of sentences, one a line: its hash and how many lines it has, the empty ones among them."""

    path: str
    sha256: str
    lines: int


def survey(path: str) -> Corpus:
    """Read a corpus once, for its hash. Raises AttnError where it cannot be read or holds no sentence."""
    digest, newlines, last, empty = sha256(), 0, b"\n", True
    try:
        with open_found(path) as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
                newlines += chunk.count(b"\n")
                last = chunk[-1:]
                empty = empty and not chunk.removeprefix(BOM).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not the name of a file"
        raise AttnError(f"{path}: {why}") from None
    if empty:
        raise AttnError(f"{path}: no sentence in it; write one a line")
    return Corpus(path, digest.hexdigest(), newlines + (last != b"\n"))


class CorpusLine(NamedTuple):
    """A sentence and the number of its line, from 1; or what is `wrong` with the line."""

    number: int
    text: str
    wrong: str = ""


def lines_of(corpus: Corpus, span: range) -> Iterator[CorpusLine]:
    """The lines of a span that hold more than space, in order."""
    with open_found(corpus.path) as stream:
        for index in range(span.stop):
            data = stream.readline(LONGEST + 1)
            if index == 0:
                data = data.removeprefix(BOM)
            too_long = len(data) > LONGEST
            while too_long and data and not data.endswith(b"\n"):
                data = stream.readline(LONGEST)
            if index >= span.start:
                line = CorpusLine(index + 1, "", "longer than 1 MiB; write a sentence a line")
                line = line if too_long else line_of(index + 1, data)
                if line.wrong or line.text.strip():
                    yield line


def line_of(number: int, data: bytes) -> CorpusLine:
    """A line; the newline that ends it, or carriage return and newline, is not part of it."""
    if b"\0" in data:
        return CorpusLine(number, "", "a NUL byte; save it as UTF-8 text")
    try:
        return CorpusLine(number, data.decode("utf-8").removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError as error:
        return CorpusLine(number, "", f"not UTF-8 at byte {error.start} of the line; save it as UTF-8")
