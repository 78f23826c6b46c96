"""A program of a person's own, carried out in a process of its own, and what its lines assign."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import sleep as wait
from typing import NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.programs import Said, begin, kill, signal_name
from attnctl.base.setting import Given
from attnctl.inputs.arrays.foreign import OF_X, OURS, read_foreign
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import plan_dump, trace_of_arrays, under_our_names
from attnctl.math import Array
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, OUTPUT, SCALED, TABLE, W_O, WEIGHTS, X
from attnctl.record import Trace
from attnctl.sources.dump import Dump
from attnctl.sources.recorder import MAGIC, RETURNED, array_of, code_of
from attnctl.store.files import temporary_folder
from attnctl.store.sent import read_sent

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
        try:
            code_of(path)
        except (ValueError, LookupError, TypeError, AttributeError):
            what = "a notebook" if path.endswith(".ipynb") else "text in UTF-8"
            raise AttnError(f"{path}: not {what}") from None
    with temporary_folder() as folder:
        into = Path(folder, "recorded.npz")
        printed = run_isolated(path, into, seconds or SECONDS)
        if not os.path.lexists(into):
            raise AttnError(f"{path}: it ended itself, and its variables with it")
        return read_rows(read_sent(into, path), path), printed


def read_rows(arrays: Mapping[str, Array], path: str) -> list[Assigned]:
    """What was assigned, as the recorder wrote it. Raises AttnError where the program wrote it itself."""
    try:
        table = json.loads(str(arrays["table"]))
        rows = [
            Assigned(str(function), str(name), int(line), arrays[f"arr_{number}"])
            for number, (function, name, line) in enumerate(table)
        ]
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        raise AttnError(f"{path}: what it left is no recording of ours; it wrote there itself") from None
    if not all(row.array.dtype.kind in "fiub" and row.array.ndim for row in rows):
        raise AttnError(f"{path}: what it left is no recording of ours: arrays of no numbers")
    return rows


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
    if code < 0:
        raise AttnError(f"{path}: it died of {signal_name(-code)}{quote_said(err.end())}")
    if code:
        raise AttnError(f"{path}{last_words(err.end().decode(errors='replace'), whole)}")
    return out.end().decode(errors="replace")


def quote_said(said: bytes) -> str:
    lines = said.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:300]}" if last else ""


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


# --- which variables are steps of attention: by their names and shapes, and by their numbers ---
#
# A name that is assigned several times is several steps, told apart by what its values show.

MOST_HIDDEN = 0.5
"""The share of the later keys that are hidden where a causal mask was meant."""

HIDDEN_BELOW = -1e4
"""A score like this stands for a key that is hidden."""

OF_SCORES = ("scores", SCALED, MASKED, WEIGHTS)
OF_OUTPUT = (HEAD_OUTPUTS, CONCAT, OUTPUT)


class Assigned(NamedTuple):
    function: str
    """Its name; "" for the module."""
    name: str
    line: int
    array: Array


Steps = dict[str, Assigned]


def trace_of_variables(variables: Mapping[str, object]) -> tuple[Trace, Given]:
    """The steps among the variables of a program that runs, and the options that they show.

    Raises AttnError where there are none.
    """
    arrays = {name: array_of(value) for name, value in variables.items() if not name.startswith("_")}
    steps = belonging([Assigned("", name, 0, array) for name, array in arrays.items() if array is not None])
    return trace_of(steps), options_shown(steps)


def trace_of(steps: Steps) -> Trace:
    return trace_of_arrays({name: given.array for name, given in steps.items()})


def belonging(found: Sequence[Assigned], place: str = "") -> Steps:
    """The most of these variables that are steps of one attention. Raises AttnError where none are."""
    best: Steps = {}
    for steps in possible_steps(found):
        if len(steps) > len(best) and go_together(steps):
            best = steps
    if not best:
        names = ", ".join(dict.fromkeys(given.name for given in found)) or "none"
        raise AttnError(f"{place}no arrays of attention that go together; it has {names}")
    return best


def go_together(steps: Steps) -> bool:
    try:
        plan_dump(under_our_names(trace_of(steps)), Settings())
    except AttnError:
        return False
    return True


def options_shown(steps: Steps) -> Given:
    """The options that the numbers show: a causal mask, where most of one triangle is hidden."""
    given = steps.get(MASKED) or steps.get(WEIGHTS)
    rows, columns = given.array.shape[-2:] if given and given.array.ndim > 1 else (0, 1)
    if given is None or rows != columns or rows == 1:
        return {}
    gone = given.array < HIDDEN_BELOW if MASKED in steps else given.array == 0
    later = ~np.tri(rows, dtype=bool)
    above, below = (gone[..., triangle].mean() >= MOST_HIDDEN for triangle in (later, later.T))
    return {"causal": True} if above != below else {}


def possible_steps(found: Sequence[Assigned]) -> Iterator[Steps]:
    """The variables that may belong together: a function's with the module's, alone, and fewer of them."""
    for function in dict.fromkeys(given.function for given in found):
        own = [given for given in found if given.function == function]
        hidden = {given.name for given in own}
        beside = [given for given in found if given.function == function or given.name not in hidden]
        both = [given for given in beside if given.function in {"", function}]
        for group in (both, own) if len(both) > len(own) else (own,):
            steps = settle(group)
            yield steps
            yield {name: steps[name] for name in (*"QKV", *OF_SCORES) if name in steps}


def settle(found: Sequence[Assigned]) -> Steps:
    """The steps that are there, under our names."""
    read = read_names({given.name: given.array for given in found if given.name != RETURNED})
    found = until_next_layer(found, read)
    last_weights = [given.name for given in found if read.get(given.name) == WEIGHTS][-1:]
    by_name: dict[str, list[Assigned]] = {}
    for given in found:
        by_name.setdefault(given.name, []).append(given)
    steps: Steps = {}
    outputs: list[Assigned] = []
    for name, values in by_name.items():
        ours = read.get(name, "")
        if ours in OF_SCORES:
            weighs = ours != WEIGHTS or name in last_weights
            steps = scores_in_order(ours if weighs else "scores", values) | steps
        elif ours in OF_OUTPUT or name == RETURNED:
            outputs += values
        elif ours:  # a module's weights stay under their path, which says how they are laid out
            steps[name if "." in name else ours] = values[-1]
    if not OF_X & steps.keys():  # what Q, K and V are made of cannot be told
        steps = {
            name: given for name, given in steps.items() if name[:2] not in {"W_", "b_"} and "." not in name
        }
    outputs.sort(key=found.index)
    dims = steps["Q"].array.ndim if "Q" in steps else 0
    named = bool(outputs) and read.get(outputs[-1].name, OUTPUT) == OUTPUT
    matrices = [given for given in found if given.array.ndim == 2]
    return outputs_in_order(outputs, dims, matrices, named=named) | steps


def until_next_layer(found: Sequence[Assigned], read: Mapping[str, str]) -> Sequence[Assigned]:
    """What was assigned before the input was assigned again: what follows is of the next layer."""
    ours = [read.get(given.name) for given in found]
    begun = ours.index("Q") if "Q" in ours else len(ours)
    return found[: ours.index(X, begun)] if X in ours[:begun] and X in ours[begun:] else found


def outputs_in_order(
    outputs: Sequence[Assigned], dims: int, matrices: Sequence[Assigned], *, named: bool
) -> Steps:
    """What weights and V became: by head, side by side, and projected, where the last is `named` an output.

    By head they have as many axes as Q, `dims`; the one of the matrices that projects them is W_O.
    """
    chain = [
        given
        for given, before in zip(outputs, (None, *outputs), strict=False)
        if before is None or not np.array_equal(given.array, before.array)
    ]
    by = [matrix for matrix in matrices if len(chain) > 1 and projects(chain[-2], chain[-1], matrix)]
    final = bool(by) or named
    steps = dict(zip([OUTPUT, CONCAT] if final else [CONCAT], reversed(chain), strict=False))
    if chain and chain[0].array.ndim == dims and (len(chain) > 1 or dims > 2 or not final):
        steps = {name: given for name, given in steps.items() if given is not chain[0]}
        steps[HEAD_OUTPUTS] = chain[0]
    return {**steps, W_O: by[0]} if by else steps


def projects(before: Assigned, after: Assigned, matrix: Assigned) -> bool:
    """True where this matrix makes the one array of the other."""
    z, y, w = before.array, after.array, matrix.array
    fits = z.shape[-1] == w.shape[0] and y.shape == (*z.shape[:-1], w.shape[1])
    return fits and np.allclose(z @ w, y, rtol=1e-3, atol=1e-6)


def scores_in_order(ours: str, values: Sequence[Assigned]) -> Steps:
    """What a variable of scores was, one assignment after the other, as its numbers show."""
    steps: Steps = {}
    for number, given in enumerate(values):
        least, most = given.array.min(initial=0), given.array.max(initial=0)
        if number and least >= 0 and most <= 1:  # exp of scores may be, too: it is the last that counts
            steps[WEIGHTS] = given
        elif ours == WEIGHTS and least >= 0:
            continue  # exp of scores perhaps, or scores
        elif least >= HIDDEN_BELOW:
            steps.setdefault(SCALED if number else ours if ours != WEIGHTS else "scores", given)
        else:
            steps.setdefault(MASKED, given)
    return {**steps, WEIGHTS: values[-1]} if ours == WEIGHTS else steps


def read_names(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Which of our steps each name is, as far as names and shapes tell; one that holds several is none."""
    try:
        read = read_foreign(arrays).read
    except AttnError:
        return {}
    packed = {theirs for ours, theirs in read.items() if " " in ours and theirs not in TABLE}
    if packed & arrays.keys():
        return read_names({name: array for name, array in arrays.items() if name not in packed})
    ours_of = {theirs: ours for ours, theirs in read.items()} | {
        name: name for name in arrays if name in OURS
    }
    # A name for what another is called, too: it is read beside what tells its shape.
    context = {"Q", "K", "V", X, W_O}
    beside = {name: array for name, array in arrays.items() if ours_of.get(name, X) in context}
    more = read_foreign(beside).read if ours_of else {}
    return {theirs: ours for ours, theirs in more.items() if " " not in ours} | ours_of
