"""Call a function: arrays in its framework, memory filled, calls made again, exceptions as answers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
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
from attnctl.verbs.conform.compiled import compile_whole, settings_for
from attnctl.verbs.conform.signature import PACKED, THEIRS
from attnctl.verbs.conform.stored import is_small, type_beside

RAISED = (Exception, KeyboardInterrupt)
"""Whatever a target raises is a result; no interrupt of a person comes as one."""


def invoke(function: Callable[..., Any], call: TargetCall, framework: Framework) -> Answer:
    try:
        with np.errstate(all="ignore"), framework.ready_for(call.dtype):
            if framework.whole and call.times == 1:
                function = compile_whole(function)
            ready = prepare_call(function, framework, call)
            answer, result = call_once(ready)
            return repeat_call(ready, answer, result) if call.times > 1 else answer
    except RAISED as error:
        return describe_exception(error)


def call_once(ready: PreparedCall) -> tuple[Answer, Any]:
    """Return the answer of one call, and its result as it is. Raises what the target raises."""
    call = ready.call
    framework = ready.framework
    with fill_memory(call.fill, call.numbers, lambda block: framework.give(block, call.dtype)):
        result, gradients = framework.carry_out(ready)

    # Outputs that are written to buffers stand before those that are returned.
    buffers = [ready.given[name] for name in call.into]
    returned = read_outputs(result)
    outputs = (*map(to_numpy, buffers), *returned[len(buffers) :])
    if call.gives:
        gradients = buffers or list_gradients(result, call.gives)
        outputs = ()

    now = {name: bits_of(to_numpy(ready.given[name])) for name in ready.before}
    changed = tuple(name for name, was in ready.before.items() if now[name] != was)
    dtype = str(getattr(first_array(result), "dtype", "")).rpartition(".")[-1]
    answer = Answer(outputs, tuple(map(to_numpy, gradients)), changed, dtype=dtype)
    return answer, result


def list_gradients(result: Any, names: Sequence[str]) -> Sequence[Any]:
    """What a backward pass returns: several gradients in order, by their names, or one."""
    if isinstance(result, Mapping):
        return order_gradients(result, names)
    return result if isinstance(result, (tuple, list)) else (result,)


def order_gradients(arrays: Mapping[str, Any], names: Sequence[str]) -> Sequence[Any]:
    """Order gradients that have names, dq, d_Q, grad_q or q.grad, others last; None for one not there."""
    by_our_name = {}
    for name, array in arrays.items():
        variable = variable_of(name).lower()
        for symbol in (*INPUTS, PACKED):
            if variable in THEIRS[symbol]:
                by_our_name[gradient_of(symbol)] = array

    in_order = [arrays.get(name, by_our_name.get(name)) for name in names]
    known = by_our_name.values()
    others = [array for array in arrays.values() if not any(array is one for one in known)]
    return [*in_order, *others]


def first_array(result: Any) -> Any:
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)) and result:
        return result[0]
    return result


def read_outputs(result: Any) -> tuple[Any, ...]:
    is_several = isinstance(result, (tuple, list)) and not np.isscalar(result[:1])
    return tuple(map(to_numpy, result)) if is_several else (to_numpy(result),)


# --- arrays and memory ---


@dataclass(frozen=True)
class Framework:
    name: str = "numpy"
    device: str = ""
    whole: bool = False
    """A function of jax is compiled whole, but for calls that are made again, which are to run anew."""

    @property
    def goes_back(self) -> bool:
        """It gives gradients of what is computed in it."""
        return self.name != "numpy"

    def ready_for(self, dtype: str) -> AbstractContextManager[None]:
        return settings_for(dtype, quick=self.whole) if self.name == "jax" else nullcontext()

    def carry_out(self, ready: PreparedCall) -> tuple[Any, Sequence[Any]]:
        """Call the function, and go back from the cotangent to the inputs where there is one."""
        if ready.cotangent is None:
            return ready.function(*ready.inputs, **ready.keywords), ()
        return self.by_autograd(ready) if self.name == "torch" else self.by_vjp(ready)

    def by_autograd(self, ready: PreparedCall) -> tuple[Any, Sequence[Any]]:
        """The result and gradients of a function of torch."""
        result = ready.function(*ready.inputs, **ready.keywords)
        output = first_array(result)
        if output.shape != ready.cotangent.shape:
            return result, ()  # which is said of the output

        grad = import_module("torch").autograd.grad
        cotangent = ready.cotangent.to(output.dtype)
        gradients = grad(output, ready.leaves, cotangent, allow_unused=True)
        by_leaf = zip(ready.leaves, gradients, strict=True)
        # One that the output does not follow is 0.
        return result, [0 * leaf if gradient is None else gradient for leaf, gradient in by_leaf]

    def by_vjp(self, ready: PreparedCall) -> tuple[Any, Sequence[Any]]:
        """The same of a function of jax."""

        def of_inputs(*leaves: Any) -> tuple[Any, Any]:
            named = dict(zip(ready.call.names, leaves, strict=False))
            by_place = () if named else leaves
            result = ready.function(*by_place, **{**ready.keywords, **named})
            return first_array(result), result

        output, back, result = import_module("jax").vjp(of_inputs, *ready.leaves, has_aux=True)
        if output.shape != ready.cotangent.shape:
            return result, ()
        return result, back(ready.cotangent.astype(output.dtype))

    def give(self, array: Array, dtype: str) -> Any:
        """Return an array of the library, numbers in the type, integers and truth values as they are."""
        has_numbers = array.dtype.kind == "f"
        if self.name == "torch":
            torch = import_module("torch")
            tensor = torch.from_numpy(array)
            if has_numbers:
                tensor = tensor.to(getattr(torch, IN_LIBRARIES.get(dtype, dtype)))
            return tensor.to(self.device) if self.device else tensor

        if self.name == "jax":
            jax = import_module("jax")
            jnp = import_module("jax.numpy")
            if has_numbers:
                # By NumPy: jax would compile a conversion for every size.
                array = array.astype(getattr(jnp, IN_LIBRARIES.get(dtype, dtype)))
            made = jnp.asarray(array)
            return jax.device_put(made, jax.devices(self.device)[0]) if self.device else made
        return array


IN_LIBRARIES = {"float8_e4m3": "float8_e4m3fn"}
"""What torch and jax call a type that has another name there."""


def widen(value: Any) -> Any:
    """Numbers of eight bits in float32, as no library computes in them."""
    dtype = str(getattr(value, "dtype", ""))
    if not dtype.rpartition(".")[-1].startswith("float8"):
        return value
    return value.float() if dtype.startswith("torch") else value.astype(np.float32)


def to_numpy(value: Any) -> Any:
    """Return any library's array as NumPy's, numbers in float64; None for what is no real number."""
    value = widen(value)
    if value is None or isinstance(value, (str, bytes, dict, bool)):
        return None
    try:
        array = as_array("", value)
    except AttnError:
        return None
    if array.dtype.kind not in "biuf":
        return None
    dtype = np.float64 if array.dtype.kind == "f" else array.dtype
    return np.array(array, dtype=dtype)


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


def type_of(call: TargetCall, name: str) -> str:
    """The type of an argument that holds numbers."""
    if name in {"K", "V"} or name in call.caches:
        return call.stored or call.dtype
    if name in {"Q", PACKED}:
        return call.dtype
    return sum_type(call.dtype) if name in call.wide else type_beside(call.dtype)


def prepare_call(function: Callable[..., Any], framework: Framework, call: TargetCall) -> PreparedCall:
    """Make new arrays of the call's type and memory, each the target's own."""

    def cast(name: str, value: Any, memory: str = "plain") -> Any:
        if not isinstance(value, np.ndarray):
            return value
        array = in_type(value, type_of(call, name))
        if memory == "broadcast" and array.shape[0] > 1:
            return np.lib.stride_tricks.as_strided(array, array.shape, (0, *array.strides[1:]))
        return lay_in_memory(array, memory)

    names = ("Q", "K", "V") if len(call.inputs) > 1 else ("QKV",)
    arrays = {}
    for name, input_ in zip(names, call.inputs, strict=True):
        is_broadcast_query = call.memory == "broadcast" and name == "Q"
        arrays[name] = cast(name, input_, "plain" if is_broadcast_query else call.memory)
    passed = {name: cast(name, value) for name, value in call.keywords.items()}
    arrays |= {name: value for name, value in passed.items() if isinstance(value, np.ndarray)}
    for name in call.into:
        arrays[name].view(np.uint8)[...] = call.fill

    given = {name: framework.give(array, type_of(call, name)) for name, array in arrays.items()}
    inputs = [given[name] for name in names]
    leaves = inputs
    cotangent = None
    if call.cotangent is not None:
        cotangent = framework.give(cast("", call.cotangent), call.dtype)
        if framework.name == "torch":
            leaves = [input_.requires_grad_() for input_ in inputs]
            inputs = [copy_of_leaf(leaf) for leaf in leaves]
            given |= zip(names, inputs, strict=True)

    keywords = {name: given.get(name, value) for name, value in passed.items()}
    if call.names:
        keywords |= dict(zip(call.names, inputs, strict=True))
        inputs = []
    return PreparedCall(
        function,
        framework,
        call,
        inputs=inputs,
        keywords=keywords,
        given=given,
        before={name: bits_of(to_numpy(array)) for name, array in given.items() if name not in call.into},
        cotangent=cotangent,
        leaves=leaves,
    )


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
    blocks = []
    for bytes_of_number in (2, 4, 8):
        size = numbers * bytes_of_number
        blocks += [give(np.full(size, byte, dtype=np.uint8)) for _ in range(BLOCKS)]
    # All at once: one that was freed before the next is made would be the next.
    del blocks
    try:
        yield
    finally:
        fill_malloc(0)


def fill_malloc(value: int) -> None:
    """Set what malloc fills memory with; no other system than glibc's has it."""
    with suppress(AttributeError, OSError, TypeError):
        open_own_library().mallopt(M_PERTURB, value)


