"""Parts of a large record, in which to look for what is wrong with all of it.

Attention is local to a query's row, so what follows from scores is for some queries what it is for all,
and a mistake that is made in every row shows in the first ones; any other in those about the largest
difference. What scores are computed from stays whole: the steps that read it read some of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import root_mean_square, spread
from attnctl.evidence.blocks import (
    OverQueries,
    StepInBlocks,
    after_scores,
    axes_of,
    begin_at,
    change_ops,
    cut,
    cuts_to,
    follow,
    has_rows,
    in_blocks,
    largest_step,
    per_query,
    with_arrays,
)
from attnctl.evidence.judge import Gap
from attnctl.evidence.record import Record
from attnctl.evidence.walk import Verdict, Walk
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Copy, Op

MANY = 2**17
"""Numbers of a step, or of what it is computed from, above which a mistake is looked for in a part."""

FEW = 2**13
"""Numbers of scores in a sample, where so many show what is wrong."""

MORE = 2**16
"""Numbers of a larger first sample, where few of them are wrong."""

LEAST_ROWS = 4

LAST_ROWS = 16

ELSEWHERE = 0.5
"""The part of its spread by which a step is off, root mean square, that no rounding explains."""

TELLING = 200
"""Wrong numbers that a sample must show; a tenth of them, where there are fewer."""

SIDE_BY_SIDE = "heads·d_v"
"""The axis of a step that has all heads in a row."""


@dataclass(frozen=True)
class SomeRows(Op):
    exact = True
    start: int = 0
    stop: int = 0

    def apply(self, *inputs: Array) -> Array:
        """(..., token, d) -> (..., stop − start, d)."""
        return inputs[0][..., self.start : self.stop, :]


@dataclass(frozen=True)
class Part:
    """A part of a record, walked; and the derivation of the whole, as it reads there.

    Where it is not walked yet, `walk` is that of the whole, as far as it is the same here.
    """

    walk: Walk
    derivation: Derivation
    whole: Derivation
    begin: int = 0
    """The query that its first row is."""
    words: str = ""
    """Which part it is; nothing where it is all there is."""

    @property
    def record(self) -> Record:
        return self.walk.record

    def in_blocks_by_sums(self, derivation: Derivation, walk: Walk, first: str) -> StepInBlocks | None:
        """A step of the whole, `walk`, by a program of this part that sums over all queries.

        None by a program that needs more of the other queries, or changes what the whole starts from.
        """
        wide = self.widen(derivation, walk.record)
        steps = in_blocks(walk.record, wide, wide[first], walk.values)
        if not any(isinstance(step.op, OverQueries) for step in steps):
            return None
        known = {step.name: step for step in walk.derivation}
        changed = {step.name for step in wide if step is not known.get(step.name)}
        if not changed <= {step.name for step in steps}:
            return None
        return StepInBlocks.begin(walk.record, wide, steps, walk.values)

    def value_in_blocks(self, blocks: StepInBlocks) -> Array:
        """The value that such a program gives in this part."""
        count = self.record.trace[blocks.name].shape[-2]
        rows = slice(self.begin, self.begin + count)
        return blocks.value_in(rows, blocks.steps, blocks.name)

    def widen(self, derivation: Derivation, record: Record) -> Derivation:
        """The derivation of a program that makes a mistake in this part, as it reads in all the record."""
        source = {step.name: step.inputs[0] for step in derivation if isinstance(step.op, SomeRows)}
        steps = [self.widen_step(step, source, record) for step in derivation if step.name not in source]
        return Derivation((*steps, *(step for step in self.whole if step.name not in derivation)))

    def widen_step(self, step: Step, source: Mapping[str, str], record: Record) -> Step:
        if step.name in self.derivation and step is self.derivation[step.name]:
            return self.whole[step.name]
        found = record.trace[step.name] if step.name in record else None
        op = change_ops(step.op, lambda op: self.widen_op(op, found))
        return replace(step, op=op, inputs=tuple(source.get(name, name) for name in step.inputs))

    def widen_op(self, op: Any, found: Array | None) -> Op:
        """The op for all rows; what it read off the numbers that were found is read off all of them."""
        if isinstance(op, SomeRows):
            return Copy()
        if found is not None and hasattr(op, "reread"):
            return op.reread(found)
        return begin_at(-self.begin)(op)


def ends_elsewhere(blocks: StepInBlocks) -> bool:
    """True where the last queries are no others rounded, not even to a few digits."""
    last = slice(max(blocks.queries - LAST_ROWS, 0), blocks.queries)
    found = blocks.recorded(blocks.name, cuts_to(last))
    value = blocks.value_in(last, blocks.steps, blocks.name)
    is_told = np.isfinite(found) & np.isfinite(value)
    off = root_mean_square((found - value)[is_told])
    return bool(off > ELSEWHERE * spread(value[is_told]))


def whole_of(walk: Walk) -> Part:
    return Part(walk, walk.derivation, walk.derivation)


def one_head_of(walk: Walk, first: str) -> Part:
    """The first head, without what has all heads side by side; all there is where that tells nothing."""
    record = walk.record
    if largest_step(record, walk.derivation, first) < MANY:
        return whole_of(walk)

    arrays = {}
    for name, array in record.trace.items():
        axes = axes_of(record, name)
        if SIDE_BY_SIDE not in axes:
            arrays[name] = cut(array, axes, {"head": slice(1), "batch": slice(1)})
    unwalked = Walk(with_arrays(record, arrays, record.intended), Derivation(()))
    part = Part(unwalked, walk.derivation, walk.derivation)
    return walk_part(part, walk, first, "the first head") or whole_of(walk)


def samples(walk: Walk, first: str) -> Iterator[Part]:
    """Parts in which to look for what explains a step: few rows of a large one, then more, at last all.

    Each is made once: how digits were lost is looked for there, and then which mistake explains it.
    """
    made, coming = walk.parts.setdefault(first, ([], make_samples(walk, first)))
    for number in count(0):
        if number == len(made):
            made.extend(islice(coming, 1))
        if number == len(made):
            return
        yield made[number]


def make_samples(walk: Walk, first: str) -> Iterator[Part]:
    """The parts of `samples`, each four times as large as the one before."""
    record = walk.record
    axes = record.intended[first].axes
    shape = record.trace[first].shape
    largest = 0 if record.blanks else largest_step(record, walk.derivation, first)
    has_query_rows = axes[-2:-1] == ("query",) and len(axes) == len(shape)
    if largest < MANY or not has_query_rows:
        yield whole_of(walk)
        return

    gap = walk.gap(first)
    queries = shape[-2]
    numbers_of_row = largest // queries
    rows = max(LEAST_ROWS, FEW // numbers_of_row, rows_that_tell(gap, queries, numbers_of_row))
    searched = False
    while rows < queries:
        part = sample_of_rows(walk, first, gap.at[-2], rows=rows)
        if part:
            yield part
            searched = True
        rows *= 4
    if not searched:
        yield whole_of(walk)


def sample_of_rows(walk: Walk, first: str, worst: int, *, rows: int) -> Part | None:
    """So many rows that show the mistake: the first ones, those about the worst, or from there on."""
    queries = walk.record.trace[first].shape[-2]
    about_worst = min(max(worst - rows // 2, 0), queries - rows)
    from_worst = min(max(worst, 0), queries - rows)
    # The first of many that are wrong is the worst.
    for start in dict.fromkeys((0, about_worst, from_worst)):
        part = some_rows(walk, slice(start, start + rows))
        words = f"queries {start} to {start + rows - 1}" if start else f"the first {rows} queries"
        walked = walk_part(part, walk, first, words)
        if walked:
            return walked
    return None


def rows_that_tell(gap: Gap, queries: int, numbers: int) -> int:
    """Rows of so many `numbers` each that show enough of what is wrong, where all are alike."""
    wrong = max(gap.differing, 1)
    rows = int(min(TELLING, wrong / 10) * queries / wrong)
    return min(rows, MORE // numbers, queries // 4)


def walk_part(part: Part, walk: Walk, first: str, words: str) -> Part | None:
    """A part, walked; None where it does not show the same mistake in enough numbers."""
    if first not in part.derivation:
        return None
    enough = min(TELLING, walk.gap(first).differing / 10)
    settled = [name for name in part.walk.steps if is_settled(walk, name)]
    try:
        # As far as the step first, which tells most parts that show too little.
        beginning = Walk.over(part.record, part.derivation, before=part.walk, until=first, settled=settled)
        if first not in beginning.wrong or beginning.gap(first).differing < enough:
            return None
        walked = Walk.over(part.record, part.derivation, before=beginning, settled=settled)
    except AttnError:  # steps of which this part does not tell
        return None
    if not set(walked.wrong) <= set(walk.wrong):
        return None
    return replace(part, walk=walked, words=words)


def some_rows(walk: Walk, rows: slice) -> Part:
    """Some queries of every head, without what sums over queries."""
    record = walk.record
    derivation = walk.derivation
    later = after_scores(derivation)
    summed = follow(derivation, {name for name in later if not per_query(derivation[name].axes)})

    arrays = {}
    for name, array in record.trace.items():
        if name in summed:
            continue
        axes = axes_of(record, name)
        has_own_rows = name in later or axes[-2:] == ("query", "key")
        arrays[name] = cut(array, axes, {"query": rows}) if has_own_rows else array

    own = cut_rows(derivation, later, summed, rows)
    intended = cut_rows(record.intended, later, summed, rows)
    kept = [step for step in own if step.name not in later or is_settled(walk, step.name)]
    unwalked = replace(
        walk,
        record=with_arrays(record, arrays, intended),
        derivation=Derivation(tuple(kept)),
        parts={},
    )
    return Part(unwalked, own, derivation, rows.start)


def is_settled(walk: Walk, name: str) -> bool:
    """True for a recorded step that agrees in all its rows, and so in some."""
    checked = walk.steps.get(name)
    return checked is not None and checked.verdict is Verdict.AGREES and walk.values[name] is None


def cut_rows(derivation: Derivation, later: set[str], summed: set[str], rows: slice) -> Derivation:
    """The derivation in which these steps read some rows of what has a row for each query."""
    steps: dict[str, Step] = {}
    take_rows = SomeRows(rows.start, rows.stop)
    source = {step.name: step for step in derivation if has_rows(step) and step.name not in later}
    for step in derivation:
        if step.name in summed:
            continue
        if step.name not in later:
            steps[step.name] = step
            continue

        cut_of = {name: f"some rows of {name}" for name in step.inputs if name in source}
        for name, cut_name in cut_of.items():
            steps.setdefault(cut_name, Step(cut_name, take_rows, (name,), source[name].axes, "", ""))
        op = change_ops(step.op, begin_at(rows.start))
        if op is step.op and not cut_of:
            steps[step.name] = step
        else:
            inputs = tuple(cut_of.get(name, name) for name in step.inputs)
            steps[step.name] = replace(step, op=op, inputs=inputs)
    return Derivation(tuple(steps.values()))
