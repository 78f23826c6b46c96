"""A trace that is explored: what explains its cells, what made it, and what edits changed in it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Cell
from attnctl.record.trace import Trace
from attnctl.sources.sentence import Source
from attnctl.verbs.explain import Explainer, Node


class Changed(NamedTuple):
    """The change that edits made to one step: in how many of its cells, and by how much at most."""

    cells: int
    total: int
    greatest: float

    @property
    def share(self) -> float:
        return self.cells / self.total if self.total else 0.0

    @property
    def percent(self) -> str:
        """The share as a person reads it: never 0 % where a cell differs."""
        return f"{self.share:.0%}" if self.share >= 0.01 else "<1%"


class Made(NamedTuple):
    """The settings that made a trace, and the layer in which the edits among them were made."""

    source: Source
    settings: Settings
    edited_in: int = 0


class TracedLayer:
    """A trace, and the explanations of its cells.

    `before` is the same trace without edits, where there are any. `made` is None for a trace that
    was only read: then `words` name its file, and `meant` says what anyone's arrays were meant to be.
    """

    def __init__(
        self,
        trace: Trace,
        made: Made | None = None,
        before: Trace | None = None,
        meant: Settings | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        self.recorded, self.meant, self.words = trace, meant, words
        self.explainer = Explainer(trace, meant, full=False)
        self.trace = self.explainer.trace
        self.made, self.before = made, before
        self.steps = tuple(self.trace)
        self.node = lru_cache(maxsize=256)(self.explain)
        self.changed = lru_cache(maxsize=None)(self.compare)

    @property
    def edits(self) -> tuple[str, ...]:
        """The edits that this trace was made with."""
        return self.made.settings.edits if self.made else ()

    def explain(self, step: str, cell: Cell) -> Node:
        """Explain a cell; a node without an explanation says why not."""
        return self.explainer.tree(step, cell, 1)

    def old(self, step: str) -> Array | None:
        """The numbers of a step before the edits, None where there are none to compare."""
        if self.before is None or step not in self.before:
            return None
        array = self.before[step]
        return array if array.shape == self.trace[step].shape else None

    def difference(self, step: str) -> Array | None:
        """The amount that edits added to each number of a step; None where nothing was edited."""
        old = self.old(step)
        return None if old is None else subtract(self.trace[step], old)

    def compare(self, step: str) -> Changed | None:
        """The change that edits made to a step; None where nothing was edited."""
        difference = self.difference(step)
        if difference is None:
            return None
        sizes = np.abs(difference[~np.isnan(difference)])
        return Changed(int(np.count_nonzero(difference)), difference.size, float(sizes.max(initial=0.0)))


def subtract(now: Array, old: Array) -> Array:
    """now − old; 0 where both are the same number, the same infinity or both NaN."""
    a, b = now.astype(np.float64), old.astype(np.float64)
    with np.errstate(all="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)
