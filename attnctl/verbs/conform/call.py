"""One call of a target: arrays in, numbers out, and what became of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from attnctl.math import Array
from attnctl.verbs.conform.case import Problem
from attnctl.verbs.conform.last_words import place_of
from attnctl.verbs.conform.layout import axes_in, axes_out, back, in_one, laid_out, of_mask, of_scores
from attnctl.verbs.conform.memory import NAN, fill_memory
from attnctl.verbs.conform.repeat import Repeats, alike, bits, repeat
from attnctl.verbs.conform.signature import PARTS, Signature

NUMPY = {"bfloat16": "float32"}
"""The type of NumPy that holds numbers of a type that NumPy has not."""


@dataclass(frozen=True)
class Call:
    """What a target is called with; arrays hold numbers of the type, in float64."""

    inputs: tuple[Array, ...]
    """Q, K and V, or one array of them."""
    keywords: Mapping[str, Any]
    names: tuple[str, ...] = ()
    """Of the inputs, where they are not given by place."""
    dtype: str = "float64"
    memory: str = "plain"
    out: str = ""
    """The keyword of a buffer that the output is written to."""
    numbers: int = 0
    """Numbers of the output."""
    times: int = 1
    seconds: float = 0.0
    """How often it is made, as long as so much time lasts."""
    fill: int = NAN
    """The byte that memory holds where nothing was written."""


@dataclass(frozen=True)
class Answer:
    """What came of a call."""

    outputs: tuple[Any, ...] = ()
    """The arrays that it returned, the first of them the output; None for what is no array."""
    changed: tuple[str, ...] = ()
    """Inputs that are not what they were."""
    repeats: Repeats = Repeats()  # noqa: RUF009  (frozen)
    """What came of the same call, made again and again."""
    error: str = ""
    """The kind of what went wrong: crash, hang, exit, or the name of an exception."""
    kind: str = ""
    """The exception of Python's own that it is, where it is a library's."""
    message: str = ""
    place: str = ""
    """The file and line where it raised."""
    dtype: str = ""
    """The type of the output."""


@dataclass(frozen=True)
class Framework:
    """How arrays become a library's own, and come back."""

    name: str = "numpy"
    device: str = ""

    def give(self, array: Array, dtype: str) -> Any:
        """An array of numbers of the type in the library's own type; others as they are."""
        if self.name == "torch":
            torch = import_module("torch")
            made = torch.from_numpy(array)
            made = made.to(getattr(torch, dtype)) if array.dtype.kind == "f" else made
            return made.to(self.device) if self.device else made
        if self.name == "jax":
            jax, jnp = import_module("jax"), import_module("jax.numpy")
            if dtype == "float64":
                jax.config.update("jax_enable_x64", True)
            made = jnp.asarray(array, dtype=getattr(jnp, dtype) if array.dtype.kind == "f" else None)
            return jax.device_put(made, jax.devices(self.device)[0]) if self.device else made
        return array


def taken(value: Any) -> Any:
    """What came back, as a NumPy array of float64 (or of what whole type it is); None where it is none."""
    if value is None or isinstance(value, (str, bytes, dict, bool)):
        return None
    kind = type(value).__module__.partition(".")[0]
    if kind == "torch":
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    elif not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biu":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return np.array(array)


def call_of(problem: Problem, signature: Signature, **made: Any) -> Call:
    """The call that a case asks for; `made` says how often it is made, and in what memory."""
    axes = axes_in(problem.conventions.layout)

    def fitted(name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.ndim < 4:
            return value
        if name == signature.keywords.get("out"):
            return np.ascontiguousarray(laid_out(value, axes_out(problem.conventions.layout)))
        if name in (signature.keywords.get(part) for part in PARTS):
            return np.ascontiguousarray(laid_out(value, axes))
        if name in (signature.keywords.get(mask) for mask in ("mask", "float_mask")):
            return np.ascontiguousarray(of_mask(value, problem.conventions.mask, axes))
        return np.ascontiguousarray(of_scores(value, axes))

    keywords = {name: fitted(name, value) for name, value in signature.with_options(problem).items()}
    case = problem.case
    qkv = [problem.arrays[name] for name in "QKV"]
    packed = problem.conventions.packed
    inputs = (in_one(qkv, packed, axes),) if packed else tuple(laid_out(each, axes) for each in qkv)
    kept = inputs if case.memory == "broadcast" else tuple(map(np.ascontiguousarray, inputs))
    buffer = signature.keywords.get("out", "")
    out = buffer if keywords.get(buffer) is not None else ""
    numbers = case.batch * case.heads * case.queries * case.d_v
    return Call(kept, keywords, signature.inputs, case.dtype, case.memory, out, numbers, **made)


def output_of(problem: Problem, answer: Answer) -> Array | None:
    """The output over (batch, head, query, d_v), None where there is none of that shape."""
    case, axes = problem.case, axes_out(problem.conventions.layout)
    found = answer.outputs[0] if not answer.error and answer.outputs else None
    out = None if found is None else back(found, axes, case.heads)
    shape = (case.batch, case.heads, case.queries, case.d_v)
    return out if out is not None and out.shape == shape else None


def in_memory(array: Array, memory: str) -> Array:
    """The same numbers laid out in another way."""
    if memory == "fortran":
        return np.asfortranarray(array)
    if memory == "strided":
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), 7.0, dtype=array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if memory == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    return array


