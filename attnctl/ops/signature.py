"""The shapes that an op takes and gives, written as NumPy writes those of its own functions.

``(..., query, d), (..., key, d) -> (..., query, key)``: axes of one name are of one size, `...` are any
leading axes; the result has those of the input that has most. What is in [ ] may be left out, and so
may axes with ?, from the left; a mask is a bool. Sizes of the result are names of axes and fields of
the op, their sums and products.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from attnctl.array import Shape

LEAD = "..."


class Signature(NamedTuple):
    """The axes of each input and of the result; inputs from number `required` on may be left out."""

    takes: tuple[tuple[str, ...], ...]
    masks: tuple[bool, ...]
    gives: tuple[str, ...]
    required: int


@cache
def parse(text: str) -> Signature:
    """The signature that a text is."""
    takes, gives = text.split("->")
    required = takes.partition("[")[0].count("(")
    inputs = re.findall(r"(bool )?\(([^)]*)\)", takes)
    axes, masks = tuple(axes_of(inside) for _, inside in inputs), tuple(bool(mask) for mask, _ in inputs)
    return Signature(axes, masks, axes_of(gives.strip(" ()")), required)


def axes_of(text: str) -> tuple[str, ...]:
    """The names in "..., m, n"."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def bound(axes: Sequence[str], shape: Shape) -> tuple[Shape, dict[str, int]]:
    """The leading axes of a shape, and the sizes of the others by name; axes with ? where there is room."""
    names = [each.rstrip("?") for each in axes if each != LEAD]
    lacking = max(0, len(names) - len(shape))
    optional = [each.rstrip("?") for each in axes if each.endswith("?")][:lacking]
    names = [each for each in names if each not in optional]
    start = len(shape) - len(names)
    return shape[:start], dict(zip(names, shape[start:], strict=True))


def result_shape(op: Any, *inputs: Shape) -> Shape:
    """The shape that an op makes of inputs of these shapes."""
    signature = parse(op.signature)
    longest: Shape = ()
    sizes: dict[str, int] = {}
    for axes, shape in zip(signature.takes, inputs, strict=False):
        lead, own = bound(axes, shape)
        longest = max(longest, lead, key=len)
        sizes = own | sizes

    def size(word: str) -> int:
        """head * d, past + new."""
        terms = [[factor.strip() for factor in term.split("*")] for term in word.split("+")]
        return sum(
            prod(sizes[each] if each in sizes else getattr(op, each) for each in term) for term in terms
        )

    there = [each.rstrip("?") for each in signature.gives if not each.endswith("?") or each[:-1] in sizes]
    return tuple(each for word in there for each in (longest if word == LEAD else (size(word),)))
