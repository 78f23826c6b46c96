"""Arrays in our layout, with what was read of them on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Sizes
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import PerBatch


@dataclass(frozen=True)
class Laid:
    """Arrays in our layout, the size of each axis, and how many keys are real where that is given."""

    arrays: dict[str, Array]
    sizes: Sizes
    lengths: PerBatch | None
    notes: tuple[str, ...] = ()  # what was decided where an array could have meant something else
    places: GivenPlaces = ()
    """The positions of the tokens, where they are given."""
    relative: Mapping[str, Array] = field(default_factory=dict)
    """The table of a relative bias and its index, as they are."""
    one_row: bool = False
    """Whether weights of norms have one row for all heads: heads are then normed as one row."""
