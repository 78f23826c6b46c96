"""How NumPy, PyTorch and JAX spell the same operations on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attnctl.math import Shape

Axes = int | tuple[int, ...]


class Library:
    """NumPy; what another spells in another way it says itself. All of it gives texts of expressions."""

    name = "numpy"
    np = "np"
    """What its functions are called by."""
    imports: ClassVar[Sequence[str]] = ("import numpy as np",)
    opening: ClassVar[Sequence[str]] = ()
    """Lines before the first array: all numbers are float64."""
    loaded = "given[{name!r}]"
    """An array of the file beside the program."""
    axis = "axis"
    keep = "keepdims"
    softmax = ""
    """Its own softmax of a variable, if it has one."""
    logsumexp = ""
    einsum: ClassVar[bool] = False
    """Whether every product that is summed is written in the letters of its axes."""

    def array(self, numbers: str) -> str:
        return f"{self.np}.array({numbers})"

    def call(self, function: str, *arguments: str) -> str:
        return f"{self.np}.{function}({', '.join(arguments)})"

    def reduce(self, function: str, x: str, axes: Axes, *, keep: bool = False) -> str:
        """A sum, a mean or a maximum of a variable along axes."""
        kept = f", {self.keep}=True" if keep else ""
        return f"{x}.{function}({self.axis}={axes}{kept})"

    def transposed(self, x: str) -> str:
        """Its last two axes exchanged."""
        return f"{x}.swapaxes(-1, -2)"

    def heads_exchanged(self, x: str) -> str:
        """Heads and tokens exchanged."""
        return f"{x}.swapaxes(-3, -2)"

    def reshaped(self, x: str, shape: Shape) -> str:
        return f"{x}.reshape({', '.join(map(str, shape))})"

    def joined(self, parts: Sequence[str], axis: int) -> str:
        return f"{self.np}.concatenate([{', '.join(parts)}], {self.axis}={axis})"

    def stacked(self, parts: str, axis: int) -> str:
        return f"{self.np}.stack([{parts}], {self.axis}={axis})"

    def repeated(self, x: str, times: int, axis: int) -> str:
        return f"{self.np}.repeat({x}, {times}, axis={axis})"

    def spread(self, x: str, shape: Shape) -> str:
        return f"{self.np}.broadcast_to({x}, {shape})"

    def moved_to_end(self, x: str, axis: int) -> str:
        return f"{self.np}.moveaxis({x}, {axis}, -1)"

    def root(self, number: int) -> str:
        return f"{self.np}.sqrt({number})"

    def sigmoid(self, x: str) -> str:
        return f"1 / (1 + {self.np}.exp(-{x}))"

    def without_nan(self, x: str) -> str:
        """Zeros where a row of softmax saw nothing."""
        return f"{self.np}.nan_to_num({x})"


class Einsum(Library):
    """NumPy, with every product that is summed as an einsum."""

    name = "einsum"
    einsum = True

    def heads_exchanged(self, x: str) -> str:
        return f'np.einsum("...hnd->...nhd", {x})'

    def transposed(self, x: str) -> str:
        return f'np.einsum("...ij->...ji", {x})'


class Jax(Library):
    name = "jax"
    np = "jnp"
    imports: ClassVar[Sequence[str]] = ("import jax", "import jax.numpy as jnp")
    opening: ClassVar[Sequence[str]] = ('jax.config.update("jax_enable_x64", True)',)
    loaded = "jnp.array(given[{name!r}])"
    softmax = "jax.nn.softmax({}, axis=-1)"
    logsumexp = "jax.nn.logsumexp({}, axis=-1)"

    def sigmoid(self, x: str) -> str:
        return f"jax.nn.sigmoid({x})"


class Torch(Library):
    name = "torch"
    np = "torch"
    imports: ClassVar[Sequence[str]] = ("import torch",)
    opening: ClassVar[Sequence[str]] = ("torch.set_default_dtype(torch.float64)",)
    loaded = "torch.from_numpy(given[{name!r}])"
    axis = "dim"
    keep = "keepdim"
    softmax = "torch.softmax({}, dim=-1)"
    logsumexp = "torch.logsumexp({}, dim=-1)"

    def array(self, numbers: str) -> str:
        return f"torch.tensor({numbers})"

    def reduce(self, function: str, x: str, axes: Axes, *, keep: bool = False) -> str:
        return super().reduce({"max": "amax"}.get(function, function), x, axes, keep=keep)

    def transposed(self, x: str) -> str:
        return f"{x}.mT"

    def heads_exchanged(self, x: str) -> str:
        return f"{x}.transpose(-3, -2)"

    def joined(self, parts: Sequence[str], axis: int) -> str:
        return f"torch.cat([{', '.join(parts)}], dim={axis})"

    def repeated(self, x: str, times: int, axis: int) -> str:
        return f"{x}.repeat_interleave({times}, dim={axis})"

    def spread(self, x: str, shape: Shape) -> str:
        return f"{x}.expand({', '.join(map(str, shape))})"

    def moved_to_end(self, x: str, axis: int) -> str:
        return f"{x}.movedim({axis}, -1)"

    def root(self, number: int) -> str:
        return f"{number}**0.5"

    def sigmoid(self, x: str) -> str:
        return f"torch.sigmoid({x})"


LIBRARIES: dict[str, Library] = {each.name: each for each in (Library(), Torch(), Jax(), Einsum())}
