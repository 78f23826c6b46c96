"""A model and the tensors of one of its layers, by what they are for."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from itertools import takewhile
from typing import Any, cast

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.axes import rearrange
from attnctl.math.ops import LayerNorm, RMSNorm
from attnctl.math.ops.products import TILED, times
from attnctl.models.description import Description, Layer
from attnctl.models.tensors import Checkpoint, foreign, prefix_of
from attnctl.record.picture import PatchGrid
from attnctl.store.header import raise_first

ROWS = {"embed": "vocab", "position": "longest", "segment": "segments", "inputs_embed": "inputs_vocab"}
"""The setting that says how many rows a table has."""


@dataclass
class Model:
    """A checkpoint and what its config.json says of it, in one type of number."""

    name: str
    description: Description
    checkpoint: Checkpoint
    dtype: str = "float32"
    max_memory: int | None = None
    grid: PatchGrid | None = None
    """Of a picture, that of its patches."""

    @cached_property
    def prefix(self) -> str:
        """The text that stands before every name of the family in this checkpoint."""
        d = self.description
        first = d.attending[0] if d.attending else 0
        layer = d.stack.layer.format(i=first)
        # Every layer that attends makes Q of a matrix by one of these names; others have one of their own.
        uses = ("qkv", "q", "latent_q") if d.attending else ("ssm_in", "conv_in", "delta_qkv", "delta_qkvz")
        matrix_of_q = next(d.inner[use] for use in uses if d.inner.get(use))
        wanted = f"{layer}{matrix_of_q}.weight"
        return prefix_of(self.checkpoint.tensors, wanted, d.stack.within, str(self.checkpoint.folder))

    def outer(self, use: str, suffix: str, shape: Shape, part: Any = ...) -> Array:
        name = f"{self.prefix}{self.description.stack.outer[use]}{suffix}"
        return self.checkpoint.read(name, shape, self.dtype, part)

    def rows(self, use: str) -> int:
        """How many rows a table has, by config.json or else the checkpoint. Raises AttnError."""
        if use not in self.description.stack.outer:
            raise AttnError(
                f"{self.name}: {self.description.family} takes no tokens here; "
                "give what came into a layer as `hidden`"
            )
        count = self.description[ROWS[use]]
        if count is not None:
            return int(count)

        tensor = self.checkpoint.tensors.get(f"{self.prefix}{self.description.stack.outer[use]}.weight")
        return tensor.shape[0] if tensor is not None and tensor.shape else 0

    def refuse_layers(self) -> None:
        """Refuse a checkpoint with other layers than config.json says."""
        d = self.description
        key = d.stack.key_of("shared_groups" if d["shared_groups"] else "layers")
        expected = d["shared_groups"] or len(d.layers)
        most = expected + d["spare"]

        # One more than may be there shows that there are too many.
        prefixes = (self.prefix + d.stack.layer.format(i=index) for index in range(most + 1))
        count = sum(1 for _ in takewhile(self.checkpoint.under, prefixes))
        if expected <= count <= most:
            return

        stored = f"more than {expected}" if count > expected else count
        raise AttnError(
            f"{self.checkpoint.folder}: config.json: {key} is {expected}, but there are tensors of {stored}"
        )

    def layer(self, index: int) -> LayerTensors:
        return LayerTensors(self, index)

    def norm(self, use: str, x: Array) -> Array:
        d = self.description
        factors = [self.outer(use, suffix, x.shape[-1:]) for suffix in d.norm_suffixes]
        return norm_op(d, d["eps"]).apply(x, *factors)


def norm_op(d: Description, eps: float) -> LayerNorm | RMSNorm:
    kind = LayerNorm if d["norm"] == "layer" else RMSNorm
    return kind(float(eps), plus_one=bool(d["plus_one"]))


@dataclass
class LayerTensors:
    model: Model
    index: int
    names: dict[str, str] = field(default_factory=dict)
    passing: bool = False
    """Nobody looks at this layer's numbers: its projections are read as they are multiplied, in blocks."""

    @cached_property
    def d(self) -> Description:
        return self.model.description.of_layer(self.index)

    @property
    def this_layer(self) -> Layer:
        return self.d.layers[self.index]

    @cached_property
    def prefix(self) -> str:
        number = self.index
        if groups := self.d["shared_groups"]:
            number = self.index * groups // len(self.d.layers)
        return self.model.prefix + self.d.stack.layer.format(i=number)

    def has(self, use: str) -> bool:
        return use in self.d.inner

    def is_there(self, use: str, expert: int) -> bool:
        """Whether the checkpoint has a matrix of this expert by itself."""
        return self.has(use) and self.name_of(use, ".weight", e=expert) in self.model.checkpoint.tensors

    def read(self, use: str, suffix: str, shape: Shape, part: Any = ..., **numbers: int) -> Array:
        """A tensor of this layer by its use; `numbers` fill {e} and {h}."""
        name = self.name_of(use, suffix, **numbers)
        return self.model.checkpoint.read(name, shape, self.model.dtype, part)

    def name_of(self, use: str, suffix: str, **numbers: int) -> str:
        """The checkpoint's own name of a tensor, noted as the origin of what it is used for."""
        name = self.d.inner[use]
        if name.endswith("!"):
            name = name.removesuffix("!")
            ending = ""
        else:
            ending = suffix

        whole = f"{self.prefix}{name.format(**numbers)}{ending}"
        self.names.setdefault(f"{use}{suffix}", whole)
        return whole

    def read_with_origin(self, use: str, suffix: str, shape: Shape) -> tuple[Array, str]:
        return self.read(use, suffix, shape), self.origin(use, suffix)

    def origin(self, use: str, suffix: str = ".weight") -> str:
        return self.names[f"{use}{suffix}"]

    def matrix(self, use: str, rows: int, columns: int, **numbers: int) -> Array:
        """A projection as (in, out), however the checkpoint keeps it."""
        if self.d["transposed"]:
            return self.read(use, ".weight", (rows, columns), **numbers)
        return self.read(use, ".weight", (columns, rows), **numbers).T

    def multiply(self, use: str, x: Array, columns: int, **numbers: int) -> Array:
        """Rows through a projection, of which one block at a time is in our type of number, or all."""
        if TILED.get():
            return times(x, self.matrix(use, x.shape[-1], columns, **numbers))

        name = self.name_of(use, ".weight", **numbers)
        rows = x.shape[-1]
        is_transposed = self.d["transposed"]
        return self.model.checkpoint.multiply(
            x,
            name,
            shape=(rows, columns) if is_transposed else (columns, rows),
            dtype=self.model.dtype,
            axis=1 if is_transposed else 0,
        )

    def projection(self, use: str, rows: int, columns: int, heads: int) -> Array:
        """A matrix (in, out), or where it has heads (head, in, d)."""
        if self.passing and not TILED.get():
            return cast("Array", ProjectionInFile(self, use, rows, columns, heads))
        fused = self.matrix(use, rows, columns)
        return split(fused, heads) if heads else fused

    def norm(self, use: str, x: Array) -> Array:
        """A row through one of the layer's norms; as it is where the layer has no such norm."""
        if not self.has(use):
            return x
        factors = [self.read(use, suffix, x.shape[-1:]) for suffix in self.d.norm_suffixes]
        return norm_op(self.d, self.d["eps"]).apply(x, *factors)

    @property
    def ignored(self) -> tuple[str, ...]:
        stack = self.d.stack
        return stack.ignored if self.index else (*stack.ignored, *stack.ignored_first)

    def refuse_foreign(self) -> None:
        """Refuse tensors of this layer that the family does not have: it would be another model."""
        folder = self.model.checkpoint.folder
        whole_names = self.model.checkpoint.under(self.prefix)
        names = [name.removeprefix(self.prefix) for name in whole_names]
        raise_first(
            f"{folder}: {self.prefix}{name}: {self.d.family} as config.json has it has no such "
            "tensor; is it another model, or quantised?"
            for name in foreign(names, self.d.inner, self.ignored)
        )

    def refuse_unread(self) -> None:
        """Refuse tensors that the family has and config.json says this model has not: a bias, say."""
        checkpoint = self.model.checkpoint
        allowed = [self.prefix + start for start in self.ignored]
        for use, name in self.d.inner.items():
            if use.startswith("expert"):  # one that no token went to was not read
                start, _, _ = name.partition("{")
                allowed.append(self.prefix + start.removesuffix("!"))

        raise_first(
            f"{checkpoint.folder}: {name}: config.json says that there is none"
            for name in checkpoint.under(self.prefix)
            if name not in checkpoint.used and not name.startswith(tuple(allowed))
        )