@dataclass(frozen=True)
class Ready:
    """What a call is made with."""

    inputs: list[Any]
    keywords: dict[str, Any]
    given: dict[str, Any]
    """Every array, by name."""
    before: dict[str, bytes]
    """The bits of those that are to be kept."""

    def changed(self) -> tuple[str, ...]:
        """Inputs that are not what they were."""
        return tuple(name for name, was in self.before.items() if bits(taken(self.given[name])) != was)


def ready(call: Call, framework: Framework) -> Ready:
    """The arrays of a call, made anew in the framework's types."""
    kind = np.dtype(NUMPY.get(call.dtype, call.dtype))

    def cast(value: Any, memory: str) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        own = value.astype(kind) if value.dtype.kind == "f" else value.copy()
        if memory == "broadcast" and own.shape[0] > 1:
            strides = (0, *own.strides[1:])
            return np.lib.stride_tricks.as_strided(own, own.shape, strides)
        return in_memory(own, memory)

    names = "QKV" if len(call.inputs) > 1 else ("QKV",)
    memories = ["plain" if call.memory == "broadcast" and name == "Q" else call.memory for name in names]
    owned = {name: cast(each, how) for name, each, how in zip(names, call.inputs, memories, strict=True)}
    more = {name: cast(value, "plain") for name, value in call.keywords.items()}
    arrays = owned | {name: value for name, value in more.items() if isinstance(value, np.ndarray)}
    if call.out:
        arrays[call.out].view(np.uint8)[...] = call.fill
    given = {name: framework.give(array, call.dtype) for name, array in arrays.items()}
    inputs = [given[name] for name in names]
    keywords = {name: given.get(name, value) for name, value in more.items()}
    if call.names:
        keywords |= dict(zip(call.names, inputs, strict=True))
        inputs = []
    before = {name: bits(taken(array)) for name, array in given.items() if name != call.out}
    return Ready(inputs, keywords, given, before)


def invoke(function: Callable[..., Any], call: Call, framework: Framework) -> Answer:
    """Call the target as often as is asked and say what came of it."""
    try:
        with np.errstate(all="ignore"):
            answer, result = once(function, call, framework, ready(call, framework))
            if call.times > 1:
                repeats = repeat_call(function, call, framework, answer, result)
                answer = replace(answer, repeats=repeats)
    except Exception as error:  # noqa: BLE001  (whatever a target raises is a result)
        return describe_exception(error)
    return answer


def once(
    function: Callable[..., Any], call: Call, framework: Framework, ready: Ready
) -> tuple[Answer, Any]:
    """What one call gives, in our terms and as it is. Raises what the target raises."""
    with fill_memory(call.fill, call.numbers, lambda block: framework.give(block, call.dtype)):
        result = function(*ready.inputs, **ready.keywords)
    outputs = outputs_of(result)
    if call.out:
        outputs = (taken(ready.given[call.out]), *outputs[1:])
    first = first_of(result)
    dtype = str(getattr(first, "dtype", "")).rpartition(".")[-1]
    return Answer(outputs, ready.changed(), dtype=dtype), result


def repeat_call(
    function: Callable[..., Any], call: Call, framework: Framework, answer: Answer, result: Any
) -> Repeats:
    """The same call again, in the same arrays while it keeps them; an output that is reused is spoilt."""
    negative = replace(call, inputs=tuple(-each for each in call.inputs))
    once(function, call, framework, ready(negative, framework))
    reused = not call.out and not alike(outputs_of(result)[:1], answer.outputs[:1])
    arrays = ready(call, framework)

    def again() -> Answer:
        nonlocal arrays
        if call.out:
            arrays = ready(call, framework)
        if reused:
            spoil(first_of(result))
        try:
            found, _ = once(function, call, framework, arrays)
        except Exception as error:  # noqa: BLE001  (whatever a target raises is a result)
            return describe_exception(error)
        if found.changed:
            arrays = ready(call, framework)
        return found

    return replace(repeat(again, answer.outputs, call.times, call.seconds), reused=reused)


def describe_exception(error: Exception) -> Answer:
    """An exception as an answer."""
    own = next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")
    return Answer(error=type(error).__name__, kind=own, message=str(error), place=place_of(error))


def spoil(output: Any) -> None:
    """Fill an output with NaN, where it can be."""
    fill = getattr(output, "fill_", None) or getattr(output, "fill", None)
    if fill is not None:
        with suppress(TypeError, ValueError, RuntimeError):
            fill(np.nan)


def first_of(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) and result else result


def outputs_of(result: Any) -> tuple[Any, ...]:
    """The arrays of a result: of an array itself, or of a tuple or a list of them."""
    several = isinstance(result, (tuple, list)) and not np.isscalar(result[:1])
    return tuple(map(taken, result)) if several else (taken(result),)
