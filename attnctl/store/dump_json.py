"""Writing dumps as JSON and JSON Lines, streamed: never one big string."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np

from attnctl.derivation import Step
from attnctl.store.digits import pieces
from attnctl.store.header import entry, heading
from attnctl.trace import Trace

Sink = Callable[[bytes], object]

TERMINAL_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Characters that a terminal acts on: control characters and changes of text direction."""


def write_json(traces: Sequence[Trace], stream: IO[Any]) -> None:
    """One dump as a JSON object, any other number of them as an array."""
    write, several = sink(stream), len(traces) != 1
    write(b"[\n" if several else b"")
    for at, trace in enumerate(traces):
        write(b",\n" if at else b"")
        for piece in texts(trace, "\n"):
            write(piece)
    write(b"\n]\n" if several else b"\n")


def write_jsonl(traces: Iterable[Trace], stream: IO[Any]) -> None:
    """Each dump as one line of JSON."""
    write = sink(stream)
    for trace in traces:
        for piece in chain(texts(trace, ""), [b"\n"]):
            write(piece)


def texts(trace: Trace, newline: str) -> Iterator[bytes]:
    """The text of one dump, a JSON object, in pieces."""
    start = "{" + newline
    for key, value in heading(trace).items():
        yield encoded(f"{start}{json_text(key)}: {json_text(value)}")
        start = f",{newline or ' '}"
    yield encoded(f'{start}"steps": {{')
    start = newline
    for name, step in trace.steps.items():
        array = trace[name]
        yield start.encode() + step_text(step, Form(array.shape, array.dtype))
        yield f', "data":{newline or " "}'.encode()
        yield from pieces(array, newline)
        yield b"}"
        start = f",{newline or ' '}"
    yield b"}}"


class Form(NamedTuple):
    """What the text of a step says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@lru_cache(maxsize=256)
def step_text(step: Step, form: Form) -> bytes:
    """A step without its numbers, its object left open; many dumps have the same."""
    return encoded(f"{json_text(step.name)}: {json_text(entry(step, form))[:-1]}")


def json_text(value: Any) -> str:
    """Strict JSON of plain data, on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def encoded(text: str) -> bytes:
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
