"""Fit a matrix to a width: whole, in column blocks, or head … tail with the count left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class LeftOut(NamedTuple):
    """So many rows or columns are left out here."""

    rest: int


Piece = range | LeftOut
Pieces = tuple[Piece, ...]

MAX_ROWS = 24
HEAD_ROWS, TAIL_ROWS = 6, 2
MAX_BLOCKS = 3

NARROWEST = 3
"""The cells of the narrowest column: a digit, a space on either side."""


def head_and_tail(size: int, head: int, tail: int) -> Pieces:
    return range(head), LeftOut(size - head - tail), range(size - tail, size)


def rows_shown(size: int) -> Pieces:
    """All rows, or the first and the last where there are many."""
    return (range(size),) if size <= MAX_ROWS else head_and_tail(size, HEAD_ROWS, TAIL_ROWS)


def reachable(size: int, width: int) -> Pieces:
    """The columns that a view of this width could show at all: what a format must provide for."""
    most = max(1, width // NARROWEST)
    return (range(size),) if size <= MAX_BLOCKS * most else head_and_tail(size, most, most)


def blocks_of(size: int, width_of: Callable[[int], int], room: int) -> list[Pieces]:
    """The columns in blocks of at most `room` cells, evenly filled, at least a column each."""
    starts, used = [0], 0
    for column in range(size):
        width = width_of(column)
        if used and used + width > room:
            starts.append(column)
            used = 0
        used += width
    return even_blocks(size, starts, width_of, room)


def even_blocks(size: int, starts: list[int], width_of: Callable[[int], int], room: int) -> list[Pieces]:
    """As many blocks of as equal lengths as will fit, or the ones that were found."""
    count = len(starts)
    ends = [-(-size * (i + 1) // count) for i in range(count)]
    even = [range(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    if all(sum(map(width_of, block)) <= room for block in even):
        return [(block,) for block in even]
    return [(range(a, b),) for a, b in zip(starts, [*starts[1:], size], strict=True)]


def shorten_columns(size: int, width_of: Callable[[int], int], room: int, left_out: int) -> Pieces:
    """The first and last columns that fit beside one of `left_out` cells: two first ones for each last."""
    head, tail, room = 0, 0, room - left_out
    while head + tail < size - 1:
        from_tail = tail < (head + 1) // 3
        width = width_of(size - 1 - tail if from_tail else head)
        if width > room and head:
            break
        room -= width
        head, tail = (head, tail + 1) if from_tail else (head + 1, tail)
    return head_and_tail(size, head, tail)


def columns_shown(size: int, width_of: Callable[[int], int], room: int, left_out: int) -> list[Pieces]:
    """All columns at once, in a few blocks, or one block shortened: whatever `room` allows."""
    if size <= MAX_BLOCKS * max(1, room // NARROWEST):
        blocks = blocks_of(size, width_of, room)
        if len(blocks) <= MAX_BLOCKS:
            return blocks
    return [shorten_columns(size, width_of, room, left_out)]
