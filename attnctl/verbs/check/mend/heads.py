"""Heads: how they are split, merged and repeated, and what is transposed on the way."""

from __future__ import annotations

import re
from ast import Attribute, Call, Constant, Load, Name, Subscript, expr
from collections.abc import Iterator

from attnctl.verbs.check.mend.change import (
    RESHAPES,
    TRANSPOSES,
    Changes,
    NodeChange,
    called,
    factors,
    keyword,
    number_of,
    operands,
    sizes_of,
)
from attnctl.verbs.check.mend.text import Node, ProgramText

TOGETHER = re.compile(r"\((\w+) (\w+)\)")
"""Two axes that are one, in a pattern of einops."""


def turned(text: ProgramText, array: expr, first: int) -> str:
    """An array with two neighbouring axes exchanged."""
    method = "transpose" if text.is_torch else "swapaxes"
    return f"{text.in_brackets(array)}.{method}({first}, {first + 1})"


def reshaped(text: ProgramText, node: Node) -> tuple[expr, list[str]] | None:
    """The array and the sizes of a reshape."""
    if not isinstance(node, Call) or called(node) not in RESHAPES:
        return None
    given = operands(text, node)
    if len(given) < 2:
        return None
    return given[0], [text.of(size) for size in sizes_of(given[1:])]


def split_heads(text: ProgramText, node: Node) -> Changes:
    """x.reshape(n, heads, d).swapaxes(0, 1) for x.reshape(heads, n, d)."""
    found = reshaped(text, node)
    if found is None:
        return
    array, sizes = found
    first = len(sizes) - 3
    if first not in (0, 1):
        return
    sizes[first], sizes[first + 1] = sizes[first + 1], sizes[first]
    method = "transpose" if text.is_torch else "swapaxes"
    whole = f"{text.in_brackets(array)}.{called(node)}({', '.join(sizes)}).{method}({first}, {first + 1})"
    yield NodeChange("split", node, whole)


def merge_heads(text: ProgramText, node: Node) -> Changes:
    """x.swapaxes(0, 1).reshape(n, heads * d) for x.reshape(n, heads * d)."""
    found = reshaped(text, node)
    if found is None:
        return
    array, sizes = found
    first = len(sizes) - 2
    if first in (0, 1):
        whole = f"{turned(text, array, first)}.reshape({', '.join(sizes)})"
        yield NodeChange("merged", node, whole)


def turn_reshaped(text: ProgramText, node: Node) -> Changes:
    """k.T for k.reshape(d, n), or behind it."""
    found = reshaped(text, node)
    if found is None or not isinstance(node, Call):
        return
    array, sizes = found
    if len(sizes) == 2:
        yield NodeChange("turned", node, f"{text.in_brackets(array)}.T")
        yield NodeChange("turned", node, f"{text.of(node)}.T")
    yield NodeChange("turned", node, f"{text.of(node)}.swapaxes(-1, -2)")


def turn(text: ProgramText, node: Node) -> Changes:
    """A transpose that is missing, or one too many."""
    match node:
        case Attribute(attr="T" | "mT", value=array):
            yield NodeChange("not turned", node, text.of(array))
        case Call(func=Attribute(value=array)) if called(node) in TRANSPOSES:
            yield NodeChange("not turned", node, text.of(array))
        case Name() | Subscript() | Attribute() if isinstance(node.ctx, Load):
            yield NodeChange("turned", node, f"{text.of(node)}.T")


def turn_factors(text: ProgramText, node: Node) -> Changes:
    """A @ B.T for A @ B, and the factors exchanged."""
    both = factors(node)
    if both is None or not isinstance(node, expr):
        return
    for factor in reversed(both):
        words = text.in_brackets(factor)
        yield NodeChange("turned", factor, f"{words}.T")
        yield NodeChange("turned", factor, f"{words}.swapaxes(-1, -2)")
    left, right = (text.in_brackets(factor) for factor in both)
    exchanged = text.with_parts(node, {both[0]: right, both[1]: left})
    yield NodeChange("exchanged", node, exchanged)


def repeat_each(text: ProgramText, node: Node) -> Changes:
    """repeat_interleave(groups, dim=1) for repeat(1, groups, 1, 1)."""
    if not isinstance(node, Call) or called(node) not in {"repeat", "tile"}:
        return
    given = operands(text, node)
    counts = [text.of(count) for count in sizes_of(given[1:])]
    several = [at for at, count in enumerate(counts) if count != "1"]
    if len(several) != 1:
        return
    axis = several[0]
    array = text.in_brackets(given[0])
    if text.is_torch:
        whole = f"{array}.repeat_interleave({counts[axis]}, dim={axis})"
        yield NodeChange("groups", node, whole)
    elif len(counts) > 1:
        whole = f"{text.numpy}.repeat({array}, {counts[axis]}, axis={axis})"
        yield NodeChange("groups", node, whole)


def repeat_all(text: ProgramText, node: Node) -> Changes:
    """Columns one set behind the other, where each was repeated by itself: angles for halves."""
    if not isinstance(node, Call) or called(node) not in {"repeat_interleave", "repeat"}:
        return
    given = operands(text, node)
    axis = keyword(node, "dim", "axis")
    if axis is None and len(given) > 2:
        axis = given[2]
    if len(given) < 2 or number_of(axis) != -1:
        return
    array = text.of(given[0])
    count = text.of(given[1])
    whole = f"{text.numpy}.concatenate([{array}] * {count}, axis=-1)"
    if text.is_torch:
        whole = f"torch.cat([{array}] * {count}, dim=-1)"
    yield NodeChange("halves", node, whole)


def change_letters(text: ProgramText, node: Node) -> Changes:
    """The letters of what an einsum sums, exchanged."""
    match node:
        case Call(args=[Constant(value=str(formula)) as constant, *_]) if called(node) == "einsum":
            left, arrow, out = formula.partition("->")
            operand_letters = left.split(",")
            for number, letters in enumerate(operand_letters):
                for other in exchanged_letters(letters.strip()):
                    several = [*operand_letters]
                    several[number] = other
                    words = repr(f"{','.join(several)}{arrow}{out}")
                    if text.of(constant).startswith('"'):
                        words = f'"{words[1:-1]}"'
                    yield NodeChange(f"letters {other}", constant, words)


def exchanged_letters(letters: str) -> Iterator[str]:
    for one_end, other in ((-2, -1), (-3, -1), (-3, -2)):
        if len(letters) >= -min(one_end, other):
            several = [*letters]
            several[one_end], several[other] = several[other], several[one_end]
            yield "".join(several)


def change_pattern(text: ProgramText, node: Node) -> Changes:
    """rearrange(x, "b h n d -> b n (h d)") for "b h n d -> b n (d h)"."""
    match node:
        case Call(args=[_, Constant(value=str()) as pattern, *_]) if called(node) == "rearrange":
            words = text.of(pattern)
            for pair in TOGETHER.finditer(words):
                other = f"{words[: pair.start()]}({pair[2]} {pair[1]}){words[pair.end() :]}"
                yield NodeChange("pattern", pattern, other)
