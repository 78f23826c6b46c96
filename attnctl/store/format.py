"""The file formats: their names, and the function that writes each."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import IO, Any, NamedTuple, TextIO


class Format(NamedTuple):
    """A format that traces are written in."""

    name: str
    suffix: str
    writer: str
    """``module:function``, imported when it is first used; it takes traces and a stream."""

    binary: bool = False
    """Not for a terminal: only files are written in it."""

    text: bool = False
    """The writer writes characters, not bytes."""

    single: bool = False
    """A file holds one trace, and the writer takes one."""

    picture: bool = False
    """What is written is drawn, and the writer takes how."""

    def write(self, traces: Sequence[Any], stream: IO[Any], look: Any = None) -> None:
        """Write traces to a stream of bytes, or of text where the format is not binary.

        `look` is how they are drawn, for the formats that are pictures.
        """
        module, _, function = self.writer.partition(":")
        write = getattr(import_module(module), function)
        if self.picture and look is not None:
            write = partial(write, look=look)
        written = traces[0] if self.single else traces
        if self.text and not isinstance(stream, io.TextIOBase):
            with as_text(stream) as text:
                write(written, text)
        else:
            write(written, stream)


@contextmanager
def as_text(stream: IO[bytes]) -> Iterator[TextIO]:
    """A stream of bytes as one of text, which holds nothing back and leaves the stream open."""
    text = io.TextIOWrapper(
        stream, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
    try:
        yield text
    finally:
        text.detach()
