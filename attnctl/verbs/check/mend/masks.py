"""Masks: their triangle, their sense, their axes, what they fill in, and where they are laid."""

from __future__ import annotations

import re
from ast import (
    Add,
    Assign,
    Attribute,
    AugAssign,
    BinOp,
    Call,
    Compare,
    Eq,
    Expr,
    Gt,
    GtE,
    Invert,
    Lt,
    LtE,
    Mult,
    Name,
    NotEq,
    Subscript,
    Tuple,
    UnaryOp,
    expr,
    stmt,
)

from attnctl.verbs.check.mend.change import (
    NEW_AXIS,
    Changes,
    NodeChange,
    TextChange,
    called,
    is_method,
    keyword,
    operands,
    sizes_of,
)
from attnctl.verbs.check.mend.text import Node, ProgramText, TextEdit

FILLING = frozenset({"masked_fill", "masked_fill_"})

EXCHANGED = {"triu": "tril", "tril": "triu", "triu_": "tril_", "tril_": "triu_"}

COMPARISONS = {
    Eq: ("!=",),
    NotEq: ("==",),
    Lt: ("<=", ">=", ">"),
    LtE: ("<", ">", ">="),
    Gt: (">=", "<=", "<"),
    GtE: (">", "<", "<="),
}
"""What is written in place of a comparison."""

NEGATED = {Eq: "!=", NotEq: "==", Lt: ">=", LtE: ">", Gt: "<=", GtE: "<"}

HIDES_NOTHING = re.compile(r"1e-?\d+|0(\.0)?")

# --- triangles ---


def diagonal_of(text: ProgramText, call: Call) -> expr | None:
    given = keyword(call, "k", "diagonal")
    if given is None and len(operands(text, call)) > 1:
        return call.args[-1]
    return given


def with_diagonal(text: ProgramText, call: Call, diagonal: str) -> str:
    """A triangle from another diagonal on."""
    now = diagonal_of(text, call)
    if now is not None:
        return text.with_parts(call, {now: diagonal})
    spelled = "diagonal" if text.is_torch else "k"
    return text.with_argument(call, f"{spelled}={diagonal}")


def move_diagonal(text: ProgramText, node: Node) -> Changes:
    """k=1 for k=0."""
    if not isinstance(node, Call) or called(node) not in EXCHANGED:
        return
    now = diagonal_of(text, node)
    moved = ["1", "-1"]
    if now is not None:
        moved = ["1", "0", "-1", f"{text.of(now)} + 1", f"{text.of(now)} - 1"]
    for diagonal in moved:
        whole = with_diagonal(text, node, diagonal)
        if whole != text.of(node):
            yield NodeChange(f"diagonal {diagonal}", node, whole)


def exchange_triangle(text: ProgramText, node: Node) -> Changes:
    """tril for triu, from the diagonal that belongs to it."""
    if not isinstance(node, Call) or called(node) not in EXCHANGED:
        return
    name = called(node)
    function = text.of(node.func)
    other = function.removesuffix(name) + EXCHANGED[name]
    yield NodeChange("triangle", node.func, other)
    for diagonal in ("1", "0"):
        whole = with_diagonal(text, node, diagonal)
        rest = whole.removeprefix(function)
        yield NodeChange(f"triangle {diagonal}", node, other + rest)


def align_triangle(text: ProgramText, node: Node) -> Changes:
    """tril(ones(queries, keys), keys - queries): the newest query sees every key."""
    if not isinstance(node, Call) or called(node) not in EXCHANGED:
        return
    given = operands(text, node)
    if not given or not isinstance(given[0], Call):
        return
    sizes = sizes_of(operands(text, given[0]))
    if len(sizes) != 2:
        return
    queries, keys = (text.in_brackets(size) for size in sizes)
    later = f"{keys} - {queries}"
    if called(node).startswith("triu"):
        later += " + 1"
    yield NodeChange("aligned", node, with_diagonal(text, node, later))


