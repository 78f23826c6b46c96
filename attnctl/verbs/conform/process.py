"""A target in a process of its own: a crash, a hang and an exit are answers, not ends.

One process is kept over many calls and begun anew only when it has died. It is in a session of its
own, so that an interrupt reaches it through us, and everything that it started goes with it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import IO, Any

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input
from attnctl.verbs.conform.call import Answer, Call, Framework
from attnctl.verbs.conform.last_words import read_last_words
from attnctl.verbs.conform.signature import NOT_IN_SIGNATURE, REFUSALS, Parameter
from attnctl.verbs.conform.worker import LENGTH

LOADING = 300.0
"""Seconds that importing a target may take."""


class Ended(Exception):  # noqa: N818  (what became of a process)
    """The process of a target did not answer: how it ended, and what it said last."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()


def last_words(said: IO[bytes]) -> str:
    """What a process wrote last, as the end of a sentence."""
    said.seek(0)
    words = read_last_words(said.read())
    return f": {words}" if words else ""


@dataclass
class Worker:
    """Calls a Python function in a process of its own."""

    target: str
    framework: Framework = Framework()  # noqa: RUF009  (frozen)
    limit: float = 20.0
    process: subprocess.Popen[bytes] | None = None
    said: IO[bytes] | None = None
    parameters: list[Parameter] | None = None
    """What the function takes; None where it does not say."""
    cannot: dict[str, str] = field(default_factory=dict)
    unclaimed: str = NOT_IN_SIGNATURE
    refuses: frozenset[str] = REFUSALS

    def start(self) -> None:
        """Begin the process and load the target. Raises AttnError where that fails."""
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attnctl.verbs.conform.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        try:
            self.send((self.target, self.framework))
            told = self.receive(LOADING)
        except Ended as ended:
            raise AttnError(f"{self.target}: it could not be loaded ({ended})") from None
        if isinstance(told, str):
            self.close()
            raise AttnError(f"{self.target}: it could not be loaded: {told}")
        self.parameters, sources = told
        for path in sources:
            note_input(path)

    def call(self, call: Call) -> Answer:
        if self.process is None:
            self.start()
        try:
            self.send(call)
            answer: Answer = self.receive(self.limit + (self.limit + call.seconds) * (call.times > 1))
        except Ended as ended:
            return Answer(error=ended.kind, message=ended.message)
        return answer

    def send(self, value: Any) -> None:
        """Hand something to the process. Raises Ended where it is no more."""
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
            self.process.stdin.flush()
        except OSError:
            raise self.ended() from None

    def receive(self, seconds: float) -> Any:
        """What the process sends back. Raises Ended where it dies, or sends nothing for so long."""
        assert self.process is not None
        assert self.process.stdout is not None
        stream, until = self.process.stdout.fileno(), monotonic() + seconds
        data = bytearray()
        while len(data) < LENGTH or len(data) < LENGTH + int.from_bytes(data[:LENGTH], "big"):
            left = until - monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                self.close()
                raise Ended("hang", f"no answer within {seconds:g} s")
            piece = os.read(stream, 1 << 20)
            if not piece:
                raise self.ended()
            data += piece
        return pickle.loads(data[LENGTH:])  # noqa: S301  (from our own worker)

    def ended(self) -> Ended:
        """How the process ended."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.poll()
        words = "" if self.said is None else last_words(self.said)
        self.close()
        if code is not None and code < 0:
            return Ended("crash", f"its process died of {signal.Signals(-code).name}{words}")
        return Ended("exit", f"its process ended with exit code {code}{words}")

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            for stream in (self.process.stdin, self.process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            end(self.process)
            self.process = None
        if self.said is not None:
            self.said.close()
            self.said = None
