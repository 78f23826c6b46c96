"""What differs between two configs, by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.base.values import Path
from attnctl.inputs.config.settings import dotted_path

ABSENT: Any = object()
"""What a config has at a path that it does not have."""


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The values of A and of B at every path where they differ: {"heads": (1, 2)}."""
    return {dotted_path(path): values for path, values in walk(dict(a), dict(b), ())}


def walk(a: Any, b: Any, path: Path) -> Iterator[tuple[Path, tuple[Any, Any]]]:
    """Go into mappings, and into lists of one length; everything else is a value."""
    match a, b:
        case dict(), dict():
            for key in {**a, **b}:
                yield from walk(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)))
        case list(), list() if len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from walk(x, y, (*path, i))
        case _:
            if a != b or isinstance(a, bool) != isinstance(b, bool):
                yield path, (a, b)
