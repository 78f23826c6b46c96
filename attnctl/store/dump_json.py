"""Writing dumps as JSON and JSON Lines, streamed: never one big string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np

from attnctl.base.trace import Trace
from attnctl.math.derivation import Step
from attnctl.store.digits import pieces
from attnctl.store.header import entry, heading
from attnctl.store.strict_json import encode_json, json_text, sink


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
    """Each dump as one line of JSON."""
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
        yield start.encode() + step_text(step, StepText(array.shape, array.dtype))
        yield f', "data":{newline or " "}'.encode()
        yield from pieces(array, newline)
        yield b"}"
        start = f",{newline or ' '}"
    yield b"}}"


class StepText(NamedTuple):
    """The text of a step, and what that says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@lru_cache(maxsize=256)
def step_text(step: Step, form: StepText) -> bytes:
    """A step without its numbers, its object left open; many dumps have the same."""
    return encode_json(f"{json_text(step.name)}: {json_text(entry(step, form))[:-1]}")
