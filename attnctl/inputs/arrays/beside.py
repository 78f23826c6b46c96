"""What stands beside Q, K and V: masks, a sink, weights of norms; log-sum-exps.

The former come in any shape that broadcasts. Log-sum-exps come in base 2, too, and with a number for rows
that see nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log, prod

import numpy as np

from attnctl.base.errors import raise_all
from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import names_in, parse_axes
from attnctl.math.derivation import Derivation
from attnctl.math.names import BIAS, CHUNK_LOGSUMEXP, LOGSUMEXP, NORM_WEIGHTS, SINK, TABLE, gradient_of
from attnctl.math.ops import Hide, LogSumExp


def place(name: str, array: Array, sizes: Sizes, keys: int) -> Array | None:
    """The array so that it broadcasts against what it goes with; None where it fits in no way.

    A mask shorter than the keys hides the rest; one of a single column is that column for all. It may be
    (batch, key) or (batch, query, key), too; without a batch axis a leading one of size 1 goes.
    """
    if not TABLE[name].of_scores:
        return by_head(name, array, sizes)
    short = keys - array.shape[-1] if array.ndim and array.shape[-1] != 1 else 0
    if short > 0:
        fill = False if array.dtype == bool else -np.inf
        array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, short)], constant_values=fill)
    ways = [array]
    if "batch" in sizes and array.ndim in {2, 3}:
        ways.append(array[:, None, None] if array.ndim == 2 else array[:, None])
    elif "batch" not in sizes and array.shape[:1] == (1,):
        ways.append(array[0])
    return next((way for way in ways if broadcasts(way.shape, score_sizes(sizes))), None)


def heads_shown(arrays: Mapping[str, Array]) -> dict[str, int]:
    """The number of heads that a sink shows, or norms' weights that each head has its own of."""
    weights = {"head": arrays.get(NORM_WEIGHTS[0]), "kv_head": arrays.get(NORM_WEIGHTS[1])}
    shown = {
        axis: len(array)
        for axis, array in weights.items()
        if array is not None and array.ndim == 2 and len(array) > 1
    }
    return shown | ({"head": int(arrays[SINK].size)} if SINK in arrays else {})


def by_head(name: str, array: Array, sizes: Sizes) -> Array | None:
    """A sink as (head,), a norm's factor as (d_k,) or (head, d_k), axes of size 1 aside; else None."""
    whole = tuple(sizes.get(axis, array.size) for axis in names_in(parse_axes(TABLE[name].own)))
    plain = without_ones(array.shape)
    if plain in {without_ones(whole), without_ones((prod(whole),))}:
        return array.reshape(whole)
    return array.reshape(whole[-1]) if len(whole) > 1 and plain == without_ones(whole[-1:]) else None


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def is_one_row(name: str, array: Array, sizes: Sizes) -> bool:
    """True if a norm's weight has the columns of all heads in one row, as OLMo2 has it."""
    size = array.size
    return name in NORM_WEIGHTS and len(without_ones(array.shape)) == 1 and size > sizes.get("d_k", size)


def score_sizes(sizes: Sizes) -> list[int | str]:
    batch = ["batch"] if "batch" in sizes else []
    return [sizes.get(axis, axis) for axis in (*batch, *TABLE[BIAS].axes)]


def broadcasts(shape: Shape, scores: Sequence[int | str]) -> bool:
    """True if an array of this shape can be laid over the scores; a size that is not known fits any."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    fits = all(a in {1, b} or isinstance(b, str) for a, b in pairs)
    return fits and 1 <= len(shape) <= len(scores)


def ill_placed(name: str, array: Array, sizes: Sizes) -> str:
    if TABLE[name].of_scores:
        scores = dims(score_sizes(sizes))
        return f"{name}: {dims(array.shape)} does not fit scores of {scores} ([batch ×] head × query × key)"
    *heads, d = (sizes.get(axis, axis) for axis in names_in(parse_axes(TABLE[name].own)))
    ways = f"{d} (d_k) or {dims((*heads, d))} (head × d_k)" if heads else f"{d} (one for each head)"
    return f"{name}: {dims(array.shape)}, expected {ways}"


# --- log-sum-exps ---

SUMS = (LOGSUMEXP, CHUNK_LOGSUMEXP)
OF_BASE = {**dict.fromkeys(SUMS, log(2)), gradient_of(LOGSUMEXP): 1 / log(2)}
"""What makes natural numbers of those in base 2: L = L₂ ln 2, and so d_L = d_L₂ / ln 2."""


def in_base_e(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with natural log-sum-exps. Raises AttnError where there are none to say it of."""
    raise_all(
        f"{settings.where((option,))}: nothing read here is a log-sum-exp; leave it out"
        for option, names in (("lse_base", OF_BASE), ("lse_empty", SUMS))
        if getattr(settings, option) is not None and not arrays.keys() & {*names}
    )
    if settings.lse_base != "2":
        return dict(arrays)
    return {**arrays, **{name: times(arrays[name], by) for name, by in OF_BASE.items() if name in arrays}}


def times(array: Array, factor: float) -> Array:
    """The product in as many digits as the array has; bfloat16 comes as float32."""
    product = (array.astype(np.float64) * factor).astype(array.dtype)
    if array.dtype != np.float32 or (np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any():
        return product
    mantissa, exponent = np.frexp(product)
    return np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent).astype(array.dtype)


def with_empty_rows(
    arrays: Mapping[str, Array], derivation: Derivation, empty: float | None, keys: int
) -> dict[str, Array]:
    """The arrays with −∞ for rows that see nothing and were written down as another number."""
    out = dict(arrays)
    for name in SUMS if empty is not None else ():
        if name in arrays and name in derivation:
            *lead, heads, queries = arrays[name].shape
            rows = (*(lead[:-1] if name == CHUNK_LOGSUMEXP else lead), heads, queries)
            op = derivation[name].op if name == CHUNK_LOGSUMEXP else LogSumExp()
            nothing = np.isneginf(op.apply(hide_keys(np.zeros((*rows, keys)), arrays, derivation)))
            out[name] = np.where(nothing & (arrays[name] == empty), -inf, arrays[name])
    return out


def hide_keys(s: Array, arrays: Mapping[str, Array], derivation: Derivation) -> Array:
    for step in derivation:
        if isinstance(step.op, Hide):
            s = step.op.apply(s, *(arrays[name] for name in step.inputs[1:]))
        elif BIAS in step.inputs:
            s = np.where(np.isneginf(arrays[BIAS]), -inf, s)
    return s
