"""Arrays as JSON text, a bounded piece at a time; every number in the digits that read back as it.

The digits are the fewest that do, as in Python's `repr` (float16 and float32 are written as the
float64 they equal), and the text is the same with and without orjson, which has a form of its own
for small numbers and writes null for NaN and infinity. So `slow_text` writes small numbers in
that form, and orjson is not shown what only `slow_text` writes right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnctl.array import Array

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]  # an optional speed-up


BLOCK = 1 << 13
"""Numbers turned into text at a time: few enough for their text to stay in a processor's cache."""

WIDE = 512
"""Rows at least this wide are turned into text one by one, others many at a time."""

LEAST, MOST = 1e-4, 1e16
"""repr writes smaller and larger numbers with an exponent: 1.5e-05, 1e+16."""

BREAK = 1e111
"""Stands at the end of each row where many are handed over at a time: too large to be part of it."""


def pieces(array: Array, newline: str = "\n") -> Iterator[bytes]:
    """The array as nested lists, a row a line where `newline` says so."""
    comma = b"," + newline.encode()
    if array.ndim == 0:
        yield block_text(array.reshape(1), comma)
    elif array.ndim == 1 or (array.ndim == 2 and array.shape[-1] <= BLOCK):
        rows = max(1, BLOCK // max(1, array[:1].size))
        yield b"["
        for start in range(0, len(array), rows):
            yield b"" if not start else b"," if array.ndim == 1 else comma
            yield block_text(array[start : start + rows], comma)
        yield b"]"
    else:
        yield b"["
        for at, each in enumerate(array):
            yield comma if at else b""
            yield from pieces(each, newline)
        yield b"]"


def block_text(block: Array, comma: bytes) -> bytes:
    """The numbers of a vector, or the rows of a matrix, with commas between them."""
    if block.dtype.kind == "f":
        block = np.ascontiguousarray(block, dtype=np.float64)
        if orjson is not None and block.size:
            return fast_text(block, comma)
    if block.ndim == 2 and block.shape[-1] >= WIDE:
        return comma.join(map(slow_text, block))
    return slow_text(block)[1:-1].replace(b"],[", b"]" + comma + b"[")


def slow_text(block: Array) -> bytes:
    """The text of numbers by the standard library, the words that are not JSON as strings."""
    text = json.dumps(block.tolist(), separators=(",", ":"))
    if block.dtype.kind != "f":
        return text.encode()
    sizes = np.abs(block)
    if not (sizes < np.inf).all():
        text = text.replace("NaN", '"NaN"').replace("-Infinity", '"-Infinity"')
        if (block == np.inf).any():
            text = text.replace("Infinity", '"Infinity"').replace('"-"Infinity""', '"-Infinity"')
    if ((sizes > 0) & (sizes < LEAST)).any():
        text = small_as_orjson(text)
    return text.encode()


def small_as_orjson(text: str) -> str:
    """1.5e-05 -> 0.000015, and 1.5e-06 -> 1.5e-6."""
    start, *rest = text.split("e-0")
    out = [start]
    for part in rest:
        if part[0] == "5":
            before, comma, number = out.pop().rpartition(",")
            digits = number.lstrip("[-")
            sign = number[: len(number) - len(digits)]
            out += (before, comma, sign, "0.0000", digits.replace(".", ""), part[1:])
        else:
            out += ("e-", part)
    return "".join(out)


def fast_text(block: Array, comma: bytes) -> bytes:
    """The same with orjson."""
    alike = np.abs(block) < MOST
    if alike.all():
        return rows_text(block, comma)
    text = rows_text(np.where(alike, block, np.nan), comma)  # null for each of the others
    others = block[~alike]
    if (others == others[0]).all():  # as where scores are hidden
        return text.replace(b"null", slow_text(others[:1])[1:-1])
    told = slow_text(others)[1:-1].split(b",")
    filled = [b""] * (2 * len(told) + 1)
    filled[::2], filled[1::2] = text.split(b"null"), told
    return b"".join(filled)


def rows_text(block: Array, comma: bytes) -> bytes:
    """The items of a vector or matrix by orjson."""
    if block.ndim == 1:
        return dumps(block)[1:-1]
    if block.shape[-1] >= WIDE:
        return comma.join(map(dumps, block))
    ends = np.full((len(block), 1), BREAK)
    text = dumps(np.hstack([block, ends]).ravel())
    end = b"," + dumps(BREAK)
    return text.replace(end + b",", b"]" + comma + b"[")[: -len(end) - 1] + b"]"


def dumps(value: Any) -> bytes:
    """JSON by orjson."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
