"""What was made and is not read, and lists that are made once where there should be several."""

from __future__ import annotations

from ast import BinOp, Call, List, MatMult, Mult, Name

from attnctl.verbs.check.mend.change import Changes, NodeChange, called, is_name
from attnctl.verbs.check.mend.text import Node, ProgramText

WAVES = {"sin": "cos", "cos": "sin"}


def make_each_row(text: ProgramText, node: Node) -> Changes:
    """[[0.0] * d for _ in range(n)] for [[0.0] * d] * n."""
    match node:
        case BinOp(left=List(elts=[List() | BinOp(left=List()) as row]), op=Mult(), right=count):
            yield NodeChange("rows", node, f"[{text.of(row)} for _ in range({text.of(count)})]")


def read_unused(text: ProgramText, node: Node) -> Changes:
    """An array that nothing reads, in place of another one."""
    if not isinstance(node, Name) or not is_name(node):
        return
    for name in text.unused:
        yield NodeChange(f"read {name}", node, name)


def add_unused(text: ProgramText, node: Node) -> Changes:
    """linear(x, w, b) for linear(x, w), x @ w + b for x @ w, with a bias that nothing reads."""
    for name in text.unused:
        if isinstance(node, Call) and len(node.args) > 1 and not called(node).startswith("arange"):
            yield NodeChange(f"given {name}", node, text.with_argument(node, name))
        if isinstance(node, BinOp) and isinstance(node.op, MatMult):
            yield NodeChange(f"added {name}", node, f"({text.of(node)} + {name})")


def exchange_waves(text: ProgramText, node: Node) -> Changes:
    """np.cos(angles) for np.sin(angles)."""
    if isinstance(node, Call) and called(node) in WAVES:
        function = text.of(node.func)
        other = WAVES[called(node)]
        yield NodeChange("wave", node.func, function[: -len(other)] + other)
