"""Marks on cells beyond their numbers: how large a weight is, which rule hid a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attnctl.drawing.screen.grid import NUMBER, CellStyle, Codes, all_numbers
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.show.sheet import with_sink
from attnctl.math import Array
from attnctl.math.names import MASK, WEIGHTS
from attnctl.math.ops import Block, Hide
from attnctl.record.trace import Trace

BOX = "____"
"""What stands where a number is still to be filled in."""

Index = tuple[int, ...]


def mark_nothing(index: Index) -> Codes:
    """Every cell of every matrix is a number."""
    return all_numbers


class Marks(NamedTuple):
    """The kinds of cell a step has, which cell is of which, and what the words mean."""

    kinds: tuple[CellStyle, ...] = (NUMBER,)
    codes: Callable[[Index], Codes] = mark_nothing
    notes: tuple[str, ...] = ()


def marks(trace: Trace, name: str, sample: Array, screen: Screen) -> Marks:
    """The marks of a step; `sample` holds every number that will be shown."""
    array, op = trace[name], trace.steps[name].op
    if array.dtype == bool:
        return mark_seen(array, screen)
    blank = trace.header.get("blank")
    if isinstance(blank, list) and name in blank and np.isnan(array).any():
        return mark_blanks(array)
    if isinstance(op, Hide):
        return mark_hidden(trace, name, op, screen)
    if name != WEIGHTS:
        return Marks()
    blind = trace.header.get("empty_rows")
    notes = (blind_rows(len(blind)),) if isinstance(blind, list) and blind else ()
    return (shade_weights(with_sink(trace, name), sample) if screen.colours else Marks())._replace(
        notes=notes
    )


def blind_rows(count: int) -> str:
    if count == 1:
        return "1 row sees nothing: its weights are zero"
    return f"{count} rows see nothing: their weights are zero"


def mark_blanks(array: Array) -> Marks:
    """A box in each blank of an exercise."""

    def codes(index: Index) -> Codes:
        return lambda rows, columns: np.isnan(part(np.atleast_2d(array[index]), rows, columns)).astype(int)

    return Marks((NUMBER, CellStyle(BOX, "aside")), codes)


def mark_seen(array: Array, screen: Screen) -> Marks:
    """`see` where a query may attend to a key."""
    dot = "." if screen.ascii_only else "·"

    def codes(index: Index) -> Codes:
        return lambda rows, columns: np.where(part(np.atleast_2d(array[index]), rows, columns), 1, 2)

    kinds = (NUMBER, CellStyle("see"), CellStyle(dot, "aside"))
    return Marks(kinds, codes, (f"see = may attend, {dot} = hidden",))


def shade_weights(array: Array, sample: Array) -> Marks:
    """A background by the share of the largest weight that is shown."""
    from attnctl.drawing.screen.heat import levels_of
    from attnctl.drawing.screen.palette import STEPS

    positive = sample[np.isfinite(sample) & (sample > 0)]
    top = float(positive.max(initial=0.0)) or 1.0

    def codes(index: Index) -> Codes:
        def block(rows: range, columns: range) -> Array:
            weights = part(array[index], rows, columns).astype(float)
            return np.maximum(levels_of(np.nan_to_num(weights / top)), 0)

        return block

    heat = [CellStyle(style=f"heat{level}") for level in range(1, STEPS + 1)]
    return Marks((NUMBER, *heat), codes)


def mark_hidden(trace: Trace, name: str, op: Hide, screen: Screen) -> Marks:
    """The name of the first rule that hid a score, or `mask`, in its place."""
    array, inputs = trace[name], trace.steps[name].inputs[1:]
    kept = [trace.arrays[each] for each in inputs if each in trace.arrays]
    masks = [mask for mask in kept if spreads(mask.shape, array.shape)]
    words = [rule.name for rule in op.rules] + ([MASK] if inputs else [])

    def codes(index: Index) -> Codes:
        member = index[0] if len(index) > 1 else 0

        def block(rows: range, columns: range) -> Array:
            scores = part(array[index], rows, columns)
            own = [part(matrix_of(mask, index, array.shape), rows, columns) for mask in masks]
            placed = op.block(Block(member=member, query=rows.start, key=columns.start))
            assert isinstance(placed, Hide)
            reason = placed.hidden_by((1, *scores.shape), *own)[0]
            if inputs:  # what no rule hides, the mask did, even where the mask itself was not kept
                reason = np.where(reason < 0, len(op.rules), reason)
            return np.where(np.isneginf(scores), reason + 1, 0)

        return block

    return Marks((NUMBER, *(CellStyle(screen.ours(word), "aside") for word in words)), codes)


def spreads(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """True for a mask of the shape of one of these scores, which in anyone's dump it need not have."""
    ends = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and all(size in {1, whole} for size, whole in ends)


def matrix_of(mask: Array, index: Index, scores: tuple[int, ...]) -> Array:
    """The mask of one head of one member, (query, key), whatever axes it lacks or has once."""
    lead = mask.shape[:-2]
    own = tuple(
        0 if size == 1 else i for size, i in zip(lead, index[len(index) - len(lead) :], strict=True)
    )
    return np.broadcast_to(mask[own], scores[-2:])


def part(matrix: Array, rows: range, columns: range) -> Array:
    return matrix[rows.start : rows.stop, columns.start : columns.stop]
