"""Runs a program in a process of its own, and reads back what the recorder wrote there."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import sleep as wait
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.programs import Said, begin, kill
from attnctl.sources.program.instrument import Site
from attnctl.sources.program.record import Caller, Event
from attnctl.sources.program.text import NOTEBOOK, code_of, spot

SECONDS = 60
"""What a program may take."""

LARGEST = 2**30
"""Bytes of a recording: twice what the recorder keeps at most."""

SPACING = 10
"""Events are numbered so far apart that others, which only their numbers show, find room between them."""

CHILD = Path(__file__).with_name("child.py")


class Recording(NamedTuple):
    """What a program computed, and how it ended."""

    path: str
    events: dict[int, Event]
    sites: list[Site]
    files: dict[str, str]
    """The program's own files, by their full paths, and their texts."""
    ending: str
    """The exception that ended it, as `LINE: NAME: words`; "" where it came to its end."""
    lost: int
    """Arrays that were not kept."""
    processes: int
    """Processes that it forked, in which nothing was recorded."""
    questions: int
    """Calls of input(), which were answered with an empty line."""
    variables: dict[str, int]
    """The arrays that its names stand for at its end, by their events."""
    printed: str


WITHOUT_JIT = {"JAX_DISABLE_JIT": "1"}
"""jax carries out what it would compile, so that its arrays are seen."""


def record_program(
    path: str, seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> Recording:
    """Carry a program out and record every array that it computes; `environment` is added to its own.

    Raises AttnError with its line where it is no Python, where it ended its process itself, or where it
    goes on for too long.
    """
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path):
        try:
            code_of(path)
        except (SyntaxError, ValueError, LookupError, TypeError, AttributeError):
            what = "text in UTF-8"
            if path.endswith(NOTEBOOK):
                what = "a notebook"
            raise AttnError(f"{path}: not {what}") from None

    with tempfile.TemporaryDirectory(prefix="attnctl-") as folder:
        into = Path(folder, "recorded.npz")
        printed = run_isolated(path, into, seconds or SECONDS, environment or {})
        try:
            return read_recording(path, into, printed)
        except FileNotFoundError:
            raise AttnError(f"{path}: it ended itself, and its variables with it") from None
        except Exception:  # noqa: BLE001  (the program can write there whatever it likes)
            raise AttnError(
                f"{path}: what was recorded of it cannot be read; it wrote there itself"
            ) from None


def run_isolated(path: str, into: Path, seconds: float, added: Mapping[str, str]) -> str:
    """Run the recorder on a program; what it printed. Raises AttnError where it fails or goes on."""
    whole = Path(path).resolve()
    out = Said()
    err = Said()
    command = [sys.executable, str(CHILD), str(whole), str(into)]
    # A window that waits to be closed would wait for good.
    environment = {"MPLBACKEND": "Agg", **os.environ, **added}
    process = begin(command, out, err, cwd=whole.parent, stdin=subprocess.DEVNULL, env=environment)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AttnError(f"{path}: still running after {seconds} s; it was ended") from None
    finally:
        kill(process)
    if code < 0:
        raise AttnError(f"{path}: it was ended by {signal_name(-code)}, and its variables with it")
    if code:
        raise AttnError(f"{path}{last_words(err.end().decode(errors='replace'), str(whole))}")
    return out.end().decode(errors="replace")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_recording(path: str, into: Path, printed: str) -> Recording:
    """Read what the recorder wrote. Raises anything, as the program can write there, too."""
    handle = os.open(into, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ValueError(into)
        data = io.BytesIO(stream.read(LARGEST))

    with np.load(data, allow_pickle=False) as file:
        table = json.loads(str(file["table"]))
        arrays = {int(name): file[name] for name in file.files if name != "table"}

    return Recording(
        path=path,
        events=dict(event_of(row, arrays) for row in table["events"]),
        sites=[site_of(row) for row in table["sites"]],
        files={str(file): str(text) for file, text in table["files"].items()},
        ending=str(table["ending"]),
        lost=int(table["lost"]),
        processes=int(table["processes"]),
        questions=int(table["questions"]),
        variables={str(name): SPACING * int(number) for name, number in table["variables"].items()},
        printed=printed,
    )


def event_of(row: list[Any], arrays: dict[int, np.ndarray[Any, Any]]) -> tuple[int, Event]:
    number, site, parents, callers, function, weights, names, arguments, returned_at = row
    event = Event(
        site=int(site),
        value=arrays.get(number),
        parents=tuple(SPACING * parent for parent in parents),
        callers=tuple(Caller(*caller) for caller in callers),
        function=str(function),
        weights={name: SPACING * weight for name, weight in weights.items()},
        names=[str(name) for name in names],
        arguments={name: spaced(argument) for name, argument in arguments.items()},
        returned_at=[int(site) for site in returned_at],
    )
    return SPACING * int(number), event


def spaced(argument: Any) -> Any:
    """An argument of a call; that of an array is the number of its event."""
    if isinstance(argument, dict):
        return {"event": SPACING * argument["event"]}
    return argument


def site_of(row: list[Any]) -> Site:
    file, line, column, end_line, end_column, what, parts, words, target = row
    return Site(
        file=str(file),
        line=int(line),
        column=int(column),
        end_line=int(end_line),
        end_column=int(end_column),
        what=str(what),
        parts=tuple(parts),
        words=tuple(words),
        target=str(target),
    )


def ending_of(recording: Recording) -> str:
    """`homework.py:9: ValueError: …`, the line and the exception that ended a program."""
    line, _, words = recording.ending.partition(": ")
    place = ""
    if line != "0":
        place = spot(recording.path, int(line))
    return f"{recording.path}{place}: {words}"


def look_again(path: str) -> Iterator[None]:
    """Now, and whenever the file is saved."""
    before = None
    while True:
        try:
            status = Path(path).stat()
            now = status.st_mtime_ns, status.st_size
        except OSError:
            now = 0, 0
        if now != before:
            before = now
            yield
        wait(0.2)


def last_words(said: str, path: str) -> str:
    """`:9: ValueError: …`, the last line of the file in a traceback and the exception."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    place = f'File "{path}", line '
    numbers = [line.partition(place)[2].partition(",")[0] for line in lines if place in line]
    why = "it failed and said nothing"
    if lines:
        why = lines[-1]
    if numbers:
        return f"{spot(path, int(numbers[-1]))}: {why}"
    return f": {why}"
