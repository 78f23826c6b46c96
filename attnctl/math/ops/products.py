"""Products: of rows with one matrix, and those that the backward pass sums over axes.

Rows of many sentences at once are multiplied as ever, or in tiles, each with bits of its own. BLAS adds up
the terms of a row in an order that may depend on the shape of the whole product and on the place of the row
in it, but on no number. A tile has always as many rows, so there it depends on the place alone. That is
tried, with one row repeated: on some machines all places have one order; on others (OpenBLAS with AVX2) the
order comes back after twelve places, and sentences begin where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, reduce
from itertools import chain
from math import prod
from operator import mul
from typing import ClassVar

import numpy as np

from attnctl.math import Array, Shape
from attnctl.math.axes import LEAD, rearrange
from attnctl.math.notation import Input, Term, index, sum_over, total
from attnctl.math.ops.base import Backward, Places, parse_signature, sum_type

TILE = 192
"""Rows of a tile: enough for BLAS to reach its peak, and a multiple of every period."""

PERIODS = (1, 2, 4, 6, 8, 12, 16)
"""After how many places an order may come back."""

TRIED = 1024
"""Sums that are compared, at least, before the order of a product is held to be known."""

TILED: ContextVar[bool] = ContextVar("TILED", default=False)


@contextmanager
def in_tiles() -> Iterator[None]:
    """Products of rows with a matrix are in tiles in this block, where that keeps a row's bits its own."""
    before = TILED.set(True)
    try:
        yield
    finally:
        TILED.reset(before)


def times(x: Array, w: Array) -> Array:
    """x w: rows (..., token, in) and a matrix (in, out) that all of them share -> (..., token, out)."""
    tiled = TILED.get() and w.ndim == 2
    period = find_period(w.shape, w.flags.c_contiguous, w.dtype.str) if tiled else None
    return x @ w if period is None else multiply_tiles(x, w, period)


def times_heads(x: Array, w: Array) -> Array:
    """x w: rows (..., token, in) and a matrix for each head (head, in, out) -> (..., head, token, out)."""
    if not TILED.get():
        out: Array = x[..., None, :, :] @ w
        return out
    side_by_side = times(x, rearrange(w, "head width d -> width (head d)"))
    return rearrange(side_by_side, "... token (head d) -> ... head token d", head=len(w))


