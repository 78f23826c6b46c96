"""Positions that are given, a whole number for each token: of a file, or of a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import adds_positions, key_count, rotary
from attnctl.math import Array, Sizes
from attnctl.math.names import POSITION_IDS
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import Alibi


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


def misplaced(settings: Settings, sizes: Sizes, places: GivenPlaces) -> Iterator[str]:
    """What is wrong with positions that are given, for what goes by them."""
    if not places:
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

    queries = sizes.get("query", 0)
    if (has_slopes or by_rules) and ("past" in sizes or key_count(sizes) != queries):
        what = f"they say where {queries} queries stand, and there are {key_count(sizes)} keys"
        instead = "ALiBi's numbers as bias" if has_slopes else "who sees whom as mask"
        yield f"{place}: {what}; give {instead}, or leave them out"
