"""The operations a derivation is made of.

An op says everything about itself: its `signature`, the axes it takes and gives in the notation of
`attnctl.math.axes`; `words`, a sentence; `linear`, the inputs that it is linear in; `apply`, which computes
the step (arrays to array); `form`, the arithmetic of its cells in index notation; `cost`, floating-point
operations from shapes alone, by `flops`, those of one number of the result, `flops_read`, of the first
input, and `flops_term`, of one term of a product; `adjoint`, the lines of the backward pass that one of its
lines gives. Adding an op is adding one small class here; every verb then knows it.

In a signature inputs in [ ] may be left out, an axis with ? may be lacking, and (past + new) has the one
behind the other. A size that no input has is the op's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from math import inf, prod
from operator import add
from typing import Any, ClassVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Shape
from attnctl.math.axes import LEAD, parse_axes
from attnctl.math.notation import Input, Place, Term, index, sum_over

Places = Sequence[Term]
"""The axes of a cell, as a form has them."""


class Line(NamedTuple):
    """A line of the derivation as the adjoint of its op reads it: its name, its inputs, their axes."""

    name: str
    inputs: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]


class Gradient(NamedTuple):
    """A line of the backward pass: the gradient by an input, or what such lines read (`DELTA`)."""

    by: str
    op: Op
    inputs: tuple[str, ...]
    formula: str


Gradients = Iterator[Gradient]


class Invariant(NamedTuple):
    """What is true of every row of a result, whatever the numbers that it was made of were rounded to."""

    words: str
    """Completes "its rows …": "sum to"."""
    found: Array
    """A number for each row."""
    right: Array | float
    size: Array
    """By how much rounding moves that number, in units of one rounding."""


Invariants = Iterator[Invariant]

OPS: dict[str, type[Op]] = {}
"""Every op of this package by its name: all that others iterate."""


@dataclass(frozen=True)
class Op:
    """One kind of line in a derivation; its fields are what a dump says of it."""

    def __init_subclass__(cls) -> None:
        """An op registers itself; what it builds on is none by itself."""
        if cls.__module__.startswith(f"{__package__}."):
            OPS[cls.__name__] = cls
            for base in cls.__mro__[1:]:
                OPS.pop(base.__name__, None)

    @property
    def signature(self) -> str:
        """The axes that it takes and gives (see `attnctl.math.ops.base`)."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """A sentence on what happens at the step: {0}, {1}, … are the names of inputs, {op} is the op.

        {name} and {formula} are those of the step. What is in [ ] is said where its inputs are there.
        """
        return "{name} = {formula}."

    linear: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """The sets of inputs it is linear in, those of a set together: f(a x + b y) = a f(x) + b f(y)."""

    def apply(self, *inputs: Any, **how: Any) -> Array:
        """Compute the step from its inputs."""
        raise NotImplementedError

    def form(self, cell: Places, *inputs: Any, **_: Any) -> Term:
        """The arithmetic that gives a cell of the step, from where the cell is."""
        raise NotImplementedError

    def adjoint(self, line: Line, d: str) -> Gradients:
        """The gradient, by ops of any kind, by each input but masks, from `d`, that by the line."""
        raise NotImplementedError

    def shape(self, *inputs: Shape) -> Shape:
        """The shape of the result, from those of the inputs."""
        takes, gives = parse_signature(self.signature)
        longest: Shape = ()
        sizes: dict[str, int] = {}
        for axes, shape in zip(takes, inputs, strict=False):
            lead, own = bound(axes, shape)
            longest = max(longest, lead, key=len)
            sizes = own | sizes
        there = [axis for axis in gives if not axis.endswith("?") or axis[:-1] in sizes]
        shapes = (longest if axis == LEAD else (size_of(axis.rstrip("?"), sizes, self),) for axis in there)
        return tuple(size for shape in shapes for size in shape)

    def invariants(self, result: Array, *inputs: Array) -> Invariants:
        """What is true of each row of a result, in float64; nothing unless the op says so."""
        return iter(())

    recurrent: ClassVar[bool] = False
    """Its form reads the step itself at earlier tokens: one input more, behind the others."""

    flops: ClassVar[int] = 0
    """Floating-point operations for one number of the result; a copy costs none."""
    flops_read: ClassVar[int] = 0
    """Floating-point operations for one number of the first input, where a sum runs over it."""
    flops_term: ClassVar[int] = 0
    """Floating-point operations for one term, where sums run over the columns of the first input."""

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """Floating-point operations for a result of this shape."""
        read = sum(map(prod, inputs[:1]))
        terms = prod(shape) * inputs[0][-1] if self.flops_term else 0
        return self.flops * prod(shape) + self.flops_read * read + self.flops_term * terms

    def free(self, result: Array) -> Array | None:
        """The cells of a result that may hold anything, as nothing that follows is made of them; if any."""
        return None

    hides: ClassVar[bool] = False
    """Of scores: −∞ may be meant in its result and in what follows."""
    log_of_sum: ClassVar[bool] = False
    """It is the logarithm of a sum, and so −∞ where no keys are summed."""
    never_larger: ClassVar[bool] = False
    """It makes no score larger than it was."""

    def largest_score(self, size: float, reach: int, *others: Array) -> float:
        """The largest it can make of scores up to this size, of `reach` queries and keys in all."""
        return size if self.never_larger else inf


@dataclass(frozen=True)
class Block:
    """A block of scores in the whole: its member, head, first query and key; `keys` 0 is all of them."""

    member: int = 0
    head: int = 0
    heads: int = 1
    query: int = 0
    key: int = 0
    keys: int = 0


class Backward(Op):
    """An op that only the backward pass has."""


class ForwardOnly(Op):
    """An op of layers whose gradients are not computed here: it has no adjoint."""


class RowWise(Op):
    """An op on scores that is local to a query row.

    It can be carried out for one block of scores at a time, and into an array that its `apply` is
    handed as `out` (its own first input, if need be): what keeps memory bounded when nobody asked
    for n × n numbers.
    """

    def block(self, at: Block) -> RowWise:
        """Return the same op for the block of scores that starts here."""
        return self


class Given(Op):
    """A value that was handed in or drawn: the leaves of every derivation."""

    words = "{name} is {formula}."

    def adjoint(self, line: Line, d: str) -> Gradients:
        return iter(())


@dataclass(frozen=True)
class Unstated(Op):
    """A step of a file that does not say how it came about; an `option` that nobody gave would."""

    words = "{name} was recorded; nothing says how it came about."

    option: str = ""

    def adjoint(self, line: Line, d: str) -> Gradients:
        return iter(())


class Copy(RowWise):
    """The input as it is, under a new name."""

    signature = "... -> ..."
    linear = ((0,),)
    words = "{name} is {0} as it is."
    never_larger = True

    def apply(self, a: Array, *, out: Array | None = None) -> Array:
        if out is None:
            return a.copy()
        np.copyto(out, a)
        return out

    def form(self, cell: Places, a: Input) -> Term:
        return a.at(*cell)

    def adjoint(self, line: Line, d: str) -> Gradients:
        yield Gradient(line.inputs[0], Copy(), (d,), d)


class SumLike(Backward):
    """The sum over every axis along which an array was repeated when it was added; the array says which."""

    signature = "..., ... -> ..."
    linear = ((0,),)
    words = "{0}, added up wherever one number of {1} was used more than once."
    flops_read = 1  # an addition

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[1]

    def apply(self, d: Array, like: Array) -> Array:
        before = d.ndim - like.ndim
        spread = [axis for axis in range(d.ndim) if axis < before or like.shape[axis - before] == 1]
        total = d.sum(axis=tuple(spread), keepdims=True, dtype=sum_type(d))
        return total.reshape(like.shape).astype(d.dtype, copy=False)

    def form(self, cell: Places, d: Input, like: Input) -> Term:
        before = len(d.shape) - len(like.shape)
        places: list[Place] = [*d.shape[:before], *cell]
        summed: list[Term] = []
        for axis, size in enumerate(d.shape):
            if axis < before or like.shape[axis - before] == 1:
                i = index(size, f"i_{axis}")
                summed.append(i)
                places[axis] = i
        return sum_over(summed, d.at(*places))


class AddAll(Backward):
    """The sum of the gradients by all ways from an array to the loss."""

    signature = "..., ..." + "[, ..." * 5 + "]" * 5 + " -> ..."
    linear = (tuple(range(7)),)
    words = "Several steps read it, so it has a gradient through each of them; these are added up."

    def apply(self, *ways: Array) -> Array:
        return reduce(np.add, ways)

    def form(self, cell: Places, *ways: Input) -> Term:
        return reduce(add, (way.at(*cell) for way in ways))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        return (len(inputs) - 1) * prod(shape)  # additions


class Add(RowWise):
    """a + b, the second broadcast where it lacks axes."""

    signature = "..., ... -> ..."
    linear = ((0, 1),)
    words = "{1} is added to {0}, number by number."
    flops = 1  # an addition
    hides = True  # with a bias of −∞

    def apply(self, a: Array, b: Array, *, out: Array | None = None) -> Array:
        return np.add(a, b, out=out)

    def form(self, cell: Places, a: Input, b: Input) -> Term:
        return a.at(*cell) + b.at(*cell)

    def largest_score(self, size: float, reach: int, *others: Array) -> float:
        finite = others[0][np.isfinite(others[0])]
        return size + float(np.abs(finite).max(initial=0))

    def adjoint(self, line: Line, d: str) -> Gradients:
        a, b = line.inputs
        yield Gradient(a, Copy(), (d,), d)
        yield Gradient(b, SumLike(), (d, b), f"{d}, summed where {b} is repeated")


def sum_type(array: Array) -> np.dtype[Any]:
    """The type to sum its numbers in: their own, but single where they are half, whose sums overflow."""
    return np.result_type(array, np.float32)


@cache
def parse_signature(text: str) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The axes of each input, and of the result."""
    takes, gives = text.split("->")
    inputs = re.findall(r"(?:bool )?([^,\s[\]][^,[\]]*)", takes)
    return tuple(map(axes_of, inputs)), axes_of(gives)


def axes_of(text: str) -> tuple[str, ...]:
    """The axes in "... query (head d)", each as it stands there, without parentheses."""
    return tuple(" ".join(group) for group in parse_axes(text))


def bound(axes: Sequence[str], shape: Shape) -> tuple[Shape, dict[str, int]]:
    """The leading axes of a shape, and the sizes of the others by name; axes with ? where there is room."""
    named = [axis for axis in axes if axis != LEAD]
    lacking = max(0, len(named) - len(shape))
    optional = [axis for axis in named if axis.endswith("?")]
    left_out = optional[:lacking]

    there = [axis.rstrip("?") for axis in named if axis not in left_out]
    start = len(shape) - len(there)
    return shape[:start], dict(zip(there, shape[start:], strict=True))


def size_of(axis: str, sizes: Mapping[str, int], op: Any) -> int:
    """The size of an axis: of "head d", side by side, or of "past + new", one behind the other."""

    def size(name: str) -> int:
        return sizes[name] if name in sizes else int(getattr(op, name))

    total = 0
    for part in axis.split("+"):
        total += prod(map(size, part.split()))
    return total
