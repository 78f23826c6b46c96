"""Where a program failed: the exception that it raised or printed, with file and line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb

PYTHON = re.compile(r'^ *File "(.+)", line (\d+)')

RAISED = re.compile(
    r"panicked at|^panic: |^(ERROR|error): |^Exception in thread|^(Uncaught )?\w*(Error|Exception)\b"
)
"""How Rust, Go, Julia, Java and Node begin; what follows says where."""

PLACE = re.compile(r"([^\s'\"()]+\.\w+):(\d+)")

OURS = Path(__file__).parent

OTHERS = ("site-packages", "dist-packages", "<", "/lib/python")
"""Parts of the paths of libraries, and of code in no file: <frozen …>, <__array_function__ internals>."""

MOST = 300
"""Characters that are told."""


def read_last_words(said: bytes) -> str:
    """The end of what a program wrote: its exception and where that is from, or its last line."""
    lines = [line.rstrip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    if frames := [(at, found) for at, line in enumerate(lines) if (found := PYTHON.match(line))]:
        last, _ = frames[-1]
        message = next((line for line in lines[last:] if not line.startswith(" ")), lines[-1])
        return with_place(message, innermost([found.groups() for _, found in frames]))
    at = next((at for at, line in enumerate(lines) if RAISED.search(line)), None)
    if at is None:
        return lines[-1].strip()[:MOST] if lines else ""
    message = " ".join(lines[at : at + 2]) if lines[at].endswith(":") else lines[at]  # Rust's is below
    if PLACE.search(message):
        return message[:MOST]
    places = [found.groups() for line in lines[at:] if (found := PLACE.search(line))]
    return with_place(message, innermost(places[::-1]))  # Python alone has the innermost last


def place_of(error: BaseException) -> str:
    """The file and line of the target that an exception is from; nothing where it has none."""
    frames = [(frame.filename, str(frame.lineno)) for frame in extract_tb(error.__traceback__)]
    return spoken(innermost([frame for frame in frames if Path(frame[0]).parent != OURS]))


def innermost(frames: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last frame that is no library's, or the last; nothing where there is none."""
    mine = [frame for frame in frames if not is_others(frame[0])]
    return (mine or [*frames] or [()])[-1]


def is_others(path: str) -> bool:
    """Whether a file is not the target's own."""
    return any(part in path for part in OTHERS)


def with_place(message: str, frame: tuple[str, ...]) -> str:
    """A message with the file and line of a frame."""
    return f"{message[:MOST]}{f' ({spoken(frame)})' if frame else ''}"


def spoken(frame: tuple[str, ...]) -> str:
    """A file, seen from here, and its line."""
    if not frame:
        return ""
    path, line = Path(frame[0]), frame[1]
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}, line {line}"
