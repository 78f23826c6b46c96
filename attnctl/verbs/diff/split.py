"""Split a difference of outputs exactly: attended elsewhere, said something else, both.

Where head_outputs are A V, their change is ΔA·V + A·ΔV + ΔA·ΔV. A key that only one sentence has
is one that nobody attended to in the other, so it belongs to ΔA·V. The parts are pushed through the
lines of A that follow; a line that reads something else beside them in B (another W_O), or is another
line there, adds a part of its own. What is left of the recorded change (an edit after A V, rounding,
numbers that are not A V) is the rest, so that the parts always add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.linalg import norm

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.names import HEAD_OUTPUTS, W_O, WEIGHTS, V, results, where
from attnctl.math.ops import MatMul
from attnctl.record import Trace
from attnctl.record.linear import ApartError, Course, course
from attnctl.verbs.diff.align import Alignment, Pairing, Sides, pick_places, wide, without_single_axes

Parts = dict[str, Array]

ELSEWHERE = "attended_elsewhere"
SAID = "said_something_else"
BOTH = "both"
PROJECTION = "projection"
LINES = "lines"
REST = "rest"

REMADE = 0.05
"""A result is made by its usual lines if these miss it by no more than this part of its size."""

SCRATCH = 1 << 20  # weights that are looked at at a time


@dataclass(frozen=True)
class PartShare:
    """A part's size and its share of the change: shares add up to 1, some may be below 0."""

    norm: float
    share: float


@dataclass(frozen=True)
class Change:
    """The change of a step from A to B (a head of it, or all of it), and the parts it is made of.

    `cell` is the address in A of what changed most; a + Σ terms = b there. `of_output` is the
    share that a head has in the change of the last step; those of all heads, of what later lines
    read and of the rest add up to 1.
    """

    step: str
    head: int | None
    norm: float
    parts: dict[str, PartShare]
    cell: str
    a: float
    b: float
    terms: dict[str, float]
    of_output: float | None = None


def split_change(alignment: Alignment) -> tuple[list[Change], str | None]:
    """The change of head_outputs by head, then of the result, or why not of that. Raises ApartError."""
    with np.errstate(all="ignore"):
        heads = alignment.sides(HEAD_OUTPUTS)
        heads = replace(heads, a=wide(as_heads(heads.a)), b=wide(as_heads(heads.b)))
        parts = head_parts(alignment, heads)
        parts_of_heads = with_rest(parts, heads)
        changes = [change(heads, parts_of_heads, head) for head in range(heads.a.shape[-3])]

        *_, last_result = (name for name in results() if name in alignment.a and name in alignment.b)
        if last_result == HEAD_OUTPUTS:
            return changes, None
        try:
            return in_result(changes, parts, Onward(alignment, heads, last_result)), None
        except ApartError as error:
            return changes, str(error)


def in_result(heads: Sequence[Change], parts: Parts, onward: Onward) -> list[Change]:
    """The changes of the heads, each with its share in that of the result, and that one."""
    last = onward.last
    pushed = {name: onward.push(part) for name, part in parts.items()} | onward.otherwise()
    change_of_result = change(last, with_rest(pushed, last))

    moved = onward.heads.b - onward.heads.a
    changes = []
    for head, only_this in zip(heads, np.eye(len(heads))[:, :, None, None], strict=True):
        pushed_alone = onward.push(moved * only_this)
        changes.append(replace(head, of_output=share(pushed_alone, last.b - last.a)))
    return [*changes, change_of_result]


def as_heads(array: Array) -> Array:
    """Matrices with a head axis: those without are of one head."""
    if array.ndim < 2:
        raise ApartError("head_outputs are not made of matrices")
    return array[None] if array.ndim == 2 else array


