"""One call of a target: its arguments, made of a problem, and its answer, read for the problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf, log, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.names import DELTA, HEAD_OUTPUTS, LOGSUMEXP, OUTPUT, SINK, gradient_of
from attnctl.verbs.conform.case import COTANGENT, GRADIENTS, INPUTS, Problem
from attnctl.verbs.conform.layout import (
    axes_in,
    axes_out,
    drop_axes,
    lay_out,
    pack_inputs,
    read_back,
    shape_mask,
)
from attnctl.verbs.conform.signature import (
    NOT_IN_SIGNATURE,
    PACKED,
    PARTS,
    REFUSALS,
    CallSignature,
    Parameter,
)

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
    cotangent: Array | None = None
    """The gradient by the output, where the framework is to go back from it to the inputs."""
    gives: tuple[str, ...] = ()
    """The gradients that a backward pass returns, in order; none of a function that goes forward."""
    wide: tuple[str, ...] = ()
    """The keywords of arrays that are in float32 at least: log-sum-exp and delta."""
    into: tuple[str, ...] = ()
    """The keywords of buffers that results are written to, in order, instead of being returned."""

    @property
    def buffers(self) -> tuple[str, ...]:
        """The keywords of all that is written to."""
        return (*self.into, *([self.out] if self.out else []))


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
    farthest: tuple[Any, ...] = ()
    """The arrays that were farthest from the first."""

    @property
    def same(self) -> bool:
        return not (self.others or self.failed)


@dataclass(frozen=True)
class Answer:
    """The outputs of a call, or its failure."""

    outputs: tuple[Any, ...] = ()
    """The arrays that it returned, the first of them the output; None for what is no array."""
    gradients: tuple[Any, ...] = ()
    """The gradients by the inputs, in their order."""
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

    @property
    def compared(self) -> tuple[Any, ...]:
        """The arrays that are to be the same when the call is made again."""
        return self.gradients or self.outputs


class Target:
    """Something that answers calls."""

    parameters: Sequence[Parameter] | None = None
    """What it takes, once it is started; None where it does not say."""
    refuses: frozenset[str] = REFUSALS
    """The errors by which it says that it does not take a call."""
    cannot: Mapping[str, str] = MappingProxyType({})
    """Features that do not go with how it is called, each with why."""
    goes_back: bool = False
    """Gradients by its inputs come from its framework."""
    unclaimed: str = NOT_IN_SIGNATURE
    """Why an option is skipped that it does not have."""

    def start(self) -> None:
        """Make ready, and read the parameters. Raises AttnError where that fails."""

    def call(self, call: TargetCall) -> Answer:
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


WIDE = {LOGSUMEXP, DELTA}
"""Sums of rows that kernels keep in float32 at least."""

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
    inputs = lay_inputs(problem, [problem.arrays[name] for name in INPUTS])
    kept = inputs if case.memory == "broadcast" else tuple(map(np.ascontiguousarray, inputs))
    if signature.handed:
        keywords |= hand_over(problem, signature)
        wide = tuple(signature.handed[name] for name in WIDE & signature.handed.keys())
        made |= {"gives": GRADIENTS if len(inputs) > 1 else (gradient_of(PACKED),), "wide": wide}
        made["into"] = signature.buffers
        empty = [np.full(each.shape, np.nan) for each in inputs]
        keywords |= dict(zip(signature.buffers, empty, strict=False))
    elif problem.backward:
        made["cotangent"] = lay_row_vectors(problem, problem.arrays[COTANGENT])
    buffer = signature.keywords.get("out", "")
    out = buffer if keywords.get(buffer) is not None else ""
    numbers = prod(problem.output_shape)
    return TargetCall(kept, keywords, signature.inputs, case.dtype, case.memory, out, numbers, **made)


def lay_inputs(problem: Problem, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Lay arrays of the shapes of Q, K and V out as the target takes them: three, or one."""
    axes, packed = axes_in(problem.conventions.layout), problem.conventions.packed
    return (pack_inputs(arrays, packed, axes),) if packed else tuple(lay_out(each, axes) for each in arrays)


def lay_row_vectors(problem: Problem, array: Array) -> Array:
    """Lay an array of the shape of the output out as the target returns it."""
    return np.ascontiguousarray(lay_out(array, axes_out(problem.conventions.layout)))


def hand_over(problem: Problem, signature: CallSignature) -> dict[str, Array]:
    """Make what a backward pass is handed of the forward: the output as it was stored, and sums of rows."""
    values = problem.carry_out()
    if SINK in values:  # what softmax divides by has it
        values[LOGSUMEXP] = np.logaddexp(values[LOGSUMEXP], values[SINK][:, None])
    values |= {OUTPUT: problem.in_type(values[HEAD_OUTPUTS]), gradient_of(OUTPUT): values[COTANGENT]}
    axes = axes_in(problem.conventions.layout)
    return {
        keyword: np.ascontiguousarray(drop_axes(values[name], axes))
        if name in WIDE
        else lay_row_vectors(problem, values[name])
        for name, keyword in signature.handed.items()
    }


def read_answer(problem: Problem, answer: Answer) -> dict[str, Array]:
    """Return the outputs that are there in the shape asked for, over (batch, head, row, column)."""
    if answer.error:
        return {}
    read = read_gradients(problem, answer.gradients)
    found = answer.outputs[0] if answer.outputs else None
    if found is not None:
        output = read_back(found, axes_out(problem.conventions.layout), problem.case.heads)
        if output is not None and output.shape == problem.output_shape:
            read[HEAD_OUTPUTS] = output
    return read


def read_gradients(problem: Problem, gradients: Sequence[Any]) -> dict[str, Array]:
    """Return gradients by Q, K and V, each number at the place of the number that it is the gradient by."""
    if not gradients:
        return {}
    places = number_inputs(problem)
    numbers = np.zeros(1 + max(int(place[-1, -1, -1, -1]) for place in places))
    there = np.zeros(numbers.shape, dtype=bool)
    for place, found in zip(lay_inputs(problem, places), gradients, strict=False):
        if found is not None and found.shape == place.shape and found.dtype.kind in "fiu":
            numbers[place], there[place] = found, True
    named = zip(GRADIENTS, places, strict=True)
    return {name: numbers[place] for name, place in named if there[place].all()}


def number_inputs(problem: Problem) -> list[Array]:
    """Number the cells of Q, K and V, from Q on: arrays of their shapes."""
    places: list[Array] = []
    for name in INPUTS:
        array = problem.arrays[name]
        start = int(places[-1][-1, -1, -1, -1]) + 1 if places else 0
        places.append(np.arange(start, start + array.size).reshape(array.shape))
    return places


def shapes_beside(problem: Problem, answer: Answer, name: str) -> tuple[Array | None, tuple[int, ...]]:
    """Return an output as the target gave it, and the shape that it should have."""
    if name in GRADIENTS:
        laid = lay_inputs(problem, number_inputs(problem))
        at = GRADIENTS.index(name) if len(laid) > 1 else 0
        return answer.gradients[at] if at < len(answer.gradients) else None, laid[at].shape
    asked = lay_row_vectors(problem, np.zeros(problem.output_shape))
    return answer.outputs[0] if answer.outputs else None, asked.shape


def read_output(problem: Problem, answer: Answer) -> Array | None:
    """Return the output over (batch, head, query, d_v), None where there is none of that shape."""
    return read_answer(problem, answer).get(HEAD_OUTPUTS)


def is_readable(problem: Problem, answer: Answer) -> bool:
    """Every output that was asked for is there."""
    return set(problem.outputs) <= read_answer(problem, answer).keys()


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
