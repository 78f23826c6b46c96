"""Reading dumps, and arrays of others, from JSON: one object, an array of them, or JSON Lines.

Nested lists become arrays, held to their shape and to numbers. The problems of an AttnError raised for
them begin with where in the lists they are: ``[0][2]: …``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.engine.cost import size_text
from attnctl.store.codec import NOT_FINITE, show_value, under
from attnctl.store.header import (
    DTYPES,
    Contents,
    check_schema,
    check_shape,
    raise_first,
    require_bytes,
    show_shape,
)

LONGEST = 1 << 30
"""Bytes of JSON that are read at most; larger dumps are what .npz and .safetensors are for."""

BEGIN = re.compile(r"[^ \t\r\n]")
"""Where a value begins: at what is no space."""


def read_json(data: bytes | bytearray, place: str) -> Iterator[Contents]:
    values = list(parse_values(checked_text(data, place), place))
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise AttnError(f"{place}: nothing in it; expected a dump")
    numbered = [f"{place}: number {i + 1}" for i in range(len(values))] if len(values) > 1 else [place]
    yield from map(contents_of, values, numbered)


def header_of(data: bytes, place: str) -> dict[str, Any]:
    values = list(parse_values(checked_text(data, place), place))
    if len(values) != 1 or not isinstance(values[0], dict):
        raise AttnError(f"{place}: expected one object")
    return values[0]


def checked_text(data: bytes | bytearray, place: str) -> str:
    """The characters of a JSON text whose values will fit into memory."""
    containers = data.count(b"[") + data.count(b"{")
    require_bytes(5 * len(data) + 88 * containers + 32 * data.count(b","), f"{place}: reading this JSON")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttnError(f"{place}: not UTF-8 at byte {error.start}") from None


def parse_values(text: str, place: str) -> Iterator[Any]:
    """The values of a strict JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=make_object, parse_constant=refuse_constant)
    at = 0
    try:
        while begins := BEGIN.search(text, at):
            value, at = decoder.raw_decode(text, begins.start())
            yield value
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise AttnError(f"{place}: not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise AttnError(f"{place}: nested too deeply") from None
    except ValueError:  # Python's own limit
        raise AttnError(f"{place}: a whole number with thousands of digits") from None
    except AttnError as error:
        raise AttnError(f"{place}: {problem}" for problem in error.problems) from None


def check_length(length: int, place: str) -> None:
    if length > LONGEST:
        most = size_text(LONGEST)
        raise AttnError(f"{place}: more than {most} of JSON; write .npz or .safetensors instead")


def refuse_constant(text: str) -> Any:
    """NaN and infinity as bare words are not JSON."""
    raise AttnError(f'{text} is not JSON; write the string "{text}"')


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; a step's numbers become an array at once, to keep memory down."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counted = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counted.items() if count > 1)
        raise AttnError(f"the key {show_value(twice)} stands twice in one object")
    if isinstance(found.get("data"), list) and "dtype" in found:
        found["data"] = pack(found)
    return found


def pack(entry: Mapping[str, Any]) -> Array | AttnError:
    """The numbers of a step, or what is wrong with them."""
    try:
        return array_of(entry["data"], entry.get("shape"), entry["dtype"])
    except AttnError as error:
        return error


def contents_of(value: Any, place: str) -> Contents:
    if not isinstance(value, dict):
        raise AttnError(f"{place}: not a dump: expected an object, found {show_value(value)}")
    told = "schema" in value or "steps" in value
    if told:
        check_schema(value, place)
    steps = value.get("steps") if told else {name: {"data": data} for name, data in value.items()}
    arrays: dict[str, Array] = {}
    problems: list[str] = []
    for name, entry in steps.items() if isinstance(steps, dict) else ():
        if isinstance(entry, dict) and "data" in entry:
            data = entry.pop("data")
            packed = data
            if not isinstance(data, (np.ndarray, AttnError)):
                packed = pack({"dtype": None, **entry, "data": data})
            if isinstance(packed, AttnError):
                path = f"{under('$.steps', name)}.data" if told else under("$", name)
                problems += [f"{place}: {path}{problem}" for problem in packed.problems]
            else:
                arrays[name] = packed
    raise_first(problems)
    return Contents(value if told else None, arrays, place)


ALLOWED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""What stands for a number of each kind of dtype; for floats also the strings of NOT_FINITE."""

BLOCK = 1 << 16
"""Numbers converted at a time."""


def array_of(data: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The array of nested lists; without a dtype bool where all of it is, else float64."""
    told = read_shape(data, shape)
    rows = list(rows_of(data, told)) if told else [[data]]
    if dtype is None:
        logical = any(rows) and set(map(type, chain.from_iterable(rows))) == {bool}
        dtype = "bool" if logical else "float64"
    kinds = {dtype.name: dtype for dtype in DTYPES}
    if not isinstance(dtype, str) or dtype not in kinds:
        raise AttnError(f": dtype {show_value(dtype)} is none of {', '.join(sorted(kinds))}")
    kind = kinds[dtype]
    check_numbers(rows, kind, told)
    out = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=kind)
    step = max(1, BLOCK // max(1, out.shape[-1]))
    for start in range(0, len(rows), step):
        out[start : start + step] = convert_rows(rows[start : start + step], kind)
    return out.reshape(told)


def read_shape(data: Any, shape: Any) -> Shape:
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
        raise AttnError(f": the shape says {show_shape(told)}, but the numbers are {show_shape(found)}")
    check_shape(told, "")
    return told


def rows_of(data: Any, shape: Shape, at: Shape = ()) -> Iterator[list[Any]]:
    if not isinstance(data, list) or len(data) != shape[0]:
        found = f"{len(data)} of them" if isinstance(data, list) else show_value(data)
        raise AttnError(f"{index_text(at)}: expected a list of {shape[0]}, found {found}")
    if len(shape) == 1:
        yield data
        return
    for i, row in enumerate(data):
        yield from rows_of(row, shape[1:], (*at, i))


def index_text(at: Iterable[int | np.intp]) -> str:
    """(0, 2) -> '[0][2]'."""
    return "".join(f"[{i}]" for i in at)


def check_numbers(rows: list[list[Any]], dtype: np.dtype[Any], shape: Shape) -> None:
    """Refuse whatever is no number of this dtype, with its index."""
    allowed = ALLOWED[dtype.kind]
    for number, row in enumerate(rows):
        kinds = set(map(type, row))
        if kinds <= allowed and (dtype.kind not in "iu" or fits(row, dtype)):
            continue
        for column, value in enumerate(row):
            said = type(value) is str and dtype.kind == "f" and value in NOT_FINITE
            fine = type(value) in allowed and (dtype.kind not in "iu" or fits([value], dtype))
            if not said and not fine:
                at = np.unravel_index(number * len(row) + column, shape) if shape else ()
                raise AttnError(
                    f"{index_text(at)}: {show_value(value)} is not a number of type {dtype.name}"
                )


def fits(row: list[int], dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return not row or (min(row) >= info.min and max(row) <= info.max)


def convert_rows(rows: list[list[Any]], dtype: np.dtype[Any]) -> Array:
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
