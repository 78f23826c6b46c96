"""Changes that people make of a program when they are told what is wrong of it, from its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from attnctl.verbs.check.text import ProgramText, name_of

Change = tuple[str, ast.expr | ast.stmt, str]
"""What kind of change, of what, and what it becomes."""

Rule = Callable[[ProgramText, ast.AST], Iterator[Change]]


def number_of(node: ast.AST) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


def called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def in_brackets(text: ProgramText, node: ast.expr) -> str:
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant))
    words = text.of(node)
    return words if plain else f"({words})"


def operands(node: ast.Call) -> list[ast.expr]:
    """The array that a function or a method is about, and what else it is given."""
    if isinstance(node.func, ast.Attribute) and name_of(node.func.value) not in {"np", "torch", "F", "jnp"}:
        return [node.func.value, *node.args]
    return list(node.args)


# --- rules ---


def change_axis(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    name = called(node).lower()
    axes = [key.value for key in node.keywords if key.arg in {"axis", "dim"}]
    if "softmax" in name or name in {"sum", "max", "amax", "logsumexp"}:
        axes += [argument for argument in node.args if number_of(argument) is not None]
        if not axes and node.args and ("softmax" in name or name in {"sum", "max"}):
            begin, end = text.span(node)
            spelled = "dim" if text.has_torch and not text.array_library else "axis"
            more = "" if "softmax" in name else ", keepdims=True"
            if not any(key.arg in {"axis", "dim"} for key in node.keywords):
                yield "axis", node, f"{text.text[begin : end - 1]}, {spelled}=-1{more})"
    for axis in axes:
        now = number_of(axis)
        said = {key.arg for key in node.keywords}
        if now is not None and name in {"sum", "max", "amax"} and not said & {"keepdims", "keepdim"}:
            kept = "keepdim" if text.has_torch and not text.array_library else "keepdims"
            begin, _ = text.span(node)
            at, end = text.span(axis)
            words = text.of(node)
            rest = words[end - begin : -1]
            yield "axis kept", node, f"{words[: at - begin]}-1{rest}, {kept}=True)"
        for other in (-1, 2, 3, 1, 0, -2):
            if now is not None and now != other:
                yield f"axis {other}", axis, str(other)


def keep_dimensions(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call) or called(node) not in {"sum", "max", "amax"}:
        return
    words = text.of(node)
    said = {key.arg for key in node.keywords}
    if not said & {"keepdims", "keepdim"}:
        tail = "keepdims=True"
        method = isinstance(node.func, ast.Attribute) and text.of(node.func.value) != text.array_library
        arguments = node.args or node.keywords
        if method and text.has_torch and not text.array_library:
            tail = "keepdim=True"
        yield "keepdims", node, f"{words[:-1]}{', ' * bool(arguments)}{tail})"


def change_triangle(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call) or called(node) not in {"triu", "tril", "triu_", "tril_"}:
        return
    begin, _ = text.span(node)
    name = called(node)
    words = text.of(node)
    other = name.replace("triu", "tri?").replace("tril", "triu").replace("tri?", "tril")
    swapped = words.replace(f"{name}(", f"{other}(", 1)
    diagonal = next((key.value for key in node.keywords if key.arg in {"k", "diagonal"}), None)
    method = isinstance(node.func, ast.Attribute) and name_of(node.func.value) not in {"np", "torch", "jnp"}
    if diagonal is None and len(node.args) > (0 if method else 1):
        diagonal = node.args[-1]
    if diagonal is None:
        spelled = "k" if "np." in words.split("(")[0] else "diagonal"
        comma = ", " * bool(node.args or node.keywords)
        for number in (1, -1):
            yield f"diagonal {number}", node, f"{words[:-1]}{comma}{spelled}={number})"
            yield f"triangle {number}", node, f"{swapped[:-1]}{comma}{spelled}={number})"
    else:
        at, end = text.span(diagonal)
        for moved in ("1", "0", "-1", f"1 + {text.of(diagonal)}", f"{text.of(diagonal)} - 1"):
            if moved != text.of(diagonal):
                yield f"diagonal {moved}", diagonal, moved
        for moved in ("1", "0"):
            yield (
                f"triangle {moved}",
                node,
                (words[: at - begin] + moved + words[end - begin :]).replace(f"{name}(", f"{other}(", 1),
            )
    yield "triangle", node, swapped


MASK_WORDS = {"mask", "attn_mask", "key_padding_mask", "src_key_padding_mask"}


COMPARISONS = {
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Lt: ("<=", ">=", ">"),
    ast.LtE: ("<", ">", ">="),
    ast.Gt: (">=", "<=", "<"),
    ast.GtE: (">", "<", "<="),
}
"""What is written in place of a comparison."""


def change_condition(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            yield "mask sense", node, text.of(operand)
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            for other in COMPARISONS.get(type(operator), ()):
                yield f"comparison {other}", node, f"{text.of(left)} {other} {text.of(right)}"
        case ast.Call(args=[_, yes, no]) if called(node) == "where":
            begin, end = text.span(node)
            (a, b), (c, d) = text.span(yes), text.span(no)
            between, whole = text.text[b:c], text.text
            exchanged = whole[begin:a] + text.of(no) + between + text.of(yes) + whole[d:end]
            yield "branches", node, exchanged


def change_mask(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """The sense of a mask where it is used, what it fills in, and what is made of that."""
    if isinstance(node, ast.Call):
        for key in node.keywords:
            if key.arg in MASK_WORDS and not isinstance(key.value, (ast.Constant, ast.UnaryOp)):
                yield "mask sense", key.value, f"~{in_brackets(text, key.value)}"
    match node:
        case ast.Call(args=[mask, *rest]) if called(node).startswith("masked_fill"):
            if isinstance(mask, (ast.Name, ast.Attribute, ast.Call)):
                yield "mask sense", mask, f"~{in_brackets(text, mask)}"
            for filled in rest:
                if re.fullmatch(r"1e-?\d+|0(\.0)?", text.of(filled)):
                    yield "hidden number", filled, "-1e9"
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=base)) as call):
            if called(call) in {"masked_fill", "masked_fill_"}:
                yield "kept", node, f"{text.of(base)} = {text.of(call)}"


def move_axis_of_mask(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """mask[:, :, None] for mask[:, None, :]."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return
    words = [text.of(part) for part in node.slice.elts]
    fresh = [at for at, word in enumerate(words) if word in {"None", "np.newaxis"}]
    for at in fresh:
        rest = words[:at] + words[at + 1 :]
        for to in range(len(words)):
            if to != at:
                moved = ", ".join([*rest[:to], words[at], *rest[to:]])
                if moved != ", ".join(words):
                    yield f"axis of mask {to}", node.slice, moved


