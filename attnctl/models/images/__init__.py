"""A picture as a model sees it: read, prepared, cut into patches, each patch a token.

`files` reads anyone's picture within bounds, `processor` makes of it what preprocessor_config.json asks
for, `patches` what comes into layer 0. What a trace keeps of the picture is said by `record`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.models.forward import require_rows
from attnctl.models.images.files import read_picture
from attnctl.models.images.patches import embed_patches, labels_of, patch_size
from attnctl.models.images.processor import read_processor, size_of_pixels
from attnctl.models.layer import Model
from attnctl.models.source import folder_of
from attnctl.record.picture import PatchGrid, SeenPicture, picture_entry


class SeenImage(NamedTuple):
    """What comes into layer 0 of a picture, and what a trace says of it."""

    hidden: Array
    header: dict[str, Any]


def takes_images(model: Model) -> bool:
    return model.description.stack.patches is not None


def begin_image(model: Model, path: str) -> SeenImage:
    """The rows of a picture's patches; the model is told their grid. Raises AttnError for misfits."""
    if not takes_images(model):
        raise AttnError(f"--image: {model.description.family} reads no pictures; leave it out")

    processor = read_processor(folder_of(model.name))
    picture = read_picture(path, model.max_memory)
    patch = patch_size(model)
    rows, columns, pixels = size_of_pixels(processor, picture, patch)
    require_rows(model, rows * columns)
    prepared = processor.prepare(picture, pixels)

    model.grid = PatchGrid(rows, columns)
    hidden = embed_patches(model, prepared.values)
    before = len(hidden) - rows * columns
    shown = SeenPicture(path, prepared.shown, model.grid, before)
    return SeenImage(
        hidden.astype(model.dtype, copy=False),
        {"tokens": labels_of(model, before), "image": picture_entry(shown)},
    )


def pixels_given(model: Model, values: Array) -> Array:
    """What comes into layer 0 of pixels that are prepared already, (channel, row, column)."""
    patch = patch_size(model)
    _, height, width = values.shape
    model.grid = PatchGrid(height // patch, width // patch)
    return embed_patches(model, np.asarray(values, model.dtype))
