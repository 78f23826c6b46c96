"""Hostile safetensors: headers and offsets that lie."""

import json
import struct

from hostile import hostile
from hostile_json import dump


def safetensors(header, data=b"", length=None):
    """A file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin, end, shape=(1,), dtype="F64"):
    """One entry of the header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@hostile
def tensors_header_beyond_the_end():
    """A header of 2⁶³ bytes."""
    return safetensors({}, length=2**63)


@hostile
def tensors_header_negative():
    """A header of 2⁶⁴ − 1 bytes."""
    return safetensors({}, length=2**64 - 1)


@hostile
def tensors_overlap():
    """Two arrays that share bytes."""
    return safetensors({"Q": tensor(0, 16, (2,)), "K": tensor(8, 24, (2,))}, bytes(24))


@hostile
def tensors_all_in_one_place():
    """Tens of thousands of arrays on the same bytes: a small file, a large sum."""
    return safetensors({f"{i}": tensor(0, 8) for i in range(30_000)}, bytes(8))


@hostile
def tensors_with_a_hole():
    """Bytes between arrays that nobody describes."""
    return safetensors({"Q": tensor(0, 8), "K": tensor(16, 24)}, bytes(24))


@hostile
def tensors_beyond_the_end():
    """An array that ends behind the file."""
    return safetensors({"Q": tensor(0, 2**40, (2**37,))}, bytes(8))


@hostile
def tensors_whose_size_overflows():
    """A shape whose product is zero in 64 bits."""
    return safetensors({"Q": tensor(0, 0, (2**32, 2**32))})


@hostile
def tensors_of_huge_sizes():
    """A size that no machine has a number for."""
    return safetensors({"Q": tensor(0, 8, (10**400,))}, bytes(8))


@hostile
def tensors_backwards():
    """An array that ends before it begins."""
    return safetensors({"Q": tensor(8, 0, (-1,))}, bytes(8))


@hostile
def tensors_deep():
    """A header that overflows the stack of a recursive parser."""
    return safetensors(b'{"Q":' + b"[" * 1_000_000)


@hostile
def tensors_twice():
    """Two arrays of one name."""
    entry = json.dumps(tensor(0, 8))
    return safetensors(f'{{"Q": {entry}, "Q": {entry}}}'.encode(), bytes(8))


@hostile
def tensors_with_a_header_of_ours_that_lies():
    """A header of a dump that describes other arrays."""
    metadata = {"attnctl.json": dump().replace('"data"', '"more"')}
    return safetensors({"__metadata__": metadata, "Q": tensor(0, 8)}, bytes(8))
