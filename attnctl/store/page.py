"""The data of a one-file page: arrays in script blocks of their own, beside a description as JSON.

Both are what a browser reads and what is read back. A block is the bytes of an array, the first
byte of each number first (numbers that are alike have like bytes there), deflated, as base64.
Nothing of a page is run here, and nothing inflated before its size has been held against its block.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.store.files import encode_json, json_text
from attnctl.store.header import (
    DTYPES,
    Contents,
    Stored,
    check_shape,
    decode,
    require_bytes,
    room,
    show_value,
)
from attnctl.store.json_file import check_length, header_of
from attnctl.store.raw import MOST_INFLATED, array_from

SCHEMA = "attnctl/report/1"
DATA = '<script type="application/json" id="attnctl-report">'
BLOCK = '<script type="application/octet-stream;base64" id="b{}">'
END = "</script>\n"
DESCRIPTION = re.compile(re.escape(DATA).encode() + rb"([^<]*)</script>")
NUMBERED = re.escape(BLOCK).replace(r"\{\}", "([0-9]{1,6})").encode()
BLOCKS = re.compile(NUMBERED + rb"([A-Za-z0-9+/=]*)</script>")


# --- writing ---


def description(data: Mapping[str, Any]) -> Iterator[bytes]:
    """The block that describes the others; no text in it can end it."""
    text = json_text({"schema": SCHEMA, **data}).replace("<", "\\u003c")
    yield DATA.encode() + encode_json(text) + END.encode()


def block(number: int, array: Array) -> Iterator[bytes]:
    """The block of an array: its bytes, lowest byte first, sorted by their place in a number."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    by_place = little.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T.tobytes()
    yield BLOCK.format(number).encode()
    yield b64encode(zlib.compress(by_place, 6))
    yield END.encode()


# --- reading ---


def load_block(text: bytes, shape: Shape, dtype: np.dtype[Any], place: str) -> Array:
    size = prod(shape) * dtype.itemsize
    if size > MOST_INFLATED * (len(text) + 8):
        raise AttnError(f"{place}: so many numbers cannot come out of a block this short")
    require_bytes(2 * size + len(text), place)
    numbers = room(size, place)

    try:
        stream = zlib.decompressobj()
        data = stream.decompress(b64decode(text, validate=True), max(1, size))
    except (zlib.error, Base64Error) as error:
        raise AttnError(f"{place}: damaged: {error}") from None
    if len(data) != size or not stream.eof or stream.unused_data:
        raise AttnError(f"{place}: damaged: it does not hold the numbers that it says")

    # The first bytes of all numbers stand together, then the second ones: so they compress better.
    by_byte = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    numbers.reshape(-1, dtype.itemsize)[...] = by_byte.T
    return array_from(numbers.data, shape, dtype.newbyteorder("<"))


def read_page(data: bytes | bytearray, place: str) -> Iterator[Contents]:
    check_length(len(data), place)
    found = DESCRIPTION.search(data)
    if found is None:
        raise AttnError(f"{place}: not a dump: a page without a trace in it")
    header = header_of(found[1], f"{place}: its description")
    schema = header.get("schema")
    if schema != SCHEMA:
        raise AttnError(f"{place}: a page of schema {show_value(schema)}; this attnctl reads {SCHEMA!r}")

    texts = {int(match[1]): match[2] for match in BLOCKS.finditer(data, found.end())}
    packed = []
    for number, entry in enumerate(read_objects(header, "blocks", place)):
        packed.append(pack_block(entry, texts.get(number), f"{place}: block {number}"))

    traces = read_objects(header, "traces", place)
    if not traces:
        raise AttnError(f"{place}: $.traces: a page with no trace in it")
    for number, trace in enumerate(traces):
        yield contents_of(trace, packed, f"{place}: $.traces[{number}]")


def read_objects(header: Mapping[str, Any], key: str, place: str) -> list[Any]:
    found = header.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise AttnError(f"{place}: $.{key}: expected a list of objects, found {show_value(found)}")
    return found


def pack_block(entry: Mapping[str, Any], text: bytes | None, place: str) -> Stored:
    if text is None:
        raise AttnError(f"{place}: missing")
    kind = decode(str, entry.get("dtype"), f"{place}: dtype")
    if kind not in DTYPES:
        raise AttnError(f"{place}: {show_value(kind)} is no type of number that a dump may hold")
    shape = decode(tuple[int, ...], entry.get("shape"), f"{place}: shape")
    if any(size < 0 for size in shape):
        raise AttnError(f"{place}: a negative size")
    check_shape(shape, place)
    return Stored(shape, DTYPES[kind], partial(load_block, text, shape, DTYPES[kind], place))


def contents_of(entry: Mapping[str, Any], packed: list[Stored], place: str) -> Contents:
    dump = entry.get("dump")
    blocks = entry.get("blocks")
    if dump is None and "dump" in entry:
        raise AttnError(f"{place}: a picture alone, as its numbers were too many for a page; read its .npz")
    if not isinstance(dump, dict) or not isinstance(blocks, dict):
        raise AttnError(f'{place}: expected an object with a "dump" and its "blocks"')
    members = {}
    for name, number in blocks.items():
        if type(number) is not int or not 0 <= number < len(packed):
            raise AttnError(f"{place}: {show_value(name)}: no block {show_value(number)}")
        members[name] = packed[number]
    return Contents(dump, members, place)
