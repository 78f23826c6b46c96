"""Call a function: arrays in its framework, memory filled, calls made again, exceptions as answers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.arrays.foreign import variable_of
from attnctl.inputs.arrays.reader import as_array
from attnctl.math import Array
from attnctl.math.names import gradient_of
from attnctl.verbs.conform.call import (
    NUMPY,
    Answer,
    TargetCall,
    bits_of,
    describe_exception,
    have_same_bits,
    repeat,
)
from attnctl.verbs.conform.case import INPUTS
from attnctl.verbs.conform.signature import PACKED, THEIRS

RAISED = (Exception, KeyboardInterrupt)
"""Whatever a target raises is a result; no interrupt of a person comes as one."""


def invoke(function: Callable[..., Any], call: TargetCall, framework: Framework) -> Answer:
    try:
        with np.errstate(all="ignore"):
            ready = prepare_call(function, framework, call)
            answer, result = call_once(ready)
            return repeat_call(ready, answer, result) if call.times > 1 else answer
    except RAISED as error:
        return describe_exception(error)


def call_once(ready: PreparedCall) -> tuple[Answer, Any]:
    """Return the answer of one call, and its result as it is. Raises what the target raises."""
    call, framework = ready.call, ready.framework
    with fill_memory(call.fill, call.numbers, lambda block: framework.give(block, call.dtype)):
        result, back = framework.carry_out(ready)
    outputs = read_outputs(result)
    buffers = [ready.given[name] for name in call.into]
    outputs = (*map(to_numpy, buffers), *outputs[len(buffers) :])
    dtype = str(getattr(first_array(result), "dtype", "")).rpartition(".")[-1]
    if call.gives:
        found = order_gradients(result, call.gives) if isinstance(result, Mapping) else result
        back = buffers or (found if isinstance(found, (tuple, list)) else (found,))
        outputs = ()
    now = {name: bits_of(to_numpy(ready.given[name])) for name in ready.before}
    changed = tuple(name for name, was in ready.before.items() if now[name] != was)
    return Answer(outputs, tuple(map(to_numpy, back)), changed, dtype=dtype), result


def order_gradients(found: Mapping[str, Any], names: Sequence[str]) -> Sequence[Any]:
    """Order gradients that have names, dq, d_Q, grad_q or q.grad, others last; None for one not there."""
    ours = {
        gradient_of(symbol): array
        for name, array in found.items()
        for symbol in (*INPUTS, PACKED)
        if variable_of(name).lower() in THEIRS[symbol]
    }
    others = [array for array in found.values() if not any(array is own for own in ours.values())]
    return [*(found.get(name, ours.get(name)) for name in names), *others]


def first_array(result: Any) -> Any:
    if isinstance(result, Mapping):
        result = tuple(result.values())
    return result[0] if isinstance(result, (tuple, list)) and result else result


def read_outputs(result: Any) -> tuple[Any, ...]:
    several = isinstance(result, (tuple, list)) and not np.isscalar(result[:1])
    return tuple(map(to_numpy, result)) if several else (to_numpy(result),)


# --- arrays and memory ---


@dataclass(frozen=True)
class Framework:
    name: str = "numpy"
    device: str = ""

    @property
    def goes_back(self) -> bool:
        """It gives gradients of what is computed in it."""
        return self.name != "numpy"

    def carry_out(self, ready: PreparedCall) -> tuple[Any, Sequence[Any]]:
        function, leaves = ready.function, ready.leaves
        if ready.cotangent is None:
            return function(*ready.inputs, **ready.keywords), ()
        if self.name == "torch":
            result = function(*ready.inputs, **ready.keywords)
            output = first_array(result)
            if output.shape != ready.cotangent.shape:
                return result, ()  # which is said of the output
            grad = import_module("torch").autograd.grad
            found = grad(output, leaves, ready.cotangent.to(output.dtype), allow_unused=True)
            both = zip(leaves, found, strict=True)
            return result, [0 * leaf if gradient is None else gradient for leaf, gradient in both]

        def of_inputs(*leaves: Any) -> tuple[Any, Any]:
            named = dict(zip(ready.call.names, leaves, strict=False))
            result = function(*(() if named else leaves), **{**ready.keywords, **named})
            return first_array(result), result

        output, back, result = import_module("jax").vjp(of_inputs, *leaves, has_aux=True)
        same = output.shape == ready.cotangent.shape
        return result, back(ready.cotangent.astype(output.dtype)) if same else ()

    def give(self, array: Array, dtype: str) -> Any:
        """Return an array of the library, numbers in the type, integers and truth values as they are."""
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


def to_numpy(value: Any) -> Any:
    """Return any library's array as NumPy's, numbers in float64; None for what is no real number."""
    if value is None or isinstance(value, (str, bytes, dict, bool)):
        return None
    try:
        array = as_array("", value)
    except AttnError:
        return None
    if array.dtype.kind not in "biuf":
        return None
    return np.array(array, dtype=np.float64 if array.dtype.kind == "f" else array.dtype)


def lay_in_memory(array: Array, memory: str) -> Array:
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
class PreparedCall:
    function: Callable[..., Any]
    framework: Framework
    call: TargetCall
    inputs: list[Any]
    keywords: dict[str, Any]
    given: dict[str, Any]
    """Every array, by name."""
    before: dict[str, bytes]
    """The bits of those that are to stay as they are."""
    cotangent: Any = None
    """The gradient by the output, where those by the inputs are asked for."""
    leaves: Sequence[Any] = ()
    """Q, K and V that gradients are taken by, of which the inputs may be copies."""


def sum_type(dtype: str) -> str:
    """The type that kernels keep sums in: float32, or what is wider."""
    return "float64" if dtype == "float64" else "float32"


def in_type(array: Array, dtype: str) -> Array:
    """A copy, numbers in the type or in NumPy's that holds them, integers and truth values as they are."""
    return array.astype(NUMPY.get(dtype, dtype)) if array.dtype.kind == "f" else array.copy()


