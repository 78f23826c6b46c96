"""Programs of a person's own: each in a session, whose end is theirs; of what they say the last is kept."""

from __future__ import annotations

import ast
import builtins
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import Any

MOST_SAID = 2**16
"""Bytes that are kept of what a program says."""

RUNNING: set[subprocess.Popen[bytes]] = set()
"""Programs that were begun and not ended yet; who ends the process leaves none behind."""


class Said:
    """A pipe for a program to say things to, without end if it likes; the last of them are kept."""

    def __init__(self) -> None:
        self.kept = b""
        self.source, self.sink = os.pipe()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        while piece := os.read(self.source, MOST_SAID):
            self.kept = (self.kept + piece)[-MOST_SAID:]
        os.close(self.source)

    def end(self) -> bytes:
        # Seconds in which what was written is read; others may hold the pipe open for good.
        self.reader.join(0.5)
        return self.kept


def begin(words: Sequence[str], out: Said | int, err: Said, **more: Any) -> subprocess.Popen[bytes]:
    """Begin a program in a session of its own, which no interrupt of ours reaches. Raises OSError."""
    to = [stream.sink if isinstance(stream, Said) else stream for stream in (out, err)]
    try:
        process = subprocess.Popen(  # noqa: S603  (what the person named)
            words, stdout=to[0], stderr=to[1], start_new_session=True, **more
        )
        RUNNING.add(process)
        return process
    finally:
        for stream in {out, err}:
            if isinstance(stream, Said):
                os.close(stream.sink)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    kill_group(process)
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    RUNNING.discard(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_all() -> None:
    """End whatever is still running, and wait for none of it: a signal may have come in any wait."""
    for process in [*RUNNING]:
        kill_group(process)


WATCH = 1.0
"""Seconds between two looks for the process that began this one."""


def end_with_parent() -> None:
    """End this process with the one that began it, whatever it is doing: nobody else would."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def signal_name(number: int) -> str:
    """SIGSEGV; of a signal that has no name, its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_as_main(path: str, tree: ast.Module, words: Sequence[str], names: Mapping[str, Any]) -> None:
    """Carry a program out in this process, as Python does; it has these names besides."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    vars(module).update(names, __file__=path)
    sys.argv, sys.path[0] = list(words), str(Path(path).resolve().parent)
    module.__builtins__ = builtins  # type: ignore[attr-defined]  # as Python gives it to a main module
    code = compile(tree, path, "exec", dont_inherit=True)  # with its own imports from the future, not ours
    exec(code, vars(module))  # noqa: S102  (what the person named)
