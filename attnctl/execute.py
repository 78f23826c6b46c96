"""Carrying a derivation out: each step in order, from the steps above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.derivation import Derivation
from attnctl.ops import Given

Array = NDArray[Any]
Edit = Callable[[Array], Array]


def carry_out(
    derivation: Derivation,
    given: Mapping[str, Array],
    dtype: str = "float64",
    edits: Mapping[str, Edit] | None = None,
) -> dict[str, Array]:
    """Compute every step in this type of number; a step's edit applies before the next reads it."""
    values: dict[str, Array] = {}
    for step in derivation:
        if isinstance(step.op, Given):
            value = given[step.name]
        else:
            value = step.op.apply(*(values[name] for name in step.inputs))
        if value.dtype != bool:
            value = value.astype(dtype, copy=False)
        if edits and step.name in edits:
            value = edits[step.name](value)
        values[step.name] = value
    return values


def empty_rows(weights: Array) -> list[list[int]]:
    """The rows of attention weights that see nothing: indices of (…, head, query)."""
    rows: list[list[int]] = np.argwhere(~weights.any(axis=-1)).tolist()
    return rows
