"""A small image with a palette, as PNG (ISO/IEC 15948): a byte a pixel, one entry of it transparent."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import pack

import numpy as np

from attnctl.drawing.pictures.scale import RGB
from attnctl.math import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
INDEXED = 3
"""The colour type of an image with a palette."""


def chunk(name: bytes, data: bytes) -> bytes:
    """Length, name, data and checksum."""
    return pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data))


def palette_png(levels: Array, palette: Sequence[RGB], transparent: int) -> bytes:
    """The image whose pixels (row, column) are places in the palette; one of them is transparent.

    Only the entries that are used are written, in their order.
    """
    used, places = np.unique(levels, return_inverse=True)
    rows, columns = levels.shape
    lines = np.zeros((rows, columns + 1), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = places.reshape(rows, columns)
    colours = bytes(part for level in used.tolist() for part in palette[level])
    clear = bytes(0 if level == transparent else 255 for level in used.tolist())
    parts = [
        SIGNATURE,
        chunk(b"IHDR", pack(">IIBBBBB", columns, rows, 8, INDEXED, 0, 0, 0)),
        chunk(b"PLTE", colours),
    ]
    if 0 in clear:
        parts.append(chunk(b"tRNS", clear))
    return b"".join([*parts, chunk(b"IDAT", deflate(lines.tobytes())), chunk(b"IEND", b"")])


def deflate(data: bytes) -> bytes:
    """The data compressed: with matches, or where they only cost, as in noise, without."""
    out = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        packer = zlib.compressobj(9, strategy=strategy)
        out.append(packer.compress(data) + packer.flush())
    return min(out, key=len)
