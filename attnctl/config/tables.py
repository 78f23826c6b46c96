"""Lists of values: rows, matrices, windows and vocabularies.

A matrix is read a row at a time in C; only a row that this refuses is read cell by cell, to say
which cell it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import isfinite
from typing import Any, TypeVar

from attnctl.config.scalars import (
    MAX_PROBLEMS,
    BadValueError,
    Problem,
    added,
    distance,
    may_attend,
    real,
    shown,
    side,
    word,
)
from attnctl.config.yaml import Plain

T = TypeVar("T")
Row = list[float]

ENOUGH = MAX_PROBLEMS + 1
"""How many problems of one value are looked for: the ones to list, and whether there are more."""

ROW = json.JSONDecoder(parse_int=float)
"""JSON's numbers are also YAML's, so a row of them is read in one call."""


def vector(value: Any) -> Row:
    """A list of finite numbers."""
    if not isinstance(value, list):
        raise BadValueError(f"{shown(value)} is not a list of numbers; write one like [0.1, 0.2]")
    return quick_row(value) or each(value, real)


def quick_row(cells: list[Any]) -> Row | None:
    """The row where every cell is plainly a finite number; None where one needs a closer look."""
    kinds = set(map(type, cells))
    try:
        row = ROW.decode(f"[{','.join(cells)}]") if kinds == {Plain} else cells
        row = list(map(float, cells)) if kinds <= {int, float} else row
    except (ValueError, OverflowError, RecursionError):  # one word may be as odd as `1, [[[[…`
        return None
    # Types and length: a Plain may also be `true`, or in block style `1, 2`.
    plainly = set(map(type, row)) == {float} and len(row) == len(cells) and all(map(isfinite, row))
    return row if plainly else None


def each(cells: list[Any], read: Callable[[Any], T]) -> list[T]:
    """Every cell read on its own, or every cell's problem."""
    if not cells:
        raise BadValueError("an empty list; write at least one number")
    return every(enumerate(cells), read)


def every(cells: Iterable[tuple[Any, Any]], read: Callable[[Any], T]) -> list[T]:
    """Every (place, value) read, or every one's problem at its place."""
    out: list[T] = []
    problems: list[Problem] = []
    for i, cell in cells:
        try:
            out.append(read(cell))
        except BadValueError as wrong:
            problems += [((i, *path), text) for path, text in wrong.problems]
            if len(problems) >= ENOUGH:
                break
    refuse(problems)
    return out


def matrix_of(read_row: Callable[[Any], Row]) -> Callable[[Any], list[Row]]:
    """A reader of rows that are all as long as the first."""

    def read(value: Any) -> list[Row]:
        if not isinstance(value, list):
            raise BadValueError(f"{shown(value)} is not a matrix; write its rows, like [[1, 0], [0, 1]]")
        rows = each(value, read_row)
        same_length(dict(enumerate(rows)))
        return rows

    return read


def same_length(rows: dict[Any, Row]) -> None:
    """Raise BadValueError naming every row that is not as long as the first."""
    first = next(iter(rows), None)
    refuse(
        ((place,), f"a row of {len(row)}, but row {shown(first)} has {len(rows[first])}; make them as long")
        for place, row in rows.items()
        if len(row) != len(rows[first])
    )


def by_token(value: dict[Any, Any]) -> dict[str, Row]:
    """A row for each token, all as long as the first."""
    tokens = every(((key, key) for key in value), token)
    rows = dict(zip(tokens, every(value.items(), vector), strict=True))
    same_length(rows)
    return rows


def row_of(read_cell: Callable[[Any], float]) -> Callable[[Any], Row]:
    """A reader of rows of such cells."""

    def read(value: Any) -> Row:
        if not isinstance(value, list):
            raise BadValueError(f"{shown(value)} is not a list of numbers; write one like [1, 0]")
        return each(value, read_cell)

    return read


matrix = matrix_of(vector)
mask = matrix_of(row_of(may_attend))
bias = matrix_of(row_of(added))


def window(value: Any) -> tuple[int | None, int | None]:
    """L or [L, R]: how many keys back and ahead; inf or null is no limit."""
    if not isinstance(value, list):
        return side(value), side(value)
    if len(value) != 2:
        raise BadValueError(
            f"a list of {len(value)}; write [back, ahead], like [3, 0], or one number for both"
        )
    left, right = each(value, side)
    return left, right


def vocabulary(value: Any) -> tuple[str, ...]:
    """The tokens in the order of their ids, from a list or from a mapping {token: id}."""
    match value:
        case list():
            tokens = each(value, token)
            refuse(
                ((i,), f"{shown(a)} again, after entry {first}; a token has one id")
                for i, a, first in repeats(enumerate(tokens))
            )
            return tuple(tokens)
        case dict():
            every(((key, key) for key in value), token)
            ids = dict(zip(value, every(value.items(), distance), strict=True))
            last = len(ids) - 1
            refuse(
                ((a,), f"id {i}, but {len(ids)} tokens have the ids 0 to {last}; write one of those")
                for a, i in ids.items()
                if i > last
            )
            refuse(
                ((a,), f"id {i} again, after {shown(first)}; a token has an id of its own")
                for a, i, first in repeats(ids.items())
            )
            return tuple(sorted(ids, key=ids.__getitem__))
    raise BadValueError(
        f"{shown(value)} is not a vocabulary; write [I, love, AI] or {{I: 0, love: 1, AI: 2}}"
    )


def token(value: Any) -> str:
    """A word that is not empty."""
    if value == "":
        raise BadValueError("an empty token; write a word, or leave it out")
    return word(value)


def repeats(values: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """(place, value, where it was first) of each value that came before."""
    first: dict[Any, Any] = {}
    for place, value in values:
        if value in first:
            yield place, value, first[value]
        first.setdefault(value, place)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise BadValueError with these problems (the first of many), or return where there is none."""
    found = list(islice(problems, ENOUGH))
    if found:
        raise BadValueError(*found)
