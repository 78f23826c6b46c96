"""What each step of a program's attention should be, and the first expression of a step that is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, OUTPUT, WEIGHTS
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.named import Steps
from attnctl.sources.program.relations import HIDDEN, Array
from attnctl.verbs.check.report import Report
from attnctl.verbs.check.shown import PUT_TOGETHER

LATER = (WEIGHTS, HEAD_OUTPUTS, CONCAT, OUTPUT)
"""What is right where a step is not, of which an expression may be one."""


class Truth:
    """What each step should be, from what the attention was given."""

    def __init__(self, graph: Graph, steps: Steps, report: Report, step: str) -> None:
        self.graph = graph
        self.steps = steps
        walk = report.walk
        self.values: dict[str, Array] = {}
        for name, known in walk.values.items():
            value = getattr(known, "value", None)
            if isinstance(value, np.ndarray):
                self.values[name] = value
        for name in dict.fromkeys((step, *LATER)):
            known = walk.expect(name) if name in walk.derivation else None
            if known is not None:
                self.values[name] = known.value

    def move_on(self, step: str, suspect: int) -> int:
        """The first event of a step from the suspect on that is wrong."""
        events = self.steps.events.get(step, [])
        if suspect not in events or not self.is_right(suspect):
            return self.wrong_piece(step, suspect)
        for event in events[events.index(suspect) :]:
            if not self.is_right(event):
                return self.wrong_piece(step, event)
        return suspect

    def wrong_piece(self, step: str, event: int) -> int:
        """Of rows that were put together, as those of a cache, the piece that is wrong; else all of it."""
        known = self.values.get(step)
        if known is None:
            return event
        if self.graph.op(event) not in PUT_TOGETHER:
            return self.wrong_write(known, event)
        pieces = self.graph.parents(event)
        rows = 0
        wrong = []
        for piece in pieces:
            value = self.graph.value(piece)
            count = value.size * known.shape[-2] // known.size
            part = known[..., rows : rows + count, :]
            rows += count
            if part.size != value.size or not is_laid_out(value, part):
                wrong.append(piece)
        return wrong[0] if len(wrong) == 1 and rows == known.shape[-2] else event

    def wrong_write(self, known: Array, event: int) -> int:
        """Of statements that filled an array in, part by part, the first that wrote something wrong."""
        graph = self.graph
        first = event
        n = event
        while graph.op(n) == "in place" and graph.parents(n):
            value = graph.value(n)
            before = graph.value(graph.parents(n)[0])
            if before.shape != value.shape or [*known.shape[-value.ndim :]] != [*value.shape]:
                break
            if known.size != value.size:
                break
            written = value != before
            if not np.allclose(value[written], known.reshape(value.shape)[written], rtol=1e-3, atol=1e-5):
                first = n
            n = graph.parents(n)[0]
        return first

    def is_right(self, n: int) -> bool:
        """True if an array is a step as it should be, in a layout that a step has."""
        value = self.graph.value(n)
        if MASKED in self.values and hides_as(value, self.values[MASKED]):
            return True
        candidates = [*self.values.values(), *self.steps.given.values()]
        return any(array.size == value.size and is_laid_out(value, array) for array in candidates)


def is_laid_out(value: Array, array: Array) -> bool:
    """True if an array holds these numbers with its axes moved, or merged with the next."""
    shape = [size for size in value.shape if size > 1]
    for order in permutations(range(array.ndim)):
        moved = array.transpose(order)
        if merges([size for size in moved.shape if size > 1], shape):
            back = value.reshape(moved.shape).transpose(np.argsort(order))
            if is_alike(back, array):
                return True
    return False


def merges(sizes: Sequence[int], into: Sequence[int]) -> bool:
    """True if sizes become others by merging neighbours."""
    if not sizes or not into:
        return not sizes and not into
    size = 1
    for number, one in enumerate(sizes):
        size *= one
        if size == into[0] and merges(sizes[number + 1 :], into[1:]):
            return True
    return False


def is_alike(value: Array, step: Array) -> bool:
    """True if it is a step; or scores less a number of each row, or exp of these."""
    if value.dtype.kind not in "fiub" or step.dtype.kind not in "fiub":
        return False
    if np.allclose(value, step, rtol=1e-3, atol=1e-5):
        return True
    with np.errstate(all="ignore"):
        as_scores = value.astype(float)
        for scores in (as_scores, np.log(as_scores)):
            if is_shifted(scores, step):
                return True
    return False


def is_shifted(scores: Array, step: Array) -> bool:
    """True if each row differs from that of a step by one number, but for what is hidden in both."""
    hidden = scores < HIDDEN
    meant = step < HIDDEN
    if not (hidden == meant).all() or np.isnan(scores[~hidden]).any() or step.shape[-1] <= 2:
        return False
    off = np.where(hidden, np.nan, scores - step)
    first = np.nanmax(np.where(np.isnan(off), -np.inf, off), axis=-1, keepdims=True)
    return bool(np.isfinite(first).all() and np.nanmax(np.abs(off - first), initial=0.0) < 1e-4)


def hides_as(value: Array, scores: Array) -> bool:
    """True for 0 and 1, or 0 and what stands for −∞, where the scores are hidden that were to be hidden."""
    hidden = scores < HIDDEN
    zeros = value == 0
    if value.ndim < 2 or not (zeros | (value == 1) | (value < HIDDEN)).all():
        return False
    if value.shape[-2:] != hidden.shape[-2:]:
        return False
    shape = value.shape[-hidden.ndim :]
    if any(a not in (1, b) for a, b in zip(shape[::-1], hidden.shape[::-1], strict=False)):
        return False
    if value.size != np.prod(shape):
        return False
    return any(
        (np.broadcast_to(each.reshape(shape), hidden.shape) == hidden).all() for each in (zeros, ~zeros)
    )
