"""What many walks need, made once of what is recorded.

A trace is walked in several readings, with and without an option, whole and in parts: each has views of
the same memory. What is made of that is kept no longer than somebody has it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array


class Memory(NamedTuple):
    """Where the numbers of an array stand."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


Key = tuple[Hashable, tuple[Memory, ...]]

T = TypeVar("T")


class Shared(NamedTuple):
    owners: list[ref[Array]]
    """The arrays that have the memory: what stands there later may be another's."""
    value: ref[Any]


SHARED: dict[Key, Shared] = {}


def shared(what: Hashable, arrays: Sequence[Array], make: Callable[[], T]) -> T:
    """What is made of arrays, the same object for all who need it at once."""
    key = what, tuple(map(memory_of, arrays))
    owners = [owner_of(array) for array in arrays]
    known = SHARED.get(key)
    if known is not None:
        value: T | None = known.value()
        is_same = all(one() is other for one, other in zip(known.owners, owners, strict=True))
        if value is not None and is_same:
            return value

    made = make()
    SHARED[key] = Shared([ref(owner) for owner in owners], ref(made, partial(forget, key)))
    return made


def forget(key: Key, value: ref[Any]) -> None:
    known = SHARED.get(key)
    if known is not None and known.value is value:
        del SHARED[key]


def forget_all() -> None:
    """Begin anew: whoever has the arrays may have changed their numbers since."""
    SHARED.clear()


def memory_of(array: Array) -> Memory:
    return Memory(array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)


def owner_of(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
