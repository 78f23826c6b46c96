"""Sizes by axis: those that settings state, those that follow, and whether they can all be true."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.values import Path
from attnctl.base.words import dims, one_of
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math import Array, Shape, Sizes
from attnctl.math.derivation import Rotary
from attnctl.math.names import BIAS, MASK, PAST_KEY, POSITION_IDS, PROJECTED, TABLE, matrix_of
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import Alibi

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


# --- positions that are given, a whole number for each token: of a file, or of a config ---


def given_places(arrays: Mapping[str, Array], sizes: Sizes) -> GivenPlaces:
    """The positions of the tokens: (n), (batch, n), or these three times, of time, height and width.

    Raises AttnError for others.
    """
    if POSITION_IDS not in arrays:
        return ()
    found, tokens, members = arrays[POSITION_IDS], sizes.get("query", 0), sizes.get("batch", 1)
    whole = np.array_equal(found, np.rint(found)) and (np.abs(found) < 2**31).all()
    alone = found.shape[-1:] == (tokens,) and whole
    if alone and found.ndim == 1:
        rows = found[None, None]
    elif alone and found.ndim == 2 and len(found) in {1, members}:
        rows = found[None]
    elif alone and found.ndim == 2 and len(found) == 3:
        rows = found[:, None]
    elif alone and found.ndim == 3 and len(found) in {1, 3} and found.shape[1] in {1, members}:
        rows = found
    else:
        wanted = f"({tokens}), ({members}, {tokens}) or (3, {members}, {tokens}) whole numbers"
        raise AttnError(f"{POSITION_IDS}: {dims(found.shape)}, expected {wanted}, one for each query")
    if rows.shape[1] > 1 and (rows == rows[:, :1]).all():
        rows = rows[:, :1]
    return tuple(tuple(tuple(map(int, row)) for row in part) for part in rows.tolist())


def written_places(settings: Settings) -> dict[str, Array]:
    """The positions that a config writes out, under their name."""
    if settings.position_ids is None:
        return {}
    return {POSITION_IDS: np.array(settings.position_ids)}


def goes_by_positions(settings: Settings) -> bool:
    """Whether anything is turned, bent, added or hidden by the positions of tokens."""
    has_slopes = any(isinstance(rule, Alibi) for rule in settings.rules)
    is_turned = rotary(settings) is not None
    return has_slopes or is_turned or adds_positions(settings) or settings.rules_by_positions


def misplaced_sections(settings: Settings, sizes: Sizes, *, rows: int) -> Iterator[str]:
    """Sections of rotary positions that are of no three rows, or of other columns than are turned."""
    rotation = rotary(settings)
    if rotation is None or not (rotation.sections or rotation.sections_in_turn):
        return

    place = settings.where(("positions", "rope", "sections"))
    if not rotation.sections:
        yield f"{place}: sections_in_turn, but no sections; say how many pairs go by each"
    if rows != THREE:
        yield f"{place}: they are of positions of time, height and width; give {POSITION_IDS} of three rows"
    pairs = (rotation.dims or sizes.get("d_k", 0)) // 2
    if rotation.sections and pairs and sum(rotation.sections) != pairs:
        yield f"{place}: {sum(rotation.sections)} pairs, expected {pairs}, as many as are turned"


THREE = 3
"""Rows of positions of time, height and width."""


def misplaced(settings: Settings, sizes: Sizes, places: GivenPlaces) -> Iterator[str]:
    """What is wrong with positions that are given, for what goes by them."""
    if not places:
        yield from misplaced_sections(settings, sizes, rows=0)
        if settings.rules_by_positions:
            place = settings.where(("rules_by_positions",))
            yield f"{place}: no positions are given; give {POSITION_IDS}, or leave it out"
        return

    place = settings.where((POSITION_IDS,))
    by_rules = settings.rules_by_positions
    has_slopes = any(isinstance(rule, Alibi) for rule in settings.rules)
    is_added = adds_positions(settings)
    if settings.position_ids is not None and not goes_by_positions(settings):
        yield f"{place}: nothing here goes by positions; say positions: rope, or leave it out"

    if len(places) > 1 and (has_slopes or is_added or by_rules):
        yield f"{place}: three rows are for rotary positions; give one row"
    if len(places[0]) > 1 and is_added:
        yield f"{place}: positions that are added are the same for the whole batch; give one row"

    yield from misplaced_sections(settings, sizes, rows=len(places))
    queries = sizes.get("query", 0)
    if (has_slopes or by_rules) and ("past" in sizes or key_count(sizes) != queries):
        what = f"they say where {queries} queries stand, and there are {key_count(sizes)} keys"
        instead = "ALiBi's numbers as bias" if has_slopes else "who sees whom as mask"
        yield f"{place}: {what}; give {instead}, or leave them out"


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
