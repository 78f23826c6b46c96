"""An SVG as PNG: drawn by resvg with the font that is installed beside this file and no other."""

from __future__ import annotations

from pathlib import Path

from attnctl.base.errors import AttnError

FONT = Path(__file__).parent / "font" / "DejaVuSans.ttf"
"""The same letters everywhere, so the same bytes; a character that it lacks is drawn as a box."""

NAME = "DejaVu Sans"

COVERED = (
    *((0x20, 0x7E), (0xA0, 0x17F), (0x2B0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x45F)),
    *((0x490, 0x491), (0x5D0, 0x5EA), (0x621, 0x63A), (0x640, 0x655), (0x2010, 0x2027), (0x2030, 0x2044)),
    *((0x2190, 0x2199), (0x2200, 0x2265)),
)
"""The letters of the font: Latin, Greek, Cyrillic, Hebrew and Arabic."""

ZOOM = 2
"""Pixels for each unit of the SVG: sharp on screens of high density."""

MOST_PIXELS = 1 << 27
"""Of one PNG: half a gigabyte while it is drawn."""


def png(svg: str, width: int, height: int) -> bytes:
    """The picture as PNG; a large one has a pixel for each unit.

    Raises AttnError where resvg-py is not installed, or where the picture is too large.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise AttnError(
            "a PNG needs resvg-py; pip install 'attnctl[png]', or write .svg, which needs nothing"
        ) from None
    if width * height > MOST_PIXELS:
        raise AttnError(
            f"a PNG of {width} × {height} pixels is too large; write .svg, or pick with --step and --head"
        )
    return svg_to_bytes(
        svg_string=svg,
        zoom=ZOOM if width * height * ZOOM**2 <= MOST_PIXELS else 1,
        skip_system_fonts=True,
        font_files=[str(FONT)],
        font_family=NAME,
        sans_serif_family=NAME,
    )


def lacking(text: str) -> str:
    """The letters of a text that a PNG shows as boxes, each once."""
    wanted = sorted({char for char in text if char.isalnum() or ord(char) > 0xFFFF})
    return "".join(char for char in wanted if not any(low <= ord(char) <= high for low, high in COVERED))
