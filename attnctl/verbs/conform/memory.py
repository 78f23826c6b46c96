"""Memory before a call: every byte of it says NaN, so that a number which is never written shows.

A row of `np.empty` often holds the right answer of the call before. So malloc fills what it gives
(M_PERTURB of glibc), and blocks of the output's size are filled and let go, for allocators that keep
their own: NumPy's of small arrays, a device's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

NAN, OTHER = 0xFF, 0x41
"""Bytes that say NaN in every type, and some number in every type (12 in float32)."""

M_PERTURB = -6
"""The parameter of glibc's mallopt: memory is filled with the complement of its lowest byte."""

ON = 0x100
"""A bit of it that is no part of that byte: with 0 alone nothing is filled."""

HUGE = 0x7F
"""What stands for NaN in programs, whose environment can ask for any byte but 0xFF."""

BLOCKS = 7
"""Blocks of one size that NumPy keeps."""


@contextmanager
def fill_memory(byte: int, numbers: int, give: Any) -> Iterator[None]:
    """Memory holds this byte until it is written; outputs have so many numbers, `give` makes arrays."""
    fill_malloc((byte ^ 0xFF) | ON)
    blocks = [
        give(np.full(numbers * size, byte, dtype=np.uint8)) for size in (2, 4, 8) for _ in range(BLOCKS)
    ]
    del blocks
    try:
        yield
    finally:
        fill_malloc(0)


def fill_malloc(value: int) -> None:
    """Set what malloc fills memory with; no other system than glibc's has it."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_PERTURB, value)


def environment(byte: int) -> dict[str, str]:
    """What makes malloc of another program fill memory, by this byte or by one that says a huge number."""
    return {"MALLOC_PERTURB_": str((HUGE if byte == NAN else byte) ^ 0xFF)}