def align_flag(text: ProgramText, node: Node) -> Changes:
    """A mask of the newest queries for is_causal=True, which is aligned with the first ones."""
    if not isinstance(node, Call):
        return
    if len(node.args) < 2:
        return
    queries, keys = (f"{text.in_brackets(array)}.shape[-2]" for array in node.args[:2])
    mask = f"torch.ones({queries}, {keys}, dtype=torch.bool).tril({keys} - {queries})"
    for key in node.keywords:
        if key.arg == "is_causal":
            begin = text.offset(key.lineno, key.col_offset)
            _, end = text.span(key.value)
            edit = TextEdit(begin, end, f"attn_mask={mask}")
            yield TextChange("aligned", (edit,))


# --- what a mask means ---


def change_comparison(text: ProgramText, node: Node) -> Changes:
    match node:
        case Compare(ops=[operator], left=left, comparators=[right]):
            before = text.of(left)
            after = text.of(right)
            for other in COMPARISONS.get(type(operator), ()):
                yield NodeChange(f"comparison {other}", node, f"{before} {other} {after}")


def negate_comparison(text: ProgramText, node: Node) -> Changes:
    """a >= b for a < b."""
    match node:
        case Compare(ops=[operator], left=left, comparators=[right]) if type(operator) in NEGATED:
            before = text.of(left)
            after = text.of(right)
            yield NodeChange("negated", node, f"{before} {NEGATED[type(operator)]} {after}")


def negate(text: ProgramText, node: Node) -> Changes:
    """~mask for mask where it is used, or the other way round."""
    masks: list[expr] = []
    match node:
        case UnaryOp(op=Invert(), operand=operand):
            yield NodeChange("sense", node, text.of(operand))
        case Call(args=[mask, *_]) if called(node) in FILLING:
            masks = [mask]
    if isinstance(node, Call):
        masks += [key.value for key in node.keywords if key.arg and key.arg.endswith("mask")]
    for mask in masks:
        if isinstance(mask, (Name, Attribute, Call, Subscript)):
            yield NodeChange("sense", mask, f"~{text.of(mask)}")


def exchange_branches(text: ProgramText, node: Node) -> Changes:
    """where(mask, b, a) for where(mask, a, b)."""
    match node:
        case Call(args=[_, yes, no]) if called(node) == "where":
            exchanged = text.with_parts(node, {yes: text.of(no), no: text.of(yes)})
            yield NodeChange("branches", node, exchanged)


def turn_mask(text: ProgramText, node: Node) -> Changes:
    """mask[:, None, :] for mask[:, :, None]: along keys, not queries."""
    if not isinstance(node, Subscript) or not isinstance(node.slice, Tuple):
        return
    words = [text.of(part) for part in node.slice.elts]
    for at, word in enumerate(words):
        if not NEW_AXIS.fullmatch(word):
            continue
        others = words[:at] + words[at + 1 :]
        for to in range(len(words)):
            moved = ", ".join([*others[:to], word, *others[to:]])
            if moved != ", ".join(words):
                yield NodeChange(f"axis of mask {to}", node.slice, moved)


def turn_unsqueezed(text: ProgramText, node: Node) -> Changes:
    """mask.unsqueeze(1) for mask.unsqueeze(-1)."""
    match node:
        case Call(args=[*_, axis]) if called(node) in {"unsqueeze", "expand_dims"}:
            for other in ("1", "-2", "2", "-1", "0"):
                if other != text.of(axis):
                    yield NodeChange(f"axis of mask {other}", axis, other)


def leave_out_mask(text: ProgramText, node: Node) -> Changes:
    """A call without the mask that another one was given."""
    if not isinstance(node, Call):
        return
    for argument in [*node.args[1:], *(key.value for key in node.keywords)]:
        if isinstance(argument, (Name, Attribute, Subscript)):
            yield NodeChange("unmasked", argument, "None")


# --- what hides ---


def fill_in_less(text: ProgramText, node: Node) -> Changes:
    """-1e9 for 1e-9, which hides nothing."""
    match node:
        case Call(args=[_, *rest]) if called(node) in {"where", *FILLING}:
            for filled in rest:
                if HIDES_NOTHING.fullmatch(text.of(filled)):
                    yield NodeChange("filled in", filled, "-1e9")


