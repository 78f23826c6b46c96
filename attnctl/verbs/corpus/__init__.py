"""The lines of a corpus: which of them a shard has, one at a time, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found
from attnctl.base.values import BadValueError, Reader

LONGEST = 2**20  # bytes of a line; a longer one is no sentence
CHUNK = 2**20
BOM = b"\xef\xbb\xbf"


class Shard(NamedTuple):
    """Part `number` of `of`, from 1, of the lines of a corpus."""

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


Lines = str | tuple[str, ...]  # the file of a corpus, or its sentences


def source_name(source: Lines) -> str:
    return source if isinstance(source, str) else "sentences"


def survey(source: Lines) -> tuple[str, int]:
    """The hash of a corpus and how many lines it has. Raises AttnError where it has no sentence."""
    digest, newlines, last, empty = sha256(), 0, b"\n", True
    try:
        for chunk in chunks_of(source):
            digest.update(chunk)
            newlines += chunk.count(b"\n")
            last = chunk[-1:]
            empty = empty and not chunk.removeprefix(BOM).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not the name of a file"
        raise AttnError(f"{source}: {why}") from None
    if empty:
        raise AttnError(f"{source_name(source)}: no sentence in it; write one a line")
    lines = newlines + (last != b"\n") if isinstance(source, str) else len(source)
    return digest.hexdigest(), lines


def chunks_of(source: Lines) -> Iterator[bytes]:
    """The bytes of a corpus; sentences have those of a file that holds them one a line."""
    if not isinstance(source, str):
        yield from map(line_bytes, source)
        return
    with open_found(source) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def line_bytes(sentence: str) -> bytes:
    return sentence.encode("utf-8", "surrogatepass") + b"\n"


def lines_of(source: Lines, span: range) -> Iterator[tuple[int, bytes]]:
    """The lines of a span in order, each with its number, from 1; of one that is too long, its start."""
    if not isinstance(source, str):
        for index in span:
            yield index + 1, line_bytes(source[index])
        return
    with open_found(source) as stream:
        for index in range(span.stop):
            data = rest = stream.readline(LONGEST + 1)
            while len(data) > LONGEST and rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST)
            if index >= span.start:
                yield index + 1, data if index else data.removeprefix(BOM)


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
