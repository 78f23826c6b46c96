"""One call of a target: its arguments, made of a problem, and its answer, read for the problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from types import MappingProxyType
from typing import Any

import numpy as np

from attnctl.math import Array
from attnctl.verbs.conform.case import Problem
from attnctl.verbs.conform.layout import (
    axes_in,
    axes_out,
    drop_axes,
    lay_out,
    pack_inputs,
    read_back,
    shape_mask,
)
from attnctl.verbs.conform.signature import NOT_IN_SIGNATURE, PARTS, REFUSALS, CallSignature, Parameter

NAN, OTHER = 0xFF, 0x41
"""Bytes that say NaN in every type, and some number in every type (12 in float32)."""

RATE, MISSED = 0.02, 0.01
"""A fault in so many of all calls is to be missed with this chance at most."""

CALLS = ceil(log(MISSED) / log(1 - RATE))
"""Calls of one case that this takes."""


@dataclass(frozen=True)
class TargetCall:
    """The arguments of a call; arrays hold numbers of the type, in float64."""

    inputs: tuple[Array, ...]
    """Q, K and V, or one array of them."""
    keywords: Mapping[str, Any]
    names: tuple[str, ...] = ()
    """The keywords of the inputs, where they are not given by place."""
    dtype: str = "float64"
    memory: str = "plain"
    out: str = ""
    """The keyword of a buffer that the output is written to."""
    numbers: int = 0
    """Numbers of the output."""
    times: int = 1
    seconds: float = 0.0
    """The call is made `times` times, as long as these seconds last."""
    fill: int = NAN
    """The byte that memory holds where nothing was written."""


@dataclass(frozen=True)
class Repeats:
    """The outcome of one call that is made again and again."""

    calls: int = 1
    others: int = 0
    """Calls whose bits were not those of the first."""
    apart: float = 0.0
    """The largest difference from the first output."""
    failed: str = ""
    """The failure of a call, after which there were no more."""
    reused: bool = False
    """An output is overwritten by the next call."""

    @property
    def same(self) -> bool:
        return not (self.others or self.failed)


@dataclass(frozen=True)
class Answer:
    """The outputs of a call, or its failure."""

    outputs: tuple[Any, ...] = ()
    """The arrays that it returned, the first of them the output; None for what is no array."""
    changed: tuple[str, ...] = ()
    """The inputs that the target changed."""
    repeats: Repeats = Repeats()
    error: str = ""
    """The kind of failure: crash, hang, exit, or the name of an exception."""
    kind: str = ""
    """The exception of Python's own that a library's exception is derived from."""
    message: str = ""
    place: str = ""
    """The file and line where it raised."""
    dtype: str = ""
    """The type of the output."""


class Target:
    """Something that answers calls."""

    parameters: Sequence[Parameter] | None = None
    """What it takes, once it is started; None where it does not say."""
    refuses: frozenset[str] = REFUSALS
    """The errors by which it says that it does not take a call."""
    cannot: Mapping[str, str] = MappingProxyType({})
    """Features that do not go with how it is called, each with why."""
    unclaimed: str = NOT_IN_SIGNATURE
    """Why an option is skipped that it does not have."""

    def start(self) -> None:
        """Make ready, and read the parameters. Raises AttnError where that fails."""

    def call(self, call: TargetCall) -> Answer:
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


NUMPY = {"bfloat16": "float32"}
"""The type of NumPy that holds numbers of a type that NumPy has not."""


def make_call(problem: Problem, signature: CallSignature, **made: Any) -> TargetCall:
    """Make the call of a problem; `made` says how often, and in what memory."""
    axes = axes_in(problem.conventions.layout)

    def fit(name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.ndim < 4:
            return value
        if name == signature.keywords.get("out"):
            return np.ascontiguousarray(lay_out(value, axes_out(problem.conventions.layout)))
        if name in (signature.keywords.get(part) for part in PARTS):
            return np.ascontiguousarray(lay_out(value, axes))
        if name in (signature.keywords.get(mask) for mask in ("mask", "float_mask")):
            return np.ascontiguousarray(shape_mask(value, problem.conventions.mask, axes))
        return np.ascontiguousarray(drop_axes(value, axes))

    keywords = {name: fit(name, value) for name, value in signature.with_options(problem).items()}
    case = problem.case
    qkv = [problem.arrays[name] for name in "QKV"]
    packed = problem.conventions.packed
    inputs = (pack_inputs(qkv, packed, axes),) if packed else tuple(lay_out(each, axes) for each in qkv)
    kept = inputs if case.memory == "broadcast" else tuple(map(np.ascontiguousarray, inputs))
    buffer = signature.keywords.get("out", "")
    out = buffer if keywords.get(buffer) is not None else ""
    numbers = case.batch * case.heads * case.queries * case.d_v
    return TargetCall(kept, keywords, signature.inputs, case.dtype, case.memory, out, numbers, **made)


def read_output(problem: Problem, answer: Answer) -> Array | None:
    """Return the output over (batch, head, query, d_v), None where there is none of that shape."""
    case, axes = problem.case, axes_out(problem.conventions.layout)
    found = answer.outputs[0] if not answer.error and answer.outputs else None
    out = None if found is None else read_back(found, axes, case.heads)
    shape = (case.batch, case.heads, case.queries, case.d_v)
    return out if out is not None and out.shape == shape else None


def have_same_bits(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(bits_of(x) == bits_of(y) for x, y in zip(a, b, strict=True))


def bits_of(array: Any) -> bytes:
    return b"" if array is None else bytes(array.tobytes())


def largest_gap(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The largest difference of two results, ∞ where a number is NaN or shapes differ."""
    if len(a) != len(b) or any(np.shape(x) != np.shape(y) for x, y in zip(a, b, strict=True)):
        return inf
    gaps = [np.abs(np.subtract(x, y, dtype=float)) for x, y in zip(a, b, strict=True) if x is not None]
    return max(float(np.where(np.isnan(gap), inf, gap).max(initial=0.0)) for gap in gaps)


def chance_missed(calls: int) -> float:
    """Return the chance that so many calls show no fault of one call in fifty."""
    return float((1 - RATE) ** calls)
