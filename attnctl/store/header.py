"""A trace without its numbers: the header that every kind of dump carries, written and read.

And foreign arrays, which come without a header: what their names and dimensions tell.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, Protocol

import numpy as np

from attnctl import __version__
from attnctl.base.errors import AttnError, raise_all
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import TABLE
from attnctl.math.ops import Unstated
from attnctl.record.trace import SCHEMA, Trace
from attnctl.store.codec import decode, op_of, plain, show_value, under
from attnctl.store.limits import raise_first

WHOLE = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = {np.dtype(name) for name in ("bool", *WHOLE, "float16", "float32", "float64")}
"""What the arrays of a dump may hold."""

MOST_AXES = 8
LARGEST, LARGEST_EMPTY = 1 << 60, 1 << 16
"""The most numbers of an array; the largest product of the other axes where one axis is 0."""

DEEPEST = 64
"""Levels of nesting that a header may have."""

FIELDS: dict[str, Any] = {
    "attnctl": str,
    "sentence": str | None,
    "tokens": tuple[str, ...] | None,
    "key_tokens": tuple[str, ...] | None,
    "ids": tuple[int, ...] | None,
    "key_ids": tuple[int, ...] | None,
    "empty_rows": tuple[tuple[int, ...], ...] | None,
    "overflow": dict | None,
    "exp": str | None,
    "config": dict,
}
"""What attnctl itself reads of a header; a dump may carry more."""


class Shaped(Protocol):
    """An array before it is loaded: its shape and type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type of number."""


# --- writing ---


def heading(trace: Trace) -> dict[str, Any]:
    own: dict[str, Any] = {"schema": SCHEMA, "attnctl": __version__}
    return own | plain(trace.header)


def entry(step: Step, array: Shaped) -> dict[str, Any]:
    """A step without its numbers."""
    if array.dtype.newbyteorder("=") not in DTYPES:
        raise AttnError(f"step {step.name}: a dump cannot hold numbers of type {array.dtype}")
    op = {} if isinstance(step.op, Unstated) else {"op": plain(step.op)}
    return {
        "formula": step.formula,
        "symbol": step.symbol,
        **op,
        "axes": list(step.axes),
        "inputs": list(step.inputs),
        "shape": list(array.shape),
        "dtype": array.dtype.name,
    }


def whole(trace: Trace) -> dict[str, Any]:
    """Everything of a dump but its numbers, for the formats that keep those apart."""
    return heading(trace) | {"steps": {name: entry(trace.steps[name], trace[name]) for name in trace}}


# --- reading ---


def rebuild(
    header: dict[str, Any], arrays: Mapping[str, Array], shapes: Mapping[str, Shaped], place: str
) -> Trace:
    """The trace that a dump's header and arrays make; AttnError with every problem otherwise.

    `shapes` tells of each array without loading it.
    """
    check_schema(header, place)
    steps = header.get("steps")
    if not isinstance(steps, dict) or not steps:
        raise AttnError(f"{place}: $.steps: expected an object with steps in it")
    rest = {key: value for key, value in header.items() if key not in ("schema", "steps")}
    problems: list[str] = []
    read: dict[str, Step] = {}
    for name, data in steps.items():
        with collect_problems(problems):
            read[name] = step_of(name, data, shapes.get(name), read)
    for key, value in rest.items():
        with collect_problems(problems):
            check_depth(value, under("$", key))
            if key in FIELDS:
                decode(FIELDS[key], value, under("$", key))
    raise_first([f"{place}: {each}" for each in problems])
    return Trace(read, arrays, rest)


def check_schema(header: dict[str, Any], place: str) -> None:
    """Refuse what is not a dump, and a dump of a later schema by its name."""
    schema = header.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str):
            raise AttnError(
                f"{place}: a dump of schema {show_value(schema)}; this attnctl reads {SCHEMA!r}"
            )
        raise AttnError(f'{place}: not a dump: no "schema" that says {SCHEMA!r}')


@contextmanager
def collect_problems(problems: list[str]) -> Iterator[None]:
    """Add the problems of an AttnError to those found so far, and go on."""
    try:
        yield
    except AttnError as error:
        problems += error.problems


def check_depth(value: Any, path: str, left: int = DEEPEST) -> None:
    """Refuse a header nested so deeply that walking it would be a danger, or with a step in it."""
    if not left:
        raise AttnError(f"{path}: nested more than {DEEPEST} deep")
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            check_depth(each, path, left - 1)
    elif value is not None and not isinstance(value, (str, int, float)):
        raise AttnError(f"{path}: the numbers of a step where none belong")


def step_of(name: str, data: Any, array: Shaped | None, above: Container[str]) -> Step:
    """Read one step of a dump, held to the array it describes."""
    path = under("$.steps", name)
    if not isinstance(data, dict):
        raise AttnError(f"{path}: expected an object, found {show_value(data)}")
    if array is None:
        raise AttnError(f"{path}: this step has no numbers")
    step = foreign_step(name, array)
    op = op_of(data["op"], f"{path}.op") if "op" in data else Unstated()
    axes = decode(tuple[str, ...], data.get("axes", list(step.axes)), f"{path}.axes")
    inputs = decode(tuple[str, ...], data.get("inputs", []), f"{path}.inputs")
    found = {
        "shape": decode(tuple[int, ...], data.get("shape", list(array.shape)), f"{path}.shape"),
        "dtype": decode(str, data.get("dtype", array.dtype.name), f"{path}.dtype"),
    }
    told = {"shape": tuple(array.shape), "dtype": array.dtype.name}
    raise_all(
        f"{path}.{key}: says {show_shape(found[key])}, but the numbers are {show_shape(told[key])}"
        for key in found
        if found[key] != told[key]
    )
    if len(axes) != len(array.shape):
        raise AttnError(f"{path}.axes: {len(axes)} names for numbers with {len(array.shape)} axes")
    check_inputs(name, inputs, above, path)
    formula = decode(str, data.get("formula", ""), f"{path}.formula")
    symbol = decode(str, data.get("symbol", step.symbol), f"{path}.symbol")
    return Step(name, op, inputs, axes, formula, symbol)


def check_inputs(name: str, inputs: tuple[str, ...], above: Container[str], path: str) -> None:
    """A step reads what stands above it, or what attnctl knows but this dump leaves out."""
    for at, each in enumerate(inputs):
        if each == name or (each not in above and each not in TABLE):
            raise AttnError(f"{path}.inputs[{at}]: no step {show_value(each)} above this one")


def check_shape(shape: tuple[int, ...], place: str) -> None:
    """Refuse a shape that no array here can have, before anything is made in it."""
    if len(shape) > MOST_AXES:
        raise AttnError(f"{place}: {len(shape)} axes; {MOST_AXES} are the most")
    if prod(max(1, n) for n in shape) > (LARGEST_EMPTY if 0 in shape else LARGEST):
        raise AttnError(f"{place}: the shape {show_shape(shape)} is too large")


def show_shape(value: Any) -> str:
    """(3, 4) -> '3 × 4'."""
    if not isinstance(value, tuple):
        return str(value)
    return " × ".join(map(show_value, value[: MOST_AXES + 1])) or "one number"


# --- arrays of others ---


def foreign_step(name: str, array: Shaped) -> Step:
    """A step of someone's array: name and dimensions tell its axes, not how it came about."""
    dims = len(array.shape)
    row = TABLE.get(name)
    axes: tuple[str, ...] = tuple(f"axis {i}" for i in range(dims))
    if row and dims == len(row.axes) + 1:
        axes = ("batch", *row.axes)
    elif row and dims <= len(row.axes):
        axes = row.axes[len(row.axes) - dims :]
    return Step(name, Unstated(), (), axes, "", row.symbol if row else "")
