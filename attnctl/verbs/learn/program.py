"""A learner's own program: begun with what a lesson gives, carried out, looked at when it is saved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.programs import Said, begin, kill
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import formula_of
from attnctl.math.derivation import Step
from attnctl.math.names import EMBEDDINGS, X
from attnctl.math.ops import Given
from attnctl.record import Trace
from attnctl.verbs.learn.lesson import Lesson

SECONDS = 20
"""What a program of a few lines may take."""

RUNNER = """
import os, runpy, sys, threading, time
import numpy
def watch(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
found = runpy.run_path(sys.argv[1], run_name="__main__")
kept = {name: each for name, each in found.items() if isinstance(each, numpy.ndarray)}
numpy.savez(sys.argv[2], **{name: each for name, each in kept.items() if each.dtype.kind in "fiub"})
"""
"""Carries a file out and writes the arrays that it leaves under their names; ends with its parent."""


def begin_program(lesson: Lesson, trace: Trace) -> str:
    """The file that a learner goes on from: what the lesson gives, and what is to be written."""
    given = [step for step in trace.steps.values() if isinstance(step.op, Given) or step.name == X]
    lines = [
        comment(f"{lesson.title}: {trace.sentence or ''}"),
        "import numpy as np",
        "",
        *(
            f"{step.name} = np.{np.array_repr(trace[step.name], precision=6)}  {comment(axes_text(step))}"
            for step in given
            if step.name != EMBEDDINGS and step.name.isidentifier()
        ),
        "",
        "# Write these, a line each, and save: every line that is there is checked.",
        *(
            comment(f"{step.name}: {formula_of(step)}  {axes_text(step)}")
            for step in steps_to_write(lesson, trace)
        ),
    ]
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """A line that is not carried out, whatever a lesson or its dump says."""
    return f"# {visible(text)}"


def axes_text(step: Step) -> str:
    return f"({', '.join(step.axes)})"


def steps_to_write(lesson: Lesson, trace: Trace) -> list[Step]:
    """The computed steps of a lesson up to the one that it asks for."""
    wanted = trace.steps[lesson.answer.strip()]
    steps = list(trace.steps.values())
    steps = steps[: steps.index(wanted) + 1]
    return [step for step in steps if not isinstance(step.op, Given) and step.name != X]


def run_program(path: str, into: Path) -> str:
    """Carry a program out, its arrays into an .npz; what it printed. Raises AttnError where it fails."""
    command = [sys.executable, "-c", RUNNER, str(Path(path).resolve()), str(into)]
    out, err = Said(), Said()
    process = begin(command, out, err, cwd=Path(path).resolve().parent, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        raise AttnError(f"still running after {SECONDS} s; it was ended") from None
    finally:
        kill(process)
    if code:
        raise AttnError(last_words(err.end().decode(errors="replace"), path))
    return "\n".join(out.end().decode(errors="replace").splitlines()[-20:])


def last_words(said: str, path: str) -> str:
    """The line of a learner's file at which it failed, and why."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    place = f'File "{Path(path).resolve()}", line '
    numbers = [line.partition(place)[2].partition(",")[0] for line in lines if place in line]
    why = lines[-1] if lines else "it failed and said nothing"
    return f"line {numbers[-1]}: {why}" if numbers else why


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


wait = sleep
