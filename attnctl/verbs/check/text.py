"""The text of a program beside its syntax tree: what stands where, and what is made of what."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

LINE_ENDS = re.compile("\r\n|\r|\n")

FARTHEST = 3
"""Definitions that are followed from the accused line."""


class TextEdit(NamedTuple):
    """Characters of a text that become others."""

    begin: int
    end: int
    text: str


class ProgramText:
    """The text of a file with its syntax tree. Raises SyntaxError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0, *(found.end() for found in LINE_ENDS.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """The characters before a place that Python counts in bytes."""
        begin = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return begin + len(self.text[begin:end].encode()[:column].decode(errors="replace"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end = self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self.offset(node.lineno, node.col_offset), end

    def of(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    @cached_property
    def nodes(self) -> list[ast.expr | ast.stmt]:
        return [node for node in ast.walk(self.tree) if isinstance(node, (ast.expr, ast.stmt))]

    @cached_property
    def array_library(self) -> str:
        """What the program calls NumPy, or torch."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in {"numpy", "jax.numpy"}:
                        return alias.asname or alias.name
        return ""

    @property
    def has_torch(self) -> bool:
        return bool(re.search(r"^\s*(import|from) torch\b", self.text, re.MULTILINE))

    @cached_property
    def names_made(self) -> dict[str, list[ast.stmt]]:
        """The statements that assign a name, or an attribute of self."""
        made: dict[str, list[ast.stmt]] = defaultdict(list)
        for node in self.nodes:
            match node:
                case ast.Assign(targets=targets):
                    for inner in (inner for target in targets for inner in ast.walk(target)):
                        if (name := name_of(inner)) is not None:
                            made[name].append(node)
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                    if (name := name_of(target)) is not None:
                        made[name].append(node)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="register_buffer"), args=[named, *_])):
                    if isinstance(named, ast.Constant) and isinstance(named.value, str):
                        made[f"self.{named.value}"].append(node)
        return made

    @cached_property
    def names_read(self) -> set[str]:
        return {
            name
            for node in self.nodes
            if isinstance(getattr(node, "ctx", None), ast.Load) and (name := name_of(node)) is not None
        }

    @cached_property
    def unused(self) -> list[str]:
        return [name for name in self.names_made if name not in self.names_read]

    def distances(self, lines: Iterable[int]) -> dict[int, int]:
        """How many definitions away from these lines others are."""
        distance = dict.fromkeys(lines, 0)
        for step in range(1, FARTHEST + 1):
            nearest = {line for line, far in distance.items() if far == step - 1}
            names = {
                name
                for node in self.nodes
                if node.lineno in nearest and (name := name_of(node)) is not None
            }
            for name in names:
                for statement in self.names_made.get(name, ()):
                    for line in range(statement.lineno, (statement.end_lineno or 0) + 1):
                        distance.setdefault(line, step)
            made = {
                name for name, by in self.names_made.items() if any(one.lineno in nearest for one in by)
            }
            for node in self.nodes:
                if name_of(node) in made:  # what reads what is made there
                    distance.setdefault(node.lineno, step)
        return distance


def name_of(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
    return None
