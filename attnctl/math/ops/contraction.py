"""Products summed over axes, as the backward pass needs them: what an einsum says."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from attnctl.math import Array, Shape
from attnctl.math.axes import LEAD
from attnctl.math.notation import Input, Term, index, total
from attnctl.math.ops.base import Backward, Places, parse


class Contraction(Backward):
    """The product of the inputs, summed over every axis of its signature that the result has not."""

    def axes(self, *ranks: int) -> tuple[list[list[str]], list[str]]:
        """The axes of inputs with so many, and of the result; leading ones by number from the right."""
        named, gives = parse(self.signature).takes, parse(self.signature).gives
        leads = [rank - len(own) + own.count(LEAD) for rank, own in zip(ranks, named, strict=True)]

        def spread(own: Sequence[str], lead: int) -> list[str]:
            before = [str(at) for at in range(lead, 0, -1)] if LEAD in own else []
            return [*before, *(axis for axis in own if axis != LEAD)]

        takes = [spread(own, lead) for own, lead in zip(named, leads, strict=True)]
        return takes, spread(gives, max(leads))

    def apply(self, *inputs: Array) -> Array:
        takes, gives = self.axes(*(x.ndim for x in inputs))
        every = dict.fromkeys(axis for own in takes for axis in own)
        letters = dict(zip(every, "abcdefghijklmnopqrstuvwxyz", strict=False))
        spelled = ["".join(letters[axis] for axis in own) for own in (*takes, gives)]
        wide = [x.astype(np.result_type(x, np.float32), copy=False) for x in inputs]
        found = np.einsum(f"{','.join(spelled[:-1])}->{spelled[-1]}", *wide, optimize=True)
        return np.asarray(found, inputs[0].dtype)

    def form(self, cell: Places, *inputs: Input) -> Term:
        """Σ of the products."""
        takes, gives = self.axes(*(len(x.shape) for x in inputs))
        sizes = sizes_of(takes, [x.shape for x in inputs])
        places = dict(zip(gives, cell, strict=True))
        summed = {axis: index(sizes[axis], f"i_{axis}") for axis in sizes if axis not in places}
        read = [
            x.at(*((places | summed)[axis] for axis in own)) for x, own in zip(inputs, takes, strict=True)
        ]
        body = read[0] * read[1] if len(read) == 2 else read[0]
        for each in summed.values():
            body = total(each, body)
        return body

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        """A multiplication and an addition a term."""
        takes, _ = self.axes(*map(len, inputs))
        return len(inputs) * prod(sizes_of(takes, inputs).values())


def sizes_of(axes: Sequence[Sequence[str]], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each axis."""
    return {
        axis: n for own, shape in zip(axes, shapes, strict=True) for axis, n in zip(own, shape, strict=True)
    }


class TMatMul(Contraction):
    """aᵀ b: d_V = Aᵀ d_head_outputs, d_K = d_scoresᵀ Q."""

    signature = "... m n, ... m p -> ... n p"
    words = "Each column of {0} is multiplied by each of {1}, and the products are added up over the rows."

    def apply(self, *inputs: Array) -> Array:
        a, b = inputs
        return np.matmul(a.swapaxes(-1, -2), b)


class SharedTMatMul(Contraction):
    """aᵀ b, summed over a batch: the gradient by a matrix that all rows share."""

    signature = "... m n, ... m p -> n p"
    words = "Each column of {0} is multiplied by each of {1}, and the products are added up over all rows."


class SumRows(Contraction):
    """The sum of all rows: the gradient by what is added to each."""

    signature = "... m p -> p"
    words = "All rows of {0} are added up."


class SumTokens(Contraction):
    """Σ over tokens, for each head."""

    signature = "... head token d -> head d"
    words = "The rows of {0} are added up, head by head."


class RowDot(Backward):
    """Σ over columns of a ∘ b: delta, one number a row (D in FlashAttention)."""

    signature = "... d, ... d -> ..."
    words = "Each row of {0} is multiplied by that of {1}, number by number, and the products are added up."
    flops_read = 2  # a multiplication and an addition

    def apply(self, a: Array, b: Array) -> Array:
        wide = np.result_type(a, np.float32)
        a_wide, b_wide = a.astype(wide, copy=False), b.astype(wide, copy=False)
        return np.einsum("...d,...d->...", a_wide, b_wide).astype(a.dtype)

    def form(self, cell: Places, a: Input, b: Input) -> Term:
        """Σ a·b."""
        i = index(a.shape[-1])
        return total(i, a.at(*cell, i) * b.at(*cell, i))
