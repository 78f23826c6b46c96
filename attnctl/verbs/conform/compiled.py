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
        """Those with which it only works op by op."""

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        constant = tuple(name for name, value in keywords.items() if isinstance(value, KNOWN))
        if constant in self.as_it_is:
            return self.function(*inputs, **keywords)
        try:
            return self.compile(constant)(*inputs, **keywords)
        except Exception:  # noqa: BLE001  (whatever it raises where it is compiled)
            result = self.function(*inputs, **keywords)  # which raises what is meant, if anything
            self.as_it_is.add(constant)
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


@contextmanager
def numbers_of(dtype: str) -> Iterator[None]:
    """Let jax have numbers of 64 bits for float64 alone; for other types it is as its program left it.

    A setting that stays would also make int64 of whole numbers in every later call, which kernels refuse.
    """
    config = import_module("jax").config
    before = config.read("jax_enable_x64")
    config.update("jax_enable_x64", dtype == "float64" or before)
    try:
        yield
    finally:
        config.update("jax_enable_x64", before)
