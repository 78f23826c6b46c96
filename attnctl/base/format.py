"""A format in which traces or findings are written: its name, its suffix, the function that writes it."""

# Annotations are types here: as text, `NamedTuple` would compile each at every start.
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TextIO

from attnctl.base.namedtuple import NamedTuple


class Format(NamedTuple):
    name: str
    suffix: str
    writer: str  # ``module:function``, imported when it is first used; it takes traces and a stream
    binary: bool = False  # not for a terminal: only files are written in it
    text: bool = False  # the writer writes characters, not bytes
    single: bool = False  # a file holds one trace, and the writer takes one
    picture: bool = False  # it is drawn, and the writer takes how: the `view`
    takes_path: bool = False  # the writer takes a stream, or a path: it may write a file beside that
    needs: str = ""
    """``module:function`` that raises AttnError where a package to write it with is not installed."""

    def write_at(self, traces: Sequence[Any], path: str | Path, view: Any = None) -> None:
        """Write a trace to a path, and to a file beside it where its writer needs one."""
        function(self.writer)(traces[0], path, view)

    def write(self, traces: Sequence[Any], stream: IO[Any], view: Any = None) -> None:
        """Write traces to a stream of bytes, or of text where the format is not binary."""
        write = function(self.writer)
        if self.picture and view is not None:
            write = partial(write, view=view)
        written = traces[0] if self.single else traces
        if self.text and not isinstance(stream, io.TextIOBase):
            with as_text(stream) as text:
                write(written, text)
        else:
            write(written, stream)


def function(name: str) -> Any:
    """What ``module:name`` names; its module is imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@contextmanager
def as_text(stream: IO[bytes]) -> Iterator[TextIO]:
    """A stream of bytes as one of text, which holds nothing back and leaves the stream open."""
    text = io.TextIOWrapper(stream, "utf-8", "backslashreplace", newline="\n", write_through=True)
    try:
        yield text
    finally:
        text.detach()
