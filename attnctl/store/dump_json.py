"""Writing dumps as JSON and JSON Lines, streamed: never one big string.

Every number is written with the shortest digits that read back as it (float16 and float32 as the
float64 they equal), NaN and infinity as strings. With orjson this is several times faster. The
standard library may spell a number otherwise (1e-05 for 0.00001), but it is the same number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import IO, Any

import numpy as np

from attnctl.math import Array, Shape
from attnctl.math.derivation import Step
from attnctl.record import Trace
from attnctl.store.files import encode_json, json_text, sink
from attnctl.store.header import entry, heading


def write_json(traces: Sequence[Trace], stream: IO[Any]) -> None:
    """Write one dump as a JSON object, any other number of them as an array."""
    write, several = sink(stream), len(traces) != 1
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
    """The text of one dump, a JSON object, in pieces."""
    start = "{" + newline
    for key, value in heading(trace).items():
        yield encode_json(f"{start}{json_text(key)}: {json_text(value)}")
        start = f",{newline or ' '}"
    yield encode_json(f'{start}"steps": {{')
    start = newline
    for name, step in trace.steps.items():
        array = trace[name]
        yield start.encode() + step_text(step, array.shape, array.dtype)
        yield f', "data":{newline or " "}'.encode()
        yield from json_pieces(array, newline)
        yield b"}"
        start = f",{newline or ' '}"
    yield b"}}"


@lru_cache(maxsize=256)
def step_text(step: Step, shape: Shape, dtype: np.dtype[Any]) -> bytes:
    """A step without its numbers, its object left open; many dumps have the same."""
    return encode_json(f"{json_text(step.name)}: {json_text(entry(step, shape, dtype))[:-1]}")


try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]  # an optional speed-up


BLOCK = 1 << 13
"""Numbers turned into text at a time: few enough for their text to stay in a processor's cache."""

WIDE = 64
"""orjson is faster on single rows of at least this width than on a whole matrix of them."""

LARGE = 1e16
"""Numbers at least this large are written as the standard library does: 1e+16, not orjson's 1e16."""


def json_pieces(array: Array, newline: str = "\n") -> Iterator[bytes]:
    """The array as nested lists, with `newline` after the comma between two rows."""
    comma = b"," + newline.encode()
    if array.ndim == 0:
        yield items_text(array.reshape(1), comma)
    elif array.ndim == 1 or (array.ndim == 2 and array.shape[-1] <= BLOCK):
        rows = max(1, BLOCK // max(1, array[:1].size))
        yield b"["
        for start in range(0, len(array), rows):
            yield b"" if not start else b"," if array.ndim == 1 else comma
            yield items_text(array[start : start + rows], comma)
        yield b"]"
    else:
        yield b"["
        for at, row in enumerate(array):
            yield comma if at else b""
            yield from json_pieces(row, newline)
        yield b"]"


def items_text(block: Array, comma: bytes) -> bytes:
    if orjson is not None and block.dtype.kind == "f" and block.size:
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
    if block.ndim == 2 and block.shape[-1] >= WIDE:
        return comma.join(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in block)
    return between_rows(orjson.dumps(block, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1], comma)


def between_rows(text: bytes, comma: bytes) -> bytes:
    return text.replace(b"],[", b"]" + comma + b"[")
