"""Axes in one notation, that of einops: ``b n (h d)`` has its heads side by side in the columns.

Axes in parentheses are one axis of an array, the last of them the quickest; 1 is an axis of one number, and
``...`` stands for all axes that have no name. This is as much of einops as is needed here: not a dependency
for sixty lines. NumPy is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod

from attnctl.math import Array, Shape

Group = tuple[str, ...]
"""The names of what is one axis of an array: none of an axis of one number, several side by side."""

Groups = tuple[Group, ...]

LEAD = "..."

WORDS = re.compile(r"\([^()]*\)|[^\s()]+")


@cache
def parse_axes(text: str) -> Groups:
    """The groups of a text: (("query",), ("head", "d_k")) of "query (head d_k)"."""
    if WORDS.sub("", text).strip():
        raise ValueError(f"{text!r}: parentheses do not match")
    groups: list[Group] = []
    for word in WORDS.findall(text):
        axes = word.strip("()").split()
        groups.append(tuple(axis for axis in axes if axis != "1"))
    return tuple(groups)


def names_in(groups: Groups) -> list[str]:
    """Every axis in order, those that are side by side one by one."""
    return [axis for group in groups for axis in group]


def solve_sizes(groups: Groups, shape: Shape, known: Mapping[str, int]) -> dict[str, int] | None:
    """The sizes known and those that an array of this shape shows; None where it cannot be read so."""
    if len(groups) != len(shape):
        return None
    sizes = dict(known)
    for group, size in zip(groups, shape, strict=True):
        unknown = [axis for axis in group if axis not in sizes]
        rest = prod(sizes[axis] for axis in group if axis in sizes)
        if len(unknown) == 1 and rest and size % rest == 0:
            sizes[unknown[0]] = size // rest
        elif unknown or rest != size:
            return None
    return sizes


def rearrange(array: Array, pattern: str, **sizes: int) -> Array:
    """The array with its axes in another order: ``rearrange(q, "b n (h d) -> b h n d", h=4)``.

    Raises ValueError for an array that has not the axes on the left, and where sizes are lacking.
    """
    before, after = sides(pattern, array.ndim)
    return arrange(array, before, after, sizes)


def arrange(array: Array, before: Groups, after: Groups, known: Mapping[str, int]) -> Array:
    sizes = solve_sizes(before, array.shape, known)
    if sizes is None:
        axes = ", ".join("·".join(group) or "1" for group in before)
        given = "".join(f", {axis}={size}" for axis, size in known.items())
        raise ValueError(f"rearrange: an array of shape {array.shape} is not ({axes}){given}")

    names = names_in(before)
    order = [names.index(axis) for axis in names_in(after)]
    split = array.reshape([sizes[axis] for axis in names])
    turned = split.transpose(order)
    laid: Array = turned.reshape(shape_of(after, sizes))
    return laid


def shape_of(groups: Groups, sizes: Mapping[str, int]) -> list[int]:
    """The shape of an array with these axes."""
    return [prod(sizes[axis] for axis in group) for group in groups]


@cache
def sides(pattern: str, axes: int) -> tuple[Groups, Groups]:
    """Both sides of a pattern for an array of so many axes: ``...`` becomes as many as it stands for."""
    left, right = (parse_axes(side) for side in pattern.split("->"))
    unnamed = axes - len(left) + 1  # of the left side all have a name but those of `...`
    lead = tuple((f"axis {number}",) for number in range(unnamed))

    before = with_lead(left, lead)
    after = with_lead(right, lead)
    names = names_in(before)
    is_same = sorted(names) == sorted(names_in(after))
    if not is_same or len({*names}) != len(names):
        raise ValueError(f"rearrange: both sides of {pattern!r} name the same axes, each of them once")
    return before, after


def with_lead(groups: Groups, lead: Groups) -> Groups:
    """The groups with these axes in place of ``...``."""
    out: list[Group] = []
    for group in groups:
        if group == (LEAD,):
            out += lead
        else:
            out.append(group)
    return tuple(out)
