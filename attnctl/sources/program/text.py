"""The text of a program: of a file, or of a notebook's cells one after the other."""

from __future__ import annotations

import json
import tokenize
from pathlib import Path
from typing import Any

NOTEBOOK = ".ipynb"

MAGIC = "pass  # magic: "
"""What stands for a line that only the kernel of a notebook understands."""


def code_of(path: str) -> list[list[str]]:
    """The lines of a program; of a notebook those of each code cell, its magics as comments.

    Raises ValueError, LookupError, TypeError, AttributeError or SyntaxError for what is neither.
    """
    if not path.endswith(NOTEBOOK):
        with tokenize.open(path) as stream:  # in the encoding that its first lines name
            return [stream.read().split("\n")]
    cells: list[dict[str, Any]] = json.loads(Path(path).read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [[as_python(line) for line in source.split("\n")] for source in sources]


def text_of(path: str) -> str:
    return "\n".join(line for cell in code_of(path) for line in cell)


def as_python(line: str) -> str:
    """A line of a cell, without what only a kernel understands: %magics and !commands."""
    bare = line.lstrip()
    if not bare.startswith(("%", "!")):
        return line
    return f"{line[: len(line) - len(bare)]}{MAGIC}{bare}"


def spot(path: str, line: int) -> str:
    """Where a line is, behind the name of its file: `:9`, or in a notebook ` cell 2 line 3`."""
    if not path.endswith(NOTEBOOK):
        return f":{line}"
    before = 0
    for number, cell in enumerate(code_of(path), start=1):
        if line <= before + len(cell):
            return f" cell {number} line {line - before}"
        before += len(cell)
    return f" line {line}"
