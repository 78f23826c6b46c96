"""A large step beside what it should be, some queries at a time, so that memory stays bounded.

What leads from scores to a recorded step is computed again for some queries, all heads at once: no step
that nobody recorded is ever whole. Every recorded number is compared with the right one. How far a decent
program is off is drawn for a few rows of some blocks: where all numbers of a block are off by clearly less
than there, or all of it by far more, nothing else is to be found. Any other block is judged whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from math import sqrt
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.evidence.allowed import FACTOR, Strictness, root_mean_square, typical
from attnctl.evidence.judge import Gap, blur_of, judge_step, vanishes
from attnctl.evidence.precision import Precision, to_float64
from attnctl.evidence.record import Record, Values, expect_surely, with_shapes
from attnctl.evidence.rounding import (
    KEPT_APART,
    LEAST_RUNS,
    Known,
    LargeRuns,
    noise,
    pool_scatter,
    squared_distance,
)
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.ops import Given, Hide, Merge, Op, Placed, Project, Unstated
from attnctl.math.ops.base import RowWise
from attnctl.math.ops.models import AddScaled, Gate, Remainder
from attnctl.math.ops.norms import Norm
from attnctl.record import Trace

MANY = 2**19
"""Numbers of a step, or of what leads to it, above which it is compared block by block."""

BLOCK = 2**18
"""Numbers of scores in a block: few enough for the processor's cache."""

SAMPLED = 4
"""Rows of a block whose scatter is drawn."""

SPARSE = 16
"""A block has at least so many times as many rows: what is drawn for few is to cost little."""

CLEARLY = 0.8
"""The part of what may be allowed that a block may use up and still needs no judging."""


