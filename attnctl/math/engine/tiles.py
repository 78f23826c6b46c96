"""The steps from scores to head outputs, computed a tile of queries and keys at a time.

Scores and the rules on them are local to a cell, softmax and A V to a query's row. So the same
ops compute them for a few rows at once, in scratch memory that stays in the processor's cache,
and only the steps that are kept are ever n × n in memory. Where the weights are not kept, a row is
cut into tiles of keys too, and softmax and A V are summed over them. Keys that rules hide from a
whole block of queries are not computed. There is no second implementation of the steps: a tile
runs `step.op.block(…)` of the steps of the derivation.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import frexp, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array, Progress
from attnctl.math.engine.cost import TILE_QUERIES, TILE_SCORES
from attnctl.math.names import LOGSUMEXP, TABLE, WEIGHTS
from attnctl.math.ops import Block, Hide, MatMul, MatMulT, RowWise, Scale, Softmax
from attnctl.math.steps import Step

if TYPE_CHECKING:
    from attnctl.math.engine.online import Tile

Lead = tuple[int, ...]

EVERY = slice(None)

HALF = 0.5  # the mantissa of each power of two

FEWEST_FOR_THREADS = 10**6  # fewer scores than this are computed sooner than threads start


@dataclass(frozen=True)
class Stretch:
    """The row-wise steps of a derivation, the arrays they read, and those they leave behind.

    `outside` are the arrays read, (*lead, …), with the names of their last two axes in `axes`;
    `kept` are the arrays to fill. `lead` is ([batch,] head).
    """

    steps: Sequence[Step]
    outside: Mapping[str, Array]
    axes: Mapping[str, tuple[str, ...]]
    kept: Mapping[str, Array]
    lead: Lead
    queries: int
    keys: int
    in_range: bool = True
    """Every number is sure to be finite. Where not, hidden ones are computed, too: 0 · ∞ is NaN."""

    @property
    def online(self) -> bool:
        """True if rows may be cut: it ends in softmax and A V, and the weights are not asked for."""
        last = tuple(type(step.op) for step in self.steps[-2:])
        needs_rows = bool({WEIGHTS, LOGSUMEXP} & self.kept.keys())
        return self.in_range and last == (Softmax, MatMul) and not needs_rows

    @cached_property
    def way_to_sum(self) -> tuple[bool, int]:
        """True if scores may be summed without their maximum; what values are divided by where not."""
        from attnctl.math.engine.online import divisor_of, values_fit

        mixed = self.outside[self.steps[-1].inputs[1]]
        return values_fit(mixed), divisor_of(mixed)

    @cached_property
    def factor_of_queries(self) -> float | None:
        """The power of two that scores are multiplied by where queries may be, to the same digits.

        A tile has many times as many scores as numbers in its queries. In the small range of half precision
        digits might be lost.
        """
        product, scaling = self.steps[:2]
        if not isinstance(product.op, MatMulT) or not isinstance(scaling.op, Scale):
            return None
        if self.dtype == np.float16 or {product.name, scaling.name} & self.kept.keys():
            return None
        if any(product.name in step.inputs for step in self.steps[2:]):
            return None

        factor = scaling.op.multiplier
        mantissa, _ = frexp(factor)
        return factor if mantissa == HALF else None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of every number."""
        return self.outside[self.steps[0].inputs[0]].dtype

    def whole_rows(self) -> int:
        """The number of queries at a time that stay in cache where each has all of its keys."""
        return max(1, min(self.queries, TILE_SCORES // self.keys))

    def tile(self) -> tuple[int, int]:
        """The numbers of queries and keys at a time that stay in cache; all keys where rows stay whole."""
        if not self.online:
            return self.whole_rows(), self.keys
        rows = min(self.queries, TILE_QUERIES)
        return rows, min(self.keys, TILE_SCORES // rows)

    def made(self) -> dict[str, Array]:
        """Return the kept steps along their own axes: chunks stand before heads."""
        heads = len(self.lead) - 1
        made = dict(self.kept)
        for step in self.steps:
            if step.name in made and "chunk" in step.axes:
                made[step.name] = np.moveaxis(made[step.name], heads + 1, heads)
        return made

    def tasks(self, queries: int) -> list[tuple[Lead, slice]]:
        """Each head's blocks of so many queries."""
        return [(lead, rows) for lead in np.ndindex(*self.lead) for rows in self.cut_queries(queries)]

    def cut_queries(self, queries: int) -> list[slice]:
        """Blocks of so many queries, each within one document: scores of one change no sum of another."""
        borders = {0, self.queries}
        for step in self.steps:
            if isinstance(step.op, Hide):
                borders.update(border for border in step.op.borders() if 0 < border < self.queries)

        blocks: list[slice] = []
        for first, stop in pairwise(sorted(borders)):
            starts = range(first, stop, queries)
            blocks += [slice(start, min(start + queries, stop)) for start in starts]
        return blocks

    def fill_whole_rows(self, lead: Lead, rows: slice, scratch: Array) -> Array:
        """Compute every step for these queries of one head; returns the queries that see nothing."""
        keys = self.visible_keys(lead, rows)
        values = self.compute_tile(self.steps, lead, rows, keys, scratch=lambda _: scratch)

        # Where nothing is hidden and all is finite, every query sees a key.
        sees_all = self.in_range and not any(step.op.hides for step in self.steps)
        if WEIGHTS not in values or sees_all:
            return np.empty(0, int)
        return np.flatnonzero(~values[WEIGHTS].any(axis=-1))

    def fill_in_key_tiles(self, lead: Lead, rows: slice, keys: int, scratch: Array) -> Array:
        """Fill in rows with softmax and A V summed over tiles of so many keys."""
        from attnctl.math.engine.online import online_softmax, plain_softmax

        outputs = self.kept[self.steps[-1].name][lead][rows]
        fits, divisor = self.way_to_sum
        if fits:
            blind = plain_softmax(self.score_tiles(lead, rows, keys, scratch), outputs)
            if blind is not None:
                return blind
        return online_softmax(self.score_tiles(lead, rows, keys, scratch), outputs, divisor)

    def score_tiles(self, lead: Lead, rows: slice, keys: int, scratch: Array) -> Iterator[Tile]:
        """For each tile of keys the scores of these queries, the values, and room to work in.

        The last keys come first: they are the nearest where rules look at the past, and the
        largest scores of a row tell early how it can be summed.
        """
        softmax, mix = self.steps[-2:]
        steps = self.steps[:-2]
        instead: dict[str, Array] = {}
        factor = self.factor_of_queries
        if factor is not None:
            product, scaling, *others = steps
            steps = [replace(product, name=scaling.name), *others]
            queries = product.inputs[0]
            instead[queries] = self.outside[queries][lead][rows] * self.dtype.type(factor)

        seen = self.visible_keys(lead, rows)
        for start in reversed(range(seen.start, seen.stop, keys)):
            tile = slice(start, min(start + keys, seen.stop))
            values = self.compute_tile(steps, lead, rows, tile, lambda _: scratch, instead=instead)
            s = values[softmax.inputs[0]]
            v = values[mix.inputs[1]]
            yield s, v, scratch[: s.size].reshape(s.shape)

    def compute_tile(
        self,
        steps: Iterable[Step],
        lead: Lead,
        rows: slice,
        keys: slice,
        scratch: Callable[[str], Array],
        note: Callable[[Step, Array], None] | None = None,
        instead: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """The values of these steps for these queries and keys of one head, in scratch or where kept.

        Where all steps of scores have the same scratch, one takes the place of another; `note` sees
        each before it goes. Of what is `instead` of an array the part is there already.
        """
        block = self.block(lead, rows.start, keys.start)
        cuts = {"query": rows, "key": keys}
        shape = (rows.stop - rows.start, keys.stop - keys.start)
        values = {name: self.cut(x, self.axes[name], lead, cuts) for name, x in self.outside.items()}
        values.update(instead or {})

        for step in steps:
            out: Array | None = None
            if step.name in self.kept:
                out = self.cut(self.kept[step.name], after_head(step), lead, cuts)
            elif step.axes[-1] == "key":
                out = scratch(step.name)[: prod(shape)].reshape(shape)

            inputs = [values[name] for name in step.inputs]
            if isinstance(step.op, RowWise):
                values[step.name] = step.op.block(block).apply(*inputs, out=out)
            else:  # of the backward pass
                values[step.name] = step.op.apply(*inputs)
            if note:
                note(step, values[step.name])

        return values

    def block(self, lead: Lead, query: int, key: int = 0) -> Block:
        """The place in the whole of the scores of this head, from this query and key on."""
        member = lead[0] if len(lead) > 1 else 0
        return Block(
            member,
            head=lead[-1],
            heads=self.lead[-1],
            query=query,
            key=key,
            keys=self.keys,
        )

    @staticmethod
    def cut(array: Array, axes: tuple[str, ...], lead: Lead, cuts: Mapping[str, slice]) -> Array:
        """The part of an array that belongs to a tile: one head's, and its queries, keys or both."""
        of_head = array[lead]
        return of_head[tuple(cuts.get(axis, EVERY) for axis in axes)]

    def visible_keys(self, lead: Lead, rows: slice) -> slice:
        """The keys to compute for these queries: those they can see, or all where a kept step has all."""
        every_key = slice(0, self.keys)
        if not self.in_range:
            return every_key
        n_by_n = {step.name for step in self.steps if step.axes[-1] == "key"}
        if any(TABLE[name].hidden is None for name in n_by_n & self.kept.keys()):
            return every_key

        first = 0
        last = self.keys
        hide = next((step.op for step in self.steps if isinstance(step.op, Hide)), None)
        if hide is not None:
            block = hide.block(self.block(lead, rows.start))
            first, last = block.visible_to_any(rows.stop - rows.start, self.keys)

        # Queries that see nothing get one key, which is hidden: a tile is never empty.
        return slice(first, last) if first < last else slice(0, 1)


def lay_out_stretch(
    steps: Iterable[Step],
    stretch: Sequence[Step],
    values: Mapping[str, Array],
    keep: Collection[str],
    in_range: bool,
) -> Stretch:
    """A stretch with its arrays: what it reads, spread over batch and heads, and what it will fill."""
    q, k = (values[name] for name in stretch[0].inputs)
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    sizes = {"query": q.shape[-2], "key": k.shape[-2]}
    axes = {step.name: step.axes[-2:] for step in steps}

    read = {name for step in stretch for name in step.inputs}
    outside = {}
    for name in read - {step.name for step in stretch}:
        array = values[name]
        own = axes[name]
        shape = [sizes.get(axis, size) for axis, size in zip(own, array.shape[-len(own) :], strict=True)]
        outside[name] = np.broadcast_to(array, (*lead, *shape))

    kept = {}
    for step in stretch:
        if step.name in keep or step.axes[-1] != "key":
            kept[step.name] = room_for(step, lead, sizes, values, q.dtype)

    return Stretch(
        steps=stretch,
        outside=outside,
        axes=axes,
        kept=kept,
        lead=lead,
        queries=sizes["query"],
        keys=sizes["key"],
        in_range=in_range,
    )


def room_for(
    step: Step,
    lead: Lead,
    sizes: Mapping[str, int],
    values: Mapping[str, Array],
    dtype: np.dtype[Any],
) -> Array:
    """The array of a step that is kept, yet to be filled; what no block computes is hidden."""
    last_axis = step.axes[-1]
    columns = sizes.get(last_axis) or values[step.inputs[1]].shape[-1]
    size_of = {**sizes, last_axis: columns, "chunk": getattr(step.op, "chunk", 1)}
    array = np.zeros((*lead, *(size_of[axis] for axis in after_head(step))), dtype)
    hidden = TABLE[step.name].hidden
    if hidden:
        array.fill(hidden)
    return array


def after_head(step: Step) -> tuple[str, ...]:
    """The axes of a step that one head has, chunks first."""
    _, *behind = step.axes[step.axes.index("head") :]
    return ("chunk", *behind) if "chunk" in step.axes else tuple(behind)


def blockwise(
    stretch: Stretch, tile: tuple[int, int] | None = None, progress: Progress | None = None
) -> list[list[int]]:
    """Fill what is kept, in tiles of (query, key), on every core; returns the rows that see nothing."""
    queries, keys = tile or stretch.tile()
    of_thread = threading.local()  # scratch memory, which no two threads may share

    def work(task: tuple[Lead, slice]) -> list[list[int]]:
        if not hasattr(of_thread, "scratch"):
            columns = keys if stretch.online else stretch.keys
            of_thread.scratch = np.empty(queries * columns, stretch.dtype)

        lead, rows = task
        with np.errstate(all="ignore"):
            if stretch.online:
                empty = stretch.fill_in_key_tiles(lead, rows, keys, of_thread.scratch)
            else:
                empty = stretch.fill_whole_rows(lead, rows, of_thread.scratch)
        return [[*lead, rows.start + int(row)] for row in empty]

    tasks = stretch.tasks(queries)
    scores = prod(stretch.lead) * stretch.queries * stretch.keys
    empty: list[list[int]] = []
    for done, rows in enumerate(over_cores(work, tasks, scores), 1):
        empty += rows
        if progress:
            progress(done, len(tasks))
    return empty


def find_in_tiles(
    stretch: Stretch, look: Callable[[Step, Array], list[int] | None]
) -> dict[str, list[int]]:
    """The first cell that `look` finds in each n × n step of a stretch, which is computed again."""
    steps = [step for step in stretch.steps if step.is_n_by_n]
    bare = replace(stretch, steps=steps, kept={})
    rows = bare.whole_rows()
    scratch = np.empty(rows * stretch.keys, stretch.dtype)
    found: dict[str, list[int]] = {}
    for lead, part in bare.tasks(rows):

        def note(step: Step, value: Array, lead: Lead = lead, start: int = part.start) -> None:
            cell = None if step.name in found else look(step, value)
            if cell is not None:
                row, column = cell
                found[step.name] = [*lead, start + row, column]

        every_key = slice(0, stretch.keys)
        bare.compute_tile(steps, lead, part, every_key, scratch=lambda _: scratch, note=note)
    return found


# --- the backward pass a tile of queries at a time: no gradient by scores is ever whole ---
#
# A tile makes its scores and weights again from Q and K, as FlashAttention-2 does (Dao 2023, algorithm 2),
# with the ops of the derivation; what is by query it fills, what is by key it adds to.


def of_scores(steps: Iterable[Step]) -> list[Step]:
    """The gradients that have, or read, numbers for each query and key."""
    scores = {step.name for step in steps if step.is_n_by_n}
    return [step for step in steps if TABLE[step.name].gradient and {step.name, *step.inputs} & scores]


def back_stretch(steps: Sequence[Step], keep: Collection[str]) -> list[Step]:
    """These gradients, where all are by query or by key and no scores are kept whole; else none."""
    if any(step.is_n_by_n and step.name in keep for step in steps):
        return []

    back = of_scores(steps)
    for step in back:
        if step.is_n_by_n:
            continue
        if "head" not in step.axes or after_head(step)[:1] not in {("query",), ("key",)}:
            return []
    return back


def needs_whole(steps: Sequence[Step], keep: Collection[str]) -> bool:
    """True if gradients need all the numbers by query and key at once."""
    return bool(of_scores(steps)) and not back_stretch(steps, keep)


def fill_backward(forward: Stretch, back: Sequence[Step], values: Mapping[str, Array]) -> dict[str, Array]:
    """The gradients of a stretch that are by query or by key, heads over the machine's cores."""
    steps = [step for step in forward.steps if step.is_n_by_n]
    steps += back
    made = {step.name for step in steps}
    lead = forward.lead

    # What the gradients read besides, as far as heads have parts of it.
    outside = dict(forward.outside)
    axes = dict(forward.axes)
    for step in back:
        for name in step.inputs:
            own = axes_by_head(name)
            if own and name not in made and name not in forward.outside:
                outside[name] = np.broadcast_to(values[name], (*lead, *values[name].shape[-len(own) :]))
                axes[name] = own

    bare = replace(forward, steps=steps, outside=outside, axes=axes, kept={})
    sums = sums_of_gradients(forward, back, values)
    most = bare.whole_rows()

    def work(head: Lead) -> None:
        room: dict[str, Array] = {}  # the same memory from one tile to the next

        def scratch(name: str) -> Array:
            return room.setdefault(name, np.empty(most * forward.keys, forward.dtype))

        for rows in bare.cut_queries(most):
            keys = bare.visible_keys(head, rows)
            cuts = {"query": rows, "key": keys}

            def add(step: Step, part: Array, cuts: Mapping[str, slice] = cuts) -> None:
                if step.name in sums:
                    bare.cut(sums[step.name], after_head(step), head, cuts)[...] += part

            with np.errstate(all="ignore"):
                bare.compute_tile(steps, head, rows, keys, scratch=scratch, note=add)

    heads = list(np.ndindex(*lead))
    scores = prod(lead) * forward.queries * forward.keys
    list(over_cores(work, heads, scores))
    return {name: array.astype(forward.dtype, copy=False) for name, array in sums.items()}


def sums_of_gradients(
    forward: Stretch, back: Sequence[Step], values: Mapping[str, Array]
) -> dict[str, Array]:
    """Room for the gradients that tiles add up, those by query or by key; half precision in single."""
    wide = np.result_type(forward.dtype, np.float32)
    sizes = {"query": forward.queries, "key": forward.keys}
    sums: dict[str, Array] = {}
    for step in back:
        if not step.is_n_by_n:
            rows_axis, *_ = after_head(step)
            columns = values_size(step, values, forward)
            sums[step.name] = np.zeros((*forward.lead, sizes[rows_axis], columns), wide)
    return sums


def axes_by_head(name: str) -> tuple[str, ...]:
    """The axes that one head has of an array that gradients read; all of them where no head has its own."""
    axes = TABLE[name].axes
    return axes[axes.index("head") + 1 :] if "head" in axes else axes


def values_size(step: Step, values: Mapping[str, Array], forward: Stretch) -> int:
    """The columns of a gradient: those of the row-wise input that it is a sum of."""
    for name in reversed(step.inputs):
        array = values.get(name, forward.outside.get(name))
        if array is not None and TABLE[name].axes[-1] != "key":
            return int(array.shape[-1])
    raise ValueError(f"{step.name}: no input of rows")


# --- every core ---


def over_cores(work: Callable[[Any], Any], tasks: Sequence[Any], scores: int) -> Iterator[Any]:
    """The results of the tasks in order; of so many scores that threads pay, on every core."""
    with blas_alone() if scores > FEWEST_FOR_THREADS else nullcontext(False) as alone:
        yield from results_in_order(work, tasks, cores() if alone else 1)


def cores() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def results_in_order(work: Callable[[Any], Any], tasks: Sequence[Any], threads: int) -> Iterable[Any]:
    """The results of the tasks in order; an interrupt drops the tasks that have not begun."""
    if threads == 1:
        yield from map(work, tasks)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(work, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- the threads of BLAS: one while tiles run on every core, and as the caller had them afterwards ---


USERS: list[Any] = []  # the limits on BLAS, which the first user set, once for each user
USERS_CHANGE = threading.Lock()


@contextmanager
def single_thread() -> Iterator[None]:
    """Hold BLAS to one thread from the first user to the last, who gives the caller's setting back.

    Users overlap where several threads attend at once: if each restored what it found, the last
    one would restore the one thread of another.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no stubs

    with USERS_CHANGE:
        USERS.append(USERS[0] if USERS else threadpool_limits(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with USERS_CHANGE:
            limits = USERS.pop()
            if not USERS:
                limits.restore_original_limits()


@contextmanager
def blas_alone() -> Iterator[bool]:
    """Hold BLAS to one thread; yields whether it is held, so that tiles may run on every core.

    The command line asks for one thread from the start. In a library the caller's setting stands,
    and threadpoolctl, where it is installed, changes it for this long.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        yield True
        return
    try:
        import threadpoolctl  # noqa: F401  whether it is there at all
    except ImportError:
        yield False
        return
    with single_thread():
        yield True
