"""A matrix in few bits: its parts by name, and the numbers of any rows and columns of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import dims, one_of
from attnctl.math import Array, Shape
from attnctl.store.header import Stored

WORD = 32
"""Bits of the words that whole numbers are packed in."""

WHOLE_BITS = (2, 4, 8)
"""Those of which a word has a whole number."""


class PackedMatrix(NamedTuple):
    """A matrix of a module."""

    name: str
    names: tuple[str, ...]
    """The tensors that it is made of."""
    shape: Shape
    bits: int
    numbers: Callable[[Array, Array], Array]
    """From the numbers of rows and of columns to what stands there, in float32."""


class PackedParts:
    """The tensors of a checkpoint, as the parts of matrices."""

    def __init__(self, tensors: Mapping[str, Stored]) -> None:
        self.tensors = tensors

    def modules(self, ending: str) -> Iterator[str]:
        """The modules that have a tensor of this name."""
        for name in self.tensors:
            if name.endswith(f".{ending}"):
                yield name.removesuffix(f".{ending}")

    def has(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str, axes: int) -> Stored:
        """Raises AttnError where it is missing, or has other axes."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise AttnError(f"no tensor {name}, which goes with those beside it")
        if len(tensor.shape) != axes:
            raise AttnError(f"{name} is {dims(tensor.shape)}, expected {axes} axes")
        return tensor

    def of_shape(self, name: str, *shapes: Shape) -> Stored:
        """Raises AttnError where a tensor has none of these shapes."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise AttnError(f"no tensor {name}, which goes with those beside it")
        if tensor.shape not in shapes:
            expected = one_of(dims(shape) for shape in shapes)
            raise AttnError(f"{name} is {dims(tensor.shape)}, expected {expected}")
        return tensor

    def words(self, name: str, *shapes: Shape) -> Stored:
        """Whole numbers of 32 bits. Raises AttnError for others."""
        return self.of_kind("iu", 4, name, shapes)

    def bytes(self, name: str, *shapes: Shape) -> Stored:
        return self.of_kind("iu", 1, name, shapes)

    def floats(self, name: str, *shapes: Shape) -> Stored:
        return self.of_kind("f", 0, name, shapes)

    def of_kind(self, kinds: str, size: int, name: str, shapes: tuple[Shape, ...]) -> Stored:
        """A tensor of these types of number, of any size where that is 0."""
        tensor = self.of_shape(name, *shapes) if shapes else self.tensor(name, 2)
        if tensor.dtype.kind not in kinds or size not in {0, tensor.dtype.itemsize}:
            expected = "numbers with a fraction" if kinds == "f" else f"whole numbers of {8 * size} bits"
            raise AttnError(f"{name} holds {tensor.type_name}, expected {expected}")
        return tensor


def read(tensor: Stored, at: Any = ...) -> Array:
    """The numbers of a tensor, or those at an index."""
    return tensor.load(at)


def bits_of(entries: Mapping[str, Any], key: str = "bits") -> int:
    bits = entries.get(key, 4)
    return bits if isinstance(bits, int) else 0


def refuse_bits(bits: int) -> Iterator[str]:
    if bits not in WHOLE_BITS:
        yield f"{bits} bits, of which a word has no whole number; {one_of(map(str, WHOLE_BITS))} are read"


def group_size(entries: Mapping[str, Any], columns: int, key: str = "group_size") -> int:
    """How many numbers of a row have one scale; -1 says all."""
    size = entries.get(key, 128)
    if not isinstance(size, int) or isinstance(size, bool) or size == 0:
        raise AttnError(f"config.json: {key} is {size}, expected a whole number")
    return columns if size < 0 else size


def ceiling(count: int, size: int) -> int:
    return -(-count // size)


def listed_groups(parts: PackedParts, name: str, count: int, groups: int) -> Array:
    """The group of each of so many rows, or columns, where they are not in order.

    Raises AttnError for one that there is not.
    """
    found = read(parts.of_shape(name, (count,)))
    if found.size and (found.min() < 0 or found.max() >= groups):
        raise AttnError(f"{name}: groups from {found.min()} to {found.max()}; there are {groups}")
    return np.asarray(found)


def scale_rows(scales: Stored, group: Array, outs: Array, q: Array, zero: Array) -> Array:
    """scale · (q − zero), as (out, in), of rows (in, out) of which each has the scales of its group."""
    scale = read(scales, (group[:, None], outs[None])).astype(np.float32)
    above_zero = q.astype(np.float32) - zero.astype(np.float32)
    return np.ascontiguousarray((scale * above_zero).T)


def places(shape: Shape, part: Any) -> tuple[Array, Array]:
    """The numbers of the rows and of the columns of a matrix that an index takes."""
    rows, columns = (np.arange(size) for size in shape)
    if part is ...:
        return rows, columns
    if isinstance(part, tuple):
        of_rows, of_columns = part
        return rows[of_rows], columns[of_columns]
    return rows[part], columns


def unpack_columns(
    words: Array, rows: Array, columns: Array, bits: int, order: Array | None = None
) -> Array:
    """Whole numbers of a matrix whose columns are packed, the first in the lowest bits.

    Of other orders `order` says the place of each column among those of its word.
    """
    in_word = WORD // bits
    place = columns % in_word
    if order is not None:
        place = order[place]
    found = words[rows[:, None], columns[None] // in_word].view(np.uint32)
    shift = (place * bits).astype(np.uint32)
    return (found >> shift) & np.uint32((1 << bits) - 1)


def unpack_rows(words: Array, rows: Array, columns: Array, bits: int) -> Array:
    """Whole numbers of a matrix whose rows are packed, the first in the lowest bits."""
    in_word = WORD // bits
    found = words[rows[:, None] // in_word, columns[None]].view(np.uint32)
    shift = (rows % in_word * bits).astype(np.uint32)
    return (found >> shift[:, None]) & np.uint32((1 << bits) - 1)