def keep_what_is_filled(text: ProgramText, node: Node) -> Changes:
    """scores = scores.masked_fill(…) for scores.masked_fill(…)."""
    match node:
        case Expr(value=Call(func=Attribute(value=scores)) as call):
            if is_method(text, call) and called(call) in FILLING:
                name = text.of(scores)
                words = text.of(call)
                yield NodeChange("kept", node, f"{name} = {words}")


def hide_instead(text: ProgramText, node: Node) -> Changes:
    """−∞ where a product with 0, or a sum with 0 and 1, was to hide scores."""
    match node:
        case BinOp(op=Mult() | Add(), left=left, right=right):
            first = text.in_brackets(left)
            second = text.in_brackets(right)
            yield NodeChange("hidden", node, hidden(text, first, second))
            yield NodeChange("hidden", node, hidden(text, second, first))


def hidden(text: ProgramText, scores: str, mask: str) -> str:
    if text.is_torch:
        return f'{scores}.masked_fill({mask} == 0, float("-inf"))'
    np = text.numpy
    return f"{np}.where({mask} != 0, {scores}, -{np}.inf)"


def share_again(text: ProgramText, node: Node) -> Changes:
    """Weights that were hidden after softmax, divided by what is left of their sum."""
    end = ".sum(axis=-1, keepdims=True)"
    if text.is_torch:
        end = ".sum(dim=-1, keepdim=True)"
    match node:
        case Assign(targets=[target], value=BinOp(op=Mult())):
            whole = divided_after(text, node, text.of(target), end)
            yield NodeChange("shared again", node, whole)
        case AugAssign(op=Mult(), target=target):
            whole = divided_after(text, node, text.of(target), end)
            yield NodeChange("shared again", node, whole)
        case BinOp(op=Mult()):
            whole = text.of(node)
            yield NodeChange("shared again", node, f"{whole} / ({whole}){end}")


def divided_after(text: ProgramText, statement: stmt, name: str, end: str) -> str:
    """A statement, and one more behind it in a line of its own."""
    begin, _ = text.span(statement)
    line = text.starts[statement.lineno - 1]
    indent = text.text[line:begin]
    line_end = "\r\n" if "\r\n" in text.text else "\n"
    words = text.of(statement)
    return f"{words}{line_end}{indent}{name} = {name} / {name}{end}"


def move_before_softmax(text: ProgramText, node: Node) -> Changes:
    """softmax(s + b) for softmax(s) + b."""
    match node:
        case BinOp(op=Add(), left=call, right=bias):
            scores = scores_of_softmax(text, call)
            if scores is not None:
                whole = text.with_parts(call, {scores: added(text, call, scores, bias)})
                yield NodeChange("before softmax", node, whole)
        case Assign(targets=[target], value=call):
            scores = scores_of_softmax(text, call)
            if scores is not None:
                yield from move_later_bias(text, text.of(target), call, scores)


def scores_of_softmax(text: ProgramText, node: expr) -> expr | None:
    """What a call of softmax, as a function or a method, is taken of."""
    if not isinstance(node, Call) or "softmax" not in called(node).lower():
        return None
    return next(iter(operands(text, node)), None)


def added(text: ProgramText, call: expr, scores: expr, bias: expr) -> str:
    before = text.of(scores)
    after = text.in_brackets(bias)
    words = f"{before} + {after}"
    if isinstance(call, Call) and is_method(text, call):
        return f"({words})"
    return words


def move_later_bias(text: ProgramText, weights: str, call: expr, scores: expr) -> Changes:
    """Of a bias that is added to these weights in a statement of its own."""
    for statement in text.names_made.get(weights, ()):
        bias: expr | None = None
        match statement:
            case AugAssign(op=Add(), value=bias):
                pass
            case Assign(value=BinOp(op=Add(), left=left, right=right)):
                if text.of(left) == weights:
                    bias = right
        without = text.removed(statement)
        if bias is not None and without is not None:
            earlier = text.replaced(scores, added(text, call, scores, bias))
            yield TextChange("before softmax", (earlier, without))
