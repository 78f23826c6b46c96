"""Split a difference of outputs exactly: attended elsewhere, said something else, both.

Where head_outputs are A V, their change is ΔA·V + A·ΔV + ΔA·ΔV. A key that only one sentence has
is one that nobody attended to in the other, so it belongs to ΔA·V. The parts go through concat and
W_O as they are; another W_O adds a part of its own. What is left of the recorded change (an edit
after A V, rounding, numbers that are not A V) is the rest, so that the parts always add up.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Shape
from attnctl.math.names import B_O, CONCAT, HEAD_OUTPUTS, OUTPUT, W_O, WEIGHTS, V
from attnctl.math.ops import MatMul, Merge
from attnctl.record.trace import Trace
from attnctl.verbs.diff.align import Alignment, ApartError, Pairing, Sides, pick_places, single
from attnctl.verbs.diff.elements import wide

Parts = dict[str, Array]

ELSEWHERE, SAID, BOTH = "attended_elsewhere", "said_something_else", "both"
PROJECTION, REST = "projection", "rest"

SCRATCH = 1 << 20
"""Weights that are looked at at a time."""


@dataclass(frozen=True)
class PartShare:
    """A part's size and its share of the change: shares add up to 1, some may be below 0."""

    norm: float
    share: float


@dataclass(frozen=True)
class Change:
    """The change of a step from A to B (a head of it, or all of it), and the parts it is made of.

    `cell` is the address in A of what changed most; a + Σ terms = b there. `of_output` is the
    share that a head has in the change of the last step; those of all heads, another W_O and the
    rest add up to 1.
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


def split(alignment: Alignment) -> list[Change]:
    """The change of head_outputs, head by head, then of the last step that they become.

    Raises ApartError where the traces do not hold what it takes, or in shapes that do not match.
    """
    with np.errstate(all="ignore"):
        heads = alignment.sides(HEAD_OUTPUTS)
        heads = replace(heads, a=wide(with_heads(heads.a)), b=wide(with_heads(heads.b)))
        parts = with_rest(head_parts(alignment, heads), heads)
        out = [change(heads, parts, head) for head in range(heads.a.shape[-3])]
        with suppress(ApartError):
            last, last_parts, w_o = last_step(alignment, heads, parts)
            whole = change(last, last_parts)
            shares = [head_share(heads, head, last, w_o) for head in range(len(out))]
            out = [replace(each, of_output=own) for each, own in zip(out, shares, strict=True)]
            out.append(whole)
    return out


def with_heads(array: Array) -> Array:
    """Matrices with a head axis: those without are of one head."""
    if array.ndim < 2:
        raise ApartError("head_outputs are not made of matrices")
    return array[None] if array.ndim == 2 else array


def head_parts(alignment: Alignment, heads: Sides) -> Parts:
    """ΔA·V, A·ΔV and ΔA·ΔV, each of the shape of head_outputs."""
    *weights, pairings = alignment.match_axes(WEIGHTS)
    a, b = map(with_heads, weights)
    v_a, v_b = values(alignment.a, a.shape), values(alignment.b, b.shape)
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


def values(trace: Trace, weights: Shape) -> Array:
    """The values that attention reads: V after cache and sharing, a head for each head of the weights."""
    mixes = isinstance(trace.steps[HEAD_OUTPUTS].op, MatMul)
    read = trace.steps[HEAD_OUTPUTS].inputs[1:] if mixes else ()
    names = (*read, "V_shared", "present_value", V)
    name = next((name for name in names if name in trace), None)
    if name is None:
        raise ApartError("no V beside attention_weights")
    found = with_heads(single(trace[name], len(weights)))
    times = weights[-3] // max(1, found.shape[-3])
    repeated = found if times == 1 else np.repeat(found, times, axis=-3)
    if repeated.shape[:-1] != (*weights[:-2], weights[-1]):
        raise ApartError(f"{name} does not go with attention_weights")
    return repeated


def last_step(alignment: Alignment, heads: Sides, parts: Parts) -> tuple[Sides, Parts, Array | None]:
    """The step that head_outputs become: output with the W_O of A, or concat where there is no output.

    Raises ApartError where it cannot be told from the traces.
    """
    merged = {name: Merge().apply(part) for name, part in parts.items() if name != REST}
    last = alignment.sides(OUTPUT if OUTPUT in alignment.a else CONCAT)
    last = replace(last, a=wide(last.a), b=wide(last.b))
    if last.name == CONCAT:
        return last, with_rest(merged, last), None
    w_o = alignment.sides(W_O)
    before, after = wide(w_o.a), wide(w_o.b)
    if before.shape != (merged[BOTH].shape[-1], last.a.shape[-1]):
        raise ApartError("output is not of the shape of concat W_O")
    of_heads = {name: part @ before for name, part in merged.items()}
    turned = Merge().apply(heads.b) @ (after - before) + bias(alignment.b, last) - bias(alignment.a, last)
    return last, with_rest(of_heads | {PROJECTION: turned}, last), before


def bias(trace: Trace, last: Sides) -> Array:
    found = wide(trace[B_O]) if B_O in trace else np.zeros(last.a.shape[-1:])
    if found.shape != last.a.shape[-1:]:
        raise ApartError("b_O does not go with output")
    return found


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
        norm=float(np.linalg.norm(delta)),
        parts={
            name: PartShare(float(np.linalg.norm(part[own])), share(part[own], delta))
            for name, part in parts.items()
        },
        cell=whole.cell(index[len(index) - len(whole.pairings) :]),
        a=float(a[most]),
        b=float(b[most]),
        terms={name: float(part[own][most]) for name, part in parts.items()},
    )


def head_share(heads: Sides, head: int, last: Sides, w_o: Array | None) -> float:
    own = heads.b[..., head, :, :] - heads.a[..., head, :, :]
    columns = slice(head * own.shape[-1], (head + 1) * own.shape[-1])
    delta = last.b - last.a
    if w_o is not None:
        return share(own @ w_o[columns], delta)
    alone = np.zeros_like(delta)
    alone[..., columns] = own
    return share(alone, delta)


def share(part: Array, whole: Array) -> float:
    """A part's share of the whole, by its projection on it: shares of parts that add up add up too."""
    largest = float(np.abs(whole).max(initial=0.0))
    if not largest:
        return 0.0
    unit = whole / largest
    return float(np.vdot(part / largest, unit) / np.vdot(unit, unit))
