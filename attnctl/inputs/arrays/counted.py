"""Positions that arrays say, or that are counted over the keys that the mask shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.arrays.laid import Laid
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import (
    goes_by_positions,
    key_count,
)
from attnctl.math import Array
from attnctl.math.names import (
    MASK,
    POSITION_IDS,
    POSITIONS,
)
from attnctl.math.ops.vectors import GivenPlaces

LEAST_SEEN = -1e4
"""What is added to the score of a key that is seen, at least."""


def with_position_ids(found: Mapping[str, Array]) -> Mapping[str, Array]:
    """The arrays with whole numbers under the name of learned positions as position_ids."""
    if POSITIONS not in found or found[POSITIONS].dtype.kind not in "iu":
        return found
    return {POSITION_IDS if name == POSITIONS else name: array for name, array in found.items()}


def with_positions_counted(laid: Laid, settings: Settings) -> Laid:
    """The positions counted over the keys that the mask, or else the lengths, shows, if that is asked for.

    Raises AttnError where nothing shows them, or nothing goes by them.
    """
    if not settings.positions_from_mask:
        return laid
    place = settings.where(("positions_from_mask",))
    if laid.places:
        raise AttnError(f"{place}: {POSITION_IDS} says the positions; leave one of them out")
    if not goes_by_positions(settings):
        what = "nothing here goes by positions"
        raise AttnError(f"{place}: {what}; say --positions rope or alibi, or leave it out")

    real = keys_shown(laid)
    if real is None:
        raise AttnError(f"{place}: nothing shows which keys are padding; give mask or key_lengths")
    queries = laid.sizes["query"]
    keys = real.shape[-1]
    if "past" not in laid.sizes and queries != keys:
        raise AttnError(f"{place}: {queries} queries for {keys} keys; give {POSITION_IDS}")
    return replace(laid, places=as_places(count_positions(real, queries)))


def keys_shown(laid: Laid) -> Array | None:
    """Which keys some query of a member may see, (batch or 1, key); None where nothing says it."""
    keys = key_count(laid.sizes)
    if MASK in laid.arrays:
        return keys_seen_by_any(laid.arrays[MASK], keys, batch="batch" in laid.sizes)
    if laid.lengths is None:
        return None
    return np.asarray(np.arange(keys) < np.atleast_1d(laid.lengths)[:, None])


def keys_seen_by_any(mask: Array, keys: int, *, batch: bool) -> Array:
    """Which keys a mask in our layout hides from no query, or not from all: (batch or 1, key)."""
    seen = mask if mask.dtype == bool else mask > LEAST_SEEN
    members = len(seen) if batch and seen.ndim == 4 else 1
    rows = seen.reshape(members, -1, seen.shape[-1]).any(axis=1)
    return np.broadcast_to(rows, (members, keys))


def count_positions(real: Array, queries: int) -> Array:
    """0, 1, … over the real keys of each row, for the last so many tokens; 0 where padding comes first."""
    return np.asarray(np.maximum(np.cumsum(real, axis=-1) - 1, 0)[:, -queries:])


def as_places(rows: Array) -> GivenPlaces:
    return (tuple(tuple(map(int, row)) for row in rows),)
