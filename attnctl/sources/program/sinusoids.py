"""Tables of sines and cosines that a program adds to its embeddings."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np

from attnctl.math.ops.vectors import sinusoids
from attnctl.sources.program.graph import SUMS, Graph
from attnctl.sources.program.projected import match_columns
from attnctl.sources.program.relations import Array

WAVES = frozenset({"sin", "cos"})

POWERS = frozenset({"**", "pow", "power", "exp"})

MOST_ON_THE_WAY = 40
"""Arrays between sines and the table that is added."""

USUAL_STARTS = (0, 1)
"""The first position, as people count."""


class AddedTable(NamedTuple):
    """Positions, and the embeddings that they are added to."""

    embeddings: int
    positions: int
    rows: Array
    """(token, d_model)."""


def table_added(graph: Graph, x: int) -> AddedTable | None:
    """The table of which an array is the sum with embeddings, if it is laid out as nobody usually does."""
    if graph.op(x) not in SUMS:
        return None
    for positions, embeddings in permutations(graph.parents(x), 2):
        value = graph.value(positions)
        if value.ndim < 2 or not graph.is_float(positions) or value.size != np.prod(value.shape[-2:]):
            continue
        rows = value.reshape(value.shape[-2:])
        if len(rows) < 2 or np.abs(rows).max() > 1 or not reads_waves(graph, positions):
            continue
        return None if is_usual(rows) else AddedTable(embeddings, positions, rows)
    return None


def reads_waves(graph: Graph, n: int) -> bool:
    near = (n, *graph.ancestors(n, most=MOST_ON_THE_WAY))
    if any(graph.op(m) in WAVES for m in near):
        return True
    # Loops over single numbers leave no waves to be seen: only what they filled in, with cos 0 first.
    is_filled = any(graph.events[m].function == "in place" for m in near)
    first = graph.value(n).reshape(-1, graph.value(n).shape[-1])[0]
    return is_filled and bool(np.isin(first, (0.0, 1.0)).all() and (first == 1).any())


def is_usual(rows: Array) -> bool:
    """True for the columns of Vaswani et al. (2017) in any order: sines before all cosines, say."""
    count, width = rows.shape
    for start in USUAL_STARTS:
        columns = match_columns(sinusoids(np.arange(start, start + count), width), rows)
        if columns is not None and len({*columns}) == width:
            return True
    return False


def where_waves_are_made(graph: Graph, positions: int) -> int:
    """The power of 10,000 in a table, or the exponential for it; the sine or cosine that is there twice."""
    near = [*graph.ancestors(positions, most=MOST_ON_THE_WAY)]
    waves = [n for n in near if graph.op(n) in WAVES]
    if not waves:
        return positions
    if len({graph.op(n) for n in waves}) < 2:
        return max(waves)
    return next((n for n in near if graph.op(n) in POWERS), positions)
