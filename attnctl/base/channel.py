"""Messages to and from a program that may do anything with them: numbered, bounded, each with a deadline.

A message is a mark, its number, the secret of the channel, two lengths and a checksum; then its text and
its bytes. What stands between messages was written by the program into a descriptor of others, and is
skipped. Whoever reads a message here has all of it, unhurt, in time, or an error that says why not.
"""

from __future__ import annotations

import os
import select
import struct
from time import monotonic
from typing import NamedTuple
from zlib import crc32

from attnctl.base.descriptors import OwnDescriptor

HEAD = struct.Struct("<4sQ16sIQI")
"""The mark, the number, the secret, the lengths of text and bytes, and the checksum of both."""

MARK = b"\x93msg"

LONGEST_TEXT = 1 << 24
"""Bytes of the text of a message."""

MOST_BYTES = 1 << 32
"""Bytes of the arrays of a message."""

MOST_STRAY = 1 << 20
"""Bytes between two messages that are skipped."""

PIECE = 1 << 18


class ChannelError(Exception):
    """Why a message cannot be had: a sentence's end that begins with what the program did."""


class Late(ChannelError):  # noqa: N818  (no error of the channel: nothing came in time)
    """No whole message came before the deadline."""


class Ended(ChannelError):  # noqa: N818  (the other end is gone)
    """The other end was closed."""


class Message(NamedTuple):
    text: bytes
    data: bytes


class Ends(NamedTuple):
    """The descriptors of one side of a channel."""

    reads: OwnDescriptor
    writes: OwnDescriptor

    def close(self) -> None:
        self.reads.close()
        self.writes.close()


class Channel:
    """One side. It sends numbered messages, and reads those that have the number it asks for."""

    def __init__(self, ends: Ends, secret: bytes) -> None:
        self.ends = ends
        self.secret = secret
        self.pending = bytearray()
        """What was read, and belongs to no message yet."""

    def send(self, message: Message, number: int, until: float | None = None) -> None:
        """Send a message, perhaps until some time. Raises ChannelError."""
        body = message.text + message.data
        lengths = len(message.text), len(message.data)
        left = memoryview(HEAD.pack(MARK, number, self.secret, *lengths, crc32(body)) + body)
        while left:
            self.wait(self.ends.writes, select.POLLOUT, until)
            try:
                left = left[os.write(self.ends.writes.number, left[:PIECE]) :]
            except OSError as error:
                raise Ended(f"its channel was closed ({error.strerror or error})") from None

    def receive(self, number: int | None, until: float | None = None) -> tuple[int, Message]:
        """Read the message of this number, or the next of any. Raises ChannelError."""
        while True:
            head = self.read_head(until)
            _, found, _, texts, numbers, checksum = HEAD.unpack(head)
            if texts > LONGEST_TEXT or numbers > MOST_BYTES:
                raise ChannelError(f"it sent a message of {texts + numbers} bytes")
            self.fill(HEAD.size + texts + numbers, until)
            body = bytes(self.pending[HEAD.size : HEAD.size + texts + numbers])
            del self.pending[: HEAD.size + texts + numbers]
            if crc32(body) != checksum:
                raise ChannelError("it wrote into its answer, which came damaged")
            if number in {None, found}:
                return found, Message(body[:texts], body[texts:])
            # An answer that a fork gave too, or that was late.

    def read_head(self, until: float | None) -> bytes:
        """Read on to the head of a message, which then stands first. Raises ChannelError."""
        skipped = 0
        while True:
            at = self.pending.find(MARK)
            stray = at if at >= 0 else max(0, len(self.pending) - len(MARK) + 1)
            del self.pending[:stray]
            skipped += stray
            if skipped > MOST_STRAY:
                raise ChannelError(f"it wrote more than {MOST_STRAY} bytes into a descriptor of others")
            self.fill(HEAD.size, until)
            head = bytes(self.pending[: HEAD.size])
            if head.startswith(MARK):
                if HEAD.unpack(head)[2] == self.secret:
                    return head
                del self.pending[:1]  # by chance, or by a program that knows no better
                skipped += 1

    def fill(self, count: int, until: float | None) -> None:
        """Read until so many bytes are there. Raises ChannelError."""
        while len(self.pending) < count:
            self.wait(self.ends.reads, select.POLLIN, until)
            try:
                piece = os.read(self.ends.reads.number, PIECE)
            except BlockingIOError:  # someone else who has it was quicker
                continue
            except OSError as error:
                raise Ended(f"its channel was closed ({error.strerror or error})") from None
            if not piece:
                raise Ended("it closed the descriptor that its answers go over")
            self.pending += piece

    def wait(self, own: OwnDescriptor, event: int, until: float | None) -> None:
        """Wait until something can be read, or written. Raises Late, or Ended for a lost descriptor."""
        if not own.is_ours:
            raise Ended("its channel was closed")
        poll = select.poll()
        poll.register(own.number, event)
        if not poll.poll(None if until is None else max(0.0, until - monotonic()) * 1000):
            raise Late("no whole message came in time")


def make_pipes() -> tuple[Ends, Ends]:
    """Two pipes: our ends, which never wait, and those of the other side."""
    (their_reads, our_writes), (our_reads, their_writes) = os.pipe(), os.pipe()
    ours = Ends(OwnDescriptor(our_reads), OwnDescriptor(our_writes))
    theirs = Ends(OwnDescriptor(their_reads), OwnDescriptor(their_writes))
    for own in ours:
        os.set_blocking(own.number, False)
    return ours, theirs
