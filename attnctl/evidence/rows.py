"""Steps with a row for each query, and their derivation for some queries alone.

From scores on, attention is local to a query's row: what follows from them is for some queries what it is
for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from attnctl.evidence.record import Record
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import AddScaled, Gate, Given, Merge, Placed, Project, Remainder, Unstated
from attnctl.math.ops.base import Op, RowWise
from attnctl.math.ops.norms import Norm
from attnctl.record import Trace

BY_ROW = (RowWise, AddScaled, Gate, Merge, Norm, Project, Remainder)
"""Ops that make a query's row of nothing but that row, and of what has no queries."""


def of_scores(step: Step) -> bool:
    """True for a step with a number for each query and key."""
    return step.axes[-2:] == ("query", "key")


def has_rows(step: Step) -> bool:
    return step.axes[-2:-1] in (("query",), ("token",)) and step.axes[-1] != "key"


def after_scores(derivation: Derivation) -> set[str]:
    """The computed steps of scores, and all that follows from them."""
    computed = (step for step in derivation if not isinstance(step.op, Given))
    return follow(derivation, {step.name for step in computed if of_scores(step)})


def follow(derivation: Derivation, names: Collection[str]) -> set[str]:
    """Some steps and all that is computed from them."""
    found = {step.name for step in derivation if step.name in names}
    for step in derivation:
        if not found.isdisjoint(step.inputs):
            found.add(step.name)
    return found


def stretch(derivation: Derivation, record: Record, name: str) -> list[Step]:
    wanted, found = [name], set()
    while wanted:
        step = derivation[wanted.pop()]
        if not isinstance(step.op, (Given, Unstated)) and step.name not in found:
            found.add(step.name)
            wanted += [input_ for input_ in step.inputs if input_ not in record and input_ in derivation]
    return [step for step in derivation if step.name in found]


def largest_step(record: Record, derivation: Derivation, name: str) -> int:
    """The most numbers that a step has which is computed, or read, on the way to this one."""
    steps, here = stretch(derivation, record, name), record
    names = {name, *(input_ for step in steps for input_ in (step.name, *step.inputs))}
    if name in record:  # of which there may be some rows
        rows = record.trace[name].shape[-2] if record.trace[name].ndim > 1 else 1
        here = replace(record, plan=replace(record.plan, sizes={**record.plan.sizes, "query": rows}))
    return max(
        record.trace[name].size if name in record else here.numbers(derivation[name].axes)
        for name in names
        if name in record or name in derivation
    )


# --- some rows ---


def axes_of(record: Record, name: str) -> tuple[str, ...]:
    return tuple((record.intended if name in record.intended else record.trace.steps)[name].axes)


def cut(array: Array, axes: Sequence[str], cuts: Mapping[str, slice]) -> Array:
    """The part of an array along some axes; all of it along those where it is broadcast."""
    own = axes[len(axes) - array.ndim :] if len(axes) >= array.ndim else ("",) * array.ndim
    at = zip(own, array.shape, strict=True)
    return array[tuple(cuts.get(axis, slice(None)) if size > 1 else slice(None) for axis, size in at)]


def with_arrays(record: Record, arrays: Mapping[str, Array], intended: Derivation) -> Record:
    steps = {name: record.trace.steps[name] for name in arrays}
    plan = replace(record.plan, derivation=intended)
    return replace(record, trace=Trace(steps, dict(arrays), record.trace.header), plan=plan)


def is_by_row(op: Op) -> bool:
    """True for an op, and those within it, that can be carried out for some queries alone."""
    return isinstance(op, BY_ROW) and all(is_by_row(inner) for inner in within(op).values())


def within(op: Any) -> dict[str, Op]:
    found = {field.name: getattr(op, field.name) for field in fields(op)}
    return {name: array for name, array in found.items() if isinstance(array, Op)}


def change_ops(op: Any, change: Callable[[Op], Op]) -> Any:
    changed = {name: new for name, old in within(op).items() if (new := change_ops(old, change)) is not old}
    return change(replace(op, **changed) if changed else op)


def begin_at(query: int) -> Callable[[Op], Op]:
    """Moves an op on scores to those of the queries from this one on."""

    def move(op: Any) -> Op:
        if isinstance(op, Placed) and query:
            offset = op.offset
            moved = offset + query if isinstance(offset, int) else tuple(at + query for at in offset)
            return replace(op, offset=moved)
        return op.from_query(query) if hasattr(op, "from_query") else op

    return move
