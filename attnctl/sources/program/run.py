"""Runs a program in a process of its own, and reads back what the recorder wrote there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import sleep as wait
from typing import Any, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.programs import Said, begin, kill, signal_name
from attnctl.math import Array
from attnctl.sources.program.eager import EAGER
from attnctl.sources.program.instrument import Site
from attnctl.sources.program.record import MOST_ARRAYS, Caller, Event
from attnctl.sources.program.text import NOTEBOOK, code_of, spot
from attnctl.store.files import temporary_folder
from attnctl.store.sent import read_sent

SECONDS = 60
"""What a program may take."""

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


WITHOUT_JIT = {"JAX_DISABLE_JIT": "1", EAGER: "1"}
"""jax carries out what it would compile, so that its arrays are seen."""


class Surroundings(NamedTuple):
    """What a program is carried out with, beside what it finds by itself."""

    environment: Mapping[str, str] = {}
    """Variables that are added to those that there are."""
    texts: Mapping[str, str] = {}
    """Of some of its files what they read instead, by their full paths."""
    answers: bytes = b""
    """What it reads as its input."""


AS_IT_IS = Surroundings()


def record_program(
    path: str, seconds: float | None = None, surroundings: Surroundings = AS_IT_IS
) -> Recording:
    """Carry a program out and record every array that it computes.

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

    with temporary_folder() as folder:
        into = Path(folder, "recorded.npz")
        printed = run_isolated(path, into, seconds or SECONDS, surroundings)
        if not os.path.lexists(into):
            raise AttnError(f"{path}: it ended itself, and its variables with it")
        # Beside the arrays there is a table of what they are.
        arrays = read_sent(into, path, MOST_ARRAYS + 1)
        try:
            return read_recording(path, arrays, printed)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
            raise AttnError(
                f"{path}: what it left is no recording of ours; it wrote there itself"
            ) from None


def run_isolated(path: str, into: Path, seconds: float, surroundings: Surroundings) -> str:
    """Run the recorder on a program; what it printed. Raises AttnError where it fails or goes on."""
    whole = Path(path).resolve()
    out = Said()
    err = Said()
    command = [sys.executable, str(CHILD), str(whole), str(into), *texts_beside(into, surroundings)]
    # A window that waits to be closed would wait for good.
    environment = {"MPLBACKEND": "Agg", **os.environ, **surroundings.environment}
    with ExitStack() as open_files:
        read: Any = subprocess.DEVNULL
        if surroundings.answers:
            answers = into.with_name("answers")
            answers.write_bytes(surroundings.answers)
            read = open_files.enter_context(answers.open("rb"))
        process = begin(command, out, err, cwd=whole.parent, stdin=read, env=environment)
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


def texts_beside(into: Path, surroundings: Surroundings) -> list[str]:
    """The file that says what some files read instead, where there are any."""
    if not surroundings.texts:
        return []
    changed = into.with_name("texts.json")
    changed.write_text(json.dumps(dict(surroundings.texts)), "utf-8")
    return [str(changed)]


def read_recording(path: str, arrays: Mapping[str, Array], printed: str) -> Recording:
    """Read what the recorder wrote. Raises ValueError and its like, as the program can write there, too."""
    table = json.loads(str(arrays["table"]))
    values = {int(name): array for name, array in arrays.items() if name != "table"}
    events = dict(event_of(row, values) for row in table["events"])
    variables = {str(name): SPACING * int(number) for name, number in table["variables"].items()}
    recording = Recording(
        path=path,
        events=events,
        sites=[site_of(row) for row in table["sites"]],
        files={str(file): str(text) for file, text in table["files"].items()},
        ending=str(table["ending"]),
        lost=int(table["lost"]),
        processes=int(table["processes"]),
        questions=int(table["questions"]),
        # Of more arrays than are kept of one line the event may be gone.
        variables={name: number for name, number in variables.items() if number in events},
        printed=printed,
    )
    require_linked(recording)
    return recording


def require_linked(recording: Recording) -> None:
    """Raise ValueError where an event is no array of numbers, or of what no expression stands for.

    Some are made of later ones: a list, of what loops put into it.
    """
    sites = range(len(recording.sites))
    for number, event in recording.events.items():
        if event.value is not None and event.value.dtype.kind not in "fiub":
            raise ValueError("no numbers")
        if event.site not in sites or not all(site in sites for site in event.returned_at):
            raise ValueError("no such expression")
        if not all(parent >= 0 and parent != number for parent in event.parents):
            raise ValueError("made of itself")
    for site in recording.sites:
        if not all(part in sites for part in site.parts):
            raise ValueError("no such operand")


def event_of(row: list[Any], arrays: Mapping[int, Array]) -> tuple[int, Event]:
    number, site, parents, callers, function, weights, names, arguments, returned_at = row
    event = Event(
        site=int(site),
        value=arrays.get(number),
        parents=tuple(SPACING * int(parent) for parent in parents),
        callers=tuple(Caller(str(file), int(line)) for file, line in callers),
        function=str(function),
        weights={str(name): SPACING * int(weight) for name, weight in weights.items()},
        names=[str(name) for name in names],
        arguments={name: spaced(argument) for name, argument in arguments.items()},
        returned_at=[int(site) for site in returned_at],
    )
    return SPACING * int(number), event


def spaced(argument: Any) -> Any:
    """An argument of a call; that of an array is the number of its event."""
    if isinstance(argument, dict):
        return {"event": SPACING * int(argument["event"])}
    if argument is not None and type(argument) not in {int, float, bool}:
        raise TypeError(argument)
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
        parts=tuple(int(part) for part in parts),
        words=tuple(str(word) for word in words),
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
