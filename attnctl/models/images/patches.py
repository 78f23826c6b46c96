"""What comes into layer 0 of a picture: each patch through one matrix, the model's own tokens before them.

The names are those of `attnctl.models.family.Patches`; as ViT, CLIP, SigLIP and DINO each have them.
"""

from __future__ import annotations

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.axes import rearrange
from attnctl.models.family import Patches
from attnctl.models.images.interpolation import BICUBIC, BILINEAR, resize_rows
from attnctl.models.layer import Model, norm_op

KERNELS = {"bicubic": BICUBIC, "bilinear": BILINEAR}


def patches_of(model: Model) -> Patches:
    found = model.description.stack.patches
    assert found is not None
    return found


def patch_size(model: Model) -> int:
    size = model.description["patch"]
    if size is None:
        raise AttnError(f"--image: {model.name}: config.json says no patch_size")
    return side_of(size)


def side_of(size: int | list[int]) -> int:
    """One side of a square, which config.json may say twice."""
    return size[0] if isinstance(size, list) else size


def read(model: Model, name: str, shape: Shape) -> Array:
    """A tensor outside of layers, which stands beside them or above."""
    names = model.checkpoint.tensors
    whole = f"{model.prefix}{name}"
    # DINOv3's layers are a module of their own, which its embeddings are not in.
    return model.checkpoint.read(whole if whole in names else name, shape, model.dtype)


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def embed_patches(model: Model, values: Array) -> Array:
    """The rows of the tokens that pixels (channel, row, column) make."""
    parts = patches_of(model)
    rows = project_patches(model, values)
    leading = [own_rows(model, name) for name in parts.leading]
    before = sum(map(len, leading))

    places = None
    if parts.position:
        places = position_rows(model, before)
        rows = rows + places[before:]
    if leading:
        own = np.concatenate(leading)
        rows = np.concatenate([own if places is None else own + places[:before], rows])

    # Registers stand behind the first token, and have no position.
    later = [own_rows(model, name) for name in parts.registers if model.description["registers"]]
    if later:
        rows = np.concatenate([rows[:before], *later, rows[before:]])
    if not parts.norm:
        return rows

    width = model.description["width"]
    factors = [read(model, f"{parts.norm}{suffix}", (width,)) for suffix in model.description.norm_suffixes]
    return norm_op(model.description, model.description["eps"]).apply(rows, *factors)


def project_patches(model: Model, values: Array) -> Array:
    """Each patch through the one matrix, row by row of the picture."""
    parts = patches_of(model)
    d = model.description
    size = patch_size(model)
    channels, height, width = values.shape
    if channels != d["channels"]:
        raise AttnError(f"--image: {channels} channels, and config.json says {d['channels']}")

    whole = values[:, : height // size * size, : width // size * size].astype(model.dtype, copy=False)
    axes = {"p": size, "q": size}
    if parts.linear:
        rows = rearrange(whole, "c (h p) (w q) -> (h w) (p q c)", **axes)
        matrix = read(model, f"{parts.weight}.weight", (d["width"], rows.shape[-1]))
    else:
        rows = rearrange(whole, "c (h p) (w q) -> (h w) (c p q)", **axes)
        matrix = read(model, f"{parts.weight}.weight", (d["width"], channels, size, size))
        matrix = matrix.reshape(d["width"], -1)

    made = rows @ matrix.T
    if f"{model.prefix}{parts.weight}.bias" in model.checkpoint.tensors or parts.has_bias:
        made = made + read(model, f"{parts.weight}.bias", (d["width"],))
    return made


def own_rows(model: Model, name: str) -> Array:
    """The rows of tokens that are the model's own: [CLS], registers."""
    width = model.description["width"]
    count = model.description["registers"] if "register" in name else 1
    # CLIP's has one axis, the others have three.
    stored = model.checkpoint.tensors.get(f"{model.prefix}{name}")
    is_flat = stored is not None and len(stored.shape) == 1
    shape = (width,) if is_flat else (1, count, width)
    return read(model, name, shape).reshape(count, width)


def position_rows(model: Model, before: int) -> Array:
    """The row that is added to each token, those of patches brought to this picture's grid."""
    parts = patches_of(model)
    d = model.description
    grid = model.grid
    assert grid is not None
    assert parts.position is not None

    side = table_side(model)
    count = side * side + before
    shape = (1, count, d["width"]) if parts.position_in_batch else (count, d["width"])
    table = read(model, parts.position, shape).reshape(count, d["width"])
    if not parts.always_resized and (grid.rows, grid.columns) == (side, side):
        return table
    if parts.resize is None:
        raise AttnError(
            f"--image: {grid.rows} × {grid.columns} patches, and {model.description.family} has positions "
            f"of {side} × {side} alone; is preprocessor_config.json another model's?"
        )

    of_patches = table[before:].reshape(side, side, -1)
    resized = resize_rows(of_patches, grid, KERNELS[parts.resize], antialias=parts.antialias)
    flat = resized.reshape(-1, d["width"]).astype(model.dtype)
    return np.concatenate([table[:before], flat])


def table_side(model: Model) -> int:
    """The rows, and the columns, of the grid that a table of positions is of."""
    d = model.description
    if d["patches"] is not None:
        return int(d["patches"] ** 0.5)
    if d["image"] is None:
        raise AttnError(f"--image: {model.name}: config.json says no image_size")
    return side_of(d["image"]) // patch_size(model)


OWN_LABELS = {"distillation": "[DIST]", "cls": "[CLS]", "class": "[CLS]"}


def labels_of(model: Model, before: int) -> list[str]:
    """The names of tokens: r3c5 is the patch in row 3 and column 5, both from 0."""
    parts = patches_of(model)
    labels = [own_label(name) for name in parts.leading]
    labels += [f"[REG{number}]" for number in range(before - len(labels))]

    grid = model.grid
    assert grid is not None
    for row in range(grid.rows):
        labels += [f"r{row}c{column}" for column in range(grid.columns)]
    return labels


def own_label(name: str) -> str:
    """What a token of a model's own is called, by its tensor."""
    return next(label for word, label in OWN_LABELS.items() if word in name)
