"""Nested lists of JSON as arrays, held to their shape and to numbers.

The problems of an AttnError raised here begin with where in the lists they are: ``[0][2]: …``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.store.codec import NOT_FINITE, show_value
from attnctl.store.header import DTYPES, check_shape, shown_shape

ALLOWED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""What stands for a number of each kind of dtype; for floats also the strings of NOT_FINITE."""

BLOCK = 1 << 16
"""Numbers converted at a time."""


def array_of(data: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The array of nested lists; without a dtype bool where all of it is, else float64."""
    told = shape_told(data, shape)
    rows = list(rows_of(data, told)) if told else [[data]]
    if dtype is None:
        logical = any(rows) and set(map(type, chain.from_iterable(rows))) == {bool}
        dtype = "bool" if logical else "float64"
    kind = dtype_named(dtype)
    check_numbers(rows, kind, told)
    out = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=kind)
    step = max(1, BLOCK // max(1, out.shape[-1]))
    for start in range(0, len(rows), step):
        out[start : start + step] = convert_rows(rows[start : start + step], kind)
    return out.reshape(told)


def dtype_named(name: Any) -> np.dtype[Any]:
    names = {each.name: each for each in DTYPES}
    if not isinstance(name, str) or name not in names:
        raise AttnError(f": dtype {show_value(name)} is none of {', '.join(sorted(names))}")
    return names[name]


def shape_told(data: Any, shape: Any) -> Shape:
    """The shape of nested lists: what is said of them where that fits, what their first items show."""
    found: Shape = ()
    each = data
    while isinstance(each, list):
        found = (*found, len(each))
        each = each[0] if each else None
    said = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    told = tuple(shape) if said else found
    hidden = 0 in found and told[: len(found)] == found  # the axes behind one of no items
    if told != found and not hidden:
        raise AttnError(f": the shape says {shown_shape(told)}, but the numbers are {shown_shape(found)}")
    check_shape(told, "")
    return told


def rows_of(data: Any, shape: Shape, at: Shape = ()) -> Iterator[list[Any]]:
    if not isinstance(data, list) or len(data) != shape[0]:
        found = f"{len(data)} of them" if isinstance(data, list) else show_value(data)
        raise AttnError(f"{place(at)}: expected a list of {shape[0]}, found {found}")
    if len(shape) == 1:
        yield data
        return
    for i, each in enumerate(data):
        yield from rows_of(each, shape[1:], (*at, i))


def place(at: Iterable[int | np.intp]) -> str:
    """(0, 2) -> '[0][2]'."""
    return "".join(f"[{i}]" for i in at)


def check_numbers(rows: list[list[Any]], dtype: np.dtype[Any], shape: Shape) -> None:
    """Refuse whatever is no number of this dtype, with its index."""
    allowed = ALLOWED[dtype.kind]
    for number, row in enumerate(rows):
        kinds = set(map(type, row))
        if kinds <= allowed and (dtype.kind not in "iu" or fits(row, dtype)):
            continue
        for column, each in enumerate(row):
            if not is_number(each, dtype):
                at = np.unravel_index(number * len(row) + column, shape) if shape else ()
                raise AttnError(f"{place(at)}: {show_value(each)} is not a number of type {dtype.name}")


def fits(row: list[int], dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return not row or (min(row) >= info.min and max(row) <= info.max)


def is_number(each: Any, dtype: np.dtype[Any]) -> bool:
    if type(each) is str:
        return dtype.kind == "f" and each in NOT_FINITE
    return type(each) in ALLOWED[dtype.kind] and (dtype.kind not in "iu" or fits([each], dtype))


def convert_rows(rows: list[list[Any]], dtype: np.dtype[Any]) -> Array:
    """Rows that have been checked, as an array."""
    if dtype.kind != "f":
        return np.array(rows, dtype=dtype)
    try:
        wide = np.array(rows, dtype=np.float64)
    except OverflowError:
        raise AttnError(": a whole number in it is too large for a float") from None
    with np.errstate(over="ignore"):
        out: Array = wide.astype(dtype, copy=False)
    if np.isinf(out).sum() != np.isinf(wide).sum():
        raise AttnError(f": a number in it is too large for {dtype.name}")
    return out
