"""The scale of the scores: missing, made twice, of another size, or no root."""

from __future__ import annotations

import re
from ast import (
    Attribute,
    AugAssign,
    BinOp,
    Call,
    Div,
    GeneratorExp,
    Mult,
    Name,
    Pow,
    Subscript,
    expr,
)

from attnctl.verbs.check.mend.change import Changes, NodeChange, TextChange, called, factors
from attnctl.verbs.check.mend.text import Node, ProgramText, TextEdit

SIZES = re.compile(r"dim|hidden|size|d_|dk|dh|hd|head|width|emb|^[dn]$|^D", re.IGNORECASE)
HEADS = re.compile(r"(self\.)?(n_?|num_?)?(h|heads?)")
AXIS_OF_SHAPE = re.compile(r"(?<=\.shape\[)-?\d(?=\]$)|(?<=\.size\()-?\d(?=\)$)")
MOST_SIZES = 6


def add_scale(text: ProgramText, node: Node) -> Changes:
    """Q @ K.T / K.shape[-1] ** 0.5 for Q @ K.T."""
    both = factors(node)
    if both is None or not isinstance(node, expr):
        return
    width = f"{text.in_brackets(both[0])}.shape[-1]"
    yield NodeChange("scale", node, f"{text.of(node)} / {width} ** 0.5")


def scale_products_of_numbers(text: ProgramText, node: Node) -> Changes:
    """sum(a * b for a, b in zip(q, k)) / len(q) ** 0.5."""
    match node:
        case Call(args=[GeneratorExp(generators=[loop])]) if called(node) == "sum":
            count = count_of(text, loop.iter)
            if count is not None:
                words = text.of(node)
                yield NodeChange("scale", node, f"{words} / {count} ** 0.5")


def count_of(text: ProgramText, loop: expr) -> str | None:
    """How often a loop over numbers of a row goes round."""
    match loop:
        case Call(func=Name(id="zip"), args=[row, *_]):
            return f"len({text.of(row)})"
        case Call(func=Name(id="range"), args=[count]):
            return text.of(count)
    return None


def take_root(text: ProgramText, node: Node) -> Changes:
    """x / d ** 0.5 for x / d, and for x / d ** 1 / 2."""
    match node:
        case BinOp(
            op=Div(),
            left=BinOp(op=Div(), right=BinOp(op=Pow(), left=size, right=power) as raised),
            right=half,
        ):
            if (text.of(power), text.of(half)) == ("1", "2"):
                begin, _ = text.span(raised)
                _, end = text.span(half)
                root = root_of(text, size)
                yield TextChange("root", (TextEdit(begin, end, root),))
        case BinOp(op=Div() | Mult(), right=size) | AugAssign(op=Div() | Mult(), value=size):
            if isinstance(size, (Name, Attribute, Subscript)):
                yield NodeChange("root", size, root_of(text, size))


def root_of(text: ProgramText, size: expr) -> str:
    return f"{text.in_brackets(size)} ** 0.5"


def turn_scale_round(text: ProgramText, node: Node) -> Changes:
    """x / d for x * d, and the other way round."""
    match node:
        case BinOp(left=left, op=Div() | Mult() as op, right=right):
            other = "*" if isinstance(op, Div) else "/"
            before = text.of(left)
            after = text.in_brackets(right)
            yield NodeChange("scale round", node, f"{before} {other} {after}")


def leave_out_scale(text: ProgramText, node: Node) -> Changes:
    """x for x / d, and for d * x."""
    match node:
        case BinOp(left=left, op=Div() | Mult() as op, right=right):
            yield NodeChange("no scale", node, text.of(left))
            if isinstance(op, Mult):
                yield NodeChange("no scale", node, text.of(right))
        case AugAssign(op=Div() | Mult()):
            without = text.removed(node)
            if without is not None:
                yield TextChange("no scale", (without,))


def change_size(text: ProgramText, node: Node) -> Changes:
    """Another size below the root: of a head, of another axis."""
    size = below_root(text, node)
    if size is None:
        return
    now = text.of(size)
    if AXIS_OF_SHAPE.search(now):
        for axis in ("-1", "1", "2", "3"):
            other = AXIS_OF_SHAPE.sub(axis, now)
            if other != now:
                yield NodeChange(f"size {axis}", size, other)

    names = size_names(text)
    for name in names[:MOST_SIZES]:
        if name != now:
            yield NodeChange(f"size {name}", size, name)
    for name in names:
        if HEADS.fullmatch(name):
            of_head = f"{now} // {name}"
            if isinstance(node, BinOp):
                of_head = f"({of_head})"
            yield NodeChange(f"size by {name}", size, of_head)


def change_measured_size(text: ProgramText, node: Node) -> Changes:
    """Another size below the root, where it is measured: one with a name, or a number, may be meant."""
    size = below_root(text, node)
    if isinstance(size, (Call, Subscript)):
        yield from change_size(text, node)


def below_root(text: ProgramText, node: Node) -> expr | None:
    """The size whose root is taken, without what makes another type of it."""
    size: expr
    match node:
        case Call(args=[size]) if called(node) in {"sqrt", "rsqrt"}:
            pass
        case BinOp(left=size, op=Pow(), right=power) if "5" in text.of(power):
            pass
        case _:
            return None
    while isinstance(size, Call) and size.args and called(size) != "size":
        size = size.args[0]
    return size


def size_names(text: ProgramText) -> list[str]:
    """What the program calls its sizes, those of a head first."""
    names = [*text.names_made]
    for function in text.functions.values():
        names += [argument.arg for argument in function.args.args]

    sizes = [name for name in dict.fromkeys(names) if SIZES.search(name.removeprefix("self."))]
    return sorted(sizes, key=lambda name: "head" not in name and "k" not in name)
