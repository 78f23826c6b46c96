"""A part of a record: its first queries, or one of its heads, as a record of its own.

Attention is local to a query's row, so what is computed of scores for the first queries is what it is
for all, and a mistake that is made in every row shows there. What scores are computed from stays whole:
the steps that read it read its first rows (`Rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.trace import Trace
from attnctl.evidence.record import Record
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Copy, Op

SCORES = "scores"
BESIDE = {"head": "heads·d_v"}
"""What heads are named where they stand side by side."""


@dataclass(frozen=True)
class Rows(Op):
    """So many rows of an array, the first ones; nothing is rounded."""

    exact = True
    count: int = 0

    def apply(self, *inputs: Array) -> Array:
        """(..., token, d) -> (..., count, d)."""
        return inputs[0][..., : self.count, :]


@dataclass(frozen=True)
class Part:
    """A part of a record, and the derivation of the whole as it reads there."""

    record: Record
    derivation: Derivation
    whole: Mapping[str, Step] = field(default_factory=dict)
    """Steps that read first rows here -> as they are in the whole."""

    def widened(self, derivation: Derivation) -> Derivation:
        """A derivation of the part, as it reads in the whole."""
        source = {step.name: step.inputs[0] for step in derivation if isinstance(step.op, Rows)}
        kept = (step for step in derivation if step.name not in source)
        return Derivation(tuple(self.widened_step(step, source) for step in kept))

    def widened_step(self, step: Step, source: Mapping[str, str]) -> Step:
        if step.name in self.whole and step is self.derivation[step.name]:
            return self.whole[step.name]
        inputs, op = tuple(source.get(name, name) for name in step.inputs), widened_op(step.op)
        return step if inputs == step.inputs and op is step.op else replace(step, op=op, inputs=inputs)


def widened_op(op: Any) -> Any:
    """An op, and the ops within it, of all rows where it is of the first ones."""
    if isinstance(op, Rows):
        return Copy()
    within = {each.name: getattr(op, each.name) for each in fields(op)}
    changed = {
        name: new
        for name, old in within.items()
        if isinstance(old, Op) and (new := widened_op(old)) is not old
    }
    return replace(op, **changed) if changed else op


def first_rows(record: Record, derivation: Derivation, rows: int) -> Part:
    """The first queries of every head; of a derivation without scores, all of it."""
    later = follow(derivation, SCORES)
    whole = {step.name: step for step in derivation if step.name in later}
    arrays = {
        name: cut(record, name, {"query": rows}) if name in later or is_of_scores(record, name) else array
        for name, array in record.trace.items()
    }
    cut_record = with_arrays(record, arrays, cut_derivation(record.intended, later, rows))
    return Part(cut_record, cut_derivation(derivation, later, rows), whole)


def one_head(record: Record, derivation: Derivation) -> Part:
    """The first head alone, without what has the heads side by side."""
    arrays = {
        name: cut(record, name, {"head": 1, "batch": 1})
        for name in record.trace
        if BESIDE["head"] not in axes_of(record, name)
    }
    return Part(with_arrays(record, arrays, record.intended), derivation)


def follow(derivation: Derivation, name: str) -> set[str]:
    """A step and all that is computed from it."""
    found = {name} if name in derivation else set()
    for step in derivation:
        if not found.isdisjoint(step.inputs):
            found.add(step.name)
    return found


def cut_derivation(derivation: Derivation, later: Collection[str], rows: int) -> Derivation:
    """The derivation in which these steps read the first rows of what has a row for each query."""
    steps: dict[str, Step] = {}
    source = {step.name: step for step in derivation if has_rows(step) and step.name not in later}
    for step in derivation:
        cut = {
            name: f"first rows of {name}" for name in step.inputs if step.name in later and name in source
        }
        for name, new in cut.items():
            steps.setdefault(new, Step(new, Rows(rows), (name,), source[name].axes, "", ""))
        inputs = tuple(cut.get(name, name) for name in step.inputs)
        steps[step.name] = replace(step, inputs=inputs) if cut else step
    return Derivation(tuple(steps.values()))


def has_rows(step: Step) -> bool:
    """True where a step has a row for each query, and is not of scores."""
    return step.axes[-2:-1] in (("query",), ("token",)) and step.axes[-1] != "key"


def is_of_scores(record: Record, name: str) -> bool:
    return axes_of(record, name)[-2:] == ("query", "key")


def cut(record: Record, name: str, sizes: Mapping[str, int]) -> Array:
    """The first of some axes of a recorded array."""
    axes, array = axes_of(record, name), record.trace[name]
    own = axes[len(axes) - array.ndim :] if len(axes) >= array.ndim else ("",) * array.ndim
    return array[tuple(slice(sizes.get(axis)) for axis in own)]


def axes_of(record: Record, name: str) -> tuple[str, ...]:
    step = record.intended[name] if name in record.intended else record.trace.steps[name]
    return tuple(step.axes)


def with_arrays(record: Record, arrays: Mapping[str, Array], intended: Derivation) -> Record:
    steps = {name: record.trace.steps[name] for name in arrays}
    return replace(record, trace=Trace(steps, dict(arrays), record.trace.header), intended=intended)
