"""Results of projections that are kept: hundreds of programs are tried that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.ops import Op, Project

MOST_KEPT = 2**21
"""Numbers that are kept: 16 MiB."""

LARGEST_KEPT = 2**19
"""Numbers of the largest result that is kept."""

Key = tuple[object, ...]
Made = tuple[tuple[Array, ...], Array]
"""A result, after what it was made of."""


@dataclass
class Results:
    """Arrays by what they were made of; what was asked for last is kept, as far as there is room."""

    kept: dict[Key, Made] = field(default_factory=dict)
    """Each with what it was made of, which lives as long: no other array gets its address."""

    def apply(self, op: Op, *inputs: Array) -> Array:
        """The result of a projection, once for the same arrays; of any other op, anew."""
        if not isinstance(op, Project):
            return op.apply(*inputs)
        key = (op, *map(place_of, inputs))
        return self.keep(key, lambda: (inputs, op.apply(*inputs)))

    def widen(self, array: Array) -> Array:
        """The array in float64, once for the same array."""
        if array.dtype in {np.dtype(bool), np.dtype(np.float64)}:
            return array
        return self.keep((place_of(array),), lambda: ((array,), to_float64(array)))

    def keep(self, key: Key, make: Callable[[], Made]) -> Array:
        made = self.kept.pop(key) if key in self.kept else make()
        if made[1].size <= LARGEST_KEPT:
            self.kept[key] = made
        while sum(result.size for _, result in self.kept.values()) > MOST_KEPT:
            del self.kept[next(iter(self.kept))]
        return made[1]


def place_of(array: Array) -> tuple[object, ...]:
    """The numbers in memory that an array shows: two that look at the same ones are the same."""
    return array.ctypes.data, array.shape, array.strides, array.dtype.str


RESULTS: ContextVar[Results | None] = ContextVar("RESULTS", default=None)


@contextmanager
def keep_results() -> Iterator[None]:
    """Results of projections are kept in this block."""
    before = RESULTS.set(Results())
    try:
        yield
    finally:
        RESULTS.reset(before)


def apply_op(op: Op, *inputs: Array) -> Array:
    """The result of an op; it may be one that was kept, and is not to be written to."""
    results = RESULTS.get()
    return results.apply(op, *inputs) if results else op.apply(*inputs)


def widen(array: Array) -> Array:
    """The array in float64, which may be one that was kept; booleans as they are."""
    results = RESULTS.get()
    return results.widen(array) if results else to_float64(array)


def to_float64(array: Array) -> Array:
    """The array in float64; booleans as they are."""
    return array if array.dtype == bool else array.astype(np.float64, copy=False)