def hide_before_softmax(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """A product with zeros and ones, as what it was meant to be."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            for scores, mask in ((left, right), (right, left)):
                s, m = text.of(scores), in_brackets(text, mask)
                if text.array_library:
                    np = text.array_library
                    yield "hide", node, f"{np}.where({m} != 0, {s}, -{np}.inf)"
                    product = text.of(node)
                    yield "share again", node, (f"{product} / ({product}).sum(axis=-1, keepdims=True)")
                if text.has_torch:
                    product = text.of(node)
                    yield "hide", node, f'{in_brackets(text, scores)}.masked_fill({m} == 0, float("-inf"))'
                    yield "share again", node, f"{product} / ({product}).sum(dim=-1, keepdim=True)"
        case ast.AugAssign(op=ast.Mult(), target=target, value=value):
            s, m = text.of(target), text.of(value)
            axis = "axis=-1, keepdims=True" if text.array_library else "dim=-1, keepdim=True"
            yield "share again", node, f"{s} = {s} * ({m}) / ({s} * ({m})).sum({axis})"


def change_scale(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as op, right=right):
            if "**" in text.of(left) and isinstance(op, ast.Div) and text.of(right) == "2":
                power = text.of(left).rpartition("**")
                yield "half", node, f"{power[0]}** ({power[2].strip()} / 2)"
            mark = "*" if isinstance(op, ast.Div) else "/"
            yield "scale the other way", node, f"{text.of(left)} {mark} {in_brackets(text, right)}"
            yield "without scale", node, text.of(left)
            if isinstance(left, (ast.Name, ast.Call, ast.Attribute, ast.Constant)):
                yield "without scale", node, text.of(right)
            if isinstance(op, ast.Div) and isinstance(right, (ast.Name, ast.Attribute, ast.Subscript)):
                yield "root", right, f"{text.of(right)} ** 0.5"
        case ast.BinOp(op=ast.MatMult(), left=left) | ast.Call(args=[left, *_]) if isinstance(
            node, ast.BinOp
        ) or called(node) in {"matmul", "dot", "einsum", "bmm", "inner"}:
            if isinstance(node, ast.Call):
                left = next((one for one in operands(node) if not isinstance(one, ast.Constant)), left)
            whole = text.of(node)
            whole = whole if isinstance(node, ast.Call) else f"({whole})"
            yield "scale", node, f"{whole} / {in_brackets(text, left)}.shape[-1] ** 0.5"
        case ast.AugAssign(op=ast.Div() | ast.Mult(), target=target):
            yield "without scale", node, f"{text.of(target)} = {text.of(target)}"


SIZES = re.compile(r"dim|hidden|size|d_|dk|dh|head|width|emb|^d$|^n$|^dk?$|^D", re.IGNORECASE)


def change_size(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """Another size below the root."""
    inside: ast.expr
    match node:
        case ast.Call(args=[ast.expr() as inside]) if called(node) in {"sqrt", "rsqrt"}:
            pass
        case ast.BinOp(left=inside, op=ast.Pow(), right=power) if "5" in text.of(power):
            pass
        case _:
            return
    found = inside
    while isinstance(found, ast.Call) and found.args:
        found = found.args[0]
    now = text.of(found)
    for at, other in re.findall(r"\.shape\[(-?\d)\]|\.size\((-?\d)\)", now):
        for axis in ("-1", "1", "2", "3"):
            if axis != (at or other):
                yield f"size {axis}", found, re.sub(r"(\[|\()-?\d(\]|\))$", rf"\g<1>{axis}\g<2>", now)
    names = [name for name in text.names_made if SIZES.search(name.removeprefix("self.")) and name != now]
    names += [
        argument.arg
        for function in ast.walk(text.tree)
        if isinstance(function, ast.FunctionDef)
        for argument in function.args.args
        if SIZES.search(argument.arg)
    ]
    for name in sorted(dict.fromkeys(names), key=lambda name: "head" not in name and "k" not in name)[:6]:
        yield f"size {name}", found, name
    heads = [name for name in names if re.fullmatch(r"(self\.)?(n_?|num_?)?(h|heads?)", name)]
    for name in heads:
        yield f"size by {name}", found, f"({now} // {name})"


def turn(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """Transposes: one that is missing, one too many."""
    match node:
        case ast.Attribute(attr="T" | "mT", value=value) if isinstance(node, ast.Attribute):
            yield "no transpose", node, text.of(value)
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            for turned in (".swapaxes(-1, -2)", ".T"):
                yield "transpose", right, f"{in_brackets(text, right)}{turned}"
                yield "transpose", left, f"{in_brackets(text, left)}{turned}"
            yield "exchanged", node, f"{in_brackets(text, right)} @ {in_brackets(text, left)}"
            yield (
                "exchanged, transposed",
                node,
                f"({in_brackets(text, right)} @ {in_brackets(text, left)}.T).T",
            )
        case ast.Call(func=ast.Attribute(value=base)) if called(node) in {"reshape", "view"}:
            yield "transpose", node, f"{in_brackets(text, base)}.T"
            yield "transpose", node, f"{in_brackets(text, base)}.swapaxes(-1, -2)"
        case ast.Call(func=ast.Attribute(value=base)) if called(node) in {
            "transpose",
            "swapaxes",
            "permute",
        }:
            yield "no transpose", node, text.of(base)


def split_heads(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """Heads that are split, or merged, by a reshape alone."""
    match node:
        case ast.Call(func=ast.Attribute(value=base)) if called(node) in {"reshape", "view"}:
            sizes = list(node.args)
            if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
                sizes = list(sizes[0].elts)
            words = [text.of(size) for size in sizes]
            from_array = in_brackets(text, base)
            if name_of(base) == text.array_library:
                sizes = sizes[1:]
                from_array, words = words[0], words[1:]
            if len(words) in {3, 4}:
                first = len(words) - 3
                words[first], words[first + 1] = words[first + 1], words[first]
                turned = f".{turner(text)}({first}, {first + 1})"
                yield "split", node, f"{from_array}.{called(node)}({', '.join(words)}){turned}"
                words[first], words[first + 1] = words[first + 1], words[first]
            if len(words) in {2, 3}:
                first = len(words) - 2
                moved = f"{from_array}.{turner(text)}({first}, {first + 1})"
                yield "merge", node, f"{moved}.reshape({', '.join(words)})"


def turner(text: ProgramText) -> str:
    return "transpose" if text.has_torch and not text.array_library else "swapaxes"


def repeat_heads(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    name = called(node)
    if name in {"repeat", "tile"}:
        given = operands(node)
        if not given:
            return
        array = in_brackets(text, given[0])
        counts = given[1:]
        if len(counts) == 1 and isinstance(counts[0], ast.Tuple):
            counts = list(counts[0].elts)
        words = [text.of(count) for count in counts]
        many = [at for at, word in enumerate(words) if word != "1"]
        torch_method = text.has_torch
        if len(many) == 1 and (len(words) > 1 or torch_method):
            at = many[0]
            if torch_method:
                yield "groups", node, f"{array}.repeat_interleave({words[at]}, dim={at})"
            if text.array_library:
                yield "groups", node, f"{text.array_library}.repeat({array}, {words[at]}, axis={at})"
    elif name == "repeat_interleave" and isinstance(node.func, ast.Attribute):
        given = operands(node)
        axis = next((number_of(key.value) for key in node.keywords if key.arg == "dim"), None)
        if axis == -1 and len(given) > 1:
            array, count = text.of(given[0]), text.of(given[1])
            yield "halves", node, f"torch.cat([{array}] * {count}, dim=-1)"


def family(name: str) -> str:
    """What names of a kind have in common: w_q and w_k, W_V1 and W_K1."""
    bare = name.removeprefix("self.")
    return re.sub(
        r"query|queries|key|keys|value|values|(?<![a-z])[qkv](?![a-z])|[qkv]$|^[qkv]|[QKV]|\d", "?", bare
    )


def use_another(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """Another array that the program has for it, under another name or another key."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key)) as constant):
            keys = {
                inner.value
                for inner in text.nodes
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            }
            for other in sorted(keys - {key}):
                if "?" in family(key) and family(other) == family(key):
                    yield f"name {key} {other}", constant, repr(other)
    name = name_of(node)
    if name is None or not isinstance(getattr(node, "ctx", None), ast.Load):
        return
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return
    others = [
        other
        for other in text.names_made
        if other != name and "?" in family(name) and family(other) == family(name)
    ]
    others.sort(key=lambda other: other not in text.unused)
    for other in others[:6]:
        yield f"name {name} {other}", node, other


def apply_unused(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """What was made and never read: a last projection, positions."""
    match node:
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=ast.expr() as value):
            pass
        case _:
            return
    if isinstance(value, (ast.Constant, ast.Tuple)):
        return
    whole = in_brackets(text, value)
    for name in text.unused:
        made = text.names_made[name][-1]
        words = text.of(made)
        if made is node or name == "_":
            continue
        if "Linear(" in words or "Dropout(" in words:
            yield "applied", value, f"{name}({text.of(value)})"
        else:
            yield "applied", value, f"{whole} @ {name}"
            yield "added", value, f"{whole} + {name}"


def change_index(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=ast.Constant(value=1)):
            yield "without 1", node, text.of(left)
            other = "-" if isinstance(op, ast.Add) else "+"
            yield "other 1", node, f"{text.of(left)} {other} 1"
        case ast.Call(args=[*_, last]) if called(node) in {"range", "arange"}:
            yield "one more", last, f"{text.of(last)} + 1"
            yield "one fewer", last, f"{text.of(last)} - 1"
        case ast.Slice(upper=ast.expr() as upper):
            yield "one more", upper, f"{text.of(upper)} + 1"
        case ast.Compare(comparators=[ast.Constant(value=int(value)) as right]):
            yield "one more", right, str(value + 1)
            yield "one fewer", right, str(value - 1)


def change_sign(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right):
            mark = "-" if isinstance(op, ast.Add) else "+"
            yield "sign", node, f"{text.of(left)} {mark} {in_brackets(text, right)}"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "sign", node, text.of(operand)


def change_einsum(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """The letters of what is summed, exchanged."""
    match node:
        case ast.Call(args=[ast.Constant(value=str(formula)) as constant, *_]) if called(node) == "einsum":
            left, arrow, out = formula.partition("->")
            first, comma, second = left.partition(",")
            for old in (first, second):
                for a, b in ((-2, -1), (-3, -1), (-3, -2)):
                    letters = list(old.strip())
                    if len(letters) < max(-a, -b):
                        continue
                    letters[a], letters[b] = letters[b], letters[a]
                    new = "".join(letters)
                    parts = (new, second) if old is first else (first, new)
                    quote = text.of(constant)[0]
                    yield (
                        f"letters {new}",
                        constant,
                        f"{quote}{parts[0]}{comma}{parts[1]}{arrow}{out}{quote}",
                    )


def change_call(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """What a function of a library is told."""
    if not isinstance(node, ast.Call):
        return
    name = called(node)
    words = text.of(node)
    given = {key.arg: key.value for key in node.keywords}
    if name == "dropout" and "training" not in given and "self" in words:
        yield "training", node, f"{words[:-1]}, training=self.training)"
    if "dropout_p" in given and "self" in text.text:
        probability = given["dropout_p"]
        yield "training", probability, f"{text.of(probability)} if self.training else 0.0"
    if name == "MultiheadAttention" and "batch_first" not in given:
        yield "batch first", node, f"{words[:-1]}, batch_first=True)"
    if name == "exp" and node.args and text.array_library:
        row = in_brackets(text, node.args[0])
        begin, _ = text.span(node)
        at, end = text.span(node.args[0])
        shifted = f"{row} - {row}.max(axis=-1, keepdims=True)"
        yield "shift", node, words[: at - begin] + shifted + words[end - begin :]


ONLY_UNASKED = "mask-unasked"


def leave_out_mask(text: ProgramText, node: ast.AST) -> Iterator[Change]:
    """A call without the mask that another one was given."""
    if not isinstance(node, ast.Call):
        return
    for argument in [*node.args, *(key.value for key in node.keywords)]:
        if re.search("mask|causal", text.of(argument), re.IGNORECASE):
            yield "unmasked", argument, "None"


RULES: tuple[Rule, ...] = (
    change_axis,
    keep_dimensions,
    change_triangle,
    change_condition,
    change_mask,
    move_axis_of_mask,
    change_size,
    change_scale,
    split_heads,
    repeat_heads,
    use_another,
    apply_unused,
    turn,
    change_einsum,
    change_call,
    hide_before_softmax,
    change_index,
    change_sign,
)

FITTING: Mapping[str, str] = {
    "softmax": "axis keepdims",
    "not-normalized": "axis keepdims",
    "scale": "half size scale root without",
    "no-scale": "scale",
    "mask": "mask comparison triangle diagonal branches kept hidden hide share axis one",
    "causal": "mask comparison triangle diagonal branches",
    "window": "one comparison other without diagonal",
    "heads": "split merge",
    "kv-heads": "groups",
    "projection": "name",
    "query-key": "exchanged name transpose letters",
    "output-proj": "applied",
    "W_O": "applied",
    "position": "added",
    "alibi": "sign",
    "rope": "halves",
    "dropout": "training",
    "weights": "transpose letters exchanged share hide",
}
"""Of the kinds of mistake, the changes that are tried first, by the first word of their names."""
