"""Writing files: formats by suffix, strict JSON; the old file stays until the new one is complete."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from attnctl.base.errors import AttnError
from attnctl.base.files import UNFINISHED, hold_output
from attnctl.base.format import Format, function
from attnctl.base.words import quote

ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a process at once unless it handles them."""


def write_all(
    traces: Sequence[Any], paths: Sequence[str | Path], formats: Sequence[Format], view: Any = None
) -> None:
    """Write traces or findings to every file, pictures as in `view`; to none if a suffix does not fit."""
    chosen = [format_for(path, len(traces), formats) for path in paths]
    for fmt, path in zip(chosen, paths, strict=True):
        if fmt.takes_path:
            fmt.write_at(traces, path, view)
            continue
        with open_output(path) as stream:
            fmt.write(traces, stream, view)


def format_for(path: str | Path, count: int, formats: Sequence[Format]) -> Format:
    suffix = Path(path).suffix
    if not suffix and is_special(path):
        suffix = ".json"
    found = next((format_ for format_ in formats if format_.suffix == suffix), None)
    if found is None:
        known = ", ".join(format_.suffix for format_ in formats)
        lacks = f"no format for the suffix {suffix!r}" if suffix else "no suffix that says its format"
        what = "it is a folder" if str(path) and Path(path).is_dir() else lacks
        raise AttnError(f"{str(path) or quote('')}: {what}; expected one of {known}")
    if found.single and count != 1:
        raise AttnError(f"{path}: {suffix} holds one trace, not {count}; write .jsonl or .json instead")
    if found.needs:
        function(found.needs)()
    return found


def unwritable(paths: Sequence[str | Path], formats: Sequence[Format]) -> Iterator[str]:
    for path in paths:
        try:
            format_for(path, 1, formats)
        except AttnError as error:
            yield from error.problems


def write_text(text: str, path: str | Path) -> None:
    with open_output(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, safely. Raises AttnError if it cannot be, OverwriteError if the command reads it."""
    hold_output(path)
    try:
        with Path(path).open("wb") if is_special(path) else replacing(path) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AttnError(f"{path}: cannot be written: {error.strerror or error}") from None


def is_special(path: str | Path) -> bool:
    """True if a path is a device, a pipe, or a name of a stream that is already open."""
    if str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


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
    with signals_raise():  # an interrupt, too, is to leave no trace
        try:
            UNFINISHED.add(temporary)
            with temporary.open("xb") as stream:
                if target.exists():
                    temporary.chmod(stat.S_IMODE(target.stat().st_mode))
                yield stream
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            UNFINISHED.discard(temporary)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Make signals that would end the process raise SystemExit, so that the temporary file is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = [signal_ for signal_ in ENDING_SIGNALS if signal.getsignal(signal_) is signal.SIG_DFL]
    for signal_ in ending:
        signal.signal(signal_, leave)
    try:
        yield
    finally:
        for signal_ in ending:
            signal.signal(signal_, signal.SIG_DFL)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder that is gone in the end, also where a signal ends the process."""
    from tempfile import TemporaryDirectory

    with signals_raise(), TemporaryDirectory(prefix="attnctl-") as folder:
        UNFINISHED.add(folder)
        try:
            yield folder
        finally:
            UNFINISHED.discard(folder)


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End with the exit code that a shell gives a process ended by this signal."""
    raise SystemExit(128 + number)


def data_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    return own_folder("XDG_DATA_HOME", "share", environ, platform)


def own_folder(
    variable: str, usual: str, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path:
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~"))  # noqa: PTH111
    given = environ.get(variable, "")
    if given and Path(given).is_absolute():
        base = Path(given)
    elif platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = home / ".local" / usual
    return base / "attnctl"


# --- strict JSON as bytes that a terminal can show: all that leaves attnctl is written here ---

Sink = Callable[[bytes], object]

TERMINAL_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Characters that a terminal acts on: control characters and changes of text direction."""


def print_bytes(data: bytes) -> None:
    sink(sys.stdout)(data)


def print_text(text: str) -> None:
    """A text whose writer has escaped what a terminal would act on, as UTF-8."""
    print_bytes(text.encode("utf-8", "backslashreplace"))


def print_json(data: Any, indent: int | None = None) -> None:
    print_bytes(encode_json(f"{json_text(data, indent)}\n"))


def write_found(found: Sequence[Any], stream: IO[Any], indent: int = 1) -> None:
    """Write findings, which have `to_dict`, to a stream: an object for one, an array for several.

    One after the other: as text, 100,000 of them at once would fill the memory.
    """
    write_bytes = sink(stream)
    if len(found) == 1:
        write_bytes(encode_json(f"{json_text(found[0].to_dict(), indent)}\n"))
        return
    line = "\n" + " " * indent
    start = "["
    for finding in found:
        text = json_text(finding.to_dict(), indent)
        # In a string of JSON no line ends, so that every line of the text is one to indent.
        write_bytes(encode_json(start + line + text.replace("\n", line)))
        start = ","
    write_bytes(b"\n]\n" if found else b"[]\n")


def print_findings(found: Sequence[Any], indent: int) -> None:
    """The same on stdout, whatever the verb."""
    write_found(found, sys.stdout, indent)


def json_text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def encode_json(text: str) -> bytes:
    """UTF-8, with terminal controls and unpaired surrogates as JSON escapes."""
    safe = TERMINAL_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return safe.encode("utf-8", "backslashreplace")


def sink(stream: IO[Any]) -> Sink:
    """The function that writes bytes to a stream; text streams get UTF-8 whatever their encoding."""
    if not isinstance(stream, io.TextIOBase):
        return stream.write
    stream.flush()
    buffer: IO[bytes] | None = getattr(stream, "buffer", None)
    return buffer.write if buffer is not None else lambda data: stream.write(data.decode())
