"""Limits on what reading a file may allocate, and on how many of its problems are listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.engine.cost import INFLATED, available, size_text

MOST_PROBLEMS = 20


def hold(need: int, what: str, limit: int | None = None) -> None:
    """Raise AttnError if something needs more bytes than the limit (default: what is available)."""
    limit = available() if limit is None else limit
    if need > limit:
        raise AttnError(f"{what} needs {size_text(need)}, and {size_text(limit)} are left for it")


def room(need: int, what: str) -> Array:
    """Bytes for an array that is to be inflated. Raises AttnError if there are not so many."""
    hold(need, what)
    data: Array = np.empty(need, dtype=np.uint8)
    INFLATED.add(data)
    return data


def raise_first(problems: Sequence[str]) -> None:
    """Raise one AttnError with the first problems and the number of the others, if there are any."""
    more = len(problems) - MOST_PROBLEMS
    if problems:
        raise AttnError(
            [*problems[:MOST_PROBLEMS], *([f"… and {more} more like these"] if more > 0 else [])]
        )
