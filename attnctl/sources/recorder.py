"""Carries a program out and records the arrays that its lines assign; a script, for a process of its own.

Of each function the last call is kept, with its parameters, what it returns and the weights of its `self`.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from attnctl.base.programs import run_as_main
from attnctl.inputs.arrays.reader import as_array

MOST_NUMBERS, MOST_BYTES = 2**24, 2**28
"""Numbers of an array that is recorded, and bytes of all."""

MAGIC = "pass  # magic: "
"""What stands for a line that only the kernel of a notebook understands."""

RETURNED = "(returned)"
"""The name of what a function returns."""

Kept = dict[tuple[str, int], tuple[int, Any]]
"""Arrays by the name they were given and its line, each with when that was."""


def assigned_by_line(tree: ast.Module) -> dict[int, set[str]]:
    """The names whose values each line may change."""
    lines: dict[int, set[str]] = {}
    for node in ast.walk(tree):
        names = set(names_changed(node))
        if names and isinstance(node, ast.stmt):
            last = node.body[0].lineno - 1 if isinstance(node, ast.For) else node.end_lineno or node.lineno
            for line in range(node.lineno, max(node.lineno, last) + 1):
                lines.setdefault(line, set()).update(names)
    return lines


def names_changed(node: ast.AST) -> Iterator[str]:
    """The names on the left of an assignment, or of which a method in place is called."""
    match node:
        case ast.Assign(targets=targets):
            held: list[ast.expr] = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            held = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr=name))) if name.endswith("_"):
            held = [value]
        case _:
            held = []
    for part in held:
        yield from (inner.id for inner in ast.walk(part) if isinstance(inner, ast.Name))


class Recorder:
    """What the lines of one file assigned, by function; "" is the module."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path, self.assigned = path, assigned_by_line(tree)
        self.calls: dict[str, Kept] = {}
        self.bytes = self.clock = 0

    def trace(self, frame: FrameType, _event: str, _found: Any) -> Any:
        """Begin with a call of one of the file's functions, or of the file itself."""
        if frame.f_code.co_filename != self.path:
            return None
        kept: Kept = {}
        line = frame.f_lineno
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # from Python 3.11 on
        name = name.removeprefix("<module>")
        if not name.rpartition(".")[2].startswith("<"):  # lambdas and comprehensions are parts of lines
            self.bytes -= sum(array.nbytes for _, array in self.calls.pop(name, {}).values())
            self.calls[name] = kept
        if name:
            self.keep(kept, frame, frame.f_locals, line)

        def go_on(frame: FrameType, event: str, found: Any) -> Any:
            nonlocal line
            if event != "exception":
                self.keep(kept, frame, self.assigned.get(line, ()), line)
                line = frame.f_lineno
            if event == "return":
                self.add(kept, RETURNED, line, found[0] if isinstance(found, tuple) and found else found)
            return go_on

        return go_on

    def keep(self, kept: Kept, frame: FrameType, names: Any, line: int) -> None:
        """Keep these variables; of an object its arrays, of a module of torch its weights, too."""
        values = frame.f_locals
        for name in sorted(names):
            if name == "self" and name in values:
                with suppress(Exception):  # whatever an object does when it is asked
                    for inner, value in vars(values[name]).items():
                        self.add(kept, inner, line, value)
                    for inner, value in values[name].named_parameters():
                        self.add(kept, inner, line, value)
            elif name in values:
                self.add(kept, name, line, values[name])

    def add(self, kept: Kept, name: str, line: int, value: Any) -> None:
        array = array_of(value)
        before = kept.pop((name, line), None)
        self.bytes -= 0 if before is None else before[1].nbytes
        if array is not None and self.bytes + array.nbytes <= MOST_BYTES:
            self.clock += 1
            kept[name, line] = self.clock, array
            self.bytes += array.nbytes

    def write(self, into: str) -> None:
        """Write what was assigned, in order, and a table of the function, name and line of each."""
        every = sorted(
            (clock, call, name, line, array)
            for call, kept in self.calls.items()
            for (name, line), (clock, array) in kept.items()
        )  # no two have one time
        table = [row[1:4] for row in every]
        np.savez(into, *(row[4] for row in every), table=np.array(json.dumps(table)))


def array_of(value: Any) -> Any:
    """A copy of an array of NumPy, torch or JAX, or of nested lists of numbers; None of anything else."""
    try:
        nested = isinstance(value, (list, tuple)) and isinstance(value[0], (list, tuple))
        array = as_array("", value) if nested or hasattr(value, "__array__") else np.array("")
        found = array.dtype.kind in "fiub" and array.ndim and array.size <= MOST_NUMBERS
        return array.copy() if found else None
    except Exception:  # noqa: BLE001  (whatever a program keeps under this name)
        return None


def code_of(path: str) -> list[list[str]]:
    """The lines of a program; of a notebook those of each code cell, its magics as comments."""
    text = Path(path).read_text("utf-8")
    if not path.endswith(".ipynb"):
        return [text.split("\n")]
    cells = json.loads(text)["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [[as_python(line) for line in source.split("\n")] for source in sources]


def as_python(line: str) -> str:
    """A line of a cell, without what only a kernel understands: %magics and !commands."""
    bare = line.lstrip()
    return f"{line[: len(line) - len(bare)]}{MAGIC}{bare}" if bare.startswith(("%", "!")) else line


def end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(path: str, into: str) -> None:
    """Carry out the file; its arrays go into an .npz with a table of what they are."""
    tree = ast.parse("\n".join(line for cell in code_of(path) for line in cell), path)
    recorder = Recorder(path, tree)
    sys.settrace(recorder.trace)
    try:
        run_as_main(path, tree, [path], {"display": print})  # as a notebook has it
    finally:
        sys.settrace(None)
        recorder.write(into)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    main(*sys.argv[1:])