def prepare_call(function: Callable[..., Any], framework: Framework, call: TargetCall) -> PreparedCall:
    def type_of(name: str) -> str:
        return sum_type(call.dtype) if name in call.wide else call.dtype

    def cast(name: str, value: Any, memory: str = "plain") -> Any:
        if not isinstance(value, np.ndarray):
            return value
        own = in_type(value, type_of(name))
        if memory == "broadcast" and own.shape[0] > 1:
            return np.lib.stride_tricks.as_strided(own, own.shape, (0, *own.strides[1:]))
        return lay_in_memory(own, memory)

    names = "QKV" if len(call.inputs) > 1 else ("QKV",)
    memories = ["plain" if call.memory == "broadcast" and name == "Q" else call.memory for name in names]
    owned = dict(zip(names, map(cast, names, call.inputs, memories), strict=True))
    more = {name: cast(name, value) for name, value in call.keywords.items()}
    arrays = owned | {name: value for name, value in more.items() if isinstance(value, np.ndarray)}
    for name in call.into:
        arrays[name].view(np.uint8)[...] = call.fill
    given = {name: framework.give(array, type_of(name)) for name, array in arrays.items()}
    leaves = inputs = [given[name] for name in names]
    back = cast("", call.cotangent)
    cotangent = None if back is None else framework.give(back, call.dtype)
    if cotangent is not None and framework.name == "torch":
        leaves = [input_.requires_grad_() for input_ in inputs]
        given |= dict(zip(names, map(copy_of_leaf, leaves), strict=True))
        inputs = [given[name] for name in names]
    keywords = {name: given.get(name, value) for name, value in more.items()}
    if call.names:
        keywords |= dict(zip(call.names, inputs, strict=True))
        inputs = []
    before = {name: bits_of(to_numpy(array)) for name, array in given.items() if name not in call.into}
    return PreparedCall(function, framework, call, inputs, keywords, given, before, cotangent, leaves)


def copy_of_leaf(leaf: Any) -> Any:
    """A copy that a function may write to, as torch lets none write to a leaf, laid out in memory alike."""
    if 0 in leaf.stride():  # one number in several places cannot be written to
        return leaf
    empty = import_module("torch").empty_strided
    return empty(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=leaf.device).copy_(leaf)


M_PERTURB = -6
"""The parameter of glibc's mallopt: memory is filled with the complement of its lowest byte."""

ON = 0x100
"""A bit of it that is no part of that byte: with 0 alone nothing is filled."""

BLOCKS = 7
"""Blocks of one size that NumPy keeps."""


@contextmanager
def fill_memory(byte: int, numbers: int, give: Any) -> Iterator[None]:
    """Fill memory with a byte, so that a number which is never written shows.

    A row of `np.empty` often holds the right answer of the call before. So malloc fills what it gives, and
    blocks of the output's size are filled and let go, for allocators that keep their own: NumPy's of small
    arrays, a device's. `numbers` is the size of the output, `give` makes arrays of the framework.
    """
    fill_malloc((byte ^ 0xFF) | ON)
    sizes = [size for size in (2, 4, 8) for _ in range(BLOCKS)]
    blocks = [give(np.full(numbers * size, byte, dtype=np.uint8)) for size in sizes]
    del blocks
    try:
        yield
    finally:
        fill_malloc(0)


def fill_malloc(value: int) -> None:
    """Set what malloc fills memory with; no other system than glibc's has it."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_PERTURB, value)


# --- the same call again ---


def repeat_call(ready: PreparedCall, answer: Answer, result: Any) -> Answer:
    """Make the same call again in arrays that are kept; an output in reused memory is spoilt first."""
    call, anew = ready.call, partial(prepare_call, ready.function, ready.framework)
    call_once(anew(replace(call, inputs=tuple(-input_ for input_ in call.inputs))))
    kept = bool(call.into or answer.gradients)
    reused = not kept and not have_same_bits(read_outputs(result)[:1], answer.outputs[:1])
    ready = anew(call)

    def again() -> Answer:
        nonlocal ready
        if call.into:
            ready = anew(call)
        if reused:
            output = first_array(result)
            fill = getattr(output, "fill_", None) or getattr(output, "fill", None) or (lambda _: None)
            with suppress(TypeError, ValueError, RuntimeError):
                fill(np.nan)
        try:
            found, _ = call_once(ready)
        except RAISED as error:
            return describe_exception(error)
        if found.changed:
            ready = anew(call)
        return found

    repeated = repeat(again, answer, call.times, call.seconds)
    return replace(repeated, stale=not repeated.failed and is_stale(ready, answer))


def is_stale(ready: PreparedCall, before: Answer) -> bool:
    """V doubled in place gives the answer that V gave: it was kept for these arrays, or for their place."""
    constant = ready.framework.name == "jax" or "V" not in ready.given  # arrays of jax cannot be changed
    if constant or ready.cotangent is not None or ready.call.gives:
        return False
    v = ready.given["V"]
    v *= 2
    try:
        found, _ = call_once(ready)
    except RAISED:  # the call was answered before
        return False
    (first, *_) = *before.outputs, None
    if first is None or first.dtype.kind == "b" or not have_same_bits(found.outputs[:1], [first]):
        return False
    return bool(np.isfinite(first).all() and (first != first.flat[0]).any())  # others were never of V
