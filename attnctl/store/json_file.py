"""Dumps as JSON, and arrays of others: one object, an array of them, or JSON Lines.

They are written in a stream: never one big string. Every number is written with the shortest digits that
read back as it (float16 and float32 as the float64 they equal), NaN and infinity as strings. With orjson
this is several times faster. The standard library may spell a number otherwise (1e-05 for 0.00001), but it
is the same number.

Read, nested lists become arrays, held to their shape and to numbers. The problems of an AttnError raised
for them begin with where in the lists they are: ``[0][2]: …``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import IO, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.derivation import Step
from attnctl.math.engine.cost import size_text
from attnctl.record import Trace
from attnctl.store.files import encode_json, json_text, sink
from attnctl.store.header import (
    DTYPES,
    NOT_FINITE,
    Contents,
    check_schema,
    check_shape,
    entry,
    heading,
    raise_first,
    require_bytes,
    show_shape,
    show_value,
    under,
)

# --- reading ---

LONGEST = 1 << 30
"""Bytes of JSON that are read at most; larger dumps are what .npz and .safetensors are for."""

BEGIN = re.compile(r"[^ \t\r\n]")  # where a value begins: at what is no space


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
        instead = "write .npz or .safetensors instead"
        raise AttnError(f"{place}: more than {size_text(LONGEST)} of JSON; {instead}")


def refuse_constant(text: str) -> Any:
    """NaN and infinity as bare words are not JSON."""
    raise AttnError(f'{text} is not JSON; write the string "{text}"')


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; a step's numbers become an array at once, to keep memory down."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise AttnError(f"the key {show_value(twice)} stands twice in one object")
    if isinstance(found.get("data"), list) and "dtype" in found:
        found["data"] = pack(found)
    return found


def pack(step: Mapping[str, Any]) -> Array | AttnError:
    try:
        return array_of(step["data"], step.get("shape"), step["dtype"])
    except AttnError as error:
        return error


def contents_of(value: Any, place: str) -> Contents:
    if not isinstance(value, dict):
        raise AttnError(f"{place}: not a dump: expected an object, found {show_value(value)}")
    is_dump = "schema" in value or "steps" in value
    if is_dump:
        check_schema(value, place)
        steps = value.get("steps")
    else:
        steps = {name: {"data": data} for name, data in value.items()}

    arrays: dict[str, Array] = {}
    problems: list[str] = []
    for name, step in steps.items() if isinstance(steps, dict) else ():
        if not isinstance(step, dict) or "data" not in step:
            continue

        packed = step.pop("data")
        if not isinstance(packed, (np.ndarray, AttnError)):  # `make_object` packs where it can
            packed = pack({"dtype": None, **step, "data": packed})
        if isinstance(packed, AttnError):
            path = f"{under('$.steps', name)}.data" if is_dump else under("$", name)
            problems += [f"{place}: {path}{problem}" for problem in packed.problems]
        else:
            arrays[name] = packed

    if problems and isinstance(value.get("blank"), list):
        raise AttnError(
            f"{place}: a sheet of an exercise, with steps to be filled in; attnctl show {place} shows it, "
            f"and attnctl exercise grade {place} marks it"
        )
    raise_first(problems)
    return Contents(value if is_dump else None, arrays, place)


ALLOWED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""What stands for a number of each kind of dtype; for floats also the strings of NOT_FINITE."""

AT_ONCE = 1 << 16  # numbers converted to a type at a time


