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

ELSEWHERE, SAID, BOTH = "attended_elsewhere", "said_something_else", "both"
PROJECTION, LINES, REST = "projection", "lines", "rest"
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
        out = [change(heads, with_rest(parts, heads), head) for head in range(heads.a.shape[-3])]
        end = [name for name in results() if name in alignment.a and name in alignment.b][-1]
        if end == HEAD_OUTPUTS:
            return out, None
        try:
            return in_result(out, parts, Onward(alignment, heads, end)), None
        except ApartError as error:
            return out, str(error)


def in_result(heads: Sequence[Change], parts: Parts, onward: Onward) -> list[Change]:
    """The changes of the heads, each with its share in that of the result, and that one."""
    last = onward.last
    whole = {name: onward.push(part) for name, part in parts.items()} | onward.otherwise()
    found = change(last, with_rest(whole, last))
    moved = onward.heads.b - onward.heads.a
    alone = (moved * own for own in np.eye(len(heads))[:, :, None, None])
    shares = (share(onward.push(name), last.b - last.a) for name in alone)
    return [*(replace(head, of_output=own) for head, own in zip(heads, shares, strict=True)), found]


def as_heads(array: Array) -> Array:
    """Matrices with a head axis: those without are of one head."""
    if array.ndim < 2:
        raise ApartError("head_outputs are not made of matrices")
    return array[None] if array.ndim == 2 else array


