"""Running sums, counts that are one off, signs, and what a library's function is told."""

from __future__ import annotations

from ast import (
    Add,
    Assign,
    Attribute,
    AugAssign,
    BinOp,
    Call,
    Compare,
    Constant,
    Mult,
    Name,
    Slice,
    Sub,
    Subscript,
    Tuple,
    UnaryOp,
    USub,
    expr,
    walk,
)

from attnctl.verbs.check.mend.change import Changes, NodeChange, called, is_name, keyword
from attnctl.verbs.check.mend.text import Node, ProgramText, name_of

LIKE_ANOTHER = frozenset({"zeros_like", "empty_like"})


def shift_by_one(text: ProgramText, node: Node) -> Changes:
    """n for n + 1, range(n + 1) for range(n), x[: n + 1] for x[:n]."""
    match node:
        case BinOp(op=Add() | Sub(), left=left, right=Constant(value=1)):
            yield NodeChange("without 1", node, text.of(left))
        case Call(args=[*_, count]) if called(node) in {"range", "arange"}:
            words = text.of(count)
            yield NodeChange("one more", count, f"{words} + 1")
            yield NodeChange("one fewer", count, f"{words} - 1")
        case Slice(upper=expr() as end):
            words = text.of(end)
            yield NodeChange("one more", end, f"{words} + 1")
        case Compare(comparators=[Constant(value=int(number)) as limit]):
            yield NodeChange("one more", limit, str(number + 1))
            yield NodeChange("one fewer", limit, str(number - 1))


def change_sign(text: ProgramText, node: Node) -> Changes:
    """a - b for a + b, -a * b for a * b, and the other way round."""
    match node:
        case BinOp(op=Add() | Sub() as op, left=left, right=right):
            other = "-" if isinstance(op, Add) else "+"
            before = text.of(left)
            after = text.in_brackets(right)
            yield NodeChange("sign", node, f"{before} {other} {after}")
        case BinOp(op=Mult(), left=left):
            words = text.in_brackets(left)
            yield NodeChange("sign", left, f"-{words}")
        case UnaryOp(op=USub(), operand=operand):
            if not isinstance(operand, Constant):
                yield NodeChange("sign", node, text.of(operand))


def rescale_sum(text: ProgramText, node: Node) -> Changes:
    """acc = acc * alpha + p @ v for acc = acc + p @ v, with what the loop multiplies another sum by."""
    before: expr | None = None
    match node:
        case AugAssign(op=Add(), target=target, value=added):
            before = target
        case Assign(targets=[target], value=BinOp(op=Add(), left=before, right=added)):
            pass
    if before is None or text.of(before) != text.of(target):
        return

    name = text.of(target)
    more = text.of(added)
    for factor in factors_of_sums(text):
        yield NodeChange("rescaled", node, f"{name} = {name} * {factor} + {more}")
        yield NodeChange("rescaled", node, f"{name} = {name} * {factor}[..., None] + {more}")


def factors_of_sums(text: ProgramText) -> list[str]:
    """What sums are multiplied by before more is added to them: l * alpha + …"""
    found: list[expr] = []
    for node in text.nodes:
        match node:
            case BinOp(op=Add(), left=BinOp(op=Mult(), left=left, right=right)):
                found += [right, left]
    names = [text.of(factor) for factor in found if isinstance(factor, (Name, Attribute, Subscript))]
    return [*dict.fromkeys(names)]


def train_only(text: ProgramText, node: Node) -> Changes:
    """dropout(x, p, training=self.training) for dropout(x, p)."""
    if not isinstance(node, Call) or "self" not in text.text:
        return
    if called(node) == "dropout" and keyword(node, "training") is None:
        words = text.with_argument(node, "training=self.training")
        yield NodeChange("training", node, words)

    probability = keyword(node, "dropout_p")
    if probability is not None:
        words = text.of(probability)
        yield NodeChange("training", probability, f"{words} if self.training else 0.0")


def put_batch_first(text: ProgramText, node: Node) -> Changes:
    if not isinstance(node, Call) or called(node) != "MultiheadAttention":
        return
    if keyword(node, "batch_first") is None:
        words = text.with_argument(node, "batch_first=True")
        yield NodeChange("batch first", node, words)


def make_floats(text: ProgramText, node: Node) -> Changes:
    """dtype=float for dtype=int."""
    if not isinstance(node, Call):
        return
    floats = "torch.float32" if text.is_torch else "float"
    kind = keyword(node, "dtype")
    if kind is not None and "int" in text.of(kind):
        yield NodeChange("floats", kind, floats)
    if kind is None and called(node) in LIKE_ANOTHER:
        words = text.with_argument(node, f"dtype={floats}")
        yield NodeChange("floats", node, words)


# --- positions ---


def start_positions(text: ProgramText, node: Node) -> Changes:
    """arange(n) + past for arange(n), rotate(q, past) for rotate(q)."""
    if not isinstance(node, Call):
        return
    is_range = called(node) == "arange" and len(node.args) == 1
    for name in text.names_of_function(node):
        kind = f"start {name}"
        if is_range:
            words = text.of(node)
            yield NodeChange(kind, node, f"{words} + {name}")
        elif takes_more(text, node):
            words = text.with_argument(node, name)
            yield NodeChange(kind, node, words)


def takes_more(text: ProgramText, call: Call) -> bool:
    """True if the program's own function has an argument that the call leaves as it is by default."""
    function = text.functions.get(called(call))
    if function is None or not function.args.defaults:
        return False
    return len(function.args.args) > len(call.args) + len(call.keywords)


def move_start(text: ProgramText, node: Node) -> Changes:
    """rotate(q, n - 1) for rotate(q, n)."""
    if not isinstance(node, Call) or called(node) not in text.functions:
        return
    for argument in node.args:
        if isinstance(argument, Name) or called(argument) == "len":
            words = text.of(argument)
            yield NodeChange("start", argument, f"{words} - 1")
            yield NodeChange("start", argument, f"{words} + 1")


def cut_cache(text: ProgramText, node: Node) -> Changes:
    """self.k[:, : self.n] for self.k, whose slots are written at self.n."""
    name = name_of(node)
    if name is None or not is_name(node):
        return
    places = text.written_at.get(name, [])
    if any(place.value is node for place in places):
        return

    for place in places:
        parts = [place.slice]
        if isinstance(place.slice, Tuple):
            parts = place.slice.elts
        before = ""
        for part in parts:
            for count in walk(part):
                if is_name(count):
                    yield NodeChange("filled", node, f"{name}[{before}: {name_of(count)}]")
            before += f"{text.of(part)}, "