def multiply_tiles(x: Array, w: Array, period: int) -> Array:
    """x w with the rows of each sentence from a place at which the period begins."""
    *lead, tokens, width = x.shape
    columns = w.shape[1]
    room = -(-tokens // period) * period
    if room != tokens:
        padded = np.zeros((*lead, room, width), x.dtype)
        padded[..., :tokens, :] = x
        x = padded

    rows = x.reshape(-1, width)
    rest = len(rows) % TILE
    whole = len(rows) - rest
    out = np.empty((len(rows), columns), np.result_type(x, w))
    tiles = rows[:whole].reshape(-1, TILE, width)
    np.matmul(tiles, w, out=out[:whole].reshape(-1, TILE, columns))

    if rest:
        last = np.zeros((TILE, width), x.dtype)
        last[:rest] = rows[whole:]
        out[whole:] = (last @ w)[:rest]

    by_sentence = out.reshape(*lead, room, columns)
    return by_sentence[..., :tokens, :]


@lru_cache(maxsize=64)
def find_period(shape: tuple[int, int], by_rows: bool, dtype: str) -> int | None:
    """After how many places of a tile the order of summation comes back; None where it does not soon.

    Many products with such matrices are tried, as orders may agree by chance.
    """
    width, columns = shape
    draw = np.random.RandomState(0).standard_normal
    drawn = draw(shape if by_rows else (columns, width)).astype(dtype)
    w = drawn if by_rows else drawn.T

    trials = -(-TRIED // columns)
    rows = draw((trials, 1, width)).astype(dtype)
    sums = np.repeat(rows, TILE, axis=1) @ w
    for period in PERIODS:
        if (sums[:, period:] == sums[:, :-period]).all():
            return period
    return None


# --- products summed over axes: what an einsum says ---


class Contraction(Backward):
    """The product of the inputs, summed over every axis of its signature that the result has not."""

    linear: ClassVar[tuple[tuple[int, ...], ...]] = ((0,), (1,))

    def axes(self, *ranks: int) -> tuple[list[list[str]], list[str]]:
        """The axes of inputs with so many, and of the result; leading ones by number from the right."""
        named, gives = parse_signature(self.signature)
        takes: list[list[str]] = []
        longest = 0
        for axes, rank in zip(named, ranks, strict=True):
            lead = rank - len(axes) + axes.count(LEAD)
            longest = max(longest, lead)
            takes.append(with_lead_numbered(axes, lead))
        return takes, with_lead_numbered(gives, longest)

    def apply(self, *inputs: Array) -> Array:
        takes, gives = self.axes(*(x.ndim for x in inputs))
        every = dict.fromkeys(chain.from_iterable(takes))
        letter_of = dict(zip(every, "abcdefghijklmnopqrstuvwxyz", strict=False))

        def spell(axes: Sequence[str]) -> str:
            return "".join(letter_of[axis] for axis in axes)

        subscripts = f"{','.join(map(spell, takes))}->{spell(gives)}"
        wide = [x.astype(sum_type(x), copy=False) for x in inputs]
        contracted = np.einsum(subscripts, *wide, optimize=True)
        return np.asarray(contracted, inputs[0].dtype)

    def form(self, cell: Places, *inputs: Input) -> Term:
        takes, gives = self.axes(*(len(x.shape) for x in inputs))
        sizes = sizes_of(takes, [x.shape for x in inputs])
        place_of = dict(zip(gives, cell, strict=True))
        summed: list[Term] = []
        for axis, size in sizes.items():
            if axis not in place_of:
                i = index(size, f"i_{axis}")
                summed.append(i)
                place_of[axis] = i

        factors = [x.at(*map(place_of.__getitem__, axes)) for x, axes in zip(inputs, takes, strict=True)]
        return sum_over(summed, reduce(mul, factors))

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        takes, _ = self.axes(*map(len, inputs))
        terms = prod(sizes_of(takes, inputs).values())
        return len(inputs) * terms  # a product and a sum a term


def with_lead_numbered(axes: Sequence[str], lead: int) -> list[str]:
    """The axes with so many numbers in place of ..., the last of them 1."""
    named = [axis for axis in axes if axis != LEAD]
    if LEAD not in axes:
        return named
    return [*map(str, range(lead, 0, -1)), *named]


def sizes_of(axes: Sequence[Sequence[str]], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each axis."""
    pairs = (zip(own, shape, strict=True) for own, shape in zip(axes, shapes, strict=True))
    return dict(chain.from_iterable(pairs))


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
    linear = ((0,),)
    words = "All rows of {0} are added up."


class SumTokens(Contraction):
    """Σ over tokens, for each head."""

    signature = "... head token d -> head d"
    linear = ((0,),)
    words = "The rows of {0} are added up, head by head."


class RowDot(Backward):
    """Σ over columns of a ∘ b: delta, one number a row (D in FlashAttention)."""

    signature = "... d, ... d -> ..."
    linear = ((0,), (1,))
    words = "Each row of {0} is multiplied by that of {1}, number by number, and the products are added up."
    flops_read = 2  # a multiplication and an addition

    def apply(self, a: Array, b: Array) -> Array:
        wide = sum_type(a)
        a_wide = a.astype(wide, copy=False)
        b_wide = b.astype(wide, copy=False)
        return np.einsum("...d,...d->...", a_wide, b_wide).astype(a.dtype)

    def form(self, cell: Places, a: Input, b: Input) -> Term:
        i = index(a.shape[-1])
        return total(i, a.at(*cell, i) * b.at(*cell, i))
