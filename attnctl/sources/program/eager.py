"""jax.vmap one member after the other, so that what it maps is carried out with arrays, and seen.

Inside the vmap of jax a function runs once, with tracers in place of arrays. What is mapped here gives
the same numbers. It stands in for jax's own only where a program is carried out a second time to be seen.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from attnctl.sources.program.instrument import NAME

EAGER = "ATTNCTL_EAGER"
"""Set for a program that is carried out a second time, with what jax compiles and maps in sight."""


def replace_vmap() -> None:
    """Put the vmap of this module in the place of jax's, where there is a jax."""
    try:
        import jax
    except ImportError:
        return
    jax.vmap = one_by_one(jax.vmap)


def one_by_one(of_jax: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(of_jax)
    def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **more: Any) -> Any:
        is_plain = not any(value is not None for value in more.values())
        if not is_plain or not is_axis(out_axes) or not are_axes(in_axes):
            return of_jax(function, in_axes, out_axes, **more)

        @wraps(function, updated=())
        def mapped(*arrays: Any, **named: Any) -> Any:
            axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(arrays)
            return map_members(function, arrays, axes, named, out_axes)

        return mapped

    return vmap


def map_members(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    axes: Sequence[Any],
    named: dict[str, Any],
    out: Any,
) -> Any:
    """Call a function for each member, and put what it gives together along an axis."""
    from jax import numpy, tree_util

    link = getattr(builtins, NAME).link

    def cut(leaf: Any, axis: int, number: int) -> Any:
        return link(numpy.moveaxis(leaf, axis, 0)[number], [leaf], "take")

    def member(tree: Any, axis: int | None, number: int) -> Any:
        if axis is None:
            return tree
        return tree_util.tree_map(lambda leaf: cut(leaf, axis, number), tree)

    sizes = [
        numpy.shape(leaf)[axis]
        for tree, axis in [*zip(arrays, axes, strict=True), *((value, 0) for value in named.values())]
        if axis is not None
        for leaf in tree_util.tree_leaves(tree)
    ]
    if not sizes or len(set(sizes)) > 1:
        raise ValueError(f"vmap was given arrays whose mapped axes have {sizes} members")

    given = []
    for number in range(sizes[0]):
        of_member = [member(tree, axis, number) for tree, axis in zip(arrays, axes, strict=True)]
        of_names = {name: member(tree, 0, number) for name, tree in named.items()}
        given.append(function(*of_member, **of_names))
    if out is None:
        return given[0]
    return tree_util.tree_map(lambda *leaves: link(numpy.stack(leaves, axis=out), leaves, "stack"), *given)


def is_axis(axis: Any) -> bool:
    return axis is None or isinstance(axis, int)


def are_axes(axes: Any) -> bool:
    """True for an axis, or one for each argument: whole arrays, or all arrays of a tree by the same."""
    if isinstance(axes, (tuple, list)):
        return all(map(is_axis, axes))
    return is_axis(axes)