@dataclass(frozen=True)
class OverQueries(RowWise):
    """An op on scores that sums over queries: local to a query's row once it is told the sums of all."""

    sums: tuple[Array, ...] = field(default=(), kw_only=True, compare=False, repr=False)

    def told(self, blocks: Iterable[Array], *others: Array) -> OverQueries:
        """The same op with the sums of all rows, which come block by block; `others` it reads whole."""
        return replace(self, sums=self.sum_over(blocks, *others))

    def sum_over(self, blocks: Iterable[Array], *others: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def share_out(self, s: Array, *sums: Array) -> Array:
        raise NotImplementedError

    def apply(self, *inputs: Array) -> Array:
        """Of the scores alone, where they are all there is."""
        (s,) = inputs
        return self.share_out(s, *(self.sums or self.sum_over([s])))


BY_ROW = (RowWise, AddScaled, Gate, Merge, Norm, Project, Remainder)
"""Ops that make a query's row of nothing but that row, and of what has no queries."""

BEYOND_DOUBT = 20.0
"""The multiple of the greatest scatter that was drawn which a row is off when it is wrong beyond doubt."""

MOSTLY = 0.5
"""The part of the rows of a block that have to be far off for all of it to be wrong beyond doubt."""

A_HEAD = 0.2
"""The least part of them that has to be where all the others are right, as a head among others is."""


@dataclass(frozen=True)
class RowSample:
    values: Array
    scatter: Array
    least: float
    """The least scatter of a row, as a part of the root mean square of the row; 0 where none tells."""
    mean: float
    """The root mean square of them."""
    most: float
    """The greatest."""
    share: float
    """The least scatter of a number, as a part of it."""

    @classmethod
    def of(cls, rows: Array, scatter: Array) -> RowSample:
        is_told = np.isfinite(rows) & np.isfinite(scatter) & (scatter > 0)

        size = np.square(np.where(is_told, rows, 0.0)).sum(axis=-1)
        off = np.square(np.where(is_told, scatter, 0.0)).sum(axis=-1)
        ratios = np.sqrt(off[size > 0] / size[size > 0])

        values = rows[is_told]
        scatter = scatter[is_told]
        share = float((scatter / np.maximum(np.abs(values), scatter)).min(initial=1.0))
        if not ratios.size or not np.isfinite(ratios).all():
            return cls(values, scatter, least=0.0, mean=0.0, most=np.inf, share=share)
        return cls(
            values,
            scatter,
            least=float(ratios.min()),
            mean=root_mean_square(ratios),
            most=float(ratios.max()),
            share=share,
        )


class WorstFirst(NamedTuple):
    """How bad the numbers of a block are: a wrong one before all, a number before NaN."""

    is_wrong: bool
    is_number: bool
    largest: float


@dataclass(frozen=True)
class BlockFindings:
    rows: slice
    gap: Gap
    beyond: float
    """How many times their scatter its numbers are off, as a root mean square."""
    judged: bool = True
    """Whether that was told number by number."""
    compared: bool = True
    """Whether not just any numbers would do."""

    @property
    def rank(self) -> WorstFirst:
        largest = self.gap.largest
        return WorstFirst(self.gap.differing > 0, is_number=not np.isnan(largest), largest=largest)


def in_blocks(record: Record, derivation: Derivation, step: Step, values: Values) -> Sequence[Step]:
    """The steps that make a large one from what is recorded, or stands before scores, in order.

    None of them where it is not large, or its rows do not follow from those of the queries alone.
    """
    name = step.name
    if name in record.blanks or step.axes[-2:-1] != ("query",):
        return []
    if name in record and len(step.axes) != record.trace[name].ndim:
        return []
    if largest_step(record, derivation, name) < MANY:
        return []

    later = after_scores(derivation)
    steps = [step for step in stretch(derivation, record, name) if step.name in later]
    if step not in steps or not all(is_step_by_row(step) for step in steps):
        return []

    outside = read_by(steps)
    is_told = all(read in record or values.get(read) for read in outside)
    return steps if is_told and outside.isdisjoint(record.blanks) else []


def is_step_by_row(step: Step) -> bool:
    """True for a step whose rows are those of the queries, and can be carried out for some alone."""
    return "query" in step.axes and "chunk" not in step.axes and is_by_row(step.op)


def read_by(steps: Sequence[Step]) -> set[str]:
    """What steps read that none of them makes."""
    made = {step.name for step in steps}
    return {name for step in steps for name in step.inputs} - made


@dataclass(frozen=True)
class StepInBlocks:
    """Compares one large step of a record with what it should be.

    `steps` lead to it from scores on; `outside` is what else they read, with its axes, but recorded rows.
    """

    record: Record
    steps: Sequence[Step]
    outside: Mapping[str, tuple[tuple[str, ...], Known]]
    queries: int
    numbers: int
    """Those of the largest step on the way."""

    @classmethod
    def begin(
        cls, record: Record, derivation: Derivation, steps: Sequence[Step], values: Values
    ) -> StepInBlocks:
        outside = {}
        for name in read_by(steps):
            axes = axes_of(record, name) if name in record else derivation[name].axes
            if name in record and per_query(axes):
                continue  # of which each block reads its own rows
            computed = values.get(name)
            known = computed or record.known(name)
            is_moved = name in derivation and getattr(derivation[name].op, "exact", False)
            # Runs are kept for the sample of each block, but for large ones that are soon made again.
            if known.value.size < KEPT_APART or (computed and not is_moved):
                known = known.with_runs_kept()
            outside[name] = axes, known

        name = steps[-1].name
        recorded = {name, *read_by(steps)} & {*record.trace}
        arrays = [(axes_of(record, name), record.trace[name]) for name in recorded]
        arrays += [(axes, known.value) for axes, known in outside.values()]
        queries = next(array.shape[-2] for axes, array in arrays if axes[-2:-1] == ("query",))

        blocks = cls(record, steps, outside, queries, numbers=largest_step(record, derivation, name))
        return replace(blocks, steps=blocks.tell_sums())

    def tell_sums(self) -> Sequence[Step]:
        """The steps, those that sum over all queries handed the sums: they are then local to a row."""
        steps = list(self.steps)
        for number, step in enumerate(self.steps):
            if isinstance(step.op, OverQueries) and not step.op.sums:
                scores, *others = step.inputs
                blocks = (self.value_in(rows, steps[:number], scores) for rows in self.blocks())
                whole = (self.outside[name][1].value for name in others)
                steps[number] = replace(step, op=step.op.told(blocks, *whole))
        return steps

    @property
    def name(self) -> str:
        return self.steps[-1].name

    def compare(self) -> tuple[Gap, float]:
        """Its largest difference, and what all its numbers may be off by as a part of their spread."""
        blocks = list(self.blocks())
        recorded = self.record.trace[self.name]
        rows_of_all = recorded[..., 0].size
        samples = self.sample({number: blocks[number] for number in sparsely(len(blocks))})

        parts = []
        for number, rows in enumerate(blocks):
            parts.append(self.clear(rows, between(samples, number)) or self.judge(rows))
        # Where all numbers together are off too far, each is judged by that.
        beyond = root_mean_square(np.array([part.beyond for part in parts]))
        if not self.record.strictness.told and typical(rows_of_all) < beyond < FACTOR:
            parts = [self.judge(rows, rows_of_all) for rows in blocks]

        first = max(parts, key=lambda part: part.rank)
        shown = first
        if not first.judged:
            shown = self.judge(few_rows(first.rows, first.rows.start + first.gap.at[-2]))
        if first.gap.differing and not shown.gap.differing:  # nothing is wrong that was not judged to be
            parts = [self.judge(rows) for rows in blocks]
            shown = max(parts, key=lambda part: part.rank)

        *lead, query, column = shown.gap.at
        gap = replace(
            shown.gap,
            at=(*lead, shown.rows.start + query, column),
            differing=sum(part.gap.differing for part in parts),
            nan=sum(part.gap.nan for part in parts),
            of=recorded.size,
            filled=recorded.size,
        )
        if not any(part.compared for part in parts):
            return gap, np.inf
        values = np.concatenate([sample.values for sample in samples.values()])
        scatter = np.concatenate([sample.scatter for sample in samples.values()])
        return gap, blur_of(self.record.strictness, values, scatter, rows_of_all)

    def blocks(self) -> Iterator[slice]:
        numbers_of_row = max(self.numbers // self.queries, 1)
        rows = max(SPARSE * SAMPLED, BLOCK // numbers_of_row)
        return (slice(first, min(first + rows, self.queries)) for first in range(0, self.queries, rows))

    def of(self, rows: slice) -> tuple[Record, Known]:
        """The record of these queries alone, and the step as it should be there."""
        cuts = cuts_to(rows)
        move = begin_at(rows.start)

        # Rows that are meant to see nothing are told by the masks, which no step of these may read.
        hide = [step for step in self.record.intended if isinstance(step.op, Hide)]
        names = {self.name, *read_by(self.steps), *read_by(hide)}
        arrays = {name: self.recorded(name, cuts) for name in names if name in self.record}
        intended = Derivation(tuple(change_step(step, move) for step in self.record.intended))
        record = with_arrays(self.record, arrays, intended)

        values: Values = {}
        for name, (axes, known) in self.outside.items():
            values[name] = cut_known(known, axes, cuts) if per_query(axes) else known
        for step in self.steps:
            expected = expect_surely(record, change_step(step, move), values)
            values[step.name] = expected
        return record, expected

    def recorded(self, name: str, cuts: Mapping[str, slice]) -> Array:
        return cut(self.record.trace[name], axes_of(self.record, name), cuts)

    def known(self) -> Known | None:
        """The step, which nobody recorded, in less memory than what leads to it takes; None of few rows.

        How decent programs scatter is drawn for a few rows, as a part of each.
        """
        blocks = list(self.blocks())
        if len(blocks) == 1:
            return None

        parts = [self.value_in(rows, self.steps, self.name) for rows in blocks]
        value = np.concatenate(parts, axis=-2)
        size_of_row = np.sqrt(np.square(value).mean(axis=-1, keepdims=True))
        has_size = np.isfinite(size_of_row) & (size_of_row > 0)
        if not has_size.all():  # rows that see nothing could be anything
            return None

        samples = self.sample({0: blocks[0], len(blocks) - 1: blocks[-1]})
        drawn = np.array([sample.mean for sample in samples.values()])
        most = sqrt(3) * root_mean_square(drawn) * size_of_row  # of noise that is spread evenly
        return Known(value, lambda run: value + most * noise(self.name, run, value.shape))

    def value_in(self, rows: slice, steps: Sequence[Step], name: str) -> Array:
        """Numbers of these queries at one of the first steps, or at what any of them reads.

        What no later step reads is let go of on the way: a block of scores is large.
        """
        cuts = cuts_to(rows)
        move = begin_at(rows.start)
        values = {name: cut(known.value, axes, cuts) for name, (axes, known) in self.outside.items()}
        for read in read_by(self.steps) - values.keys():
            values[read] = to_float64(self.recorded(read, cuts))

        last_reader = {read: number for number, step in enumerate(steps) for read in step.inputs}
        for number, step in enumerate(steps):
            op = change_step(step, move).op
            inputs = [values[read] for read in step.inputs]
            values[step.name] = op.apply(*self.record.factors_of(step.name).round(op, inputs))
            for read in step.inputs:
                if last_reader[read] == number and read != name:
                    values.pop(read, None)
        return values[name]

    @np.errstate(all="ignore")
    def sample(self, blocks: Mapping[int, slice]) -> dict[int, RowSample]:
        """The scatter of a few rows in the middle of each of these blocks.

        It is drawn run by run: all of them read what one run makes of Q, K and V, which is large.
        """
        known = {}
        for number, rows in blocks.items():
            _, known[number] = self.of(few_rows(rows, (rows.start + rows.stop) // 2))
        squares = {number: np.zeros(expected.value.shape) for number, expected in known.items()}
        for run in range(LEAST_RUNS):
            for number, expected in known.items():
                squares[number] += squared_distance(expected.run(run), expected.value)

        samples = {}
        for number, expected in known.items():
            scatter = pool_scatter(squares[number] / LEAST_RUNS, expected.value, LEAST_RUNS)
            samples[number] = RowSample.of(expected.value, scatter)
        return samples

    def clear(self, rows: slice, sample: RowSample) -> BlockFindings | None:
        """The findings of a block whose rows are clearly within rounding, or far beyond it; or None.

        A number may be off by its own rounding and by a part of what its row may be off by.
        """
        if self.record.strictness != Strictness():
            return None
        precision = self.record.precision(self.name)
        found = to_float64(self.recorded(self.name, cuts_to(rows)))
        expected = self.value_in(rows, self.steps, self.name)
        with_shapes(self.name, found, expected)

        gap = found - expected
        size = np.abs(expected)
        np.abs(gap, out=gap)  # in place: blocks are large
        near = gap
        lost = ~np.isfinite(gap)
        if lost.any():  # what is hidden in both is the same
            np.copyto(gap, 0.0, where=lost & (found == expected))
            lost = ~np.isfinite(gap)
            if lost.any() and not surely_wrong(found, expected, lost, precision):
                return None
            near = np.where(lost, 0.0, gap)
            size = np.where(np.isfinite(expected), size, 0.0)

        # The root mean square of each row, of the numbers that are not 0, and of how far they are off.
        numbers = np.maximum(np.count_nonzero(size, axis=-1), 1)
        row = np.sqrt(np.einsum("...j,...j->...", size, size) / numbers)
        off = np.sqrt(np.einsum("...j,...j->...", near, near) / numbers)

        beside_own_rounding = near - precision.unit * size
        part = CLEARLY * FACTOR
        allowed = (part * sample.least * row)[..., None]
        is_fine = (beside_own_rounding <= allowed).all(axis=-1)
        if not is_fine.all():
            allowed = np.maximum(allowed, part * sample.share * size)
            is_fine |= (beside_own_rounding <= allowed).all(axis=-1)

        mean = off / (sample.mean * row)
        far = off / (sample.most * row)
        is_doubtless = far > BEYOND_DOUBT
        if np.isfinite(far).all() and is_doubtless.mean() > MOSTLY:
            is_fine = np.zeros_like(is_fine)
        else:
            if 0 < is_doubtless.mean() < A_HEAD:
                return None
            is_clear = (is_fine | is_doubtless).all()
            if not (is_clear and root_mean_square(mean[is_fine & (row > 0)]) < CLEARLY):
                return None

        allowed_together = typical(row.size) * sample.mean * row[..., None]
        wrong = lost | ((near > allowed_together) & ~is_fine[..., None])
        beyond = np.where(is_fine, mean, far)
        cell = tuple(int(place) for place in np.unravel_index(int(gap.argmax()), gap.shape))
        shown = Gap(
            float(gap[cell]),
            allowed=0.0,
            at=cell,
            found=0.0,
            expected=0.0,
            differing=int(wrong.sum()),
            nan=0,
            of=gap.size,
            filled=gap.size,
        )
        return BlockFindings(rows, shown, root_mean_square(beyond[np.isfinite(beyond)]), judged=False)

    def judge(self, rows: slice, total: int | None = None) -> BlockFindings:
        """Judge a block number by number; `total` are the rows of the step, where all is off too far."""
        record, expected = self.of(rows)
        with_shapes(self.name, record.trace[self.name], expected.value)
        judgement = judge_step(record, self.name, expected, total)
        gap = judgement.summarize()
        return BlockFindings(rows, gap, judgement.beyond, compared=bool(np.isfinite(judgement.blurred)))


def surely_wrong(found: Array, expected: Array, lost: Array, precision: Precision) -> bool:
    """True where each of these numbers is finite on one side alone, and neither is as good as the other.

    Scores far below the others are as good as −∞, and what overflows is as good as its largest number.
    """
    is_hidden = np.isneginf(expected)
    is_shown = lost & is_hidden & np.isfinite(found)
    in_range = np.isfinite(expected) & (np.abs(expected) <= precision.largest / 2)
    is_beyond = lost & in_range & np.isinf(found)
    if not (is_shown | is_beyond)[lost].all():
        return False
    if not is_shown.any():
        return True
    return not bool((is_shown & vanishes(found, is_hidden, precision.vanishing)).any())


def sparsely(count: int) -> list[int]:
    """The first of so many blocks, each twice as far on as the one before, and the last."""
    numbers = {0, count - 1}
    number = 1
    while number < count:
        numbers.add(number)
        number *= 2
    return sorted(numbers)


def between(samples: Mapping[int, RowSample], number: int) -> RowSample:
    """The sample of a block; where none was drawn, rows are off by no less than before and after it."""
    before = samples[max(drawn for drawn in samples if drawn <= number)]
    after = samples[min(drawn for drawn in samples if drawn >= number)]
    return replace(
        before,
        least=min(before.least, after.least),
        mean=root_mean_square(np.array([before.mean, after.mean])),
        most=max(before.most, after.most),
        share=min(before.share, after.share),
    )


def few_rows(rows: slice, middle: int) -> slice:
    """The rows about one of a block, as many as are sampled."""
    first = max(rows.start, min(middle - SAMPLED // 2, rows.stop - SAMPLED))
    return slice(first, min(first + SAMPLED, rows.stop))


def per_query(axes: Sequence[str]) -> bool:
    return not {"query", "token"}.isdisjoint(axes)


def change_step(step: Step, change: Callable[[Op], Op]) -> Step:
    return replace(step, op=change_ops(step.op, change))


def cuts_to(rows: slice) -> dict[str, slice]:
    return {"query": rows, "token": rows}


def cut_known(known: Known, axes: Sequence[str], cuts: Mapping[str, slice]) -> Known:
    value = cut(known.value, axes, cuts)
    large = known.run
    if isinstance(large, LargeRuns):
        return Known(value, lambda run: large.part(run, lambda array: cut(array, axes, cuts)))
    return Known(value, lambda run: cut(known.run(run), axes, cuts))


# --- from scores on, what follows is for some queries what it is for all ---


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
    followed = {step.name for step in derivation if step.name in names}
    for step in derivation:
        if not followed.isdisjoint(step.inputs):
            followed.add(step.name)
    return followed


def stretch(derivation: Derivation, record: Record, name: str) -> list[Step]:
    """The steps that lead to this one from what is recorded, itself among them, in order."""
    reached: set[str] = set()
    to_visit = [name]
    while to_visit:
        step = derivation[to_visit.pop()]
        if isinstance(step.op, (Given, Unstated)) or step.name in reached:
            continue
        reached.add(step.name)
        to_visit += [read for read in step.inputs if read not in record and read in derivation]
    return [step for step in derivation if step.name in reached]


def largest_step(record: Record, derivation: Derivation, name: str) -> int:
    """The most numbers that a step has which is computed, or read, on the way to this one."""
    plan = record.plan
    if name in record:  # of which there may be some rows
        rows = record.trace[name].shape[-2] if record.trace[name].ndim > 1 else 1
        plan = replace(plan, sizes={**plan.sizes, "query": rows})
    of_rows = replace(record, plan=plan)

    names = {name}
    for step in stretch(derivation, record, name):
        names |= {step.name, *step.inputs}

    computed = [other for other in names if other not in record and other in derivation]
    sizes = [record.trace[other].size for other in names if other in record]
    sizes += [of_rows.numbers(derivation[other].axes) for other in computed]
    return max(sizes)


def axes_of(record: Record, name: str) -> tuple[str, ...]:
    steps = record.intended if name in record.intended else record.trace.steps
    return tuple(steps[name].axes)


def cut(array: Array, axes: Sequence[str], cuts: Mapping[str, slice]) -> Array:
    """The part of an array along some axes; all of it along those where it is broadcast."""
    if len(axes) < array.ndim:
        return array
    own_axes = axes[len(axes) - array.ndim :]
    index = [
        cuts.get(axis, slice(None)) if size > 1 else slice(None)
        for axis, size in zip(own_axes, array.shape, strict=True)
    ]
    return array[tuple(index)]


def with_arrays(record: Record, arrays: Mapping[str, Array], intended: Derivation) -> Record:
    steps = {name: record.trace.steps[name] for name in arrays}
    plan = replace(record.plan, derivation=intended)
    return replace(record, trace=Trace(steps, dict(arrays), record.trace.header), plan=plan)


def is_by_row(op: Op) -> bool:
    """True for an op, and those within it, that can be carried out for some queries alone."""
    return isinstance(op, BY_ROW) and all(is_by_row(inner) for inner in within(op).values())


def within(op: Any) -> dict[str, Op]:
    """The ops that an op is made of, by its fields."""
    values = {field.name: getattr(op, field.name) for field in fields(op)}
    return {name: value for name, value in values.items() if isinstance(value, Op)}


def change_ops(op: Any, change: Callable[[Op], Op]) -> Any:
    """The op with a change made in it, and in those that it is made of; itself where none is."""
    changed = {}
    for name, inner in within(op).items():
        other = change_ops(inner, change)
        if other is not inner:
            changed[name] = other
    return change(replace(op, **changed) if changed else op)


def begin_at(query: int) -> Callable[[Op], Op]:
    """Moves an op on scores to those of the queries from this one on."""

    def move(op: Any) -> Op:
        if isinstance(op, Placed) and query:
            if isinstance(op.offset, int):
                return replace(op, offset=op.offset + query)
            return replace(op, offset=tuple(before + query for before in op.offset))
        return op.from_query(query) if hasattr(op, "from_query") else op

    return move