def array_of(data: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The array of nested lists; without a dtype bool where all of it is, else float64."""
    whole_shape = read_shape(data, shape)
    rows = list(rows_of(data, whole_shape)) if whole_shape else [[data]]
    if dtype is None:
        types = set(map(type, chain.from_iterable(rows)))
        dtype = "bool" if types == {bool} else "float64"
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise AttnError(f": dtype {show_value(dtype)} is none of {', '.join(sorted(DTYPES))}")

    kind = DTYPES[dtype]
    check_numbers(rows, kind, whole_shape)
    columns = len(rows[0]) if rows else 0
    out = np.empty((len(rows), columns), dtype=kind)
    step = max(1, AT_ONCE // max(1, columns))
    for start in range(0, len(rows), step):
        stop = start + step
        out[start:stop] = convert_rows(rows[start:stop], kind)
    return out.reshape(whole_shape)


def read_shape(data: Any, shape: Any) -> Shape:
    """The shape of nested lists: what is said of them where that fits, what their first items show."""
    found: Shape = ()
    inner = data
    while isinstance(inner, list):
        found = (*found, len(inner))
        inner = inner[0] if inner else None
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
    allowed = ALLOWED[dtype.kind]
    is_whole = dtype.kind in "iu"

    def stands_for_number(value: Any) -> bool:
        if type(value) in allowed:
            return not is_whole or fits([value], dtype)
        return type(value) is str and dtype.kind == "f" and value in NOT_FINITE

    for number, row in enumerate(rows):
        # Most rows are seen to be right at a glance.
        if set(map(type, row)) <= allowed and (not is_whole or fits(row, dtype)):
            continue
        for column, value in enumerate(row):
            if not stands_for_number(value):
                place = np.unravel_index(number * len(row) + column, shape) if shape else ()
                raise AttnError(
                    f"{index_text(place)}: {show_value(value)} is not a number of type {dtype.name}"
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


# --- writing ---


def write_json(traces: Sequence[Trace], stream: IO[Any]) -> None:
    """Write one dump as a JSON object, any other number of them as an array."""
    write = sink(stream)
    several = len(traces) != 1
    write(b"[\n" if several else b"")
    for at, trace in enumerate(traces):
        write(b",\n" if at else b"")
        for piece in texts(trace, "\n"):
            write(piece)
    write(b"\n]\n" if several else b"\n")


def write_jsonl(traces: Iterable[Trace], stream: IO[Any]) -> None:
    write = sink(stream)
    for trace in traces:
        for piece in chain(texts(trace, ""), [b"\n"]):
            write(piece)


def texts(trace: Trace, newline: str) -> Iterator[bytes]:
    blank = newline or " "
    start = "{" + newline
    for key, value in heading(trace).items():
        yield encode_json(f"{start}{json_text(key)}: {json_text(value)}")
        start = f",{blank}"
    yield encode_json(f'{start}"steps": {{')

    start = newline
    for name, step in trace.steps.items():
        array = trace[name]
        yield start.encode() + step_text(step, array.shape, array.dtype)
        yield f', "data":{blank}'.encode()
        yield from json_pieces(array, newline)
        yield b"}"
        start = f",{blank}"
    yield b"}}"


@lru_cache(maxsize=256)
def step_text(step: Step, shape: Shape, dtype: np.dtype[Any]) -> bytes:
    """A step without its numbers, its object left open; many dumps have the same."""
    return encode_json(f"{json_text(step.name)}: {json_text(entry(step, shape, dtype))[:-1]}")


BLOCK = 1 << 13
"""Numbers turned into text at a time: few enough for their text to stay in a processor's cache."""

WIDE = 64  # orjson is faster on single rows of at least this width than on a whole matrix of them

LARGE = 1e16
"""Numbers at least this large are written as the standard library does: 1e+16, not orjson's 1e16."""


@cache
def find_orjson() -> Any:
    """orjson, which is quick, and not imported where nothing is written; None where it is not installed."""
    try:
        import orjson
    except ImportError:
        return None
    return orjson


def json_pieces(array: Array, newline: str = "\n") -> Iterator[bytes]:
    """The array as nested lists, with `newline` after the comma between two rows."""
    between = b"," + newline.encode()
    if array.ndim == 0:
        yield items_text(array.reshape(1), between)
        return

    yield b"["
    fits_in_blocks = array.ndim == 1 or (array.ndim == 2 and array.shape[-1] <= BLOCK)
    if fits_in_blocks:
        rows = max(1, BLOCK // max(1, array[:1].size))
        between_blocks = b"," if array.ndim == 1 else between
        for start in range(0, len(array), rows):
            if start:
                yield between_blocks
            yield items_text(array[start : start + rows], between)
    else:
        for number, row in enumerate(array):
            if number:
                yield between
            yield from json_pieces(row, newline)
    yield b"]"


def items_text(block: Array, comma: bytes) -> bytes:
    if block.dtype.kind == "f" and block.size and find_orjson() is not None:
        return by_orjson(np.ascontiguousarray(block, dtype=np.float64), comma)
    return by_standard_library(block, comma)


def by_standard_library(block: Array, comma: bytes) -> bytes:
    text = json.dumps(block.tolist(), separators=(",", ":"))
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        text = text.replace("NaN", '"NaN"').replace("Infinity", '"Infinity"').replace('-"', '"-')
    return between_rows(text.encode()[1:-1], comma)


def by_orjson(block: Array, comma: bytes) -> bytes:
    """The items of a vector or matrix of float64, the large and not finite ones put in afterwards."""
    ordinary = np.abs(block) < LARGE
    if ordinary.all():
        return ordinary_by_orjson(block, comma)
    text = ordinary_by_orjson(np.where(ordinary, block, np.nan), comma)  # null for each of the others
    others = block[~ordinary]
    if (others == others[0]).all():  # as in masked scores
        return text.replace(b"null", by_standard_library(others[:1], comma))
    texts = iter(by_standard_library(others, comma).split(b","))
    return re.sub(b"null", lambda _: next(texts), text)


def ordinary_by_orjson(block: Array, comma: bytes) -> bytes:
    """The items of a vector or matrix of float64 that are small enough, or NaN, which becomes null."""
    orjson = find_orjson()
    if block.ndim == 2 and block.shape[-1] >= WIDE:
        return comma.join(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in block)
    return between_rows(orjson.dumps(block, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1], comma)


def between_rows(text: bytes, comma: bytes) -> bytes:
    return text.replace(b"],[", b"]" + comma + b"[")
