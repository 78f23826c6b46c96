"""Softmax along another axis, and what a sum or a maximum keeps of it."""

from __future__ import annotations

from ast import AST, Call, expr

from attnctl.verbs.check.mend.change import (
    Changes,
    NodeChange,
    called,
    keyword,
    number_of,
    operands,
)
from attnctl.verbs.check.mend.text import Node, ProgramText

REDUCING = frozenset({"sum", "max", "amax", "logsumexp"})
AXES = (-1, 2, 3, 1, 0, -2)


def spelled(text: ProgramText) -> tuple[str, str]:
    """What the program calls an axis, and what keeps it."""
    if text.is_torch:
        return "dim", "keepdim=True"
    return "axis", "keepdims=True"


def is_about_axis(node: AST) -> bool:
    return called(node) in REDUCING or "softmax" in called(node).lower()


def axis_of(call: Call) -> expr | None:
    """The axis that a call says, as a number."""
    for given in (keyword(call, "axis", "dim"), *call.args):
        if number_of(given) is not None:
            return given
    return None


def keeps_axis(call: Call) -> bool:
    return keyword(call, "keepdims", "keepdim") is not None


def change_axis(text: ProgramText, node: Node) -> Changes:
    """axis=-1 for axis=0."""
    if not isinstance(node, Call) or not is_about_axis(node):
        return
    axis = axis_of(node)
    if axis is None:
        return
    now = number_of(axis)
    for other in AXES:
        if other != now:
            yield NodeChange(f"axis {other}", axis, str(other))


def say_axis(text: ProgramText, node: Node) -> Changes:
    """softmax(x, axis=-1) for softmax(x)."""
    if not isinstance(node, Call) or not is_about_axis(node) or axis_of(node) is not None:
        return
    if keyword(node, "axis", "dim") is not None:
        return
    axis, kept = spelled(text)
    words = f"{axis}=-1"
    if called(node) in REDUCING and not keeps_axis(node):
        words = f"{axis}=-1, {kept}"
    yield NodeChange("axis said", node, text.with_argument(node, words))


def keep_axis(text: ProgramText, node: Node) -> Changes:
    """keepdims=True, where a sum has lost its axis, be it the right one or not."""
    if not isinstance(node, Call) or called(node) not in REDUCING or keeps_axis(node):
        return
    _, kept = spelled(text)
    whole = text.with_argument(node, kept)
    yield NodeChange("axis kept", node, whole)
    axis = axis_of(node)
    if axis is not None and number_of(axis) != -1:
        last = text.with_parts(node, {axis: "-1"})
        yield NodeChange("last axis kept", node, f"{last[:-1]}, {kept})")


def take_off_maximum(text: ProgramText, node: Node) -> Changes:
    """exp(x - x.max(axis=-1, keepdims=True)) for exp(x)."""
    if not isinstance(node, Call) or called(node) != "exp":
        return
    row = next(iter(operands(text, node)), None)
    if row is None:
        return
    words = text.in_brackets(row)
    axis, kept = spelled(text)
    largest = "amax" if text.is_torch else "max"
    lower = f"{words} - {words}.{largest}({axis}=-1, {kept})"
    if not node.args:
        lower = f"({lower})"
    yield NodeChange("maximum", row, lower)
