"""What a trace keeps of a picture: its name, the grid of its patches, and what a model saw, made small.

The pixels are bytes of known number, so that nobody's file is decoded where a trace is drawn.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from attnctl.math import Array

MOST_SIDE = 256
"""Pixels to a side that are kept: a model's own 224, or every second of 448."""

MOST_PATCHES = 2**16


class PatchGrid(NamedTuple):
    """How many patches stand below each other, and side by side."""

    rows: int
    columns: int


class SeenPicture(NamedTuple):
    path: str
    pixels: Array
    """Bytes, (row, column, channel)."""
    grid: PatchGrid
    before: int
    """The tokens that stand before those of patches."""


def picture_entry(seen: SeenPicture) -> dict[str, Any]:
    """A picture as the header of a trace has it."""
    small = make_small(seen.pixels)
    height, width = small.shape[:2]
    return {
        "file": seen.path,
        "grid": [seen.grid.rows, seen.grid.columns],
        "before": seen.before,
        "size": [height, width],
        "pixels": b64encode(zlib.compress(small.tobytes(), 9)).decode("ascii"),
    }


def make_small(pixels: Array) -> Array:
    """Every pixel, or every second, third, …: no more than are kept to a side."""
    step = ceil(max(pixels.shape[:2]) / MOST_SIDE)
    return np.ascontiguousarray(pixels[::step, ::step])


def picture_in(header: Mapping[str, Any]) -> SeenPicture | None:
    """The picture of a trace that anyone wrote; None where there is none, or it is no such thing."""
    entry = header.get("image")
    if not isinstance(entry, Mapping):
        return None
    grid = two_counts(entry.get("grid"), MOST_PATCHES)
    size = two_counts(entry.get("size"), MOST_SIDE)
    before = entry.get("before")
    if grid is None or size is None or not isinstance(before, int) or not 0 <= before < MOST_PATCHES:
        return None

    expected = size.rows * size.columns * 3
    data = inflated(entry.get("pixels"), expected)
    if data is None:
        return None
    pixels = np.frombuffer(data, np.uint8).reshape(size.rows, size.columns, 3)
    return SeenPicture(str(entry.get("file", "")), pixels, grid, before)


def two_counts(value: Any, most: int) -> PatchGrid | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        return None
    rows, columns = value
    return PatchGrid(rows, columns) if 0 < rows <= most and 0 < columns <= most else None


def inflated(text: Any, expected: int) -> bytes | None:
    """So many bytes of a text, and no more; None where there are others."""
    if not isinstance(text, str) or len(text) > 2 * expected + 1024:
        return None
    try:
        packed = b64decode(text, validate=True)
        data = zlib.decompressobj().decompress(packed, expected + 1)
    except (NotBase64, ValueError, zlib.error):
        return None
    return data if len(data) == expected else None
