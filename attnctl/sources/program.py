"""A program of a person's own, carried out in a process of its own, and what its lines assign."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from time import sleep as wait

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.programs import Said, begin, kill
from attnctl.base.setting import Given
from attnctl.record import Trace
from attnctl.sources.dump import Dump
from attnctl.sources.recorder import MAGIC, code_of
from attnctl.sources.variables import Assigned, Steps, belonging, options_shown, trace_of

SECONDS = 60
"""What a program may take."""

RECORDER = Path(__file__).with_name("recorder.py")


class Script(Dump):
    """The variables of a file of Python, as the last call of each function left them."""

    is_file = False

    @cached_property
    def assigned(self) -> Steps:
        """What was assigned each array of the trace, by its name there."""
        return {}

    def traces(self) -> Sequence[Trace]:
        best = belonging(record_program(str(self.text))[0], f"{self.text}: ")
        self.assigned.update(best)
        read = [(given, name) for name, given in best.items() if given.name != name]
        said = [f"{given.name} (line {given.line}) as {name}" for given, name in read]
        self.notes = (f"Read {', '.join(said)}.",) if said else ()
        lines = [line for cell in code_of(str(self.text)) for line in cell]
        magics = [line.partition(MAGIC)[2] for line in lines if line.lstrip().startswith(MAGIC)]
        if magics:
            self.notes += (f"Left out, as only a kernel knows them: {', '.join(magics)}.",)
        return [trace_of(best)]

    @property
    def shown(self) -> Given:
        return options_shown(self.assigned)

    def place_of(self, trace: Trace, step: str) -> str:
        """The file, and the line that assigned this step of the trace under our names: homework.py:9."""
        numbers = trace[step].ravel()
        same = (given for given in self.assigned.values() if np.array_equal(given.array.ravel(), numbers))
        given = self.assigned.get(step) or next(same, None)
        return f"{self.text}{spot(Path(str(self.text)), given.line)}" if given else str(self.text)


def record_program(path: str, seconds: float | None = None) -> tuple[list[Assigned], str]:
    """Carry a program out; what its lines assigned, in order, and what it printed.

    Raises AttnError with its line and exception where it fails, or where it goes on for too long.
    """
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path):
        require_code(path)
    with tempfile.TemporaryDirectory(prefix="attnctl-") as folder:
        into = Path(folder, "recorded.npz")
        printed = run_isolated(path, into, seconds or SECONDS)
        if not into.exists():
            raise AttnError(f"{path}: it ended itself, and its variables with it")
        with np.load(into) as file:
            table = json.loads(str(file["table"]))
            rows = ((*row, file[f"arr_{number}"]) for number, row in enumerate(table))
            return [*map(Assigned._make, rows)], printed


def run_isolated(path: str, into: Path, seconds: float) -> str:
    """Run the recorder on a program; what it printed. Raises AttnError where it fails or goes on."""
    whole, out, err = Path(path).resolve(), Said(), Said()
    words = [sys.executable, str(RECORDER), str(whole), str(into)]
    process = begin(words, out, err, cwd=whole.parent, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AttnError(f"{path}: still running after {seconds} s; it was ended") from None
    finally:
        kill(process)
    if code:
        raise AttnError(f"{path}{last_words(err.end().decode(errors='replace'), whole)}")
    return out.end().decode(errors="replace")


def require_code(path: str) -> None:
    try:
        code_of(path)
    except (ValueError, LookupError, TypeError, AttributeError):
        what = "a notebook" if path.endswith(".ipynb") else "text in UTF-8"
        raise AttnError(f"{path}: not {what}") from None


def look_again(path: str) -> Iterator[None]:
    """Now, and whenever the file is saved."""
    before = None
    while True:
        try:
            found = Path(path).stat()
            now = found.st_mtime_ns, found.st_size
        except OSError:
            now = 0, 0
        if now != before:
            before = now
            yield
        wait(0.2)


def spot(path: Path, line: int) -> str:
    """Where a line is, behind the name of its file: `:9`, or in a notebook ` cell 2 line 3`."""
    if path.suffix != ".ipynb":
        return f":{line}"
    cells = [
        (number, at) for number, cell in enumerate(code_of(str(path)), 1) for at in range(1, len(cell) + 1)
    ]
    return " cell {} line {}".format(*cells[line - 1])


def last_words(said: str, path: Path) -> str:
    """`:9: ValueError: …`, the last line of the file in a traceback and the exception."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    place = f'File "{path}", line '
    numbers = [line.partition(place)[2].partition(",")[0] for line in lines if place in line]
    why = lines[-1] if lines else "it failed and said nothing"
    return f"{spot(path, int(numbers[-1]))}: {why}" if numbers else f": {why}"
