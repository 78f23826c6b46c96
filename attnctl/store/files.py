"""Writing dumps to files: the format by suffix, and the old file whole until the new one is."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn, TextIO

from attnctl.errors import AttnError
from attnctl.store.dump_json import write_json, write_jsonl
from attnctl.store.long_csv import write_csv
from attnctl.store.npz import write_npz
from attnctl.store.safetensors import write_safetensors
from attnctl.trace import Trace

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a process at once unless it says otherwise."""

Writer = Callable[[Sequence[Trace], IO[bytes]], None]


def json_file(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """One object, or an array where there are several traces."""
    write_json(traces, stream, as_array=len(traces) != 1)


def csv_file(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """Long form, UTF-8."""
    with as_text(stream) as text:
        write_csv(traces, text)


def markdown_file(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """Tables of Markdown, UTF-8."""
    from attnctl.verbs.show.markdown import write_markdown

    with as_text(stream) as text:
        write_markdown(traces, text)


def npz_file(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """Arrays of the one trace."""
    write_npz(traces[0], stream)


def safetensors_file(traces: Sequence[Trace], stream: IO[bytes]) -> None:
    """Arrays of the one trace."""
    write_safetensors(traces[0], stream)


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


FORMATS: dict[str, Writer] = {
    ".json": json_file,
    ".jsonl": write_jsonl,
    ".npz": npz_file,
    ".safetensors": safetensors_file,
    ".csv": csv_file,
    ".md": markdown_file,
}
OF_ONE = (".npz", ".safetensors")
"""Formats that hold one trace."""


def write(traces: Sequence[Trace], path: str | Path) -> None:
    """Write traces to a file in the format that its suffix names.

    A regular file is written beside its target and moved into place, so that whatever happens
    the old file or the new one is there, whole. A device or a pipe is written to directly, and
    as JSON where it has no suffix.
    """
    write_all(traces, [path])


def write_all(traces: Sequence[Trace], paths: Sequence[str | Path]) -> None:
    """Write traces to every file; a suffix that does not fit is refused before any is written."""
    writers = [writer_for(path, len(traces)) for path in paths]
    for writer, path in zip(writers, paths, strict=True):
        with opened(path) as stream:
            writer(traces, stream)


def writer_for(path: str | Path, count: int) -> Writer:
    """What writes this many traces in the format of a path. Raises AttnError where nothing does."""
    suffix = Path(path).suffix
    if not suffix and is_special(path):
        suffix = ".json"
    if suffix not in FORMATS:
        raise AttnError(
            f"{path}: no format for the suffix {suffix!r}; expected one of {', '.join(FORMATS)}"
        )
    if suffix in OF_ONE and count != 1:
        raise AttnError(f"{path}: {suffix} holds one trace, not {count}; write .jsonl or .json instead")
    return FORMATS[suffix]


def write_text(text: str, path: str | Path) -> None:
    """Write a text file, whole or not at all."""
    with opened(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, safely. Raises AttnError where the system refuses."""
    try:
        with (direct if is_special(path) else replacing)(path) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AttnError(f"{path}: cannot be written: {error.strerror or error}") from None


def is_special(path: str | Path) -> bool:
    """Whether a path is a device, a pipe, or a name of a stream that is already open."""
    if str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def direct(path: str | Path) -> Iterator[IO[bytes]]:
    """A device or pipe to write to."""
    with Path(path).open("wb") as stream:
        yield stream


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file beside the target that takes its place when all is written, or leaves no trace.

    It is not forced onto the disk first, which can take longer than all the rest: what a power
    failure loses of a dump can be computed again.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    temporary = target.with_name(f".attnctl-{os.urandom(8).hex()}.tmp")
    with signals_raise():
        try:
            with temporary.open("xb") as stream:
                if target.exists():
                    temporary.chmod(stat.S_IMODE(target.stat().st_mode))
                yield stream
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def signals_raise() -> Iterator[None]:
    """Signals that would end the process at once raise SystemExit instead, so that it can tidy up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = [each for each in ENDING if signal.getsignal(each) is signal.SIG_DFL]
    for each in ending:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in ending:
            signal.signal(each, signal.SIG_DFL)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End with the exit code that a shell gives a process ended by this signal."""
    raise SystemExit(128 + number)
