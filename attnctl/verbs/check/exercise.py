"""Exercises: dumps in which cells or whole steps are null, to be filled in by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.files import STANDARD_INPUT, open_found, open_input, refuse_os_errors
from attnctl.evidence.allowed import Strictness
from attnctl.record import Trace, is_unfinished
from attnctl.sources.sentence import Source
from attnctl.store.header import assemble_trace
from attnctl.store.json_file import read_json
from attnctl.store.source import CapturedCalls, only_one
from attnctl.store.source import read as read_all

BLANK = "NaN"

LARGEST = 2**24
"""Bytes of an exercise: people fill it in by hand."""


def handed_out(trace: Trace) -> frozenset[str]:
    """The steps that stood on a sheet, rounded: what follows is worked out from what is written."""
    blank = trace.header.get("blank")
    if "rounded" not in trace.header or not isinstance(blank, list):
        return frozenset()
    return frozenset(trace) - frozenset(map(str, blank))


def strictness_of(trace: Trace, rtol: float | None, atol: float | None, decimals: int | None) -> Strictness:
    """The tolerance; an exercise may say to how many decimals it is filled in."""
    own = trace.header.get("decimals")
    if decimals is None and (rtol, atol) == (None, None):
        decimals = own
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= 15):
        raise AttnError(f"decimals: {decimals!r} is not a number of decimals; use 0 to 15")
    by_hand = decimals is not None and (own is not None or is_unfinished(trace))
    return Strictness(rtol, atol, decimals, by_hand, handed_out(trace))


def read_source(source: Source) -> Sequence[Trace]:
    rename = source.beside.rename or {}
    traces = read_recorded(source.path, rename)[0] if source.is_file else source.traces()
    if not isinstance(traces, CapturedCalls) and any(trace.kept_heads for trace in traces):
        raise AttnError(
            f"{source.text}: it was written with --head, and steps are made of all heads; leave that out"
        )
    return traces


def read_unfinished(source: str, rename: Mapping[str, str], *, named: bool = True) -> Trace:
    """A dump, anyone's arrays, or an exercise, from a path or ``-``. Raises AttnError for anything else.

    A path that no person `named`, but a file, is that of a regular file.
    """
    found, _ = read_recorded(source, rename, named=named)
    only_one(found, source)
    return found[0]


def read_to_show(source: str) -> tuple[Sequence[Trace], bool]:
    """Every trace of a dump, or the one of an exercise with NaN in its blanks; and which of the two it is.

    Steps of which nothing is written, not even a shape, are left out.
    """
    found, blanks = read_recorded(source, {}, keep=True)
    if not blanks:
        return found, False
    blank = found[0].header.get("blank", sorted(found[0].begun))
    return [replace(found[0], header={**found[0].header, "blank": blank})], True


def read_recorded(
    source: str, rename: Mapping[str, str], *, named: bool = True, keep: bool = False
) -> tuple[Sequence[Trace], bool]:
    """Every trace of a file or of a pipe, or the exercise that it is; and which of the two it is."""
    data = None
    if source == STANDARD_INPUT:
        with refuse_os_errors("standard input: cannot be read"), open_input(source) as stream:
            data = stream.read()
    try:
        return read_all(source, None if data is None else io.BytesIO(data), rename, named=named), False
    except AttnError:
        if (exercise := read_exercise(source, data, rename, keep)) is None:
            raise
        return [exercise], True


def read_exercise(source: str, data: bytes | None, rename: Mapping[str, str], keep: bool) -> Trace | None:
    """The exercise in a file or in what was piped; None where there is none."""
    try:
        if data is None:
            with open_found(source) as stream:
                data = stream.read(LARGEST + 1)
        value = json.loads(data[: LARGEST + 1])  # what is larger is cut off, and no JSON any more
        return with_blanks(
            value, rename, "standard input" if source == STANDARD_INPUT else source, keep=keep
        )
    except (OSError, ValueError, RecursionError):
        return None


def with_blanks(value: Any, rename: Mapping[str, str], place: str, *, keep: bool) -> Trace | None:
    """The exercise that JSON describes, None where nothing in it is null.

    With `keep` steps that are null as a whole are begun, too, where their shape is written.
    """
    steps = value.get("steps", value) if isinstance(value, dict) else None
    if not isinstance(steps, dict):
        return None

    unfilled = []
    begun = []
    data = {name: entry.get("data") if isinstance(entry, dict) else entry for name, entry in steps.items()}
    for name, numbers in data.items():
        has_shape = isinstance(numbers, list)
        if all(cell is None for cell in cell_values(numbers)) and not (keep and has_shape):
            unfilled.append(name)
        elif None in cell_values(numbers):
            begun.append(name)
    if not unfilled and not begun:
        return None

    for name in unfilled:
        del steps[name]
    for name in begun:
        marked = with_marks(data[name])
        steps[name] = {**steps[name], "data": marked} if isinstance(steps[name], dict) else marked

    (contents,) = read_json(json.dumps(value).encode(), place)
    trace = assemble_trace(contents, rename)
    our_begun = frozenset(rename.get(name, name) for name in begun)
    our_unfilled = frozenset(rename.get(name, name) for name in unfilled)
    return Trace(trace.steps, trace.arrays, trace.header, our_begun, our_unfilled)


def cell_values(numbers: Any) -> Iterator[Any]:
    if not isinstance(numbers, list):
        yield numbers
        return
    for number in numbers:
        yield from cell_values(number)


def with_marks(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [with_marks(number) for number in numbers]
    return BLANK if numbers is None else numbers
