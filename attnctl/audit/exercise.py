"""Exercises: dumps in which cells or whole steps are null, to be filled in by hand."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.array import Array
from attnctl.errors import AttnError
from attnctl.store import read_one
from attnctl.trace import Trace

BLANK = "NaN"
"""What a blank is read as."""


@dataclass(frozen=True)
class Exercise:
    """A dump, and what of it is still to be filled in: cells of steps, and steps whole."""

    trace: Trace
    blanks: dict[str, Array] = field(default_factory=dict)
    unfilled: frozenset[str] = frozenset()


def read(source: str, rename: Mapping[str, str]) -> Exercise:
    """A dump, anyone's arrays, or an exercise, from a path or ``-``.

    Raises AttnError where it is none of these.
    """
    data = sys.stdin.buffer.read() if source == "-" else None
    try:
        stdin = None if data is None else io.BytesIO(data)
        return Exercise(read_one(source, stdin, rename=rename))
    except AttnError:
        exercise = with_blanks(source, data, rename)
        if exercise is None:
            raise
        return exercise


def with_blanks(source: str, data: bytes | None, rename: Mapping[str, str]) -> Exercise | None:
    """The exercise that a file is, None where nothing in it is null."""
    try:
        value = json.loads(Path(source).read_bytes() if data is None else data)
    except (OSError, ValueError, RecursionError):
        return None
    steps = value.get("steps", value) if isinstance(value, dict) else None
    if not isinstance(steps, dict):
        return None
    found = {name: entry.get("data") if isinstance(entry, dict) else entry for name, entry in steps.items()}
    empty = {name for name, numbers in found.items() if not any_number(numbers)}
    blank = {name: blanks_of(numbers) for name, numbers in found.items() if name not in empty}
    blank = {name: cells for name, cells in blank.items() if cells.any()}
    if not empty and not blank:
        return None
    for name in empty:
        del steps[name]
    for name in blank:
        filled = marked(found[name])
        if isinstance(steps[name], dict):
            steps[name]["data"] = filled
        else:
            steps[name] = filled
    trace = read_one("-", io.BytesIO(json.dumps(value).encode()), rename=rename)
    ours = {name: rename.get(name, name) for name in (*empty, *blank)}
    return Exercise(
        trace, {ours[name]: cells for name, cells in blank.items()}, frozenset(ours[name] for name in empty)
    )


def any_number(numbers: Any) -> bool:
    """Whether anything is filled in."""
    return any(map(any_number, numbers)) if isinstance(numbers, list) else numbers is not None


def blanks_of(numbers: Any) -> Array:
    """Where nothing is filled in; nowhere if rows are not of one length, which reading will say."""
    try:
        return np.array(empty_of(numbers), dtype=bool)
    except ValueError:
        return np.zeros(0, dtype=bool)


def empty_of(numbers: Any) -> Any:
    """The same lists with whether each number is null."""
    return [empty_of(each) for each in numbers] if isinstance(numbers, list) else numbers is None


def marked(numbers: Any) -> Any:
    """The same with what null is read as."""
    return (
        [marked(each) for each in numbers]
        if isinstance(numbers, list)
        else BLANK
        if numbers is None
        else numbers
    )
