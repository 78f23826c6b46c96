"""Results of projections that are kept: hundreds of programs are tried that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import Op, Project

MOST_KEPT = 2**21
"""Numbers that are kept: 16 MiB."""

LARGEST_KEPT = 2**19
"""Numbers of the largest result that is kept."""

Key = tuple[object, ...]
Made = tuple[tuple[Array, ...], Array]
"""A result, after what it was made of, which lives as long: no other array gets its address."""

KEPT: ContextVar[dict[Key, Made] | None] = ContextVar("KEPT", default=None)
"""Arrays by what they were made of; what was asked for last is kept, as far as there is room."""


@contextmanager
def keep_results() -> Iterator[None]:
    before = KEPT.set({})
    try:
        yield
    finally:
        KEPT.reset(before)


def apply_op(op: Op, *inputs: Array) -> Array:
    """The result of an op; that of a projection may be one that was kept, and is not to be written to."""
    if not isinstance(op, Project):
        return op.apply(*inputs)
    return kept_or_made((op, *map(place_of, inputs)), inputs, lambda: op.apply(*inputs))


def widen(array: Array) -> Array:
    """The array in float64, which may be one that was kept; booleans as they are."""
    if array.dtype in {np.dtype(bool), np.dtype(np.float64)}:
        return array
    return kept_or_made((place_of(array),), (array,), lambda: to_float64(array))


def keep_rounded(short: Callable[[Array], Array], array: Array) -> Array:
    """The array with fewer digits, which may be one that was kept."""
    return kept_or_made((short, place_of(array)), (array,), lambda: short(array))


def kept_or_made(key: Key, made_of: tuple[Array, ...], make: Callable[[], Array]) -> Array:
    kept = KEPT.get()
    if kept is None:
        return make()
    if key in kept:
        kept[key] = kept.pop(key)  # what was used last goes last
        return kept[key][1]
    made = make()
    if made.size <= LARGEST_KEPT:
        kept[key] = made_of, made
    while sum(result.size for _, result in kept.values()) > MOST_KEPT:
        del kept[next(iter(kept))]
    return made


def place_of(array: Array) -> tuple[object, ...]:
    """The numbers in memory that an array shows: two that look at the same ones are the same."""
    return array.ctypes.data, array.shape, array.strides, array.dtype.str


def to_float64(array: Array) -> Array:
    return array if array.dtype == bool else array.astype(np.float64, copy=False)
