"""Lists of values: rows, matrices and vocabularies, each with the JSON Schema of what it may be.

A matrix is read a row at a time in C; only a row that this refuses is read cell by cell, to say
which cell it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite
from typing import Any

from attnctl.base.values import (
    WORD,
    BadValueError,
    Json,
    Plain,
    Reader,
    each,
    every,
    read_real,
    read_switch,
    read_word,
    refuse,
    show,
    whole,
)

Row = list[float]

ROW = json.JSONDecoder(parse_int=float)
"""JSON's numbers are also YAML's, so a row of them is read in one call."""

MINUS_INFINITY = ("-.inf", "-.Inf", "-.INF", "-inf", "-Infinity")


def read_vector(value: Any) -> Row:
    """A list of finite numbers."""
    if not isinstance(value, list):
        raise BadValueError(f"{show(value)} is not a list of numbers; write one like [0.1, 0.2]")
    return quick_row(value) or each(value, read_real)


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


def matrix_of(read_row: Callable[[Any], Row], cell: Json) -> Reader:
    """Rows that are all as long as the first; `cell` is the JSON Schema of one of their numbers."""

    def read(value: Any) -> list[Row]:
        if not isinstance(value, list):
            raise BadValueError(f"{show(value)} is not a matrix; write its rows, like [[1, 0], [0, 1]]")
        rows = each(value, read_row)
        same_length(dict(enumerate(rows)))
        return rows

    row = {"type": "array", "minItems": 1, "items": cell}
    return Reader(read, {"type": "array", "minItems": 1, "items": row})


def same_length(rows: dict[Any, Row]) -> None:
    """Raise BadValueError naming every row that is not as long as the first."""
    first = next(iter(rows), None)
    refuse(
        ((place,), f"a row of {len(row)}, but row {show(first)} has {len(rows[first])}; make them as long")
        for place, row in rows.items()
        if len(row) != len(rows[first])
    )


def read_by_token(value: dict[Any, Any]) -> dict[str, Row]:
    """A row for each token, all as long as the first."""
    tokens = every(((key, key) for key in value), read_token)
    rows = dict(zip(tokens, every(value.items(), read_vector), strict=True))
    same_length(rows)
    return rows


def row_of(read_cell: Callable[[Any], float]) -> Callable[[Any], Row]:
    """A reader of rows of such cells."""

    def read(value: Any) -> Row:
        if not isinstance(value, list):
            raise BadValueError(f"{show(value)} is not a list of numbers; write one like [1, 0]")
        return each(value, read_cell)

    return read


def may_attend(value: Any) -> int:
    """A cell of a mask: 1 or true may attend, 0 or false may not."""
    for read in (read_real, read_switch):
        try:
            number = read(value)
        except BadValueError:
            continue
        if number in (0, 1):
            return int(number)
    raise BadValueError(f"{show(value)} is neither 0 nor 1; 1 (or true) may attend, 0 (or false) may not")


def read_bias_cell(value: Any) -> float:
    """A cell of a bias: a finite number, or -inf, which hides."""
    if value == -inf or (isinstance(value, str) and value in MINUS_INFINITY):
        return -inf
    return read_real(value)


def read_vocabulary(value: Any) -> tuple[str, ...]:
    """The tokens in the order of their ids, from a list or from a mapping {token: id}."""
    match value:
        case list():
            tokens = each(value, read_token)
            refuse(
                ((i,), f"{show(a)} again, after entry {first}; a token has one id")
                for i, a, first in repeats(enumerate(tokens))
            )
            return tuple(tokens)
        case dict():
            every(((key, key) for key in value), read_token)
            ids = dict(zip(value, every(value.items(), whole(0)), strict=True))
            last = len(ids) - 1
            refuse(
                ((a,), f"id {i}, but {len(ids)} tokens have the ids 0 to {last}; write one of those")
                for a, i in ids.items()
                if i > last
            )
            refuse(
                ((a,), f"id {i} again, after {show(first)}; a token has an id of its own")
                for a, i, first in repeats(ids.items())
            )
            return tuple(sorted(ids, key=ids.__getitem__))
    raise BadValueError(
        f"{show(value)} is not a vocabulary; write [I, love, AI] or {{I: 0, love: 1, AI: 2}}"
    )


def read_token(value: Any) -> str:
    """A word that is not empty."""
    if value == "":
        raise BadValueError("an empty token; write a word, or leave it out")
    return read_word(value)


def repeats(values: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """(place, value, where it was first) of each value that came before."""
    first: dict[Any, Any] = {}
    for place, value in values:
        if value in first:
            yield place, value, first[value]
        first.setdefault(value, place)


NUMBERS: Json = {"type": "array", "minItems": 1, "items": {"type": "number"}}
VECTOR = Reader(read_vector, NUMBERS)
MATRIX = matrix_of(read_vector, {"type": "number"})
MASK = matrix_of(row_of(may_attend), {"enum": [0, 1, True, False]})
BIAS = matrix_of(row_of(read_bias_cell), {"anyOf": [{"type": "number"}, {"enum": list(MINUS_INFINITY)}]})
BY_TOKEN = Reader(read_by_token, {"type": "object", "additionalProperties": NUMBERS})
VOCABULARY = Reader(
    read_vocabulary,
    {
        "oneOf": [
            {"type": "array", "minItems": 1, "items": WORD.schema, "uniqueItems": True},
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"type": "integer", "minimum": 0},
            },
        ]
    },
)
