"""Values as messages, in both directions: a text of JSON, and the bytes of the arrays that it names.

Nothing is unpickled, and no type is made but these: what a program says may be false, and that is all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from attnctl.base.channel import Message
from attnctl.math import Array
from attnctl.store.header import DTYPES, MOST_AXES

DEEPEST = 20
"""Levels that lists may stand within each other."""

ARRAY, TUPLE, OBJECT = "array", "tuple", "object"
"""The kinds of values that JSON does not have; each is an object with this one key."""


class UnreadableError(Exception):
    """What a message says is no value."""


def encode(value: Any) -> Message:
    """A value of texts, numbers, lists, tuples, objects and arrays as a message."""
    arrays: list[Array] = []
    text = json.dumps(as_json(value, arrays)).encode()
    return Message(text, b"".join(array.tobytes() for array in arrays))


def as_json(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        arrays.append(array)
        return {ARRAY: [array.dtype.name, list(array.shape), isinstance(value, np.generic)]}
    if isinstance(value, tuple):
        return {TUPLE: [as_json(item, arrays) for item in value]}
    if isinstance(value, list):
        return [as_json(item, arrays) for item in value]
    if isinstance(value, Mapping):
        return {OBJECT: [[str(key), as_json(item, arrays)] for key, item in value.items()]}
    if isinstance(value, bool) or value is None:
        return value
    for kind in (str, int, float):  # one derived from these may do anything when it is written
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def decode(message: Message) -> Any:
    """The value of a message. Raises UnreadableError for anything that `encode` does not make."""
    try:
        data = json.loads(message.text)
        reader = ValueReader(message.data)
        value = reader.read(data, DEEPEST)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise UnreadableError(str(error)[:80]) from None
    if reader.left:
        raise UnreadableError("more bytes than its arrays have")
    return value


class ValueReader:
    def __init__(self, data: bytes) -> None:
        self.left = memoryview(data)
        """The bytes of the arrays that were not read yet."""

    def read(self, data: Any, depth: int) -> Any:
        if not depth:
            raise UnreadableError("lists within lists")
        if isinstance(data, list):
            return [self.read(item, depth - 1) for item in data]
        if not isinstance(data, dict):
            return data
        if len(data) != 1:
            raise UnreadableError("an object of no kind")

        ((kind, said),) = data.items()
        if not isinstance(said, list):
            raise UnreadableError("an object of no kind")
        if kind == ARRAY:
            return self.read_array(*said) if len(said) == 3 else self.refuse_array()
        if kind == TUPLE:
            return tuple(self.read(item, depth - 1) for item in said)
        if kind == OBJECT and all(isinstance(pair, list) and len(pair) == 2 for pair in said):
            return {str(key): self.read(item, depth - 1) for key, item in said}
        raise UnreadableError("an object of no kind")

    def read_array(self, kind: Any, shape: Any, is_scalar: Any) -> Any:
        sizes: Sequence[Any] = shape if isinstance(shape, list) else [-1]
        is_shape = len(sizes) <= MOST_AXES and all(type(size) is int and size >= 0 for size in sizes)
        if not (isinstance(kind, str) and kind in DTYPES and is_shape):
            self.refuse_array()
        dtype = DTYPES[kind]
        count = prod(sizes) * dtype.itemsize
        if count > len(self.left):
            raise UnreadableError("fewer bytes than its arrays have")
        data, self.left = self.left[:count], self.left[count:]
        array = np.frombuffer(data, dtype).reshape(sizes).copy()
        return array[()] if is_scalar else array

    def refuse_array(self) -> Any:
        raise UnreadableError("an array of no type or shape")
