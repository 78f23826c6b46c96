"""Weights: given, read, identity or drawn; fused or per head; always split by head in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.values import Path
from attnctl.base.words import dims
from attnctl.inputs.config.settings import IDENTITY, NONE, FromFile, Random, Settings
from attnctl.inputs.plan.draw import Numbers, draw, stream
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import parse_axes, rearrange
from attnctl.math.names import PROJECTED, TABLE, W_O, matrix_of, shape_in, shown, size_of, where

Named = dict[str, tuple[Array, str]]
"""Arrays by name, each with how it came about."""


def arrays_of(named: Named) -> dict[str, Array]:
    return {name: array for name, (array, _) in named.items()}


PROJECTIONS = [matrix_of(name) for name in PROJECTED]
"""The matrices that W stands for, where one is used for all."""


def from_file(source: FromFile, place: str) -> Array:
    """The array a config points to. Raises AttnError where the file does not hold it."""
    from attnctl.store import arrays as arrays_of

    found = arrays_of(source.path)
    if source.name is None and len(found) == 1:
        return next(iter(found.values()))
    if source.name not in found:
        wanted = f"no array {source.name!r}" if source.name else "several arrays"
        raise AttnError(f"{place}: {wanted} in {source.path}; name one of {', '.join(found)}")
    return found[source.name]


def with_file(settings: Settings) -> Settings:
    """The settings with every weight of the weights' file written out as such.

    Raises AttnError where the file holds none.
    """
    weights = settings.weights
    if weights.file is None:
        return settings
    from attnctl.store import arrays as arrays_of

    named = [name for name in arrays_of(weights.file) if name in TABLE and TABLE[name].is_weight]
    if not named:
        place = settings.where(("weights", "file"))
        raise AttnError(f"{place}: no {', '.join(PROJECTIONS)}, {W_O} or bias in {weights.file}")
    found = {name: FromFile(weights.file, name) for name in named}
    return settings.with_(weights=replace(weights, tensors={**found, **weights.tensors}, file=None))


def given_arrays(settings: Settings) -> dict[Path, Array]:
    """Every weight that is written out or read from a file, as float64, by its path."""
    out: dict[Path, Array] = {}
    for path, tensor in written_tensors(settings):
        if isinstance(tensor, FromFile):
            out[path] = fuse_heads(
                str(path[-1]), from_file(tensor, settings.where(path)).astype(np.float64)
            )
        elif isinstance(tensor, list):
            out[path] = np.array(tensor, dtype=np.float64)
    return out


def fuse_heads(name: str, array: Array) -> Array:
    """A weight with its heads side by side; a dump has it by head."""
    by_head = is_split(name) and array.ndim == len(TABLE[name].axes)
    return np.concatenate(list(array), axis=-1) if by_head else array


def written_tensors(settings: Settings) -> Iterator[tuple[Path, Any]]:
    """Every entry of the weights with its path."""
    for name, tensor in settings.weights.tensors.items():
        yield ("weights", name), tensor
    for number, head in enumerate(settings.weights.heads):
        for name, tensor in head.items():
            yield ("weights", "heads", number, name), tensor


def fused_shapes(sizes: Sizes) -> dict[str, Shape]:
    """The shape of each weight with its heads side by side, in the order they are drawn."""
    return {name: shape_in(side_by_side(name), sizes) for name in where(lambda row: row.is_weight)}


def side_by_side(name: str) -> str:
    """The layout of a weight with its heads side by side: d_model (kv_head d_k)."""
    row = TABLE[name]
    return row.layouts[1] if row.is_split else row.own


def heads_of(name: str, sizes: Sizes) -> int:
    """The number of heads that this weight is split into; W_O and b_O into none."""
    return size_of(TABLE[name].own.split()[0], sizes) if is_split(name) else 1


def is_split(name: str) -> bool:
    """True if each head has its own part of this weight."""
    return TABLE[name].is_split


def split_heads(fused: Array, heads: int) -> Array:
    """(d_model, heads·d), or a bias (heads·d,), split by head: (head, d_model, d) or (head, d)."""
    return rearrange(fused, "... (head d) -> head ... d", head=heads)


def resolve(settings: Settings, sizes: Sizes, given: Mapping[Path, Array]) -> Named:
    """Every weight of a run by name, the projections split by head.

    Raises AttnError with every matrix whose shape does not fit, each at its place.
    """
    raise_all(misfits(settings, sizes, given))
    out = draw_missing(settings, sizes)
    for name, shape in fused_shapes(sizes).items():
        found = whole(settings, sizes, given, name, shape)
        if found is not None:
            array, how = found
            out[name] = (split_heads(array, heads_of(name, sizes)) if is_split(name) else array), how
        by_head = [settings.weights.heads[h].get(name) for h in range(len(settings.weights.heads))]
        if is_split(name) and any(each is not None for each in by_head):
            out[name] = np.stack(list(head_parts(settings, sizes, given, name))), "given per head"
    if settings.weights.tensors.get(W_O, NONE if projections_given(settings) else None) == NONE:
        out.pop(W_O, None)
    return out


def projections_given(settings: Settings) -> bool:
    """True if W_Q, W_K or W_V is given, not drawn: then W_O is not drawn either."""
    return any(
        path[-1] in {"W", *PROJECTIONS} and not isinstance(tensor, Random)
        for path, tensor in written_tensors(settings)
    )


def source(settings: Settings, name: str) -> tuple[Path, Any]:
    """The place where a fused weight is written: under its own name, or as W for all three projections."""
    tensors = settings.weights.tensors
    key = "W" if name in PROJECTIONS and name not in tensors else name
    return ("weights", key), tensors.get(key)


def whole(
    settings: Settings,
    sizes: Sizes,
    given: Mapping[Path, Array],
    name: str,
    shape: Shape,
) -> tuple[Array, str] | None:
    """A weight that is written fused, with how it came about; None where it is not written."""
    path, tensor = source(settings, name)
    if path in given:
        return given[path], f"from {tensor.path}" if isinstance(tensor, FromFile) else "given"
    if tensor == IDENTITY:
        return np.eye(shape[0]), IDENTITY
    if isinstance(tensor, Random):
        seed = first(tensor.seed, settings.weights.random.seed, settings.seed)
        own = (
            np.random.RandomState(seed)
            if legacy(tensor)
            else stream(seed, "tensor", str(path[-1]), count=prod(shape))
        )
        heads = heads_of(name, sizes)
        return draw_fused(own, shape, heads, tensor, sizes["d_model"]), description(tensor, seed)
    return None


def head_parts(settings: Settings, sizes: Sizes, given: Mapping[Path, Array], name: str) -> Iterator[Array]:
    """The matrix (or bias) of each head, as the per-head form gives it."""
    fused = fused_shapes(sizes)[name]
    for number in range(heads_of(name, sizes)):
        path: Path = ("weights", "heads", number, name)
        tensor = settings.weights.heads[number].get(name)
        if path in given:
            yield given[path]
        elif tensor == IDENTITY:
            yield np.eye(fused[0], fused[1] // heads_of(name, sizes))
        else:
            raise AttnError(
                f"{settings.where(path)}: missing; the other heads give {name}, so give it here too"
            )


def draw_missing(settings: Settings, sizes: Sizes) -> Named:
    """The weights that nobody wrote down, drawn as the run says (textbook order where it matters)."""
    how = settings.weights.random
    seed = first(how.seed, settings.seed)
    shapes = {name: shape for name, shape in fused_shapes(sizes).items() if to_draw(settings, name)}
    text = description(how, seed)
    if legacy(how) and how.layout == "per_head":
        parts = textbook(np.random.RandomState(seed), shapes, sizes, how)
        return {name: (array, text) for name, array in parts.items()}
    one = np.random.RandomState(seed) if legacy(how) else None
    out: Named = {}
    for name, shape in shapes.items():
        rng = one or stream(seed, "tensor", name, count=prod(shape))
        heads = heads_of(name, sizes)
        array = draw_fused(rng, shape, heads, how, sizes["d_model"])
        out[name] = (split_heads(array, heads) if is_split(name) else array), text
    return out


def to_draw(settings: Settings, name: str) -> bool:
    """True if a weight is drawn for want of anything written: biases never are."""
    by_head = any(name in head for head in settings.weights.heads)
    return name.startswith("W") and source(settings, name)[1] is None and not by_head


def textbook(
    rng: Numbers,
    shapes: Mapping[str, Shape],
    sizes: Sizes,
    how: Random,
) -> dict[str, Array]:
    """Draw from one stream, head by head W_Q, W_K, W_V, and W_O at the end."""
    parts: dict[str, list[Array]] = {name: [] for name in shapes if is_split(name)}
    for number in range(sizes["head"]):
        for name, own in parts.items():
            rows, columns = shapes[name]
            if number < heads_of(name, sizes):
                shape = (rows, columns // heads_of(name, sizes))
                own.append(draw(rng, shape, how.distribution, sizes["d_model"]))
    out = {name: np.stack(own) for name, own in parts.items()}
    if W_O in shapes:
        out[W_O] = draw(rng, shapes[W_O], how.distribution, sizes["d_model"])
    return out


def draw_fused(rng: Numbers, shape: Shape, heads: int, how: Random, d_model: int) -> Array:
    """A weight with its heads side by side, drawn whole or a head at a time."""
    if how.layout == "fused":
        return draw(rng, shape, how.distribution, d_model)
    part = (*shape[:-1], shape[-1] // heads)
    return np.concatenate([draw(rng, part, how.distribution, d_model) for _ in range(heads)], axis=-1)


def misfits(settings: Settings, sizes: Sizes, given: Mapping[Path, Array]) -> Iterator[str]:
    """Every given weight whose shape is not the one the sizes ask for."""
    fused = fused_shapes(sizes)
    for path, tensor in written_tensors(settings):
        name = PROJECTIONS[0] if path[-1] == "W" else str(path[-1])
        expected = fused[name]
        if path[1] == "heads":
            expected = (*expected[:-1], expected[-1] // heads_of(name, sizes))
        place = settings.where(path)
        if path[-1] == "W" and len({fused[each] for each in PROJECTIONS}) > 1:
            yield f"{place}: one matrix for Q, K and V needs d_k = d_v and kv_heads = heads"
            continue
        if tensor == IDENTITY and len(expected) == 2 and expected[0] != expected[1]:
            yield f"{place}: identity must be square, but this is {dims(expected)}; give the matrix"
        if path in given and given[path].shape != expected:
            yield f"{place}: {dims(given[path].shape)}, expected {dims(expected)} ({meaning(name, path)})"
        if path in given and not np.isfinite(given[path]).all():
            at = np.argwhere(~np.isfinite(given[path]))[0].tolist()
            yield f"{place}: {given[path][tuple(at)]} at {at}; every number must be finite"


def meaning(name: str, path: Path) -> str:
    of_one_head = path[1] == "heads" and is_split(name)
    return dims(shown(group[-1:] if of_one_head else group) for group in parse_axes(side_by_side(name)))


def description(how: Random, seed: int) -> str:
    """The formula of a drawn tensor."""
    words = {"normal": "N(0, 1/d_model)", "standard_normal": "N(0, 1)", "uniform": "U[0, 1)"}
    return f"drawn {words[how.distribution]}, seed {seed}"


def legacy(how: Random) -> bool:
    """True if one RandomState(seed) feeds all."""
    return how.stream == "numpy_legacy"


def first(*values: int | None) -> int:
    """The first that is not None."""
    return next(value for value in values if value is not None)
