"""Running sums, counts that are one off, signs, and what a library's function is told."""

from __future__ import annotations

from ast import (
    Add,
    Assign,
    AugAssign,
    BinOp,
    Call,
    Compare,
    Constant,
    Mult,
    Name,
    Slice,
    Sub,
    Tuple,
    UnaryOp,
    USub,
    expr,
    walk,
)

from attnctl.verbs.check.mend.change import Changes, NodeChange, called, is_name, keyword
from attnctl.verbs.check.mend.text import Node, ProgramText, name_of


def shift_by_one(text: ProgramText, node: Node) -> Changes:
    """n for n + 1, range(n + 1) for range(n), x[: n + 1] for x[:n]."""
    match node:
        case BinOp(op=Add(), left=left, right=Constant(value=1)):
            yield NodeChange("without 1", node, text.of(left))
        case BinOp(op=Sub(), left=left, right=Constant(value=1)):
            yield NodeChange("without 1", node, text.of(left))
        case Call(args=[*_, last]) if called(node) in {"range", "arange"}:
            yield NodeChange("one more", last, f"{text.of(last)} + 1")
            yield NodeChange("one fewer", last, f"{text.of(last)} - 1")
        case Slice(upper=expr() as upper):
            yield NodeChange("one more", upper, f"{text.of(upper)} + 1")
        case Compare(comparators=[Constant(value=int(value)) as right]):
            yield NodeChange("one more", right, str(value + 1))
            yield NodeChange("one fewer", right, str(value - 1))


def change_sign(text: ProgramText, node: Node) -> Changes:
    match node:
        case BinOp(op=Add(), left=left, right=right):
            yield NodeChange("sign", node, f"{text.of(left)} - {text.in_brackets(right)}")
        case BinOp(op=Sub(), left=left, right=right):
            yield NodeChange("sign", node, f"{text.of(left)} + {text.in_brackets(right)}")
        case UnaryOp(op=USub(), operand=operand) if not isinstance(operand, Constant):
            yield NodeChange("sign", node, text.of(operand))
        case BinOp(op=Mult(), left=left):
            yield NodeChange("sign", left, f"-{text.in_brackets(left)}")


def rescale_sum(text: ProgramText, node: Node) -> Changes:
    """acc = acc * alpha + p @ v for acc = acc + p @ v, with what the loop multiplies another sum by."""
    match node:
        case AugAssign(op=Add(), target=expr() as target, value=added):
            pass
        case Assign(targets=[expr() as target], value=BinOp(op=Add(), left=before, right=added)) if text.of(
            before
        ) == text.of(target):
            pass
        case _:
            return
    name = text.of(target)
    for factor in factors_of_sums(text):
        for shaped in (factor, f"{factor}[..., None]"):
            yield NodeChange("rescaled", node, f"{name} = {name} * {shaped} + {text.of(added)}")


def factors_of_sums(text: ProgramText) -> list[str]:
    """What sums are multiplied by before more is added to them: l * alpha + …"""
    found: dict[str, None] = {}
    for node in text.nodes:
        match node:
            case BinOp(op=Add(), left=BinOp(op=Mult(), left=left, right=right)):
                found.update({text.in_brackets(right): None, text.in_brackets(left): None})
    return [*found]


def train_only(text: ProgramText, node: Node) -> Changes:
    """dropout(x, p, training=self.training) for dropout(x, p)."""
    if not isinstance(node, Call):
        return
    if called(node) == "dropout" and keyword(node, "training") is None and "self" in text.of(node):
        yield NodeChange("training", node, text.with_argument(node, "training=self.training"))
    probability = keyword(node, "dropout_p")
    if probability is not None and "self" in text.text:
        words = f"{text.of(probability)} if self.training else 0.0"
        yield NodeChange("training", probability, words)


def put_batch_first(text: ProgramText, node: Node) -> Changes:
    if not isinstance(node, Call) or called(node) != "MultiheadAttention":
        return
    if keyword(node, "batch_first") is None:
        words = text.with_argument(node, "batch_first=True")
        yield NodeChange("batch first", node, words)


def make_floats(text: ProgramText, node: Node) -> Changes:
    """dtype=float for dtype=int."""
    if isinstance(node, Call):
        kind = keyword(node, "dtype")
        if kind is not None and "int" in text.of(kind):
            words = "torch.float32" if text.is_torch else "float"
            yield NodeChange("floats", kind, words)
        elif called(node) in {"zeros_like", "empty_like"} and kind is None and not text.is_torch:
            yield NodeChange("floats", node, text.with_argument(node, "dtype=float"))


# --- positions ---


def start_positions(text: ProgramText, node: Node) -> Changes:
    """arange(n) + past for arange(n), rotate(q, past) for rotate(q)."""
    if not isinstance(node, Call):
        return
    for name in text.names_of_function(node):
        if called(node) == "arange" and len(node.args) == 1:
            yield NodeChange(f"start {name}", node, f"{text.of(node)} + {name}")
        elif takes_more(text, node):
            yield NodeChange(f"start {name}", node, text.with_argument(node, name))


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
            yield NodeChange("start", argument, f"{text.of(argument)} - 1")
            yield NodeChange("start", argument, f"{text.of(argument)} + 1")


def cut_cache(text: ProgramText, node: Node) -> Changes:
    """self.k[:, : self.n] for self.k, whose slots are written at self.n."""
    name = name_of(node)
    if name is None or not is_name(node):
        return
    for index in text.written_at.get(name, ()):
        if index.value is node:
            return
    for index in text.written_at.get(name, ()):
        parts = [index.slice]
        if isinstance(index.slice, Tuple):
            parts = index.slice.elts
        before: list[str] = []
        for part in parts:
            for count in walk(part):
                if is_name(count):
                    filled = ", ".join([*before, f": {name_of(count)}"])
                    yield NodeChange("filled", node, f"{name}[{filled}]")
            before.append(text.of(part))
