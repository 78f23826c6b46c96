"""The operations a derivation is made of.

An op has three duties: `apply` computes the step (arrays to array), `form` says the arithmetic of its
cells in index notation, `cost` counts floating-point operations from shapes alone. Adding an op is
adding one small class here; every verb then knows it.

Axes are those of the step's inputs, last ones first in mind: (..., head, query, key) for scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from attnctl.array import Array, Shape
from attnctl.notation import Input, Term

Places = Sequence[Term]
"""The axes of a cell, as a form has them."""


@dataclass(frozen=True)
class Op:
    """One kind of line in a derivation; its fields are what a dump says of it."""

    def apply(self, *inputs: Array) -> Array:
        """Compute the step from its inputs."""
        raise NotImplementedError

    def form(self, cell: Places, *inputs: Input) -> Term:
        """The arithmetic that gives a cell of the step, from where the cell is."""
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


class Given(Op):
    """A value that was handed in or drawn: the leaves of every derivation."""


@dataclass(frozen=True)
class Unstated(Op):
    """A step of a file that does not say how it came about; an `option` that nobody gave would."""

    option: str = ""


class Copy(RowWise):
    """The input as it is, under a new name."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...) -> the same."""
        if out is None:
            return inputs[0].copy()
        np.copyto(out, inputs[0])
        return out

    def form(self, cell: Places, *inputs: Input) -> Term:
        """a."""
        return inputs[0].at(*cell)


class Add(RowWise):
    """a + b, the second broadcast where it lacks axes."""

    def apply(self, *inputs: Array, out: Array | None = None) -> Array:
        """(...), (...) -> (...)."""
        a, b = inputs
        return np.add(a, b, out=out)

    def form(self, cell: Places, *inputs: Input) -> Term:
        """a + b."""
        a, b = inputs
        return a.at(*cell) + b.at(*cell)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """One a cell."""
        return prod(shape)