@cache
def open_own_library() -> ctypes.CDLL:
    """The C library of this process: it is opened once, and asked twice in every call."""
    return ctypes.CDLL(None)


# --- the same call again ---


def repeat_call(ready: PreparedCall, answer: Answer, result: Any) -> Answer:
    """Make the same call again in arrays that are kept; an output in reused memory is spoilt first."""
    call = ready.call
    prepare = partial(prepare_call, ready.function, ready.framework)
    # What a call of other numbers leaves in reused memory is no answer of this one.
    call_once(prepare(replace(call, inputs=tuple(-input_ for input_ in call.inputs))))
    is_ours = bool(call.into or answer.gradients)
    is_reused = not is_ours and not have_same_bits(read_outputs(result)[:1], answer.outputs[:1])
    ready = prepare(call)

    def again() -> Answer:
        nonlocal ready
        if call.into:
            ready = prepare(call)
        if is_reused:
            spoil(first_array(result))
        try:
            repeated, _ = call_once(ready)
        except RAISED as error:
            return describe_exception(error)
        if repeated.changed:
            ready = prepare(call)
        return repeated

    repeated = repeat(again, answer, call.times, call.seconds)
    return replace(repeated, stale=not repeated.failed and is_stale(ready, answer))


def spoil(output: Any) -> None:
    """Fill an output with NaN, where its library lets one."""
    fill = getattr(output, "fill_", None) or getattr(output, "fill", None)
    if fill:
        with suppress(TypeError, ValueError, RuntimeError):
            fill(np.nan)


def is_stale(ready: PreparedCall, before: Answer) -> bool:
    """V doubled in place gives the answer that V gave: it was kept for these arrays, or for their place."""
    call = ready.call
    is_coded = is_small(call.dtype) or is_small(call.stored)  # and nothing is computed in them
    is_constant = ready.framework.name == "jax" or is_coded  # whose arrays cannot be changed
    if is_constant or "V" not in ready.given or ready.cotangent is not None or ready.call.gives:
        return False

    v = ready.given["V"]
    v *= 2
    try:
        doubled, _ = call_once(ready)
    except RAISED:  # the call was answered before
        return False

    first = before.outputs[0] if before.outputs else None
    if first is None or first.dtype.kind == "b" or not have_same_bits(doubled.outputs[:1], [first]):
        return False
    # NaN, infinities and one number everywhere were never made of V.
    return bool(np.isfinite(first).all() and (first != first.flat[0]).any())
