"""Strict JSON as bytes that a terminal can show: every JSON that leaves attnctl is written here."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

Sink = Callable[[bytes], object]

TERMINAL_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Characters that a terminal acts on: control characters and changes of text direction."""


def print_json(data: Any, indent: int | None = None) -> None:
    """Write plain data to stdout as one JSON text and a line end."""
    sink(sys.stdout)(encode_json(f"{json_text(data, indent)}\n"))


def write_found(found: Sequence[Any], stream: IO[Any]) -> None:
    """Write findings, which have `to_dict`, to a stream: an object for one, an array for several."""
    data = [each.to_dict() for each in found]
    sink(stream)(encode_json(f"{json_text(data[0] if len(data) == 1 else data, 1)}\n"))


def json_text(value: Any, indent: int | None = None) -> str:
    """Strict JSON of plain data; on one line where no indent is given."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def encode_json(text: str) -> bytes:
    """UTF-8, with terminal controls and unpaired surrogates as JSON escapes."""
    safe = TERMINAL_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return safe.encode("utf-8", "backslashreplace")


def sink(stream: IO[Any]) -> Sink:
    """The function that writes bytes to a stream; text streams get UTF-8 whatever their encoding."""
    if not isinstance(stream, io.TextIOBase):
        return stream.write
    stream.flush()
    buffer: IO[bytes] | None = getattr(stream, "buffer", None)
    return buffer.write if buffer is not None else lambda data: stream.write(data.decode())
