"""Sizes by axis: those that settings state, those that follow, and whether they can all be true."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np

from attnctl.base.errors import raise_all
from attnctl.base.values import Path
from attnctl.base.words import one_of
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math import Array, Shape, Sizes
from attnctl.math.derivation import Rotary
from attnctl.math.names import BIAS, MASK, PAST_KEY, PROJECTED, TABLE, matrix_of

OPTIONS = {"d_model": "d_model", "head": "heads", "kv_head": "kv_heads", "d_k": "d_k", "d_v": "d_v"}
"""The setting that says the size of an axis."""

DEFAULT_D_MODEL = 4

Shapes = Mapping[Path, Shape]
"""The shapes of the matrices that were given, by where they stand in the settings."""


def stated_sizes(settings: Settings) -> dict[str, int]:
    sizes = {axis: getattr(settings, option) for axis, option in OPTIONS.items()}
    return {axis: size for axis, size in sizes.items() if size is not None}


def key_count(sizes: Sizes) -> int:
    """The number of keys: where nothing shows it, tokens attend to themselves."""
    return sizes.get("key", sizes.get("query", 0))


def divisors(n: int) -> list[int]:
    return [i for i in range(1, min(n, 4096) + 1) if n % i == 0]


def resolve(settings: Settings, d_model: int | None, shapes: Shapes) -> dict[str, int]:
    """The sizes that settings mean; `d_model` is the embeddings'. Raises AttnError for contradictions."""
    stated = stated_sizes(settings)
    heads = stated.get("head", len(settings.weights.heads) or 1)
    sizes = {"d_model": 0, "head": heads, "kv_head": stated.get("kv_head", heads)}
    raise_all(contradictions(settings, stated, sizes, d_model))

    width = d_model or stated.get("d_model") or rows_shown(shapes) or DEFAULT_D_MODEL
    stated_or_shown = columns_shown(shapes, sizes) | stated
    is_even = width % heads == 0
    if not is_even and "d_k" not in stated_or_shown:
        place = settings.where(("heads",))
        choices = one_of(divisors(width))
        raise_all([f"{place}: {heads} does not divide d_model {width}; use {choices}, or give d_k"])

    d_k = stated_or_shown.get("d_k", width // heads)
    d_v = stated_or_shown.get("d_v", width // heads if is_even else d_k)
    sizes |= {"d_model": width, "d_k": d_k, "d_v": d_v}
    raise_all(unrotatable(settings, d_k))
    return sizes


def rows_shown(shapes: Shapes) -> int | None:
    """d_model, as the first matrix that is given for a projection shows it."""
    projections = {"W", *map(matrix_of, PROJECTED)}
    for path, shape in shapes.items():
        if path[-1] in projections:
            return shape[0]
    return None


def contradictions(settings: Settings, stated: Sizes, sizes: Sizes, d_model: int | None) -> Iterator[str]:
    """Settings that cannot be true at once, before any matrix is looked at."""
    heads = sizes["head"]
    kv_heads = sizes["kv_head"]
    for axis, size in stated.items():
        if size < 1:
            yield f"{settings.where((OPTIONS[axis],))}: {size} is not a size; use 1 or more"

    if kv_heads > 0 and heads % kv_heads:
        choices = one_of(divisors(heads))
        yield f"{settings.where(('kv_heads',))}: {kv_heads} does not divide heads {heads}; use {choices}"

    if d_model and stated.get("d_model", d_model) != d_model:
        place = settings.where(("d_model",))
        rows = f"the embeddings have rows of {d_model}"
        yield f"{place}: {stated['d_model']}, but {rows}; write {d_model}, or leave d_model out"

    by_head = len(settings.weights.heads)
    if by_head and by_head != heads:
        place = settings.where(("weights", "heads"))
        yield f"{place}: matrices for {by_head} heads, but heads is {heads}; give one mapping a head"


def columns_shown(shapes: Shapes, sizes: Sizes) -> dict[str, int]:
    """d_k and d_v, as the columns of matrices show them."""
    shown: dict[str, int] = {}
    for name in map(matrix_of, PROJECTED):
        heads, _, axis = TABLE[name].own.split()
        if axis in shown:
            continue

        for path, shape in shapes.items():
            if path[-1] in {name, "W"} and len(shape) > 1:
                is_of_one_head = path[1] == "heads"
                columns = shape[1] // (1 if is_of_one_head else sizes[heads])
                if columns:  # fewer columns than heads show nothing
                    shown[axis] = columns
                break

    return shown


# --- what settings ask of arrays, wherever these come from ---


def rotary(settings: Settings) -> Rotary | None:
    return settings.positions if isinstance(settings.positions, Rotary) else None


def adds_positions(settings: Settings) -> bool:
    """True if positions are added to X: sinusoids, or a learned table."""
    return settings.positions == SINUSOIDAL or isinstance(settings.positions, list)


def unmeant_cache(found: Container[str], settings: Settings) -> Iterator[str]:
    """Keys of a cache that are to be rotated, where there is no cache, or nothing that rotates."""
    place = settings.where(("cache_unrotated",))
    if settings.cache_unrotated and PAST_KEY not in found:
        yield f"{place}: there is no past_key; leave it out, or give past_key and past_value"
    if settings.cache_unrotated and rotary(settings) is None:
        yield f"{place}: only rotary positions turn keys; say positions rope too"


def unrotatable(settings: Settings, d_k: int) -> Iterator[str]:
    """Rotary positions that this size of head cannot have."""
    rotation = rotary(settings)
    if rotation is None:
        return

    dims = rotation.dims or d_k
    if dims > d_k or dims % 2:
        place = settings.where(("positions",))
        yield f"{place}: rotating {dims} of d_k {d_k} columns; they turn in pairs: use an even number"


def written_masks(settings: Settings) -> dict[str, Array]:
    written: dict[str, Array] = {}
    if settings.mask is not None:
        written[MASK] = np.array(settings.mask, bool)
    if settings.bias is not None:
        written[BIAS] = np.array(settings.bias, np.float64)
    return written
