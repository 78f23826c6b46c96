"""The facts a run asks of its arrays and knows of them, wherever they come from."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np

from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math import Array
from attnctl.math.derivation import Rotary
from attnctl.math.names import BIAS, MASK, PAST_KEY


class Facts(NamedTuple):
    """The sizes of a run, and of its batch axis if there is one."""

    batch: int | None
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_k: int
    past: int


def rotary(settings: Settings) -> Rotary | None:
    """The rotary positions, if these are the ones that were asked for."""
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
    turns = rotary(settings)
    dims = d_k if turns is None else turns.dims or d_k
    if turns is not None and (dims > d_k or dims % 2):
        place = settings.where(("positions",))
        yield f"{place}: rotating {dims} of d_k {d_k} columns; they turn in pairs: use an even number"


def written_masks(settings: Settings) -> dict[str, Array]:
    """The mask and the bias that settings write out."""
    written = {MASK: (settings.mask, bool), BIAS: (settings.bias, np.float64)}
    return {name: np.array(rows, dtype) for name, (rows, dtype) in written.items() if rows is not None}
