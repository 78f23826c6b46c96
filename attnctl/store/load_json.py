"""Reading dumps, and arrays of others, from JSON: one object, an array of them, or JSON Lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.trace import Trace
from attnctl.math import Array
from attnctl.math.engine.cost import size_text
from attnctl.store.codec import show_value, under
from attnctl.store.header import check_schema, collect_problems
from attnctl.store.limits import hold, raise_first
from attnctl.store.members import assemble_trace
from attnctl.store.nested import array_of

LONGEST = 1 << 30
"""Bytes of JSON that are read at most; larger dumps are what .npz and .safetensors are for."""

SPACE = re.compile(r"[ \t\r\n]*")


def read_json(text: str, rename: Mapping[str, str] | None, place: str) -> list[Trace]:
    """Every trace of a JSON text; `rename` says what their arrays are called here."""
    values = list(parse(text, place))
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise AttnError(f"{place}: nothing in it; expected a dump")
    numbered = [f"{place}: number {i + 1}" for i in range(len(values))] if len(values) > 1 else [place]
    return [trace_of(value, rename, at) for value, at in zip(values, numbered, strict=True)]


def header_of(data: bytes, place: str) -> dict[str, Any]:
    values = list(parse(text_of(data, place), place))
    if len(values) != 1 or not isinstance(values[0], dict):
        raise AttnError(f"{place}: expected one object")
    header: dict[str, Any] = values[0]
    return header


def text_of(data: bytes | bytearray, place: str) -> str:
    """The characters of a JSON text whose values will fit into memory."""
    containers = data.count(b"[") + data.count(b"{")
    hold(5 * len(data) + 88 * containers + 32 * data.count(b","), f"{place}: reading this JSON")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttnError(f"{place}: not UTF-8 at byte {error.start}") from None


def parse(text: str, place: str) -> Iterator[Any]:
    """The values of a strict JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=unique, parse_constant=no_constant)
    at = after_space(text, 0)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            yield value
            at = after_space(text, end)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise AttnError(f"{place}: not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise AttnError(f"{place}: nested too deeply") from None
    except ValueError:  # Python's own limit
        raise AttnError(f"{place}: a whole number with thousands of digits") from None
    except AttnError as error:
        raise AttnError(f"{place}: {each}" for each in error.problems) from None


def after_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def check_length(length: int, place: str) -> None:
    """Refuse a text that is longer than is read at all."""
    if length > LONGEST:
        most = size_text(LONGEST)
        raise AttnError(f"{place}: more than {most} of JSON; write .npz or .safetensors instead")


def no_constant(text: str) -> Any:
    """NaN and infinity as bare words are not JSON."""
    raise AttnError(f'{text} is not JSON; write the string "{text}"')


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; a step's numbers become an array at once, to keep memory down."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counted = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counted.items() if count > 1)
        raise AttnError(f"the key {show_value(twice)} stands twice in one object")
    if isinstance(found.get("data"), list) and "dtype" in found:
        found["data"] = Packed(found)
    return found


class Packed:
    """The numbers of a step, or what is wrong with them."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.array: Array = np.empty(0)
        self.problems: list[str] = []
        with collect_problems(self.problems):
            self.array = array_of(entry["data"], entry.get("shape"), entry["dtype"])


def trace_of(value: Any, rename: Mapping[str, str] | None, place: str) -> Trace:
    """A dump, or arrays by name."""
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
            packed = data if isinstance(data, Packed) else Packed({"dtype": None, **entry, "data": data})
            path = f"{under('$.steps', name)}.data" if told else under("$", name)
            problems += [f"{place}: {path}{each}" for each in packed.problems]
            arrays[name] = packed.array
    raise_first(problems)
    return assemble_trace(value if told else None, arrays, rename, place)
