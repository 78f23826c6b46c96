"""Mistakes in relative biases that a table holds: which number each query reads for each key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.names import BIAS
from attnctl.math.ops import Buckets, LookUp, Op
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import at
from attnctl.mistakes.wrong import By

LOOKED_UP = at(BIAS, LookUp)

FARTHEST = (16, 20, 32, 64, 256, 512, 1024)
"""Distances up to which T5's buckets may be taken to grow."""


def by_index(index: Array) -> By:
    """The numbers of the table by another index."""
    return By(lambda table: np.take(table, index, axis=-1))


# --- tables of windows of images: Swin's ---


class WindowSize(NamedTuple):
    """The tokens of a window of an image, in rows and columns."""

    height: int
    width: int


def window_of(op: LookUp, numbers: int) -> WindowSize | None:
    """The window whose tokens have this index into so many numbers."""
    tokens = len(op.index)
    for height in range(1, tokens + 1):
        width = tokens // height
        if height * width != tokens:
            continue
        if (2 * height - 1) * (2 * width - 1) != numbers:
            continue
        if np.array_equal(op.numbers, window_index(height, width)):
            return WindowSize(height, width)
    return None


def window_distances(height: int, width: int) -> Array:
    """Rows and columns from each token of a window to each other one, (2, token, token)."""
    places = np.indices((height, width)).reshape(2, -1)
    return places[:, :, None] - places[:, None]


def window_index(height: int, width: int) -> Array:
    """Which number of Swin's table, a row of 2 · width − 1 for each distance down, each pair reads."""
    rows, columns = window_distances(height, width)
    down = rows + height - 1
    right = columns + width - 1
    return np.asarray(down * (2 * width - 1) + right)


def other_indices(height: int, width: int) -> dict[str, Array]:
    """Indices of a window that are worked out wrongly, by what is wrong."""
    rows, columns = window_distances(height, width)
    down = rows + height - 1
    right = columns + width - 1
    row_length = 2 * width - 1
    other_length = 2 * height - 1

    long_rows = "a row of the table is taken to be 2 · height − 1 long, where it is 2 · width − 1"
    not_moved = "distances are not moved to begin at 0, so that negative ones read from the end"
    return {
        long_rows: down * other_length + right,
        "rows and columns of the window are exchanged": right * other_length + down,
        not_moved: rows * row_length + columns,
    }


def plant_window(case: WrongStep) -> Iterator[Plant]:
    for op in LOOKED_UP.right(case).values():
        numbers = count_numbers(case)
        window = window_of(op, numbers)
        if window is None:
            continue

        for said, index in other_indices(window.height, window.width).items():
            if index.max() < numbers:
                yield Plant(case.put(BIAS, by_index(index)), said)


def count_numbers(case: WrongStep) -> int:
    """The numbers that the table has for each head."""
    table = case.array_of(case.derivation[BIAS].inputs[0])
    return 0 if table is None else table.shape[-1]


# --- tables of anyone ---


def read_otherwise(op: LookUp) -> dict[str, Op]:
    index = op.numbers

    def viewed(table: Array) -> Array:
        return table.T[index].reshape(len(table), *index.shape)

    def reshaped(table: Array) -> Array:
        return np.take(table.T.reshape(table.shape), index, axis=-1)

    def of_first_head(table: Array) -> Array:
        first = np.broadcast_to(table[:1], table.shape)
        return np.take(first, index, axis=-1)

    ways: dict[str, Op] = {
        "what it reads, (query, key, head), is viewed as (head, query, key) and not transposed": By(viewed),
        "the table, (number, head), is viewed as (head, number) and not transposed": By(reshaped),
        "the first head's numbers are read for all heads": By(of_first_head),
    }

    is_square = index.shape[0] == index.shape[1]
    if is_square and op.furthest is None:  # buckets have mistakes of their own for that
        transposed = "its index is transposed: what key i reads for query j is read for query i and key j"
        ways[transposed] = by_index(index.T)
    return ways


# --- T5's buckets ---


def plant_buckets(case: WrongStep) -> Iterator[Plant]:
    for op in LOOKED_UP.right(case).values():
        if op.furthest is None:
            continue
        for said, index in other_buckets(op, count_numbers(case)):
            yield Plant(case.put(BIAS, by_index(index)), said)


def other_buckets(op: LookUp, numbers: int) -> Iterator[tuple[str, Array]]:
    """Buckets that are worked out wrongly, by what is wrong."""
    queries, keys = op.numbers.shape
    from_start = np.arange(keys) - np.arange(queries)[:, None]
    past = keys - queries
    ahead = from_start - past
    right = Buckets(furthest=op.furthest or 0, both_ways=op.both_ways)
    if not np.array_equal(right.buckets(ahead, numbers), op.numbers):
        return  # of queries that stand elsewhere

    half = "half of the buckets are kept for keys ahead, as in an encoder"
    none = "keys ahead have no buckets of their own, as in a decoder"
    turned = replace(right, both_ways=not op.both_ways)
    yield none if op.both_ways else half, turned.buckets(ahead, numbers)
    yield "query − key is taken for key − query", right.buckets(-ahead, numbers)

    for furthest in FARTHEST:
        other = replace(right, furthest=furthest)
        said = f"buckets grow up to a distance of {furthest}, where {op.furthest} is meant"
        yield said, other.buckets(ahead, numbers)

    if past > 0:
        yield "queries behind a cache are taken for the first tokens", right.buckets(from_start, numbers)


of_table = about(BIAS, subject="bias table")

RELATIVE = (
    of_table(
        "bias-table-read",
        "the relative bias is read wrongly: {}",
        "take table[index], (query, key, head), and move its last axis to the front",
        LOOKED_UP.instead(read_otherwise),
        plant_window,
        why="The index, the table and the heads are three axes to bring into one order; all shapes fit.",
        meant="table",
        example="bias = bias_table.T[bias_index].reshape(heads, n, keys)",
    ),
    of_table(
        "bias-buckets",
        "the buckets of the relative bias are wrong: {}",
        "take T5's buckets of key − query: of both ways in an encoder, of keys behind in a decoder",
        plant_buckets,
        why="One function makes both, and its switch for keys ahead is on unless a decoder says otherwise.",
        meant="buckets",
        example="ahead = np.arange(keys) - np.arange(n)[:, None]\n"
        "bias = bias_table[:, np.where(ahead > 0, 4, 0) + np.minimum(abs(ahead), 2)]",
    ),
)
