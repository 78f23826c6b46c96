"""The stretch from scores to head outputs, a block of queries at a time.

Scores, rules, softmax and A V are local to a query row, so the same ops carry them out for a few
rows at once, in scratch that stays in cache, and only what is asked for is ever n × n. Keys that
a causal or window rule hides from a whole block are not computed at all. There is no second
implementation here: a block runs `step.op.block(…)` of the very steps of the derivation.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from attnctl.array import Array
from attnctl.derivation import Step
from attnctl.frozen import frozen
from attnctl.ops import Add, Block, Given, Hide, RowWise, Softmax

Progress = Callable[[int, int], None]

SCRATCH = 8 * 2**20
"""Bytes of scores in work for each thread: about what stays in cache."""

WORTH_A_POOL = 10**6
"""Fewer scores than this are done before threads have started."""

SKIPPABLE = {"attention_weights", "masked_scores"}
"""What is known of hidden cells without computing them: weights are 0, masked scores −∞."""


@frozen
class Stretch:
    """The row-wise steps of a derivation, the arrays they read, and those they leave behind.

    `outside` are the arrays read, (*lead, …), with the names of their last two axes in `axes`;
    `kept` are the arrays to fill. `lead` is ([batch,] head).
    """

    steps: Sequence[Step]
    outside: Mapping[str, Array]
    axes: Mapping[str, tuple[str, ...]]
    kept: Mapping[str, Array]
    lead: tuple[int, ...]
    queries: int
    keys: int

    def carry_out(self, lead: tuple[int, ...], start: int, stop: int, scratch: Array) -> list[list[int]]:
        """Every step for queries start…stop of one head; the rows that see nothing are returned."""
        first, last = self.span(self.block(lead, start), stop - start)
        at = self.block(lead, start, first)
        work = scratch[: (stop - start) * (last - first)].reshape(stop - start, last - first)
        cuts = {"query": slice(start, stop), "key": slice(first, last)}
        values = {
            name: self.cut(array, self.axes[name], lead, cuts) for name, array in self.outside.items()
        }
        empty: list[list[int]] = []
        for step in self.steps:
            assert isinstance(step.op, RowWise)
            kept = self.kept.get(step.name)
            out = work if kept is None else self.cut(kept, step.axes[-2:], lead, cuts)
            values[step.name] = step.op.block(at).apply(*(values[name] for name in step.inputs), out=out)
            if isinstance(step.op, Softmax) and self.may_hide:
                empty = [[*lead, start + int(row)] for row in np.flatnonzero(~out.any(axis=-1))]
        return empty

    def block(self, lead: tuple[int, ...], query: int, key: int = 0) -> Block:
        """Where the scores of this head, from this query and key on, stand in the whole."""
        return Block(lead[0] if len(lead) > 1 else 0, lead[-1], self.lead[-1], query, key)

    @staticmethod
    def cut(array: Array, axes: tuple[str, ...], lead: tuple[int, ...], cuts: Mapping[str, slice]) -> Array:
        """The part of an array that belongs to a block: one head's, and its queries, keys or both."""
        return array[lead][tuple(cuts.get(axis, slice(None)) for axis in axes)]

    @property
    def may_hide(self) -> bool:
        """Whether a row could see nothing."""
        return any(isinstance(step.op, (Hide, Add)) for step in self.steps)

    def span(self, at: Block, queries: int) -> tuple[int, int]:
        """The keys [from, to) these queries can see, where nothing is asked of the others."""
        n_by_n = {step.name for step in self.steps if step.axes[-1] == "key"}
        if not n_by_n & self.kept.keys() <= SKIPPABLE:
            return 0, self.keys
        spans = [
            step.op.block(at).span(queries, self.keys) for step in self.steps if isinstance(step.op, Hide)
        ]
        first, last = spans[0] if spans else (0, self.keys)
        return (first, last) if first < last else (0, 1)

    def rows(self, itemsize: int) -> int:
        """How many queries at a time fill the scratch."""
        return max(1, min(self.queries, SCRATCH // (self.keys * itemsize)))


def stretch_of(steps: Iterable[Step]) -> list[Step]:
    """The steps from scores to head outputs: those with a row of keys for each query, and A V."""
    scores = [
        step for step in steps if step.axes[-2:] == ("query", "key") and not isinstance(step.op, Given)
    ]
    return scores + [step for step in steps if "attention_weights" in step.inputs]


def blockwise(
    stretch: Stretch, dtype: np.dtype[Any], rows: int | None = None, progress: Progress | None = None
) -> list[list[int]]:
    """Fill what is kept of a stretch, heads and blocks of `rows` queries over the machine's cores.

    Returns the rows that see nothing, in order.
    """
    rows = rows or stretch.rows(dtype.itemsize)
    own = threading.local()

    def work(task: tuple[tuple[int, ...], int]) -> list[list[int]]:
        if not hasattr(own, "scratch"):
            own.scratch = np.empty(rows * stretch.keys, dtype)
        lead, start = task
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return stretch.carry_out(lead, start, min(start + rows, stretch.queries), own.scratch)

    tasks = [
        (lead, start) for lead in np.ndindex(*stretch.lead) for start in range(0, stretch.queries, rows)
    ]
    empty: list[list[int]] = []
    for done, found in enumerate(in_order(work, tasks, threads_for(stretch)), 1):
        empty += found
        if progress:
            progress(done, len(tasks))
    return empty


def threads_for(stretch: Stretch) -> int:
    """How many threads are worth it: one for little work, or where BLAS has threads of its own."""
    if prod(stretch.lead) * stretch.queries * stretch.keys < WORTH_A_POOL:
        return 1
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Any], Any], tasks: Sequence[Any], threads: int) -> Iterable[Any]:
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
