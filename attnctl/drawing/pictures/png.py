"""PNG (ISO/IEC 15948): small images with a palette, and SVGs as resvg draws them with our own font."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import RGB
from attnctl.math import Array


def chunk(name: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data))


def palette_png(levels: Array, palette: Sequence[RGB], transparent: int) -> bytes:
    """The image whose pixels (row, column) are places in the palette; one of them is transparent."""
    used, places = np.unique(levels, return_inverse=True)
    rows, columns = levels.shape
    lines = np.zeros((rows, columns + 1), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = places.reshape(rows, columns)
    colours = bytes(part for level in used.tolist() for part in palette[level])
    clear = bytes(0 if level == transparent else 255 for level in used.tolist())
    parts = [
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),  # 3: an image with a palette
        chunk(b"PLTE", colours),
    ]
    if 0 in clear:
        parts.append(chunk(b"tRNS", clear))
    packed = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):  # in noise matches only cost
        packer = zlib.compressobj(9, strategy=strategy)
        packed.append(packer.compress(lines.tobytes()) + packer.flush())
    return b"".join([*parts, chunk(b"IDAT", min(packed, key=len)), chunk(b"IEND", b"")])


FONT = Path(__file__).parent / "font" / "DejaVuSans.ttf"
"""The same letters everywhere, so the same bytes; a character that it lacks is drawn as a box."""

FONT_NAME = "DejaVu Sans"

MONO = FONT.with_name("DejaVuSansMono.ttf")
MONO_NAME = "DejaVu Sans Mono"
"""The letters of programs."""

ZOOM = 2  # pixels for each unit of the SVG: sharp on screens of high density
MOST_PIXELS = 1 << 27  # of one PNG: half a gigabyte while it is drawn


def require_resvg() -> Any:
    """Import the function that draws an SVG. Raises AttnError where resvg-py is not installed."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise AttnError(
            "a PNG needs resvg-py; pip install 'attnctl[png]', or write .svg, which needs nothing"
        ) from None
    return svg_to_bytes


def png(svg: str, width: int, height: int) -> bytes:
    """The picture as PNG. Raises AttnError where resvg-py is not installed, or where it is too large."""
    svg_to_bytes = require_resvg()
    if width * height > MOST_PIXELS:
        raise AttnError(
            f"a PNG of {width} × {height} pixels is too large; write .svg, or pick with --step and --head"
        )
    return svg_to_bytes(
        svg_string=svg,
        zoom=ZOOM if width * height * ZOOM**2 <= MOST_PIXELS else 1,
        skip_system_fonts=True,
        font_files=[str(FONT), *([str(MONO)] if MONO_NAME in svg else [])],
        font_family=FONT_NAME,
        sans_serif_family=FONT_NAME,
    )
