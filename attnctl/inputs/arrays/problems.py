"""Find why arrays cannot be attended over: missing, not finite, or of shapes that do not go together."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np

from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import adds_positions, unmeant_cache
from attnctl.math import Array, Shape
from attnctl.math.names import (
    B_O,
    KEY_LENGTHS,
    MASK,
    MEMORY,
    NORM_BIASES,
    NORM_WEIGHTS,
    PAST_KEY,
    PAST_VALUE,
    PROJECTED,
    TABLE,
    W_O,
    Q,
    X,
    bias_of,
    matrix_of,
    where,
)

FROM_X = (X, *map(matrix_of, PROJECTED))
MAKERS = (*map(matrix_of, PROJECTED), *map(bias_of, PROJECTED))  # the weights that make Q, K and V


def from_x(found: Container[str]) -> bool:
    """True if Q, K and V are to be computed: X and its weights are there."""
    return all(name in found for name in FROM_X)


def inputs_among(found: Container[str]) -> list[str]:
    """The arrays that attention reads here: X and what makes Q, K and V of it, or these alone."""
    needless = PROJECTED if from_x(found) else (X, MEMORY, *MAKERS)
    return [name for name in where(lambda row: row.input) if name in found and name not in needless]


def missing(found: Container[str], settings: Settings) -> Iterator[str]:
    wanted = FROM_X if X in found and Q not in found else PROJECTED
    lacking = [name for name in wanted if name not in found]
    if lacking and not from_x(found):
        needs = "attention needs Q, K and V, or X with W_Q, W_K and W_V (--name THEIRS=OURS renames)"
        yield f"no {', '.join(lacking)} in the arrays; {needs}"
    if adds_positions(settings) and not from_x(found):
        yield "sinusoidal and learned positions are added to X; give X, W_Q, W_K and W_V"
    if (PAST_KEY in found) != (PAST_VALUE in found):
        yield "past_key and past_value go together; give both"
    if B_O in found and W_O not in found:
        yield "b_O is added to concat W_O; give W_O too"
    yield from unmeant_norms(found, settings)
    yield from unmeant_cache(found, settings)


def unmeant_norms(found: Container[str], settings: Settings) -> Iterator[str]:
    """Weights of norms of Q and K of which nobody says what they are, or that are not all there."""
    there = [name for name in (*NORM_WEIGHTS, *NORM_BIASES) if name in found]
    place = settings.where(("qk_norm",))
    if there and settings.qk_norm is None:
        yield f"{' '.join(there)}: Q and K are normed, but how? {place} rms (Qwen3, OLMo2) or layer says it"
    for names in (NORM_WEIGHTS, NORM_BIASES):
        if len([name for name in names if name in there]) == 1:
            yield f"{' and '.join(names)} go together; give both"
    if NORM_BIASES[0] in there and NORM_WEIGHTS[0] not in there:
        yield f"{NORM_BIASES[0]} is added to what a weight multiplies; give {NORM_WEIGHTS[0]} too"


def unusable(name: str, array: Array, dtype: str) -> Iterator[str]:
    if array.dtype.kind not in ("fiub" if name == MASK else "fiu"):
        yield f"{name}: numbers of type {array.dtype}, expected floats"
        return
    if not array.size:
        if name not in {PAST_KEY, PAST_VALUE}:
            yield f"{name}: {dims(array.shape)}, nothing to attend with"
        return
    low, high, wanted = limits(name, array, dtype)
    if low <= float(array.min()) and float(array.max()) <= high:
        return
    numbers = array.astype(np.float64)
    bad = np.argwhere(~((numbers >= low) & (numbers <= high))).tolist()
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    yield f"{name}: {array[tuple(bad[0])]} at {bad[0]}{more}; {wanted}"


def limits(name: str, array: Array, dtype: str) -> tuple[float, float, str]:
    """The least and the greatest number an array may hold, and how to say so; −∞ hides scores."""
    if name == MASK and array.dtype.kind in "iu":
        return 0, 1, "write 0 (hidden) or 1 (may attend), or floats to be added to the scores"
    if name == KEY_LENGTHS:
        return 0, np.inf, "write how many keys are real"
    greatest = float(np.finfo(dtype).max)
    low = -np.inf if TABLE[name].of_scores else -greatest
    return low, greatest, f"every number must be finite and within ±{greatest:.5g} ({dtype})"


def has_batch(shapes: Mapping[str, Shape], settings: Settings, name: str = Q) -> bool:
    """True if X, or else one of Q, K and V, has a batch axis; with --heads (batch, n, heads·d) has."""
    if settings.layout is not None:
        return settings.layout.startswith("b")
    if X in shapes:
        return len(shapes[X]) == 3
    return len(shapes[name]) > (3 if settings.heads is None else 2)


def has_vectors(name: str) -> bool:
    """True if an array has a vector for each head and token, as Q, K, V and a cache have."""
    row = TABLE[name]
    return row.by_head and not (row.is_weight or row.broadcasts or row.of_scores or "chunk" in row.own)


def unlike_layout(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Arrays that have not the axes of the layout that is asked for, or whose layout has to be."""
    sources = [X, MEMORY] if X in shapes else PROJECTED
    layout, place = settings.layout, settings.where(("layout",))
    if layout is None:
        yield from ambiguous(shapes, settings)
    elif X in shapes and "h" in layout:
        yield f"{place}: {layout}, but X has no heads; write nd or bnd"
    else:
        for name in (name for name in sources if name in shapes):
            if len(shapes[name]) != len(layout):
                yield f"{name}: {dims(shapes[name])} has not the {len(layout)} axes of {place} {layout}"


def ambiguous(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Q, K and V of three axes that may be one sentence by head, or a batch with heads side by side."""
    if X in shapes or (settings.heads or 1) == 1:
        return
    heads = {name: heads_asked(name, settings) for name in PROJECTED}
    if all(len(s := shapes[name]) == 3 and s[0] == n and s[2] % n == 0 for name, n in heads.items()):
        place, may_be = settings.where(("layout",)), "may be (head, n, d) or (batch, n, heads·d)"
        yield f"Q: {dims(shapes[Q])} with {heads[Q]} heads {may_be}; write {place} hnd or {place} bnd"


def heads_asked(name: str, settings: Settings) -> int:
    """The number of heads that an array has by the options: those of queries, or of keys and values."""
    own = TABLE[name].own.startswith("head")
    return (settings.heads if own else settings.kv_heads or settings.heads) or 1
