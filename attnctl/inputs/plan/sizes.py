"""Sizes of everything: those a run states, those its matrices show, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attnctl.base.errors import raise_all
from attnctl.base.values import Path
from attnctl.base.words import one_of
from attnctl.inputs.arrays.facts import unrotatable
from attnctl.inputs.config.settings import Settings
from attnctl.math.names import PROJECTED, K, Q, V, matrix_of

Shapes = Mapping[Path, tuple[int, ...]]
"""The shapes of the matrices that were given, by where they stand in the settings."""

DEFAULT_D_MODEL = 4


class Sizes(NamedTuple):
    """The sizes of a run."""

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int


def divisors(n: int) -> list[int]:
    """1, …, n: what divides n."""
    return [i for i in range(1, min(n, 4096) + 1) if n % i == 0]


def resolve(settings: Settings, d_model: int | None, shapes: Shapes) -> Sizes:
    """The sizes these settings mean; `d_model` is what the embeddings show, if they show it.

    Raises AttnError with every contradiction, each at its place.
    """
    heads = settings.heads or len(settings.weights.heads) or 1
    kv_heads = settings.kv_heads or heads
    width = d_model or settings.d_model or rows_of(shapes) or DEFAULT_D_MODEL
    raise_all(contradictions(settings, d_model, heads, kv_heads))
    shares = {Q: heads, K: kv_heads, V: kv_heads}
    shown = {
        "d_k": columns_of(shapes, Q, shares) or columns_of(shapes, K, shares),
        "d_v": columns_of(shapes, V, shares),
    }
    raise_all(check_heads_divide(settings, width, heads, shown))
    d_k = settings.d_k or shown["d_k"] or width // heads
    d_v = settings.d_v or shown["d_v"] or (width // heads if width % heads == 0 else d_k)
    raise_all(unrotatable(settings, d_k))
    return Sizes(width, heads, kv_heads, d_k, d_v)


def contradictions(s: Settings, shown: int | None, heads: int, kv_heads: int) -> Iterator[str]:
    """Settings that cannot be true at once, before any matrix is looked at."""
    for name in ("d_model", "heads", "kv_heads", "d_k", "d_v"):
        value = getattr(s, name)
        if value is not None and value < 1:
            yield f"{s.where((name,))}: {value} is not a size; use 1 or more"
    if kv_heads > 0 and heads % kv_heads:
        choices = one_of(divisors(heads))
        yield f"{s.where(('kv_heads',))}: {kv_heads} does not divide heads {heads}; use {choices}"
    if s.d_model and shown and s.d_model != shown:
        yield (
            f"{s.where(('d_model',))}: {s.d_model}, but the embeddings have rows of {shown}; "
            f"write {shown}, or leave d_model out"
        )
    if s.weights.heads and len(s.weights.heads) != heads:
        yield (
            f"{s.where(('weights', 'heads'))}: matrices for {len(s.weights.heads)} heads, "
            f"but heads is {heads}; give one mapping a head"
        )


def check_heads_divide(
    s: Settings, d_model: int, heads: int, shown: Mapping[str, int | None]
) -> Iterator[str]:
    """heads that do not divide d_model, where d_k has to follow from them."""
    if d_model % heads and not (s.d_k or shown["d_k"]):
        yield (
            f"{s.where(('heads',))}: {heads} does not divide d_model {d_model}; "
            f"use {one_of(divisors(d_model))}, or give d_k"
        )


def rows_of(shapes: Shapes) -> int | None:
    """d_model, as the rows of the first projection show it."""
    for path, shape in shapes.items():
        if path[-1] in {"W", *map(matrix_of, PROJECTED)}:
            return shape[0]
    return None


def columns_of(shapes: Shapes, symbol: str, shares: Mapping[str, int]) -> int | None:
    """The size of one head of Q, K or V, as the columns of its matrix show it."""
    for path, shape in shapes.items():
        if path[-1] in {matrix_of(symbol), "W"} and len(shape) > 1:
            by_head = path[1] == "heads"
            return shape[1] if by_head else shape[1] // shares[symbol]
    return None
