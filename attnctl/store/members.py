"""The arrays of a file, loaded when they are asked for, and the trace they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.names import TABLE
from attnctl.record.trace import Trace
from attnctl.store.codec import show_value
from attnctl.store.header import Shaped, check_schema, foreign_step, rebuild
from attnctl.store.limits import MOST_PROBLEMS, raise_first


class Member(Shaped, Protocol):
    """An array that is still in its file."""

    def load(self) -> Array:
        """Its numbers."""


@dataclass(frozen=True)
class Arrays(Mapping[str, Array]):
    """Arrays by name; those that are still in a file are loaded each time they are asked for."""

    members: Mapping[str, Array | Member]
    place: str

    def __getitem__(self, name: str) -> Array:
        found = self.members[name]
        if isinstance(found, np.ndarray):
            return found
        try:
            return found.load()
        except MemoryError:
            raise AttnError(f"{self.place}: {show_value(name)}: not enough memory to load it") from None
        except (OSError, ValueError) as error:  # the file has changed since, or mapping it was refused
            raise AttnError(
                f"{self.place}: {show_value(name)}: cannot be read from its file any more: {error}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


def assemble_trace(
    header: dict[str, Any] | None,
    members: Mapping[str, Array | Member],
    rename: Mapping[str, str] | None,
    place: str,
) -> Trace:
    """The trace of a file's header and arrays; without a header, of arrays that someone else made."""
    if header is not None:
        check_schema(header, place)
    elif not members:
        raise AttnError(f"{place}: no arrays in it")
    ours = rename_arrays(members, rename or {}, place)
    found = {ours[name]: each for name, each in members.items()}
    if header is None:
        order = list(TABLE)
        names = sorted(found, key=lambda name: order.index(name) if name in TABLE else len(order))
        return Trace({name: foreign_step(name, found[name]) for name in names}, Arrays(found, place))
    return rebuild(with_names(header, ours), Arrays(found, place), found, place)


def rename_arrays(names: Mapping[str, object], rename: Mapping[str, str], place: str) -> dict[str, str]:
    """Their name -> ours, for every array of a file."""
    unknown = [each for each in rename if each not in names]
    has = ", ".join(list(names)[:MOST_PROBLEMS])
    raise_first([f"{place}: no array {show_value(each)} to rename; it has {has}" for each in unknown])
    ours = {each: rename.get(each, each) for each in names}
    twice = [each for each, count in Counter(ours.values()).items() if count > 1]
    raise_first([f"{place}: two arrays would be called {show_value(each)}" for each in twice])
    return ours


def with_names(header: dict[str, Any], ours: Mapping[str, str]) -> dict[str, Any]:
    """The header with its steps, and what they read, under our names."""
    steps = header.get("steps")
    if not isinstance(steps, dict):
        return header

    def entry(data: Any) -> Any:
        inputs = data.get("inputs") if isinstance(data, dict) else None
        if not isinstance(inputs, list):
            return data
        return data | {
            "inputs": [ours.get(each, each) if isinstance(each, str) else each for each in inputs]
        }

    return header | {"steps": {ours.get(name, name): entry(data) for name, data in steps.items()}}
