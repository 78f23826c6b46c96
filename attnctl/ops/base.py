"""The operations a derivation is made of.

An op has three duties: `apply` computes the step (arrays to array), `terms` writes out one cell's
arithmetic, `cost` counts floating-point operations from shapes alone. Adding an op is adding one
small class here; every verb then knows it.

Axes are those of the step's inputs, last ones first in mind: (..., head, query, key) for scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from attnctl.arithmetic import Cell, Expr, Number, Source, Sum
from attnctl.array import Array, Shape


@dataclass(frozen=True)
class Op:
    """One kind of line in a derivation; its fields are what a dump says of it."""

    def apply(self, *inputs: Array) -> Array:
        """Compute the step from its inputs."""
        raise NotImplementedError

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The arithmetic that gives one cell of the step."""
        raise NotImplementedError

    def shape(self, *inputs: Shape) -> Shape:
        """The shape of the result, from those of the inputs: the first one's unless said otherwise."""
        return inputs[0]

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """Floating-point operations for a result of this shape; a copy costs none."""
        return 0


@dataclass(frozen=True)
class Block:
    """Where a block of scores stands in the whole: member of the batch, head (of so many), query, key."""

    member: int = 0
    head: int = 0
    heads: int = 1
    query: int = 0
    key: int = 0


class RowWise(Op):
    """An op on scores that is local to a query row.

    It can be carried out for one block of scores at a time, and into an array that is handed to
    it (its own first input, if need be): what keeps memory bounded when nobody asked for n × n
    numbers.
    """

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """Compute the step from its inputs, into `out` where one is given."""
        raise NotImplementedError

    def block(self, at: Block) -> RowWise:
        """The same op for the block of scores that starts here."""
        return self


def read(array: Array, position: int, cell: Cell) -> Number:
    """The number at `cell` of input `position`; axes the input lacks or has once are left out."""
    own = cell[len(cell) - array.ndim :]
    if 1 in array.shape:
        own = tuple(0 if size == 1 else i for i, size in zip(own, array.shape, strict=True))
    return Number(float(array.item(own)), Source(position, own))


class Given(Op):
    """A value that was handed in or drawn: the leaves of every derivation."""

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """The number itself (its own step is passed as the one input)."""
        return Number(float(inputs[0][cell]))


class Unstated(Op):
    """A step of a file that does not say how it came about."""


class Copy(RowWise):
    """The input as it is, under a new name."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...) -> the same."""
        if out is None:
            return inputs[0].copy()
        np.copyto(out, inputs[0])
        return out

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a."""
        return read(inputs[0], 0, cell)


class Add(RowWise):
    """a + b, the second broadcast where it lacks axes."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...), (...) -> (...)."""
        a, b = inputs
        return np.add(a, b, out=out)

    def terms(self, cell: Cell, *inputs: Array) -> Expr:
        """a + b."""
        return Sum(tuple(read(x, at, cell) for at, x in enumerate(inputs)))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)
