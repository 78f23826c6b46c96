"""Functions of jax compiled whole, and its numbers of 64 bits, which are a setting of all that it does.

Called as it is, a function of jax is compiled op by op, some ten times for every size. By `jax.jit`, as
programs call it, it is compiled once. What cannot be compiled so (it asks its arrays for their numbers) is
called as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

KNOWN = (bool, int, float, str, tuple, type(None))
"""What is no array is a constant of what is compiled: it may decide which ops there are."""


class CompiledWhole:
    """A function that is compiled whole for every size, as far as jax can."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiled: dict[tuple[str, ...], Callable[..., Any]] = {}
        """By the names of what is constant."""
        self.as_it_is: set[tuple[str, ...]] = set()
        """Types, and what is constant, with which it only works op by op, as float16 on some processors."""

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        constant = tuple(name for name, value in keywords.items() if isinstance(value, KNOWN))
        arrays = (*inputs, *keywords.values())
        types = tuple(str(array.dtype) for array in arrays if hasattr(array, "dtype"))
        way = (*types, *constant)
        if way in self.as_it_is:
            return self.function(*inputs, **keywords)
        try:
            return self.compile(constant)(*inputs, **keywords)
        except Exception:  # noqa: BLE001  (whatever it raises where it is compiled)
            result = self.function(*inputs, **keywords)  # which raises what is meant, if anything
            self.as_it_is.add(way)
            return result

    def compile(self, constant: tuple[str, ...]) -> Callable[..., Any]:
        if constant not in self.compiled:
            jit = import_module("jax").jit
            self.compiled[constant] = jit(self.function, static_argnames=constant)
        return self.compiled[constant]


COMPILED: dict[int, CompiledWhole] = {}
"""By the identity of the function, which each of them keeps alive."""


def compile_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled whole; what was compiled of it before is kept."""
    return COMPILED.setdefault(id(function), CompiledWhole(function))


WIDE = "jax_enable_x64"
UNOPTIMIZED = "jax_disable_most_optimizations"


@contextmanager
def settings_for(dtype: str, *, quick: bool) -> Iterator[None]:
    """Set what jax has to be told for a call, and leave its settings as its program left them.

    It has numbers of 64 bits for float64 alone: a setting that stays would also make int64 of whole numbers
    in every later call, which kernels refuse. A quick run on a CPU compiles with few optimizations, as
    every size is called once; elsewhere that would be another program than the one that is used.
    """
    jax = import_module("jax")
    wanted = {}
    if dtype == "float64":
        wanted[WIDE] = True
    if quick and jax.default_backend() == "cpu":
        wanted[UNOPTIMIZED] = True

    before = {name: jax.config.read(name) for name in wanted}
    try:
        for name, value in wanted.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
