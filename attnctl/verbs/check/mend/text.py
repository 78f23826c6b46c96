"""The text of a program beside its syntax tree: what stands where, and what is made of what."""

from __future__ import annotations

import re
from ast import (
    AST,
    AnnAssign,
    Assign,
    Attribute,
    AugAssign,
    Call,
    ClassDef,
    Constant,
    Expr,
    For,
    FunctionDef,
    Import,
    ImportFrom,
    Load,
    Name,
    Return,
    Store,
    Subscript,
    expr,
    parse,
    stmt,
    walk,
)
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

Node = expr | stmt

LINE_ENDS = re.compile("\r\n|\r|\n")

FARTHEST = 4
"""Definitions that are followed from the accused line."""

NUMPY = frozenset({"numpy", "jax.numpy"})


class TextEdit(NamedTuple):
    """Characters of a text that become others."""

    begin: int
    end: int
    text: str


class ProgramText:
    """The text of a file with its syntax tree. Raises SyntaxError, or ValueError for a zero byte."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self.starts = [0, *(found.end() for found in LINE_ENDS.finditer(text))]
        self.nodes = [node for node in walk(self.tree) if isinstance(node, Node)]

    # --- places ---

    def offset(self, line: int, column: int) -> int:
        """The characters before a place, whose column Python counts in bytes."""
        begin = self.starts[line - 1]
        before = self.text[begin : self.end_of(line)].encode()[:column]
        return begin + len(before.decode(errors="replace"))

    def end_of(self, line: int) -> int:
        if line < len(self.starts):
            return self.starts[line]
        return len(self.text)

    def span(self, node: Node) -> tuple[int, int]:
        begin = self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return begin, end

    def line_at(self, offset: int) -> int:
        return bisect(self.starts, offset)

    # --- words ---

    def of(self, node: Node) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def in_brackets(self, node: expr) -> str:
        words = self.of(node)
        if isinstance(node, (Name, Attribute, Call, Subscript, Constant)):
            return words
        return f"({words})"

    def with_parts(self, node: Node, parts: Mapping[expr, str]) -> str:
        """The text of a node in which some of its parts read otherwise."""
        begin, _ = self.span(node)
        words = self.of(node)
        for part in sorted(parts, key=self.span, reverse=True):
            first, last = self.span(part)
            words = words[: first - begin] + parts[part] + words[last - begin :]
        return words

    def with_argument(self, call: Call, argument: str) -> str:
        """A call that is given one more thing."""
        words = self.of(call)[:-1].rstrip().removesuffix(",")
        if call.args or call.keywords:
            return f"{words}, {argument})"
        return f"{words}{argument})"

    # --- edits ---

    def replaced(self, node: Node, words: str) -> TextEdit:
        return TextEdit(*self.span(node), words)

    def removed(self, statement: stmt) -> TextEdit | None:
        """A statement left out with its lines; None where another one shares them, or none is left."""
        begin = self.starts[statement.lineno - 1]
        end = self.end_of(statement.end_lineno or statement.lineno)
        is_alone = self.text[begin:end].strip() == self.of(statement)
        if is_alone and self.has_others_beside(statement):
            return TextEdit(begin, end, "")
        return None

    def has_others_beside(self, statement: stmt) -> bool:
        for node in walk(self.tree):
            for part in ("body", "orelse"):
                block = getattr(node, part, None)
                if isinstance(block, list) and statement in block:
                    return len(block) > 1
        return False

    # --- what the program imports ---

    @cached_property
    def modules(self) -> dict[str, str]:
        """The modules that it imports, by what it calls them."""
        out: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, Import):
                for alias in node.names:
                    out[alias.asname or alias.name] = alias.name
            elif isinstance(node, ImportFrom) and node.module:
                for alias in node.names:
                    out[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return out

    @cached_property
    def numpy(self) -> str:
        """What the program calls NumPy, or that of jax; "" where it has none."""
        return next((name for name, module in self.modules.items() if module in NUMPY), "")

    @cached_property
    def is_torch(self) -> bool:
        """True where its arrays are those of torch, as far as its words tell."""
        has_torch = any(module.partition(".")[0] == "torch" for module in self.modules.values())
        return has_torch and (not self.numpy or "dim=" in self.text)

    @cached_property
    def strings(self) -> list[str]:
        """The strings that it writes, in order of the alphabet."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, Constant) and isinstance(node.value, str):
                found.add(node.value)
        return sorted(found)

    # --- names ---

    def function_around(self, node: Node) -> FunctionDef | None:
        """The innermost function in which an expression stands."""
        around: FunctionDef | None = None
        for function in self.nodes:
            if isinstance(function, FunctionDef):
                is_inside = function.lineno <= node.lineno <= (function.end_lineno or 0)
                if is_inside and (around is None or function.lineno > around.lineno):
                    around = function
        return around

    def names_of_function(self, node: Node) -> list[str]:
        """The names that the function around an expression has, those of its arguments first."""
        function = self.function_around(node)
        if function is None:
            return []
        names = [argument.arg for argument in function.args.args]
        for statement in walk(function):
            if isinstance(statement, stmt):
                names += names_assigned(statement)
        return [*dict.fromkeys(names)]

    @cached_property
    def names_made(self) -> dict[str, list[stmt]]:
        """The statements that assign a name, or an attribute of self."""
        made: dict[str, list[stmt]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, stmt):
                for name in names_assigned(node):
                    made[name].append(node)
        return made

    @cached_property
    def written_at(self) -> dict[str, list[Subscript]]:
        """Of an array the places in it that are written."""
        out: dict[str, list[Subscript]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, Subscript) and isinstance(node.ctx, Store):
                name = name_of(node.value)
                if name is not None:
                    out[name].append(node)
        return out

    @cached_property
    def lines_reading(self) -> dict[str, set[int]]:
        """The lines in which a name is read."""
        out: dict[str, set[int]] = defaultdict(set)
        for node in self.nodes:
            name = name_of(node)
            if name is not None and isinstance(getattr(node, "ctx", None), Load):
                out[name].add(node.lineno)
        return out

    @cached_property
    def unused(self) -> list[str]:
        return [name for name in self.names_made if name not in self.lines_reading]

    @cached_property
    def links(self) -> dict[int, set[int]]:
        """Of each line those that make what it reads, and those that read what it makes."""
        out: dict[int, set[int]] = defaultdict(set)
        for name, statements in [*self.names_made.items(), *self.returned.items()]:
            for statement in statements:
                made_in = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
                for reading in self.lines_reading.get(name, ()):
                    out[reading].update(made_in)
                    for line in made_in:
                        out[line].add(reading)
        return out

    @cached_property
    def functions(self) -> dict[str, FunctionDef]:
        """The functions that it defines."""
        return {node.name: node for node in self.nodes if isinstance(node, FunctionDef)}

    @cached_property
    def returned(self) -> dict[str, list[stmt]]:
        """What is returned by its functions, and by the methods of its classes."""
        out: dict[str, list[stmt]] = {}
        for node in self.nodes:
            if isinstance(node, (FunctionDef, ClassDef)):
                out[node.name] = [inner for inner in walk(node) if isinstance(inner, Return)]
        return out

    def distances(self, lines: Iterable[int]) -> dict[int, int]:
        """How many definitions away from these lines others are, as far as they are followed."""
        distance = dict.fromkeys(lines, 0)
        newest = set(distance)
        for step in range(1, FARTHEST + 1):
            reached = {other for line in newest for other in self.links[line]}
            newest = reached - distance.keys()
            distance.update(dict.fromkeys(newest, step))
        return distance


def name_of(node: AST) -> str | None:
    match node:
        case Name(id=name):
            return name
        case Attribute(value=Name(id="self"), attr=name):
            return f"self.{name}"
    return None


def names_assigned(statement: stmt) -> Iterator[str]:
    """The names that a statement gives a value, a buffer of a module among them."""
    targets: list[expr] = []
    match statement:
        case Assign(targets=targets):
            pass
        case AugAssign(target=target) | AnnAssign(target=target) | For(target=target):
            targets = [target]
        case Expr(value=Call(func=Attribute(attr="register_buffer"), args=[named, *_])):
            if isinstance(named, Constant) and isinstance(named.value, str):
                yield f"self.{named.value}"
    for target in targets:
        for inner in walk(target):
            name = name_of(inner)
            if name is not None:
                yield name


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its end, as Python tells them apart."""
    ends = [0, *(found.end() for found in LINE_ENDS.finditer(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(ends) if begin < end]