def head_parts(alignment: Alignment, heads: Sides) -> Parts:
    """ΔA·V, A·ΔV and ΔA·ΔV, each of the shape of head_outputs."""
    *weights, pairings = alignment.match_axes(weights_read(alignment.a), weights_read(alignment.b))
    a, b = map(as_heads, weights)
    v_a, v_b = values_read(alignment.a, a.shape), values_read(alignment.b, b.shape)
    *_, queries, keys = pairings
    for v in (v_a, v_b):
        if (*a.shape[:-2], len(queries.a), v.shape[-1]) != heads.a.shape:
            raise ApartError("head_outputs are not of the shape of A V")
    parts = {name: np.empty(heads.a.shape) for name in (ELSEWHERE, SAID, BOTH)}
    at_once = max(1, SCRATCH // max(1, a.shape[-1]))  # as many queries as keep their weights few
    for head in np.ndindex(*a.shape[:-2]):
        both_values = wide(v_a[head]), wide(v_b[head])
        for start in range(0, len(queries.a), at_once):
            rows = slice(start, start + at_once)
            own = wide(a[head][queries.a[rows]]), wide(b[head][queries.b[rows]])
            for name, part in row_parts(*own, *both_values, keys).items():
                parts[name][head][rows] = part
    return parts


def row_parts(a: Array, b: Array, v_a: Array, v_b: Array, keys: Pairing) -> Parts:
    """The parts for some queries: weights (query, key), values (key, d_v) -> (query, d_v) each."""
    in_a, in_b = (None, None) if keys.whole else (keys.a, keys.b)
    said, weights = pick_places(v_a, [in_a]), pick_places(a, [None, in_a])
    turned = pick_places(b, [None, in_b]) - weights
    changed = pick_places(v_b, [in_b]) - said
    elsewhere = turned @ said
    if not keys.whole:
        elsewhere += b[:, keys.only_b] @ v_b[keys.only_b] - a[:, keys.only_a] @ v_a[keys.only_a]
    if not changed.any():
        nothing = np.zeros_like(elsewhere)
        return {ELSEWHERE: elsewhere, SAID: nothing, BOTH: nothing}
    return {ELSEWHERE: elsewhere, SAID: weights @ changed, BOTH: turned @ changed}


def factors_of_outputs(trace: Trace) -> tuple[str, ...]:
    """A and V as head_outputs were made of them; nothing where their line does not say so."""
    line = trace.steps[HEAD_OUTPUTS]
    return line.inputs if isinstance(line.op, MatMul) else ()


def weights_read(trace: Trace) -> str:
    return (*factors_of_outputs(trace), WEIGHTS)[0]


def values_read(trace: Trace, weights: Shape) -> Array:
    """The values that attention reads, or the last ones recorded, a head for each head of the weights."""
    names = (*factors_of_outputs(trace)[1:], *reversed(where(lambda row: row.symbol == V)))
    name = next((name for name in names if name in trace), None)
    if name is None:
        raise ApartError(f"no V beside {weights_read(trace)}")
    found = as_heads(without_single_axes(trace[name], len(weights)))
    times = weights[-3] // max(1, found.shape[-3])
    repeated = found if times == 1 else np.repeat(found, times, axis=-3)
    if repeated.shape[:-1] != (*weights[:-2], weights[-1]):
        raise ApartError(f"{name} does not go with {weights_read(trace)}")
    return repeated


class Onward:
    """The lines that make a result of head_outputs, in A and in B. Parts are laid out as in A."""

    def __init__(self, alignment: Alignment, heads: Sides, end: str) -> None:
        self.alignment, self.heads = alignment, heads
        last = alignment.sides(end)
        self.last = replace(last, a=wide(last.a), b=wide(last.b))
        self.a, self.b = (self.course(trace) for trace in (alignment.a, alignment.b))

    def course(self, trace: Trace) -> Course:
        """The lines of one trace. Raises ApartError where the usual ones do not make its result."""
        begin = without_single_axes(wide(as_heads(trace[HEAD_OUTPUTS])), self.heads.a.ndim)
        end = self.last.name
        found = course(trace, HEAD_OUTPUTS, end, begin)
        if found is None:
            raise ApartError(f"nothing says how {end} follows from {HEAD_OUTPUTS}")
        if not found.stated:
            made, recorded = found.value(end), trace[end]
            # What is further off than this part of its size is not made by the lines that usually make it.
            if made.shape == recorded.shape and norm(made - recorded) > 0.05 * norm(made):
                formula = found.lines[end].formula
                raise ApartError(f"{end} is not {formula}, and nothing says what it is")
        return found

    def push(self, part: Array, step: str = HEAD_OUTPUTS) -> Array:
        """What comes of a part in the result, at the places that both have."""
        if step == HEAD_OUTPUTS:
            part = place_in_a(part, self.heads.pairings, self.a.value(step).shape)
        found = without_single_axes(self.a.push(step, part), self.last.a.ndim)
        if found.ndim != self.last.a.ndim:
            raise ApartError(f"{self.last.name} is not of the shape that its line makes")
        return pick_places(found, [None if pairing.whole else pairing.a for pairing in self.last.pairings])

    def otherwise(self) -> Parts:
        """What comes of each line that is another in B, or reads other numbers there beside the heads."""
        found: Parts = {}
        for name, line in self.a.lines.items():
            theirs = self.b.lines.get(name)
            beside = [input_ for input_ in line.inputs if not self.a.follows(input_)]
            is_same = theirs is not None and (theirs.op, theirs.inputs) == (line.op, line.inputs)
            part = self.push(self.moved(name) - self.by_a(name), name)
            if beside or part.any():
                why = beside[0] if is_same and beside else LINES
                why = PROJECTION if why == W_O else why
                found[why] = found[why] + part if why in found else part
        return found

    def moved(self, name: str) -> Array:
        """What the lines of B make of its heads, at the places of A."""
        if name == HEAD_OUTPUTS:
            return place_in_a(self.heads.b, self.heads.pairings, self.a.value(name).shape)
        if name not in self.b.lines:
            return self.by_a(name)
        found = self.b.value(name)
        if all(pairing.whole for pairing in self.heads.pairings):
            return found
        shape = self.a.value(name).shape
        axes = self.a.lines[name].axes[-len(shape) :]
        pairings = [self.alignment.along(*sizes) for sizes in zip(axes, shape, found.shape, strict=True)]
        return place_in_a(pick_places(found, [pairing.b for pairing in pairings]), pairings, shape)

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
    own = ... if head is None else (..., head, slice(None), slice(None))
    a, b = whole.a[own], whole.b[own]
    delta = b - a
    if not np.isfinite(delta).all() or not all(np.isfinite(part[own]).all() for part in parts.values()):
        raise ApartError("not every number is finite")
    most = tuple(map(int, np.unravel_index(np.abs(delta).argmax(), delta.shape)))
    index = most if head is None else (*most[:-2], head, *most[-2:])
    return Change(
        step=whole.name,
        head=head,
        norm=float(norm(delta)),
        parts={
            name: PartShare(float(norm(part[own])), share(part[own], delta)) for name, part in parts.items()
        },
        cell=whole.cell(index[len(index) - len(whole.pairings) :]),
        a=float(a[most]),
        b=float(b[most]),
        terms={name: float(part[own][most]) for name, part in parts.items()},
    )


def share(part: Array, whole: Array) -> float:
    """A part's share of the whole, by its projection on it: shares of parts that add up add up too."""
    largest = float(np.abs(whole).max(initial=0.0))
    if not largest:
        return 0.0
    unit = whole / largest
    return float(np.vdot(part / largest, unit) / np.vdot(unit, unit))