def head_parts(alignment: Alignment, heads: Sides) -> Parts:
    """ΔA·V, A·ΔV and ΔA·ΔV, each of the shape of head_outputs."""
    weights = alignment.match_axes(weights_read(alignment.a), weights_read(alignment.b))
    a = as_heads(weights.a)
    b = as_heads(weights.b)
    values_a = values_read(alignment.a, a.shape)
    values_b = values_read(alignment.b, b.shape)
    *_, queries, keys = weights.pairings
    for values in (values_a, values_b):
        if (*a.shape[:-2], len(queries.a), values.shape[-1]) != heads.a.shape:
            raise ApartError("head_outputs are not of the shape of A V")

    parts = {name: np.empty(heads.a.shape) for name in (ELSEWHERE, SAID, BOTH)}
    at_once = max(1, SCRATCH // max(1, a.shape[-1]))  # as many queries as keep their weights few
    for head in np.ndindex(*a.shape[:-2]):
        wide_values_a = wide(values_a[head])
        wide_values_b = wide(values_b[head])
        for start in range(0, len(queries.a), at_once):
            rows = slice(start, start + at_once)
            weights_a = wide(a[head][queries.a[rows]])
            weights_b = wide(b[head][queries.b[rows]])
            of_rows = row_parts(weights_a, weights_b, wide_values_a, wide_values_b, keys)
            for name, part in of_rows.items():
                parts[name][head][rows] = part
    return parts


def row_parts(a: Array, b: Array, v_a: Array, v_b: Array, keys: Pairing) -> Parts:
    """The parts for some queries: weights (query, key), values (key, d_v) -> (query, d_v) each."""
    keys_a = None if keys.whole else keys.a
    keys_b = None if keys.whole else keys.b
    values = pick_places(v_a, [keys_a])
    weights = pick_places(a, [None, keys_a])
    weights_change = pick_places(b, [None, keys_b]) - weights
    values_change = pick_places(v_b, [keys_b]) - values

    elsewhere = weights_change @ values
    if not keys.whole:
        elsewhere += b[:, keys.only_b] @ v_b[keys.only_b] - a[:, keys.only_a] @ v_a[keys.only_a]

    if not values_change.any():  # as in every edit of weights: two products less
        nothing = np.zeros_like(elsewhere)
        return {ELSEWHERE: elsewhere, SAID: nothing, BOTH: nothing}
    return {ELSEWHERE: elsewhere, SAID: weights @ values_change, BOTH: weights_change @ values_change}


def factors_of_outputs(trace: Trace) -> tuple[str, ...]:
    """A and V as head_outputs were made of them; nothing where their line does not say so."""
    line = trace.steps[HEAD_OUTPUTS]
    return line.inputs if isinstance(line.op, MatMul) else ()


def weights_read(trace: Trace) -> str:
    return (*factors_of_outputs(trace), WEIGHTS)[0]


def values_read(trace: Trace, weights: Shape) -> Array:
    """The values that attention reads, or the last ones recorded, a head for each head of the weights."""
    candidates = (*factors_of_outputs(trace)[1:], *reversed(where(lambda row: row.symbol == V)))
    name = next((name for name in candidates if name in trace), None)
    if name is None:
        raise ApartError(f"no V beside {weights_read(trace)}")

    values = as_heads(without_single_axes(trace[name], len(weights)))
    queries_a_head = weights[-3] // max(1, values.shape[-3])
    if queries_a_head != 1:
        values = np.repeat(values, queries_a_head, axis=-3)
    if values.shape[:-1] != (*weights[:-2], weights[-1]):
        raise ApartError(f"{name} does not go with {weights_read(trace)}")
    return values


class Onward:
    """The lines that make a result of head_outputs, in A and in B. Parts are laid out as in A."""

    def __init__(self, alignment: Alignment, heads: Sides, end: str) -> None:
        self.alignment = alignment
        self.heads = heads
        last = alignment.sides(end)
        self.last = replace(last, a=wide(last.a), b=wide(last.b))
        self.a = self.course(alignment.a)
        self.b = self.course(alignment.b)

    def course(self, trace: Trace) -> Course:
        """The lines of one trace. Raises ApartError where the usual ones do not make its result."""
        begin = without_single_axes(wide(as_heads(trace[HEAD_OUTPUTS])), self.heads.a.ndim)
        end = self.last.name
        lines = course(trace, HEAD_OUTPUTS, end, begin)
        if lines is None:
            raise ApartError(f"nothing says how {end} follows from {HEAD_OUTPUTS}")
        if lines.stated:
            return lines

        made = lines.value(end)
        recorded = trace[end]
        if made.shape == recorded.shape and norm(made - recorded) > REMADE * norm(made):
            raise ApartError(f"{end} is not {lines.lines[end].formula}, and nothing says what it is")
        return lines

    def push(self, part: Array, step: str = HEAD_OUTPUTS) -> Array:
        """What comes of a part in the result, at the places that both have."""
        if step == HEAD_OUTPUTS:
            part = place_in_a(part, self.heads.pairings, self.a.value(step).shape)
        pushed = without_single_axes(self.a.push(step, part), self.last.a.ndim)
        if pushed.ndim != self.last.a.ndim:
            raise ApartError(f"{self.last.name} is not of the shape that its line makes")
        return pick_places(pushed, [None if pairing.whole else pairing.a for pairing in self.last.pairings])

    def otherwise(self) -> Parts:
        """What comes of each line that is another in B, or reads other numbers there beside the heads."""
        parts: Parts = {}
        for name, line in self.a.lines.items():
            beside = [input_ for input_ in line.inputs if not self.a.follows(input_)]
            part = self.push(self.moved(name) - self.by_a(name), name)
            if not beside and not part.any():
                continue

            cause = self.cause(name, beside)
            parts[cause] = parts[cause] + part if cause in parts else part
        return parts

    def cause(self, name: str, beside: Sequence[str]) -> str:
        """What makes a line another one in B: what it reads beside the heads, or its op and inputs."""
        line_a = self.a.lines[name]
        line_b = self.b.lines.get(name)
        is_same = line_b is not None and (line_b.op, line_b.inputs) == (line_a.op, line_a.inputs)
        if not is_same or not beside:
            return LINES
        return PROJECTION if beside[0] == W_O else beside[0]

    def moved(self, name: str) -> Array:
        """What the lines of B make of its heads, at the places of A."""
        if name == HEAD_OUTPUTS:
            return place_in_a(self.heads.b, self.heads.pairings, self.a.value(name).shape)
        if name not in self.b.lines:
            return self.by_a(name)

        value_b = self.b.value(name)
        if all(pairing.whole for pairing in self.heads.pairings):
            return value_b
        shape = self.a.value(name).shape
        axes = self.a.lines[name].axes[-len(shape) :]
        pairings = [self.alignment.along(*sizes) for sizes in zip(axes, shape, value_b.shape, strict=True)]
        return place_in_a(pick_places(value_b, [pairing.b for pairing in pairings]), pairings, shape)

    def by_a(self, name: str) -> Array:
        """What a line of A makes of the heads of B."""
        line = self.a.lines[name]
        moved = {input_: self.moved(input_) for input_ in line.inputs if self.a.follows(input_)}
        return self.a.carry_out(line, moved)


def place_in_a(part: Array, pairings: Sequence[Pairing], shape: Shape) -> Array:
    """Numbers of the places that both have at those of A, which are of this shape; 0 at the others."""
    if all(pairing.whole for pairing in pairings):
        return part
    out = np.zeros(shape)
    lead = map(np.arange, shape[: len(shape) - len(pairings)])
    out[np.ix_(*lead, *(pairing.a for pairing in pairings))] = part
    return out


def with_rest(parts: Parts, whole: Sides) -> Parts:
    if any(part.shape != whole.a.shape for part in parts.values()):
        raise ApartError(f"{whole.name} is not of the shape that its heads make")
    return parts | {REST: whole.b - whole.a - sum(parts.values())}


def change(whole: Sides, parts: Parts, head: int | None = None) -> Change:
    """The sizes and shares of the parts, over one head or everything, and the place that changed most."""
    part_shown = ... if head is None else (..., head, slice(None), slice(None))
    a = whole.a[part_shown]
    b = whole.b[part_shown]
    shown = {name: part[part_shown] for name, part in parts.items()}
    delta = b - a
    if not all(np.isfinite(array).all() for array in (delta, *shown.values())):
        raise ApartError("not every number is finite")

    farthest = np.unravel_index(np.abs(delta).argmax(), delta.shape)
    most = tuple(map(int, farthest))
    in_whole = most if head is None else (*most[:-2], head, *most[-2:])
    count = len(whole.pairings)  # leading axes of one place have none

    shares: dict[str, PartShare] = {}
    terms: dict[str, float] = {}
    for name, part in shown.items():
        shares[name] = PartShare(float(norm(part)), share(part, delta))
        terms[name] = float(part[most])

    return Change(
        step=whole.name,
        head=head,
        norm=float(norm(delta)),
        parts=shares,
        cell=whole.cell(in_whole[len(in_whole) - count :]),
        a=float(a[most]),
        b=float(b[most]),
        terms=terms,
    )


def share(part: Array, whole: Array) -> float:
    """A part's share of the whole, by its projection on it: shares of parts that add up add up too."""
    largest = float(np.abs(whole).max(initial=0.0))
    if not largest:
        return 0.0
    unit = whole / largest
    return float(np.vdot(part / largest, unit) / np.vdot(unit, unit))
