"""Grids of numbers brought to another size, as torch's `interpolate` has it: a matrix for each side."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attnctl.math import Array


class Interpolation(NamedTuple):
    """How much a place counts that is so far away, in steps of the source; none does beyond `reach`."""

    weigh: Callable[[Array, float], Array]
    reach: float


def tent(distance: Array, bend: float) -> Array:
    return np.maximum(1 - np.abs(distance), 0)


def cubic(distance: Array, bend: float) -> Array:
    """Keys' cubic convolution (1981), whose `bend` is −0.75 in torch, −0.5 where it smoothes."""
    x = np.abs(distance)
    near = ((bend + 2) * x - (bend + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * bend - 4 * bend
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


BILINEAR = Interpolation(tent, 1.0)
BICUBIC = Interpolation(cubic, 2.0)
BENT, SMOOTH = -0.75, -0.5


def weights_along(count: int, wanted: int, kernel: Interpolation, *, antialias: bool) -> Array:
    """The weight of each place of the source in each of the result, (wanted, count).

    Places are the middles of their cells. What lies beyond an edge counts as the edge itself, or where the
    result is made smaller smoothly, not at all.
    """
    scale = count / wanted
    centres = (np.arange(wanted) + 0.5) * scale - 0.5
    if antialias:
        width = max(scale, 1.0)
        distance = (np.arange(count) - centres[:, None]) / width
        weights = kernel.weigh(distance, SMOOTH)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    reach = int(kernel.reach)
    first = np.floor(centres).astype(int)[:, None] + np.arange(1 - reach, reach + 1)
    weights = kernel.weigh(first - centres[:, None], BENT)
    matrix = np.zeros((wanted, count))
    rows = np.broadcast_to(np.arange(wanted)[:, None], first.shape)
    np.add.at(matrix, (rows, np.clip(first, 0, count - 1)), weights)
    return matrix


def resize_rows(grid: Array, size: tuple[int, int], kernel: Interpolation, *, antialias: bool) -> Array:
    """A grid (row, column, number) of another size, in float32."""
    rows, columns = grid.shape[:2]
    down = weights_along(rows, size[0], kernel, antialias=antialias)
    across = weights_along(columns, size[1], kernel, antialias=antialias)
    resized = np.einsum("ri,cj,ijd->rcd", down, across, grid.astype(np.float64), optimize=True)
    return resized.astype(np.float32)
