"""Where in a program something was computed, as people are shown it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.sources.program.graph import Graph
from attnctl.sources.program.text import NOTEBOOK, spot

WIDEST = 160
"""Characters of a line that are shown."""


class Expression(NamedTuple):
    """An expression of a program."""

    path: str
    """As the person wrote it; of a module beside it its name."""
    line: int
    column: int
    """In characters, from 1."""
    end_line: int
    end_column: int
    spot: str
    """`:9:12`, or in a notebook ` cell 2 line 3`."""

    def __str__(self) -> str:
        return f"{self.path}{self.spot}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.path,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
        }


def path_of(graph: Graph, file: str) -> str:
    """What the person calls a file of the program."""
    recording = graph.recording
    if not recording.path:
        return file  # variables have no file
    if Path(file) == Path(recording.path).resolve():
        return recording.path
    return str(Path(recording.path).with_name(Path(file).name))


def place_of(graph: Graph, n: int, call: int | None = None) -> Expression:
    """Where an event was made; or the site of the call that led to it, where that is to blame."""
    site = graph.site(n) if call is None else graph.sites[call]
    return expression(graph, site.file, (site.line, site.column), (site.end_line, site.end_column))


def place_of_node(graph: Graph, file: str, node: ast.expr) -> Expression:
    """Where an expression of the text stands, which may be no site of the recorder."""
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return expression(graph, file, (node.lineno, node.col_offset), end)


def expression(graph: Graph, file: str, begin: tuple[int, int], end: tuple[int, int]) -> Expression:
    """An expression by the lines where it begins and ends, and the bytes before these in them."""
    path = path_of(graph, file)
    column = characters(line_of(graph, file, begin[0]), begin[1]) + 1
    where = spot(path, begin[0])
    if not path.endswith(NOTEBOOK):
        where += f":{column}"
    return Expression(
        path=path,
        line=begin[0],
        column=column,
        end_line=end[0],
        end_column=characters(line_of(graph, file, end[0]), end[1]) + 1,
        spot=where,
    )


def line_of(graph: Graph, file: str, line: int) -> str:
    lines = graph.recording.files.get(file, "").split("\n")
    if 0 < line <= len(lines):
        return lines[line - 1]
    return ""


def characters(text: str, offset: int) -> int:
    """The characters before an offset in bytes."""
    return len(text.encode()[:offset].decode(errors="replace"))


def point_at(
    graph: Graph, n: int, made: tuple[int, str] | None = None, call: int | None = None
) -> list[str]:
    """The line with a caret, who called it, and where something was made that it reads."""
    place = place_of(graph, n, call)
    site = graph.site(n) if call is None else graph.sites[call]
    text = line_of(graph, site.file, site.line)[:WIDEST]
    begin = place.column - 1
    end = place.end_column - 1 if site.end_line == site.line else len(text)
    carets = "^" * max(min(end, len(text)) - begin, 1)
    number = str(site.line)
    if place.path.endswith(NOTEBOOK):
        number = place.spot.rpartition(" ")[2]
    lines = [f"{number:>5} | {text}", f"      | {' ' * begin}{carets}"]

    # The innermost is the line itself, or the one that read what it had changed.
    calls = list(graph.events[n].callers[1:])
    if call is not None:
        at = [number for number, caller in enumerate(calls) if caller.line == site.line]
        calls = calls[at[-1] + 1 :] if at else []
    for caller in dict.fromkeys(calls):
        if caller.file == site.file and site.line <= caller.line <= site.end_line:
            continue  # a line of the expression itself
        called = line_of(graph, caller.file, caller.line).strip()[:WIDEST]
        lines.append(f"      | called from {short_place(graph, caller.file, caller.line)}: {called}")

    if made is not None:
        what_made, words = made
        there = graph.site(what_made)
        if (there.file, there.line) != (site.file, site.line):
            text = line_of(graph, there.file, there.line).strip()[:WIDEST]
            lines.append(f"      | {words} {short_place(graph, there.file, there.line)}: {text}")
    return lines


def call_of(graph: Graph, n: int, depth: int = 1) -> int | None:
    """The site of the call, so many functions out, that led to an event."""
    callers = graph.events[n].callers
    if len(callers) <= depth:
        return None
    caller = callers[depth]
    calls = [
        number
        for number, site in enumerate(graph.sites)
        if site.file == caller.file
        and site.line <= caller.line <= site.end_line
        and site.what.startswith("call")
    ]

    def extent(number: int) -> tuple[int, ...]:
        site = graph.sites[number]
        return site.end_line - site.line, -site.column, site.end_column

    # Of several on a line the one that ends last encloses the others.
    return max(calls, key=extent, default=None)


def short_place(graph: Graph, file: str, line: int) -> str:
    path = path_of(graph, file)
    return f"{Path(path).name}{spot(path, line)}"
