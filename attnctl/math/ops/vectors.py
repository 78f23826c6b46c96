"""Ops on rows: what makes Q, K and V of a sentence, and a sentence of the heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.axes import rearrange
from attnctl.math.notation import Input, Term, call, entry, index, index_number, total, where
from attnctl.math.ops.base import Backward, Gradient, Gradients, Line, Op, Places, sum_type
from attnctl.math.ops.products import Contraction, SumTokens, times_heads
from attnctl.math.rules import PerBatch, per_batch, place_in_document


@dataclass(frozen=True)
class Sinusoid(Op):
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

    signature = "-> length d_model"
    words = "Each position gets a row of sines and cosines, whose waves grow longer by column."
    flops = 2  # a division and a function

    length: int
    d_model: int
    start: int = 0
    documents: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    """The position of each row, where they are given."""

    @property
    def positions_of_rows(self) -> Array:
        """The position of each row; in each document from 0 on, unless they are given."""
        if self.given:
            return np.array(self.given)
        return place_in_document(np.arange(self.start, self.start + self.length), self.documents)

    def apply(self) -> Array:
        return sinusoids(self.positions_of_rows, self.d_model)

    def form(self, cell: Places) -> Term:
        token, column = cell
        pairs = np.arange((self.d_model + 1) // 2)
        divisors = np.array([10000.0 ** (2 * int(pair) / self.d_model) for pair in pairs])
        is_counted = not (self.documents or self.given)
        place = index_number(token + self.start) if is_counted else entry(self.positions_of_rows, token)
        angle = place / entry(divisors, column // 2)
        return where(column % 2 < 1, call("sin", angle), call("cos", angle))

    def adjoint(self, line: Line, d: str) -> Gradients:
        return iter(())


class Project(Op):
    """X W (+ b), for every head at once."""

    signature = "... token d_model, head d_model d[, head d] -> ... head token d"
    linear = ((0, 2), (1, 2))
    words = "Each row of {0} is multiplied by {1}[, and {2} is added]: each head has columns of its own."
    flops_term = 2  # a product and a sum

    def apply(self, x: Array, w: Array, *b: Array) -> Array:
        out = times_heads(x, w)
        return out + b[0][:, None, :] if b else out

    def form(self, cell: Places, x: Input, w: Input, *b: Input) -> Term:
        *batch, head, token, column = cell
        i = index(x.shape[-1])
        product = total(i, x.at(*batch, token, i) * w.at(head, i, column))
        return product + b[0].at(head, column) if b else product

    def adjoint(self, line: Line, d: str) -> Gradients:
        x, w, *b = line.inputs
        yield Gradient(x, ProjectBack(), (d, w), f"Σ over heads of {d} {w}ᵀ")
        yield Gradient(w, ProjectWeights(), (x, d), f"{x}ᵀ {d}")
        for bias in b:
            yield Gradient(bias, SumTokens(), (d,), f"Σ over tokens of {d}")


class ProjectBack(Contraction):
    """Σ over heads of d wᵀ: what all heads ask of a row that they share."""

    signature = "... head token d, head d_model d -> ... token d_model"
    words = "Each row of {0} is multiplied by each row of {1}, and what the heads ask for is added up."


class ProjectWeights(Contraction):
    """xᵀ d for each head, summed over all tokens."""

    signature = "... token d_model, ... head token d -> head d_model d"
    words = (
        "Each column of {0} is multiplied by each of {1}, and the products are added up over the tokens."
    )


GivenPlaces = tuple[tuple[tuple[int, ...], ...], ...]
"""Positions that are given: (1 or 3, members or 1, token)."""


def own_pairs(pairs: int) -> int:
    """How many pairs height and width have each: 20 of 64, as Qwen3-VL has it."""
    return pairs * 5 // 16


@dataclass(frozen=True)
class Rotate(Op):
    """Rotary positions (Su et al. 2021): pairs of columns turned by position · θ^(−2i/dims).

    `frequencies` are given where θ does not say them (an angle is position · frequency), and
    `factor` multiplies what is turned (YaRN). Columns before `first` are not turned. A gradient is
    turned `back`. Positions start again in each of the `documents`, which begin there.

    Where positions are given, `places` has them for each member of the batch (or all): one row; or three,
    of time, height and width. `sections` are then the pairs of columns that go by each, one behind the
    other (Qwen2-VL), or `sections_in_turn`; in turn, too, where they are left out (Qwen3-VL).
    """

    signature = "batch? head? token d -> batch? head? token d"
    linear = ((0,),)
    flops = 3  # two products and a sum

    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False
    start: PerBatch = 0
    frequencies: tuple[float, ...] = ()
    factor: float = 1.0
    first: int = 0
    back: bool = False
    documents: tuple[int, ...] = ()
    places: GivenPlaces = ()
    other: tuple[float, ...] = ()
    """Frequencies that are for texts of another length, and not read here."""
    sections: tuple[int, ...] = ()
    sections_in_turn: bool = False

    @property
    def words(self) -> str:
        turned = "turned back" if self.back else "turned"
        how = "pair of columns by pair, by an angle that grows with its position"
        return f"Each row of {{0}} is {turned}, {how}."

    def angles(self, x: Array | Input) -> Array:
        """The angle of each token and pair, ([batch, 1,] token, dims/2)."""
        if self.back:
            return -replace(self, back=False).angles(x)
        if self.places:
            return self.angles_at_places(x)
        places = np.arange(x.shape[-2]) + per_batch(self.start, axes=2)
        positions = place_in_document(places, self.documents)
        if self.frequencies:
            # In the type of the numbers: models multiply in float32, which tells at far positions.
            wide = np.result_type(x.dtype, np.float32)
            return positions.astype(wide)[..., None] * np.array(self.frequencies, wide)
        dims = self.dims or x.shape[-1] - self.first
        pair = np.arange(dims // 2)
        return positions[..., None] * self.theta ** (-2.0 * pair / dims)  # Su et al. 2021, equation 15

    def angles_at_places(self, x: Array | Input) -> Array:
        """The angles at positions that were given: of pair i those of time, height or width."""
        alone = replace(self, places=(), start=0, documents=())
        two_rows = np.zeros((1, 2, x.shape[-1]), x.dtype)
        frequencies = alone.angles(two_rows)[-1]  # the second row stands at position 1

        places = np.array(self.places)  # (1 or 3, 1 or batch, token)
        given = places.shape[-1]
        tokens = x.shape[-2]
        if given != tokens:
            raise ValueError(f"{given} positions for {tokens} tokens")

        row_of_pair = self.rows_of_pairs(len(frequencies))
        by_pair = np.moveaxis(places[row_of_pair], 0, -1)
        angles = by_pair.astype(frequencies.dtype) * frequencies
        return angles[0] if len(angles) == 1 else angles[:, None]

    def rows_of_pairs(self, pairs: int) -> Array:
        """Which row of positions each pair goes by: T T H H W W; or T H W T H W …, T where others end."""
        if len(self.places) == 1:
            return np.zeros(pairs, int)
        if self.sections and not self.sections_in_turn:
            return np.repeat(np.arange(3), self.sections)

        own = self.sections or (pairs - 2 * own_pairs(pairs), *[own_pairs(pairs)] * 2)
        pair = np.arange(pairs)
        row = pair % 3
        return np.where(pair < 3 * np.array(own)[row], row, 0)

    def apply(self, x: Array) -> Array:
        angle = self.angles(x)
        cos = np.cos(angle).astype(x.dtype)
        sin = np.sin(angle).astype(x.dtype)
        if self.factor != 1:
            cos = cos * x.dtype.type(self.factor)
            sin = sin * x.dtype.type(self.factor)
        return rotate(x, cos, sin, interleaved=self.interleaved, start=self.first)

    def form(self, cell: Places, x: Input) -> Term:
        """a·cos α − b·sin α for the first of a pair, a·sin α + b·cos α for the second."""
        *row, column = cell
        angles = self.angles(x)
        pairs = angles.shape[-1]

        # The pair that the column belongs to, and where its two columns stand.
        turning = column - self.first
        if self.interleaved:
            pair = turning // 2
            first = self.first + 2 * pair
            second = first + 1
            is_first = turning % 2 < 1
        else:
            pair = turning % pairs
            first = self.first + pair
            second = first + pairs
            is_first = turning < pairs

        angle = entry(angles, *row, pair)
        cos = call("cos", angle)
        sin = call("sin", angle)
        if self.factor != 1:
            cos = self.factor * cos
            sin = self.factor * sin

        a = x.at(*row, first)
        b = x.at(*row, second)
        turned = where(is_first, a * cos - b * sin, a * sin + b * cos)

        as_it_is = x.at(*cell)
        if self.first + 2 * pairs < x.shape[-1]:
            turned = where(turning < 2 * pairs, turned, as_it_is)
        if self.first:
            turned = where(column < self.first, as_it_is, turned)
        return turned

    def adjoint(self, line: Line, d: str) -> Gradients:
        back = replace(self, back=not self.back)
        yield Gradient(line.inputs[0], back, (d,), f"{d} turned back by the same angle")


class Append(Op):
    """New keys (or values) after the past ones, along the key axis."""

    signature = "... past d, ... new d -> ... (past + new) d"
    linear = ((0, 1),)
    words = "The rows of {1} are put behind those of {0}, which were kept from before."

    def apply(self, past: Array, new: Array) -> Array:
        return np.concatenate((past, new), axis=-2)

    def form(self, cell: Places, past: Input, new: Input) -> Term:
        *lead, row, column = cell
        count = past.shape[-2]
        return where(row < count, past.at(*cell), new.at(*lead, row - count, column))

    def adjoint(self, line: Line, d: str) -> Gradients:
        past, new = line.inputs
        yield Gradient(past, Rows(), (d, past), f"the first rows of {d}")
        yield Gradient(new, Rows(last=True), (d, new), f"the last rows of {d}")


@dataclass(frozen=True)
class Rows(Backward):
    """The first rows, or the last, as many as another array has."""

    signature = "... (part + rest) d, ... part d -> ... part d"
    linear = ((0,),)
    words = "Of {0} the rows that came from {1}."

    last: bool = False

    def apply(self, d: Array, part: Array) -> Array:
        count = part.shape[-2]
        return d[..., d.shape[-2] - count :, :] if self.last else d[..., :count, :]

    def form(self, cell: Places, d: Input, part: Input) -> Term:
        *lead, row, column = cell
        if not self.last:
            return d.at(*cell)
        before = d.shape[-2] - part.shape[-2]
        return d.at(*lead, row + before, column)


@dataclass(frozen=True)
class Repeat(Op):
    """Each kv head serves `times` query heads in a row: h0 h0 h1 h1 (Ainslie et al. 2023)."""

    signature = "... head key d -> ... (head times) key d"
    linear = ((0,),)
    words = "Each head of {0} is used by {op.times} query heads."

    times: int

    def apply(self, x: Array) -> Array:
        return np.repeat(x, self.times, axis=-3)

    def form(self, cell: Places, x: Input) -> Term:
        *lead, head, row, column = cell
        return x.at(*lead, head // self.times, row, column)

    def adjoint(self, line: Line, d: str) -> Gradients:
        formula = f"Σ over the {self.times} heads of a group of {d}"
        yield Gradient(line.inputs[0], SumGroups(self.times), (d,), formula)


@dataclass(frozen=True)
class SumGroups(Backward):
    """The sum over the query heads that one kv head serves."""

    signature = "... (group times) key d -> ... group key d"
    linear = ((0,),)
    words = "The {0} of the {op.times} query heads that share one head are added up."
    flops_read = 1  # an addition

    times: int

    def shape(self, *inputs: Shape) -> Shape:
        *lead, heads, keys, d = inputs[0]
        return (*lead, heads // self.times, keys, d)

    def apply(self, x: Array) -> Array:
        groups = rearrange(x, "... (group times) key d -> ... group times key d", times=self.times)
        return groups.sum(axis=-3, dtype=sum_type(x)).astype(x.dtype, copy=False)

    def form(self, cell: Places, x: Input) -> Term:
        *lead, head, row, column = cell
        i = index(self.times)
        return total(i, x.at(*lead, head * self.times + i, row, column))


class Merge(Op):
    """The heads side by side: h0 h0 h1 h1 along the columns."""

    signature = "... head query d -> ... query (head d)"
    linear = ((0,),)
    words = "The {0} of all heads are put side by side, a row for each query."

    def apply(self, z: Array) -> Array:
        return rearrange(z, "... head query d -> ... query (head d)")

    def form(self, cell: Places, z: Input) -> Term:
        *batch, query, column = cell
        width = z.shape[-1]
        return z.at(*batch, column // width, query, column % width)

    def adjoint(self, line: Line, d: str) -> Gradients:
        (z,) = line.inputs
        yield Gradient(z, Split(), (d, z), f"{d}, head by head")


class Split(Backward):
    """The columns of each head, which stood side by side."""

    signature = "... query (head d), ... head query d -> ... head query d"
    linear = ((0,),)
    words = "The columns of {0} are given back to their heads."

    def apply(self, d: Array, z: Array) -> Array:
        return rearrange(d, "... query (head d) -> ... head query d", head=z.shape[-3])

    def form(self, cell: Places, d: Input, z: Input) -> Term:
        *batch, head, query, column = cell
        return d.at(*batch, query, head * z.shape[-1] + column)


# --- positions ---


def sinusoids(places: Array, d_model: int) -> Array:
    """sin of pos / 10000^(2⌊c/2⌋/d_model) in even columns, cos in odd ones -> (token, d_model)."""
    column = np.arange(d_model)
    angle = places[:, None] / 10000.0 ** (2 * (column // 2) / d_model)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def rotary_pairs(dims: int, *, interleaved: bool, start: int = 0) -> tuple[slice, slice]:
    """The columns (first, second) of each rotated pair from `start` on: neighbours, or a half apart."""
    stop = start + dims
    middle = start + dims // 2
    if interleaved:
        return slice(start, stop, 2), slice(start + 1, stop, 2)
    return slice(start, middle), slice(middle, stop)


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool = False, start: int = 0) -> Array:
    """Turn each pair of columns of x (..., token, d) by its angle, (..., token, dims/2).

    Pairs begin at column `start`; columns before it and beyond 2 · (dims/2) pass through (partial
    rotary). Half-split pairs are Llama's and GPT-NeoX's; interleaved pairs are GPT-J's and the
    RoFormer paper's.
    """
    first, second = rotary_pairs(2 * cos.shape[-1], interleaved=interleaved, start=start)
    a = x[..., first]
    b = x[..., second]
    out = x.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out
