"""Hostile arrays in sound archives: types, shapes and headers."""

import io

import numpy as np
from archives import ONE, archive, described, npy
from hostile import hostile
from hostile_archives import Run


@hostile
def array_of_objects_without_data():
    """Pointers read from a file."""
    return archive({"Q.npy": npy(described((1,), "|O"), bytes(8))})


@hostile
def array_of_records():
    """A type with fields."""
    return archive({"Q.npy": npy(described((1,), [("a", "<f8")]), bytes(8))})


@hostile
def array_of_subarrays():
    """A type that multiplies the shape."""
    return archive({"Q.npy": npy(described((1,), ("<f8", (2**40,))), bytes(8))})


@hostile
def array_of_long_texts():
    """A type of two gigabytes an item."""
    return archive({"Q.npy": npy(described((1,), "<U536870911"), bytes(8))})


@hostile
def array_of_dates():
    """A type whose text NumPy has a parser for."""
    return archive({"Q.npy": npy(described((1,), "<M8[" + "9" * 5000 + "s]"), bytes(8))})


@hostile
def array_beyond_memory():
    """A shape of exabytes over eight bytes."""
    return archive({"Q.npy": npy(described((2**62,)), bytes(8))})


@hostile
def array_whose_size_overflows():
    """A shape whose product is zero in 64 bits."""
    return archive({"Q.npy": npy(described((2**32, 2**32)))})


@hostile
def array_of_nothing_without_end():
    """A shape of no numbers with rows without end."""
    return archive({"Q.npy": npy(described((2**62, 0)))})


@hostile
def array_of_negative_size():
    """Two negative sizes whose product fits."""
    return archive({"Q.npy": npy(described((-1, -1)), bytes(8))})


@hostile
def array_of_true_size():
    """A size that is a truth value."""
    return archive({"Q.npy": npy(described((True,)), bytes(8))})


@hostile
def array_of_many_axes():
    """More axes than NumPy has."""
    return archive({"Q.npy": npy(described((1,) * 100), bytes(8))})


@hostile
def array_cut_off():
    """Fewer numbers than the shape says."""
    return archive({"Q.npy": npy(described((2,)), bytes(8))})


@hostile
def npy_header_deep():
    """An array header that overflows a recursive parser."""
    return archive({"Q.npy": npy(b"[" * 9000)})


@hostile
def npy_header_of_signs():
    """The same with minus signs."""
    return archive({"Q.npy": npy(b"-" * 9000 + b"1")})


@hostile
def npy_header_of_code():
    """An array header that runs a command."""
    code = b"__import__('os').system('touch /tmp/attnctl-was-here')"
    return archive({"Q.npy": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + code + b",)}")})


@hostile
def npy_header_power():
    """An array header that computes without end."""
    return archive({"Q.npy": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9**9**9,)}")})


@hostile
def npy_header_long():
    """A header whose length is four gigabytes."""
    return archive({"Q.npy": b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(100)})


@hostile
def npy_version_9():
    """A version of the format that there is not."""
    return archive({"Q.npy": npy(described((1,)), bytes(8), version=b"\x09\0")})


@hostile
def npy_cut_in_the_header():
    """An array alone whose header is cut."""
    return ONE[:30]


@hostile
def npy_alone_of_objects():
    """An array alone that runs a command."""
    stream = io.BytesIO()
    np.save(stream, np.array([Run()], dtype=object), allow_pickle=True)
    return stream.getvalue()