def split(fused: Array, heads: int) -> Array:
    """(in, heads·d) -> (head, in, d), or a bias (heads·d,) -> (head, d); a view."""
    return rearrange(fused, "... (head d) -> head ... d", head=heads)


class ProjectionInFile:
    """A matrix still in its file, for products x W alone, which read it in blocks."""

    __array_ufunc__ = None  # x @ W is __rmatmul__ here

    def __init__(self, tensors: LayerTensors, use: str, rows: int, columns: int, heads: int) -> None:
        self.tensors = tensors
        self.use = use
        self.columns = columns
        self.heads = heads
        self.shape: Shape = (heads, rows, columns // heads) if heads else (rows, columns)
        self.ndim = len(self.shape)
        self.dtype = np.dtype(tensors.model.dtype)

        # Looked up for its problems: one that is missing or misshapen is refused before any product.
        stored = (rows, columns) if tensors.d["transposed"] else (columns, rows)
        tensors.model.checkpoint.tensor(tensors.name_of(use, ".weight"), stored)

    def astype(self, dtype: str, *, copy: bool) -> ProjectionInFile:
        assert not copy
        assert self.dtype == dtype
        return self

    def __rmatmul__(self, x: Array) -> Array:
        """Rows (..., token, in); (..., 1, token, in) where it has heads, for (..., head, token, d)."""
        if not self.heads:
            return self.tensors.multiply(self.use, x, self.columns)
        made = self.tensors.multiply(self.use, x[..., 0, :, :], self.columns)
        return rearrange(made, "... token (head d) -> ... head token d", head=self.heads)
