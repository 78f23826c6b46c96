"""Another array that the program has: of another name, of another key, or one that it does not read yet."""

from __future__ import annotations

import ast

from attnctl.verbs.check.mend.change import Changes, NodeChange, family, is_name
from attnctl.verbs.check.mend.text import Node, ProgramText, name_of

MOST_NAMES = 6


def use_another_name(text: ProgramText, node: Node) -> Changes:
    """W_V for W_K."""
    name = name_of(node)
    if name is None or not is_name(node) or "?" not in family(name):
        return
    others = [other for other in text.names_made if other != name and family(other) == family(name)]
    others.sort(key=lambda other: other not in text.unused)
    for other in others[:MOST_NAMES]:
        yield NodeChange(f"name {name} {other}", node, other)


def use_another_key(text: ProgramText, node: Node) -> Changes:
    """weights["W_V"] for weights["W_K"]."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key)) as constant) if "?" in family(key):
            others = {
                inner.value
                for inner in text.nodes
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            }
            for other in sorted(others - {key}):
                if family(other) == family(key):
                    words = text.of(constant).replace(key, other)
                    yield NodeChange(f"name {key} {other}", constant, words)


def apply_unused(text: ProgramText, node: Node) -> Changes:
    """A last projection, or positions, that were made and never read."""
    match node:
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=ast.expr() as value):
            pass
        case _:
            return
    if isinstance(value, (ast.Constant, ast.Tuple)):
        return
    whole = text.in_brackets(value)
    for name in text.unused:
        made = text.names_made[name][-1]
        if made is node or name == "_":
            continue
        if "Linear(" in text.of(made):
            yield NodeChange("applied", value, f"{name}({text.of(value)})")
        else:
            yield NodeChange("applied", value, f"{whole} @ {name}")
            yield NodeChange("added", value, f"{whole} + {name}")
