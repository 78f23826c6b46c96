"""The positions of a call's tokens, as whoever calls has them: rotary positions and masks go by these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.inputs.arrays.reader import as_array
from attnctl.math import Array, Shape
from attnctl.math.names import POSITION_IDS

NAMES = (POSITION_IDS, "positions", "input_positions", "cache_position", "input_pos")
"""What programs call them."""

MOST_FRAMES = 32
"""So many callers are asked: a layer of a model is a few calls away."""

ROWS_OF_POSITIONS = (1, 3)
"""One row, or one each of time, height and width."""


def positions_around(frame: FrameType | None, query: Shape) -> Array | None:
    """The positions that the nearest caller has for the tokens of a query of this shape, if one has."""
    for value in values_around(frame):
        with suppress(AttnError, *UNREADABLE):
            if not fits(tuple(value.shape), query):
                continue
            array = as_array(POSITION_IDS, value)
            if array.dtype.kind in "iu":
                return array
    return None


UNREADABLE = (AttributeError, TypeError, ValueError)
"""What a value of the program may answer with that is no array."""


def values_around(frame: FrameType | None) -> Iterator[Any]:
    """What callers call positions, from the nearest one on: an argument, or one passed on by keyword."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        own = frame.f_locals
        passed_on = own.get("kwargs")
        for name in NAMES:
            if name in own:
                yield own[name]
            elif type(passed_on) is dict and name in passed_on:
                yield passed_on[name]
        frame = frame.f_back


def fits(shape: Shape, query: Shape) -> bool:
    """Whether positions of this shape are those of the tokens: (n), (batch, n), or 1 or 3 of these."""
    *rows, tokens = shape or (0,)
    if len(query) < 2 or tokens != query[-2] or len(rows) > 2:
        return False
    members = {1, query[0]} if len(query) > 3 else {1}
    match rows:
        case []:
            return True
        case [count]:
            return count in members or count in ROWS_OF_POSITIONS
        case [parts, count]:
            return parts in ROWS_OF_POSITIONS and count in members
    return False
