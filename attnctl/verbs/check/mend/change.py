"""A change of a program's text, and what the rules that make changes ask of a syntax tree."""

from __future__ import annotations

import re
from ast import AST, Attribute, BinOp, Call, Constant, List, Load, MatMult, Name, Tuple, UnaryOp, USub, expr
from collections.abc import Callable, Iterator
from typing import NamedTuple

from attnctl.verbs.check.mend.text import Node, ProgramText, TextEdit, name_of

PRODUCTS = frozenset({"matmul", "dot", "einsum", "bmm", "inner"})
TRANSPOSES = frozenset({"transpose", "swapaxes", "permute"})
RESHAPES = frozenset({"reshape", "view"})

NEW_AXIS = re.compile(r"None|(\w+\.)?newaxis")


class TextChange(NamedTuple):
    """Edits of a text that are one change."""

    kind: str
    """What it has in common with others: of queries, keys and values the same is changed at once."""
    edits: tuple[TextEdit, ...]

    def applied(self, text: str) -> str:
        for edit in sorted(self.edits, reverse=True):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        return text


class NodeChange(NamedTuple):
    """An expression, or a statement, that reads otherwise."""

    kind: str
    node: Node
    words: str


Changes = Iterator[NodeChange | TextChange]

Rule = Callable[[ProgramText, Node], Changes]
"""The changes of one kind of mistake that an expression, or a statement, allows."""


def in_text(text: ProgramText, change: NodeChange | TextChange) -> TextChange:
    if isinstance(change, TextChange):
        return change
    begin, end = text.span(change.node)
    return TextChange(change.kind, (TextEdit(begin, end, change.words),))


def number_of(node: AST | None) -> int | None:
    match node:
        case Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case UnaryOp(op=USub(), operand=Constant(value=int(value))):
            return -value
    return None


def called(node: AST) -> str:
    """The last part of the name that a call calls; "" for what is none."""
    match node:
        case Call(func=Attribute(attr=name)) | Call(func=Name(id=name)):
            return name
    return ""


def keyword(call: Call, *names: str) -> expr | None:
    return next((key.value for key in call.keywords if key.arg in names), None)


def is_method(text: ProgramText, call: Call) -> bool:
    """True if it is called of an array, not of a module."""
    if not isinstance(call.func, Attribute):
        return False
    base: expr = call.func.value
    while isinstance(base, Attribute):
        base = base.value
    return text.of(base) not in text.modules


def operands(text: ProgramText, call: Call) -> list[expr]:
    """The array that a function or a method is about, and what else it is given."""
    if isinstance(call.func, Attribute) and is_method(text, call):
        return [call.func.value, *call.args]
    return list(call.args)


def sizes_of(given: list[expr]) -> list[expr]:
    """Sizes that are given one by one, or as a tuple."""
    if len(given) == 1 and isinstance(given[0], (Tuple, List)):
        return list(given[0].elts)
    return given


def factors(node: AST) -> tuple[expr, expr] | None:
    """The two arrays of a matrix product."""
    match node:
        case BinOp(op=MatMult(), left=left, right=right):
            return left, right
        case Call(func=Attribute(value=left), args=[right]) if called(node) in PRODUCTS:
            return left, right
        case Call(args=[left, right]) if called(node) in PRODUCTS:
            return left, right
        case Call(args=[Constant(), left, right]) if called(node) == "einsum":
            return left, right
    return None


def family(name: str) -> str:
    """What names of a kind have in common: w_q and w_k, W_V1 and W_K1; it has a ? where they differ."""
    bare = name.removeprefix("self.")
    return re.sub(
        r"query|queries|key|keys|value|values|(?<![a-z])[qkv](?![a-z])|[qkv]$|^[qkv]|[QKV]|\d", "?", bare
    )


def is_name(node: AST) -> bool:
    return name_of(node) is not None and isinstance(getattr(node, "ctx", None), Load)
