"""Arrays as JSON text, a bounded piece at a time; every number in the digits that read back as it.

The digits are the fewest that do, as in Python's `repr` (float16 and float32 are written as the
float64 they equal), and the text is the same with and without orjson, which has a form of its own
for small numbers and writes null for NaN and infinity. So small numbers are written in that form
without it too, and orjson is not shown what it does not write right.
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

WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}

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
    texts = slow_texts(block.ravel())
    if block.ndim == 1:
        return ",".join(texts).encode()
    count, width = block.shape
    rows = (",".join(texts[at * width : (at + 1) * width]) for at in range(count))
    return comma.join(b"[%b]" % row.encode() for row in rows)


def slow_texts(numbers: Array) -> list[str]:
    """The text of each number by the standard library, the words that are not JSON as strings."""
    if numbers.dtype.kind != "f":
        return list(map(json.dumps, numbers.tolist()))
    texts = list(map(repr, numbers.tolist()))
    sizes = np.abs(numbers)
    for at in np.flatnonzero((sizes >= LEAST / 10) & (sizes < LEAST)):
        texts[at] = without_exponent(texts[at])
    for at in np.flatnonzero((sizes > 0) & (sizes < LEAST / 10)):
        texts[at] = texts[at].replace("e-0", "e-")
    for at in np.flatnonzero(~(sizes < np.inf)):
        texts[at] = WORDS[texts[at]]
    return texts


def without_exponent(text: str) -> str:
    """1.5e-05 -> 0.000015."""
    digits = text[:-4].replace(".", "")
    return f"-0.0000{digits[1:]}" if digits[0] == "-" else f"0.0000{digits}"


def fast_text(block: Array, comma: bytes) -> bytes:
    """The same with orjson."""
    alike = np.abs(block) < MOST
    if alike.all():
        return rows_text(block, comma)
    text = rows_text(np.where(alike, block, np.nan), comma)  # null for each of the others
    others = block[~alike]
    if (others == others[0]).all():  # as where scores are hidden
        return text.replace(b"null", slow_texts(others[:1])[0].encode())
    told = [each.encode() for each in slow_texts(others)]
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
