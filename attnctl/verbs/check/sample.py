"""Parts of a large record in which to look for a mistake; what is found there is verified in all of it.

Attention is local to a query's row, so what follows from scores is for the first queries what it is for
all, and a mistake that is made in every row shows there. What scores are computed from stays whole: the
steps that read it read its first rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.record import Record
from attnctl.evidence.rows import (
    after_scores,
    axes_of,
    change_ops,
    cut,
    follow,
    has_rows,
    largest_step,
    with_arrays,
)
from attnctl.evidence.walk import Walk, Walker
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Copy, Op

SIDE_BY_SIDE = "heads·d_v"
"""The axis of heads side by side."""

MANY = 2**17
"""Numbers of a step, or of what it is computed from, above which a mistake is looked for in a part."""

FEW = 2**16
"""Numbers of scores in a sample, where so many show what is wrong."""

LEAST_ROWS = 16

TELLING = 200
"""Wrong numbers that a sample must show; a tenth of them, where there are fewer."""


@dataclass(frozen=True)
class FirstRows(Op):
    """The first rows of an array; nothing is rounded."""

    exact = True
    count: int = 0

    def apply(self, *inputs: Array) -> Array:
        """(..., token, d) -> (..., count, d)."""
        return inputs[0][..., : self.count, :]


@dataclass(frozen=True)
class RecordPart:
    """A part of a record, and the derivation of the whole as it reads there."""

    record: Record
    derivation: Derivation
    whole: Derivation
    same: Derivation = Derivation(())
    """The steps that are in this part what they are in the whole."""

    def widen(self, derivation: Derivation, record: Record) -> Derivation:
        """The derivation of a program that makes a mistake in this part, as it reads in all the record."""
        source = {step.name: step.inputs[0] for step in derivation if isinstance(step.op, FirstRows)}
        steps = [self.widen_step(step, source, record) for step in derivation if step.name not in source]
        there = {step.name for step in derivation}
        lost = [step for step in self.whole if step.name not in there]
        return Derivation((*steps, *lost))

    def widen_step(self, step: Step, source: Mapping[str, str], record: Record) -> Step:
        if step.name in self.derivation and step is self.derivation[step.name]:
            return self.whole[step.name]
        found = record.trace[step.name] if step.name in record else None
        return replace(
            step,
            op=change_ops(step.op, lambda op: of_all_rows(op, found)),
            inputs=tuple(source.get(name, name) for name in step.inputs),
        )


@dataclass(frozen=True)
class CheckedPart:
    """Part of a record, checked."""

    part: RecordPart
    walk: Walk
    words: str = ""
    """Which part it is; nothing where it is all there is."""

    @property
    def record(self) -> Record:
        return self.part.record


def whole_sample(record: Record, walk: Walk, _: str = "") -> CheckedPart:
    return CheckedPart(RecordPart(record, walk.derivation, walk.derivation), walk)


def samples(record: Record, walk: Walk, first: str) -> Iterator[CheckedPart]:
    """Parts in which to look for what explains a step: few rows of a large one, then more, at last all."""
    axes, shape, searched = record.intended[first].axes, record.trace[first].shape, False
    if is_large(record, walk, first) and axes[-2:-1] == ("query",) and len(axes) == len(shape):
        rows = max(LEAST_ROWS, FEW // (largest_step(record, walk.derivation, first) // shape[-2]))
        while rows < shape[-2]:
            sample = walk_part(first_rows(record, walk.derivation, rows), walk, first)
            if sample:
                yield CheckedPart(sample.part, sample.walk, f"the first {rows} queries")
                searched = True
            rows *= 4 if sample else 2
    if not searched:
        yield whole_sample(record, walk)


def one_head_of(record: Record, walk: Walk, first: str) -> CheckedPart:
    """All queries of one head, where that shows what is wrong; else all there is."""
    sample = (
        walk_part(one_head(record, walk.derivation), walk, first) if is_large(record, walk, first) else None
    )
    return CheckedPart(sample.part, sample.walk, "the first head") if sample else whole_sample(record, walk)


def is_large(record: Record, walk: Walk, first: str) -> bool:
    """True where a step, or what it is computed from, has too many numbers to try hundreds of times."""
    return not record.blanks and largest_step(record, walk.derivation, first) >= MANY


def walk_part(part: RecordPart, walk: Walk, first: str) -> CheckedPart | None:
    """A part, walked; None where it does not show the same mistake."""
    walker, told = Walker(part.record), walk.gap(first).differing
    if first not in part.derivation:
        return None
    before = replace(walk, derivation=part.same)
    try:
        alone = walker.walk(part.derivation, before, until=first)
        if first not in alone.wrong or alone.gap(first).differing < min(TELLING, told / 10):
            return None
        found = walker.walk(part.derivation, alone)
    except AttnError:  # steps of which this part does not tell
        return None
    return CheckedPart(part, found) if set(found.wrong) <= set(walk.wrong) else None


# --- parts ---


def of_all_rows(op: Any, found: Array | None) -> Op:
    """The op for all rows, of which some numbers were read off those that were found."""
    if isinstance(op, FirstRows):
        return Copy()
    return op.reread(found) if found is not None and hasattr(op, "reread") else op


def first_rows(record: Record, derivation: Derivation, rows: int) -> RecordPart:
    """The first queries of every head, without what sums over queries."""
    later = after_scores(derivation)
    summed = follow(
        derivation, {name for name in later if not {"query", "token"} & set(derivation[name].axes)}
    )
    arrays = {
        name: cut(array, axes, {"query": slice(rows)})
        if name in later or axes[-2:] == ("query", "key")
        else array
        for name, array in record.trace.items()
        for axes in [axes_of(record, name)]
        if name not in summed
    }
    own, intended = (cut_rows(each, later, summed, rows) for each in (derivation, record.intended))
    same = Derivation(tuple(step for step in derivation if step.name not in later))
    return RecordPart(with_arrays(record, arrays, intended), own, derivation, same)


def one_head(record: Record, derivation: Derivation) -> RecordPart:
    """The first head alone, without what has the heads side by side."""
    arrays = {
        name: cut(array, axes_of(record, name), {"head": slice(1), "batch": slice(1)})
        for name, array in record.trace.items()
        if SIDE_BY_SIDE not in axes_of(record, name)
    }
    return RecordPart(with_arrays(record, arrays, record.intended), derivation, derivation)


def cut_rows(
    derivation: Derivation, later: Collection[str], summed: Collection[str], rows: int
) -> Derivation:
    """The derivation in which these steps read the first rows of what has a row for each query."""
    steps: dict[str, Step] = {}
    source = {step.name: step for step in derivation if has_rows(step) and step.name not in later}
    for step in derivation:
        if step.name in summed:
            continue
        short = {
            name: f"first rows of {name}" for name in step.inputs if step.name in later and name in source
        }
        for name, new in short.items():
            steps.setdefault(new, Step(new, FirstRows(rows), (name,), source[name].axes, "", ""))
        inputs = tuple(short.get(name, name) for name in step.inputs)
        steps[step.name] = replace(step, inputs=inputs) if short else step
    return Derivation(tuple(steps.values()))
