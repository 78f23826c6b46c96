"""Descriptors in a process of another program's: known by what they are open on, not by their number."""

from __future__ import annotations

from contextlib import suppress
from os import close, write  # as they are now: a program may put others in their place
from os import stat as stat_of
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # of another system
    fcntl = None  # type: ignore[assignment]

FLOOR = 512
"""The numbers from which our own descriptors are, out of the way: a program counts on the low ones."""


class Identity(NamedTuple):
    """What tells a file, a pipe or a terminal from every other one that is open."""

    device: int
    inode: int
    kind: int
    special: int

    @classmethod
    def of(cls, file: int | str) -> Identity | None:
        """Of a descriptor or a path; None where it is nothing."""
        try:
            found = stat_of(file)  # noqa: PTH116  (a descriptor, too)
        except (OSError, ValueError):
            return None
        return cls(found.st_dev, found.st_ino, found.st_mode >> 12, found.st_rdev)


class OwnDescriptor:
    """A descriptor that is used only while it is still open on what it was opened on.

    A program may close every descriptor that there is, as daemons do, and its next file gets our number.
    """

    def __init__(self, descriptor: int) -> None:
        """Take a descriptor over, under a high number."""
        self.number = move_up(descriptor)
        self.identity = Identity.of(self.number)

    @property
    def is_ours(self) -> bool:
        return self.identity is not None and Identity.of(self.number) == self.identity

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it. Raises OSError, and writes nothing, where the descriptor is no longer ours."""
        if not self.is_ours:
            raise OSError("its descriptor was closed by the program")
        left = memoryview(data)
        while left:
            left = left[write(self.number, left) :]

    def close(self) -> None:
        """Close it, unless its number is another file's by now."""
        if self.is_ours:
            with suppress(OSError):
                close(self.number)
        self.identity = None


def move_up(descriptor: int) -> int:
    """Give a descriptor a high number, which no child inherits; its own where there is none."""
    if fcntl is None:
        return descriptor
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FLOOR)
    except OSError:  # of so high a number the process may have none
        return descriptor
    close(descriptor)
    return high
