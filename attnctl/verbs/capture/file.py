"""The file of a capture, in a process of another program's: it grows with each call, and harms nothing.

Where nothing was before it grows under its own name; where something was, beside it, and takes its place
when the program has ended. What the program opens, writes or runs is never overwritten: the file
then stays beside it, and that is said.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

# As they are now: a program may put others in their place.
from os import fstat, ftruncate, getpid, replace, unlink
from os import open as open_descriptor
from os import stat as stat_of
from typing import Any, NamedTuple

from attnctl.base.descriptors import Identity, OwnDescriptor
from attnctl.math import Array
from attnctl.store.calls import HEADER, MOST_CALLS, directory_of, header_bytes, member_bytes, read_at

PIECE = 1 << 20
"""Bytes of the directory that are written at a time."""


MOST_NAMES = 10_000
"""Names beside a file that are tried: someone else put so many there."""


class FileState(NamedTuple):
    """What was in a place, so that it shows whether anyone has written there since."""

    identity: Identity
    size: int
    changed: int

    @classmethod
    def of(cls, path: str) -> FileState | None:
        try:
            found = stat_of(path)  # noqa: PTH116
        except (OSError, ValueError):
            return None
        identity = Identity(found.st_dev, found.st_ino, found.st_mode >> 12, found.st_rdev)
        return cls(identity, found.st_size, found.st_mtime_ns)


class FullError(OSError):
    """No more calls go into the file."""


class CaptureFile:
    def __init__(self, path: str) -> None:
        self.target = os.path.realpath(path)
        self.before = FileState.of(self.target)
        self.is_device = self.before is not None and stat.S_ISCHR(self.before.identity.kind << 12)
        self.is_taken = False
        """The program opened what was there before."""
        self.path = ""
        """Where the calls are, once there is one."""
        self.own: OwnDescriptor | None = None
        self.is_busy = False
        self.length = 0
        self.calls = 0
        self.process = getpid()

    # --- what the program does with files ---

    def notice(self, event: str, given: tuple[Any, ...]) -> None:
        """Hear of what the program opens and moves, before it does; an audit hook of Python."""
        if event == "open":
            path, mode, flags = given
            is_written = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
            is_written = is_written or (isinstance(mode, str) and not {*"wax+"}.isdisjoint(mode))
        elif event == "os.rename":
            path, is_written = given[1], True
        elif event in {"os.remove", "os.truncate"}:
            path, is_written = given[0], True
        else:
            return
        if self.is_busy or not isinstance(path, (str, bytes)) or getpid() != self.process:
            return
        identity = Identity.of(os.fsdecode(path))
        if identity is None:
            return
        if self.before is not None and identity == self.before.identity:
            self.is_taken = True
        if is_written and self.own is not None and identity == self.own.identity:
            with self.busy():
                self.give_way(os.link if event in {"os.rename", "os.remove"} else os.rename)

    def give_way(self, move: Callable[[str, str], None]) -> None:
        """Leave the name to the program, which is about to write there; the calls stay beside it.

        Where it removes the name, or moves another file there, that is to succeed: ours has two names then.
        """
        self.is_taken = True
        for path in names_beside(self.target):
            if not os.path.lexists(path):
                with suppress(OSError):
                    move(self.path, path)
                    self.path = path
                return

    @contextmanager
    def busy(self) -> Iterator[None]:
        """What is opened and moved here is not the program's doing."""
        was_busy, self.is_busy = self.is_busy, True
        try:
            yield
        finally:
            self.is_busy = was_busy

    # --- writing ---

    def add(
        self, number: int, arrays: Mapping[str, Array], header: Mapping[str, Any] | None = None
    ) -> None:
        """Write what belongs to a call, its header at last: all of it or nothing. Raises OSError."""
        if header is not None and self.calls >= MOST_CALLS:
            raise FullError(f"{MOST_CALLS} calls are the most")
        members = {f"{number}/{name}": array for name, array in arrays.items()}
        if header is not None:
            members[f"{number}/{HEADER}"] = header_bytes(header)
        if self.own is None:
            self.open()
        own = self.descriptor()
        at = self.length
        try:
            for name, array in members.items():
                for piece in member_bytes(name, array, at):
                    own.write(piece)
                    at += memoryview(piece).nbytes
        except BaseException:
            self.cut_back(own)
            raise
        self.length = at
        self.calls += header is not None

    def open(self) -> None:
        """Make the file, under a name that nothing has. Raises OSError."""
        if self.is_device:
            self.own, self.path = OwnDescriptor(open_descriptor(self.target, os.O_WRONLY)), self.target
            return
        names = names_beside(self.target) if self.before else [self.target, *names_beside(self.target)]
        for path in names:
            with suppress(FileExistsError), self.busy():
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
                self.own, self.path = OwnDescriptor(open_descriptor(path, flags, 0o666)), path
                return
        raise FileExistsError("every name beside it is taken")

    def descriptor(self) -> OwnDescriptor:
        """The descriptor of the file, opened anew where the program closed it. Raises OSError."""
        assert self.own is not None
        if not self.own.is_ours:
            with self.busy():
                again = OwnDescriptor(open_descriptor(self.path, os.O_RDWR | os.O_APPEND))
            if again.identity != self.own.identity:
                again.close()
                raise OSError("another file has taken its place")
            self.own = again
        self.cut_back(self.own)
        return self.own

    def cut_back(self, own: OwnDescriptor) -> None:
        """Cut off what is no whole call: of a write that failed, or of a stray one of the program."""
        if not self.is_device and own.is_ours and fstat(own.number).st_size != self.length:
            ftruncate(own.number, self.length)

    # --- the end ---

    def close(self) -> None:
        """Write the directory, and put the file in its place, unless that is the program's."""
        if self.own is None or getpid() != self.process:
            return
        if not self.is_device:
            if self.calls:
                own = self.descriptor()
                self.write_directory(own)
                if self.path != self.target and self.may_replace():
                    self.replace(own)
            elif Identity.of(self.path) == self.own.identity:
                with self.busy():
                    unlink(self.path)  # noqa: PTH108
        self.own.close()

    def write_directory(self, own: OwnDescriptor) -> None:
        """Write what stands at the end; without it a file reads, too."""
        pending = bytearray()
        try:
            for piece in directory_of(lambda at, size: read_at(own.number, at, size), self.length):
                pending += piece
                if len(pending) > PIECE:
                    own.write(bytes(pending))
                    pending.clear()
            own.write(bytes(pending))
        except OSError:
            self.cut_back(own)

    def may_replace(self) -> bool:
        """True where what was there is no file of the program's, and nobody has written there since."""
        now = FileState.of(self.target)
        if now is None:
            return not self.is_taken
        return not self.is_taken and now == self.before and now.identity not in files_that_run()

    def replace(self, own: OwnDescriptor) -> None:
        """Take the place of what was there, with its permissions."""
        if Identity.of(self.target) is not None and not os.access(self.target, os.W_OK):
            return
        with suppress(OSError):
            os.fchmod(own.number, stat.S_IMODE(stat_of(self.target).st_mode))  # noqa: PTH116
        with self.busy():
            replace(self.path, self.target)  # noqa: PTH105
        self.path = self.target

    @property
    def is_elsewhere(self) -> bool:
        """The calls are not where they were asked for."""
        return bool(self.path) and self.path != self.target

    @property
    def is_lost(self) -> bool:
        """The program removed the file while it grew."""
        return bool(self.path) and self.own is not None and Identity.of(self.path) is None


def names_beside(target: str) -> Iterator[str]:
    """c.npz -> c.part.npz, c.part-2.npz, and so on, as far as anyone goes."""
    stem = os.path.splitext(target)[0]  # noqa: PTH122
    yield f"{stem}.part.npz"
    for number in range(2, MOST_NAMES):
        yield f"{stem}.part-{number}.npz"


def files_that_run() -> set[Identity]:
    """The files that the modules of the program were read from, whether or not that was from a cache."""
    found: set[Identity] = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__dict__", {}).get("__file__")
        identity = Identity.of(path) if type(path) is str else None
        if identity is not None:
            found.add(identity)
    return found
