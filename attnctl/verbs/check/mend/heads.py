"""Heads: how they are split, merged and repeated, and what is transposed on the way."""

from __future__ import annotations

import re
from ast import Attribute, Call, Constant, Load, Name, Subscript, expr
from collections.abc import Iterator
from itertools import combinations

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

LETTERS = re.compile("[a-zA-Z]{2,}")


def turned(text: ProgramText, array: str, first: int) -> str:
    """An array with two neighbouring axes exchanged."""
    method = "transpose" if text.is_torch else "swapaxes"
    second = first + 1
    return f"{array}.{method}({first}, {second})"


def reshaped(text: ProgramText, node: Node) -> tuple[expr, list[str]] | None:
    """The array and the sizes of a reshape."""
    if not isinstance(node, Call) or called(node) not in RESHAPES:
        return None
    given = operands(text, node)
    if len(given) < 2:
        return None
    sizes = sizes_of(given[1:])
    return given[0], [text.of(size) for size in sizes]


def split_heads(text: ProgramText, node: Node) -> Changes:
    """x.reshape(n, heads, d).swapaxes(0, 1) for x.reshape(heads, n, d)."""
    found = reshaped(text, node)
    if found is None:
        return
    array, sizes = found
    first = len(sizes) - 3
    if first not in (0, 1):
        return
    kind = f"split {sizes}"
    moved = sizes.pop(first)
    sizes.insert(first + 1, moved)
    split = f"{text.in_brackets(array)}.{called(node)}({', '.join(sizes)})"
    yield NodeChange(kind, node, turned(text, split, first))


def merge_heads(text: ProgramText, node: Node) -> Changes:
    """x.swapaxes(0, 1).reshape(n, heads * d) for x.reshape(n, heads * d)."""
    found = reshaped(text, node)
    if found is None:
        return
    array, sizes = found
    first = len(sizes) - 2
    if first in (0, 1):
        whole = turned(text, text.in_brackets(array), first)
        yield NodeChange("merged", node, f"{whole}.reshape({', '.join(sizes)})")


def turn_reshaped(text: ProgramText, node: Node) -> Changes:
    """k.T for k.reshape(d, n), or behind it."""
    found = reshaped(text, node)
    if found is None or not isinstance(node, Call):
        return
    array, sizes = found
    words = text.of(node)
    if len(sizes) == 2:
        bare = text.in_brackets(array)
        yield NodeChange("turned", node, f"{bare}.T")
        yield NodeChange("turned", node, f"{words}.T")
    yield NodeChange("turned", node, f"{words}.swapaxes(-1, -2)")


def turn(text: ProgramText, node: Node) -> Changes:
    """A transpose that is missing, or one too many."""
    match node:
        case Attribute(attr="T" | "mT", value=array):
            yield NodeChange("not turned", node, text.of(array))
        case Call(func=Attribute(attr=name, value=array)) if name in TRANSPOSES:
            yield NodeChange("not turned", node, text.of(array))
        case Name(ctx=Load()) | Subscript(ctx=Load()) | Attribute(ctx=Load()):
            words = text.of(node)
            yield NodeChange("turned", node, f"{words}.T")


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
    several = [axis for axis, count in enumerate(counts) if count != "1"]
    if len(several) != 1:
        return
    axis = several[0]
    count = counts[axis]
    array = text.in_brackets(given[0])
    whole = f"{text.numpy}.repeat({array}, {count}, axis={axis})"
    if text.is_torch:
        whole = f"{array}.repeat_interleave({count}, dim={axis})"
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
        case Call(args=[Constant(value=str()) as formula, *_]) if called(node) == "einsum":
            words = text.of(formula)
            read, arrow, made = words.partition("->")
            for letters in LETTERS.finditer(read):
                for other in exchanged(letters[0]):
                    changed = read[: letters.start()] + other + read[letters.end() :]
                    yield NodeChange(f"letters {other}", formula, changed + arrow + made)


def exchanged(letters: str) -> Iterator[str]:
    """Letters with two of the last three exchanged."""
    for first, second in combinations(range(len(letters))[-3:], 2):
        several = [*letters]
        several[first] = letters[second]
        several[second] = letters[first]
        yield "".join(several)


def change_pattern(text: ProgramText, node: Node) -> Changes:
    """rearrange(x, "b h n d -> b n (h d)") for "b h n d -> b n (d h)"."""
    match node:
        case Call(args=[_, Constant(value=str()) as pattern, *_]) if called(node) == "rearrange":
            words = text.of(pattern)
            for pair in TOGETHER.finditer(words):
                other = f"{words[: pair.start()]}({pair[2]} {pair[1]}){words[pair.end() :]}"
                yield NodeChange("pattern", pattern, other)
