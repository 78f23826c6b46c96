"""Steps of two traces that have different numbers of heads, laid side by side all the same.

What is made of columns (W_Q, Q, head_outputs, …) is the same tensor whatever the number of heads:
it is compared with the heads side by side. Scores and weights have a matrix for each head: where
one trace has a single head, that head is compared with every head of the other.
"""

from __future__ import annotations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import Tolerance
from attnctl.math import Array, Shape
from attnctl.math.ops import MatMulT
from attnctl.record.trace import Trace
from attnctl.verbs.diff.align import Alignment, ApartError, Pairing, Sides, pick_common, single
from attnctl.verbs.diff.elements import measure

HEAD, KEY = "head", "key"


@dataclass(frozen=True)
class SideBySide(Sides):
    """A step of both with its heads side by side; a column here is a head and a column in A."""

    def at(self, index: Shape) -> Shape:
        own = self.trace[self.name]
        *lead, column = (int(pairing.a[i]) for pairing, i in zip(self.pairings, index, strict=True))
        head, within = divmod(column, own.shape[-1])
        at = self.trace.steps[self.name].axes.index(HEAD)
        return (*lead[:at], head, *lead[at:], within)


def head_counts(alignment: Alignment, name: str) -> tuple[int, int] | None:
    """The numbers of heads of a step in A and in B where they differ."""
    counts = []
    for trace in (alignment.a, alignment.b):
        axes = trace.steps[name].axes if name in trace else ()
        if HEAD not in axes:
            return None
        counts.append(trace[name].shape[axes.index(HEAD)])
    return None if counts[0] == counts[1] else (counts[0], counts[1])


def beside_other_heads(alignment: Alignment, name: str) -> Sides:
    """A step of both though they have different numbers of heads.

    Raises ApartError where its numbers do not go together.
    """
    axes = alignment.a.steps[name].axes
    if alignment.b.steps[name].axes != axes:
        raise ApartError("other axes in B")
    return one_with_each(alignment, name) if axes[-1] == KEY else with_heads_merged(alignment, name)


def with_heads_merged(alignment: Alignment, name: str) -> Sides:
    """The columns of all heads as one axis."""
    at = alignment.a.steps[name].axes.index(HEAD)
    a, b = (merge_heads(trace[name], at) for trace in (alignment.a, alignment.b))
    axes = [axis for axis in alignment.a.steps[name].axes if axis != HEAD][:-1]
    sizes = zip(axes, a.shape[:-1], b.shape[:-1], strict=True)
    pairings = tuple(alignment.along(*each) for each in sizes)
    if a.shape[-1] != b.shape[-1]:
        raise ApartError(f"{a.shape[-1]} columns in all heads against {b.shape[-1]}")
    pairings = (*pairings, Pairing.same(a.shape[-1]))
    return SideBySide(name, *pick_common(a, b, pairings), pairings, alignment.a)


def merge_heads(array: Array, head_axis: int) -> Array:
    """(…, head, …, column) -> (…, head · column)."""
    moved = np.moveaxis(array, head_axis, -2)
    *lead, heads, columns = moved.shape
    return moved.reshape(*lead, heads * columns)


def one_with_each(alignment: Alignment, name: str) -> Sides:
    """The only head of one trace beside each head of the other."""
    axes = alignment.a.steps[name].axes
    at = axes.index(HEAD)
    a, b = alignment.a[name], alignment.b[name]
    many = max(a.shape[at], b.shape[at])
    if min(a.shape[at], b.shape[at]) != 1:
        raise ApartError(f"head: {a.shape[at]} against {b.shape[at]}")

    def along(axis: str, first: int, second: int) -> Pairing:
        if axis != HEAD:
            return alignment.along(axis, first, second)
        every, only = np.arange(many), np.zeros(many, int)
        return Pairing(every if first == many else only, every if second == many else only, first, second)

    pairings = tuple(along(*each) for each in zip(axes, a.shape, b.shape, strict=True))
    return Sides(name, *pick_common(a, b, pairings), pairings, alignment.a)


def what_the_split_did(alignment: Alignment, tolerance: Tolerance) -> list[str]:
    """Sentences on how the heads of one trace make up the single head of the other."""
    said = []
    for name, step in alignment.a.steps.items():
        counts = head_counts(alignment, name)
        if not isinstance(step.op, MatMulT) or counts is None or min(counts) != 1:
            continue
        one, many = (alignment.a, alignment.b) if counts[0] == 1 else (alignment.b, alignment.a)
        sums = sum_over_heads(many, name)
        whole = sum_over_heads(one, name)
        if sums.shape == whole.shape and not measure(sums, whole, tolerance).differing:
            which = "BA" if one is alignment.a else "AB"
            said.append(
                f"{name} of the {max(counts)} heads of {which[0]} add up to those of the one head of "
                f"{which[1]}: each head has its own columns of Q and K"
            )
    return said


def sum_over_heads(trace: Trace, name: str) -> Array:
    at = trace.steps[name].axes.index(HEAD)
    total: Array = single(trace[name].sum(axis=at, dtype=np.float64), 2)
    return total
