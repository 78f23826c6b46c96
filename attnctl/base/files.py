"""The files of one command: what it reads it does not overwrite.

Every file that holds someone's data is opened here, and every file that is written is held against
those, however it is spelled. This guards a command line alone (`one_command`): a program that calls
attnctl may write over what it has read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from attnctl.base.errors import AttnError

AnyPath = str | os.PathLike[str]
Key = tuple[int, int] | str


class OverwriteError(Exception):
    """A command is to write what it reads. It is no AttnError: nobody goes on without that file."""


def keys_of(file: AnyPath | int) -> list[Key]:
    """The two names that tell a file from others: its place on its device, and its full path.

    The first sees through links, the second holds where another file has taken its place meanwhile.
    Devices and pipes have none: nothing is lost in them.
    """
    path: list[Key] = [] if isinstance(file, int) else [os.path.realpath(file)]
    try:
        found = os.stat(file)  # noqa: PTH116  (a descriptor, too)
    except OSError:
        return path
    return [(found.st_dev, found.st_ino), *path] if stat.S_ISREG(found.st_mode) else []


GUARDS: list[tuple[dict[Key, str], dict[Key, str]]] = []
"""The files that a command reads, and those that options name to be written, with what messages call them.

Of the commands that are running, the innermost last; none where Python calls the library.
"""

UNFINISHED: set[AnyPath] = set()
"""Temporary files and folders that are in use; who ends the process leaves none behind."""


def remove_unfinished() -> None:
    """Remove them where the process is ended, perhaps by a signal in the middle of anything."""
    for path in [*UNFINISHED]:
        from shutil import rmtree

        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        rmtree(path, ignore_errors=True)


@contextmanager
def one_command() -> Iterator[None]:
    GUARDS.append(({}, {}))
    try:
        yield
    finally:
        GUARDS.pop()


def note_input(file: AnyPath | int, name: str = "") -> None:
    """Note that the command reads this path or descriptor. Raises OverwriteError if it writes it, too."""
    for read, announced in GUARDS[-1:]:
        name = name or str(file)
        keys = keys_of(file)
        for label in (announced[key] for key in keys if key in announced):
            raise refuse_output(label, name)
        read.update(dict.fromkeys(keys, name))


def announce_output(path: AnyPath, flag: str) -> None:
    """Say before any work which file an option writes. Raises OverwriteError, or AttnError for two."""
    for _, announced in GUARDS[-1:]:
        label = f"{flag} {path}"
        hold_output(path, label)
        keys = keys_of(path)
        for other in (announced[key] for key in keys if key in announced):
            raise AttnError(f"{label}: {other} is the same file; give another name")
        announced.update(dict.fromkeys(keys, label))


def hold_output(path: AnyPath, label: str = "") -> None:
    """Raise OverwriteError where a file that is to be written is one that the command reads."""
    for read, announced in GUARDS[-1:]:
        keys = keys_of(path)
        label = label or next((announced[key] for key in keys if key in announced), str(path))
        for name in (read[key] for key in keys if key in read):
            raise refuse_output(label, name)


def refuse_output(label: str, name: str) -> OverwriteError:
    what = "it is what" if f" {label}".endswith(f" {name}") else f"it is {name}, which"
    return OverwriteError(f"{label}: {what} this command reads; give another name")


# --- opening ---


@contextmanager
def refuse_os_errors(place: object, instead: str = "") -> Iterator[None]:
    """Raise an OSError as an AttnError that says where it was, and what to do `instead`."""
    try:
        yield
    except OSError as error:
        raise AttnError(f"{place}: {error.strerror or error}{instead}") from None


STANDARD_INPUT = "-"
"""As a file to read: standard input."""


@contextmanager
def open_input(path: AnyPath) -> Iterator[BinaryIO]:
    """Open what a person named: a file, a pipe or a device in its place, or standard input."""
    if path == STANDARD_INPUT:
        with suppress(OSError, ValueError):  # it may be no file at all
            note_input(sys.stdin.buffer.fileno(), "standard input")
        yield sys.stdin.buffer
        return
    with open(path, "rb") as stream:  # noqa: PTH123  (any path)
        note_input(path)
        yield stream


@contextmanager
def open_found(path: AnyPath) -> Iterator[BinaryIO]:
    """A file that was found in a folder, or is named in another file: a pipe there would hang for good."""
    with open(path, "rb", opener=open_regular) as stream:
        note_input(path)
        yield stream


def open_own(path: AnyPath) -> BinaryIO:
    """A file that the command goes on with, and writes in the end: it is no input."""
    return open(path, "rb", opener=open_regular)


def open_regular(path: str, flags: int) -> int:
    mode = os.stat(path).st_mode  # noqa: PTH116  (as open gives it)
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return os.open(path, flags)
