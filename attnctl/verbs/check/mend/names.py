"""Another array that the program has: of another name, of another key, or one that it does not read yet."""

from __future__ import annotations

from ast import (
    Add,
    Assign,
    Attribute,
    BinOp,
    Call,
    Constant,
    List,
    Load,
    Name,
    Return,
    Subscript,
    Tuple,
    expr,
)
from itertools import combinations

from attnctl.verbs.check.mend.change import Changes, NodeChange, called, family, is_method, is_name
from attnctl.verbs.check.mend.text import Node, ProgramText, name_of

JOINING = frozenset({"concatenate", "cat", "vstack", "hstack", "concat"})

MOST_NAMES = 6


def use_another_name(text: ProgramText, node: Node) -> Changes:
    """W_V for W_K."""
    name = name_of(node)
    if name is None or not is_name(node) or "?" not in family(name):
        return
    alike = [other for other in text.names_made if family(other) == family(name)]
    others = [other for other in alike if other != name]
    others.sort(key=lambda other: other not in text.unused)
    for other in others[:MOST_NAMES]:
        yield NodeChange(f"name {name} {other}", node, other)


def use_another_argument(text: ProgramText, node: Node) -> Changes:
    """What a function was given, in place of what else it was given: memory for x."""
    if not isinstance(node, Name) or not is_name(node):
        return
    function = text.function_around(node)
    if function is None:
        return
    given = [argument.arg for argument in function.args.args]
    if node.id in given:
        for other in given:
            if other not in {node.id, "self"}:
                yield NodeChange(f"name {node.id} {other}", node, other)


def use_another_key(text: ProgramText, node: Node) -> Changes:
    """weights["W_V"] for weights["W_K"], weights.W_V for weights.W_K."""
    part: expr
    match node:
        case Subscript(slice=Constant(value=str(key)) as part):
            before = ""
        case Attribute(value=value, attr=key, ctx=Load()):
            part = node
            before = text.of(value)
        case _:
            return
    words = text.of(part)
    rest = words.removeprefix(before)
    for other in text.strings:
        if other != key and "?" in family(key) and family(other) == family(key):
            yield NodeChange(f"name {key} {other}", part, before + rest.replace(key, other))


def apply_unused(text: ProgramText, node: Node) -> Changes:
    """A last projection, or positions, that were made and never read."""
    match node:
        case Return(value=expr() as value) | Assign(value=expr() as value):
            pass
        case _:
            return
    if isinstance(value, (Constant, Tuple)):
        return
    bare = text.of(value)
    whole = text.in_brackets(value)
    for name in text.unused:
        made = text.names_made[name][-1]
        if made is node or name == "_":
            continue
        if "Linear(" in text.of(made):
            yield NodeChange("applied", value, f"{name}({bare})")
        else:
            yield NodeChange("applied", value, f"{whole} @ {name}")
            yield NodeChange("added", value, f"{whole} + {name}")


def exchange_targets(text: ProgramText, node: Node) -> Changes:
    """q, k, v = for q, v, k =."""
    match node:
        case Assign(targets=[Tuple(elts=targets)]) if len(targets) == 3:
            for first, second in combinations(targets, 2):
                parts = {first: text.of(second), second: text.of(first)}
                yield NodeChange("parts", node, text.with_parts(node, parts))


def exchange_joined(text: ProgramText, node: Node) -> Changes:
    """concatenate([old, new]) for concatenate([new, old])."""
    match node:
        case Call(args=[List(elts=[first, second]), *_]) | Call(args=[Tuple(elts=[first, second]), *_]) if (
            called(node) in JOINING
        ):
            parts = {first: text.of(second), second: text.of(first)}
            yield NodeChange("joined", node, text.with_parts(node, parts))


def call_alike(text: ProgramText, node: Node) -> Changes:
    """k = rotate(x @ W_K) where q = rotate(x @ W_Q), and k is x @ W_K."""
    match node:
        case Assign(targets=[target], value=value):
            name = name_of(target)
        case _:
            return
    if name is None or "?" not in family(name):
        return
    for other in text.names_made:
        if other == name or family(other) != family(name):
            continue
        for statement in text.names_made[other]:
            match statement:
                case Assign(value=Call(args=[_, *more]) as call) if not is_method(text, call):
                    function = text.of(call.func)
                    given = [text.of(value)]
                    given += [text.of(argument).replace(other, name) for argument in more]
                    yield NodeChange("alike", value, f"{function}({', '.join(given)})")


def leave_out_term(text: ProgramText, node: Node) -> Changes:
    """A sum without one of its terms: a residual that is added elsewhere."""
    match node:
        case BinOp(op=Add(), left=left, right=right):
            yield NodeChange("term", node, text.of(right))
            yield NodeChange("term", node, text.of(left))
