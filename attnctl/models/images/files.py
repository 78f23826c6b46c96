"""Anyone's picture, read within bounds: its kind and its size are looked at before a pixel is made."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError
from attnctl.base.files import open_input
from attnctl.math.engine.cost import available, size_text

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""What is read: of each Pillow has one decoder, which keeps within the size that the file says."""

LONGEST_FILE = 2**26
MOST_PIXELS = 2**26
MOST_SIDE = 2**15
BYTES_A_PIXEL = 8
"""What a picture takes while it is decoded and made RGB: twice its own bytes, each four to a pixel."""


def require_pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise AttnError("--image: a picture needs Pillow; pip install 'attnctl[images]'") from None
    return Image


def read_picture(path: str, max_memory: int | None = None) -> Image:
    """The picture as RGB, upright as its EXIF says. Raises AttnError for no picture, or too large a one."""
    images = require_pillow()
    data = read_bytes(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of damaged EXIF, and of sizes, which are refused below
        try:
            opened = images.open(BytesIO(data), formats=KINDS)
        # A decoder raises what its own parser raises, of a file that anyone made.
        except Exception as error:  # noqa: BLE001
            raise AttnError(not_read(path, error)) from None

        refuse_size(path, opened.width, opened.height, max_memory)
        try:
            from PIL import ImageOps

            upright: Image = ImageOps.exif_transpose(opened).convert("RGB")
        except Exception as error:  # noqa: BLE001
            raise AttnError(not_read(path, error)) from None
    return upright


def read_bytes(path: str) -> bytes:
    with open_input(path) as stream:
        data: bytes = stream.read(LONGEST_FILE + 1)
    if len(data) > LONGEST_FILE:
        raise AttnError(f"{path}: longer than {size_text(LONGEST_FILE)}; give a smaller picture")
    return data


def not_read(path: str, error: Exception) -> str:
    known = ", ".join(KINDS)
    if type(error).__name__ == "UnidentifiedImageError":
        return f"{path}: not a picture that is read; expected {known}"
    if type(error).__name__.startswith("DecompressionBomb"):
        return f"{path}: far too many pixels; {MOST_PIXELS} are the most"
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{path}: a damaged picture ({first}); write it again as PNG"


def refuse_size(path: str, width: int, height: int, max_memory: int | None) -> None:
    """Refuse a picture by what its header says, before its pixels are made."""
    size = f"{width} × {height} pixels"
    if not width or not height:
        raise AttnError(f"{path}: {size}; give a picture that has some")
    if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
        raise AttnError(
            f"{path}: {size}; {MOST_PIXELS} in all and {MOST_SIDE} to a side are the most: make it smaller "
            "(a model sees some 224 × 224 of them)"
        )

    needed = width * height * BYTES_A_PIXEL
    room = available() if max_memory is None else max_memory
    if needed > room:
        raise AttnError(
            f"{path}: {size} need {size_text(needed)}, and there are {size_text(room)}; "
            "give a smaller picture, or more with --max-memory"
        )
