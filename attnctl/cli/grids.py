"""Traces whose keys are the patches of a picture, as `--grid 24x24@1` says it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace
from attnctl.record.picture import MOST_SIDE, PatchGrid, SeenPicture, picture_entry

GRID = re.compile(r"(\d{1,4})[x×](\d{1,4})(?:@(\d{1,7}))?")


def on_grid(traces: Sequence[Trace], text: str, picture: str | None) -> list[Trace]:
    """The traces with the picture that their keys are of. Raises AttnError where there are too few keys."""
    match = GRID.fullmatch(text)
    if match is None or not int(match[1]) or not int(match[2]):
        raise AttnError(
            f"--grid: {quote(text)}; expected rows and columns, like 24x24, or 24x24@5 from key 5"
        )

    grid = PatchGrid(int(match[1]), int(match[2]))
    pixels = blank(grid) if picture is None else read_pixels(picture)
    laid = []
    for trace in traces:
        before = first_patch(trace, grid, match[3])
        entry = picture_entry(SeenPicture(picture or "", pixels, grid, before))
        laid.append(replace(trace, header={**trace.header, "image": entry}))
    return laid


def first_patch(trace: Trace, grid: PatchGrid, start: str | None) -> int:
    """The key of the first patch: the one that is said, or else they are the last keys."""
    if WEIGHTS not in trace:
        raise AttnError(f"--grid: no {WEIGHTS} in it; it has {', '.join(trace)}")
    keys = trace[WEIGHTS].shape[-1]
    patches = grid.rows * grid.columns
    before = keys - patches if start is None else int(start)
    if before < 0 or before + patches > keys:
        beginning = "" if start is None else f" from key {before} on"
        raise AttnError(
            f"--grid: {grid.rows} × {grid.columns} patches{beginning}, and there are {keys} keys"
        )
    return before


def blank(grid: PatchGrid) -> Array:
    """White, of the grid's shape."""
    longest = max(grid)
    side = max(1, MOST_SIDE // longest)
    height = min(grid.rows * side, MOST_SIDE)
    width = min(grid.columns * side, MOST_SIDE)
    return np.full((height, width, 3), 255, np.uint8)


def read_pixels(path: str) -> Array:
    from attnctl.models.images.files import read_picture

    picture = read_picture(path)
    picture.thumbnail((MOST_SIDE, MOST_SIDE))
    return np.asarray(picture)
