"""Numbers that grew too large for their type: the first of them, whatever is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from attnctl.math import Array, ops
from attnctl.math.derivation import Step
from attnctl.math.engine.tiles import Stretch, is_n_by_n

SUMS = (ops.ChunkLogSumExp, ops.LogSumExp, ops.MergeLogSumExp)
"""Ops that make −∞ where nothing is seen: of no keys, too."""

Found = tuple[str, list[int]]
"""A step, and the first of its cells that grew too large."""

ROOM = 4
"""How many times its bound a score may be: rounding, and sums that grow before they shrink."""

NEVER_LARGER = (ops.Copy, ops.Hide, ops.Remainder, ops.SinkSoftmax, ops.Softmax, ops.Squeeze)
"""Ops that make no score larger than it was."""


def overflow(
    steps: Iterable[Step],
    values: Mapping[str, Array],
    edited: Collection[str] = (),
    tiled: Stretch | None = None,
) -> Found | None:
    """The first step, and its first cell, that grew too large for its type of number.

    Scores may be −∞ from the step on that hides them, which an edit does, too. Steps of a `tiled`
    stretch that have no value are computed again.
    """
    steps = [step for step in steps if not isinstance(step.op, ops.Given)]
    hiding: set[str] = set()  # steps in which −∞ may be meant
    hidden = False
    for step in steps:
        hidden |= step.name in edited or (is_n_by_n(step) and isinstance(step.op, (ops.Add, ops.Hide)))
        if hidden or isinstance(step.op, SUMS):
            hiding.add(step.name)
    again = find_in_tiles(tiled, hiding) if tiled else {}
    for step in steps:
        hides = step.name in hiding
        cell = first_cell(values[step.name], hides=hides) if step.name in values else again.get(step.name)
        if cell is not None:
            return step.name, cell
    return None


def first_cell(array: Array, *, hides: bool) -> list[int] | None:
    """The first cell that is not finite, and not −∞ where that hides."""
    fine = np.isfinite(array)
    if fine.all():
        return None
    grown = np.argwhere(~(fine | np.isneginf(array)) if hides else ~fine)
    return [int(at) for at in grown[0]] if len(grown) else None


def find_in_tiles(stretch: Stretch, hiding: Collection[str]) -> dict[str, list[int]]:
    """The first cell of each n × n step of a stretch that grew too large, hidden or not."""
    steps = [step for step in stretch.steps if is_n_by_n(step)]
    bare = replace(stretch, steps=steps, kept={})
    rows = bare.whole_rows()
    scratch = np.empty(rows * stretch.keys, stretch.dtype)
    found: dict[str, list[int]] = {}
    for lead in np.ndindex(*stretch.lead):
        for start in range(0, stretch.queries, rows):

            def note(step: Step, value: Array, lead: tuple[int, ...] = lead, start: int = start) -> None:
                cell = None if step.name in found else first_cell(value, hides=step.name in hiding)
                if cell is not None:
                    found[step.name] = [*lead, start + cell[0], cell[1]]

            part = slice(start, min(start + rows, stretch.queries))
            bare.compute_tile(steps, lead, part, slice(0, stretch.keys), lambda _: scratch, note)
    return found


def in_range(stretch: Sequence[Step], values: Mapping[str, Array]) -> bool:
    """True where no score of a stretch can grow too large, and no value did.

    |q·k| ≤ |q| |k| (Cauchy and Schwarz).
    """
    product, *others = [step for step in stretch if is_n_by_n(step)]
    mixed = [
        values[step.inputs[1]] for step in stretch if isinstance(step.op, (ops.ChunkOutputs, ops.MatMul))
    ]
    if not isinstance(product.op, ops.MatMulT) or not all(np.isfinite(v).all() for v in mixed):
        return False
    q, k = (values[name] for name in product.inputs)
    limit = float(np.finfo(q.dtype).max) / ROOM
    size = largest_norm(q) * largest_norm(k)
    for step in others:
        if not size <= limit:  # or NaN
            return False
        size = largest_after(step, size, q.shape[-2] + k.shape[-2], values)
    return size <= limit


def largest_after(step: Step, size: float, reach: int, values: Mapping[str, Array]) -> float:
    """The largest that a step can make of scores up to this size, of `reach` queries and keys in all."""
    match step.op:
        case ops.Scale():
            return size / sqrt(step.op.d_k) if step.op.factor is None else size * abs(step.op.factor)
        case ops.Slope():
            return size + reach + float(np.max(np.abs(step.op.offset)))
        case ops.Add() | ops.Buckets():
            added = values[step.inputs[1]]
            return size + float(np.abs(added[np.isfinite(added)]).max(initial=0))
    return size if isinstance(step.op, NEVER_LARGER) else np.inf


def largest_norm(rows: Array) -> float:
    """The largest √Σ x² of all rows (…, d)."""
    squares = np.einsum("...d,...d->...", rows, rows, dtype=np.float64, casting="unsafe")
    return sqrt(squares.max(initial=0))
