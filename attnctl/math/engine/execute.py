"""Carrying a derivation out: each step in order, from the steps above it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.engine.overflow import Found, in_range, overflow
from attnctl.math.engine.tiles import Progress, Stretch, after_head, blockwise, is_n_by_n, stretch_of
from attnctl.math.names import LOGSUMEXP, TABLE, WEIGHTS
from attnctl.math.ops import Given

Edit = Callable[[Array], Array]

FEWEST_FOR_TILES = 2**20
"""Fewer scores than this are computed whole, unless tiles are asked for: they would save nothing."""


class Outcome(NamedTuple):
    """The values of the steps that were kept, and what is to be known of all that were computed."""

    values: dict[str, Array]
    empty_rows: list[list[int]]
    """The rows of weights that see nothing."""
    overflow: Found | None = None
    """The first step, and its first cell, that grew too large for its type of number."""
    compiled: bool = False
    """True if the exp of softmax was the compiled one."""


def carry_out(
    derivation: Derivation,
    given: Mapping[str, Array],
    dtype: str = "float64",
    *,
    edits: Mapping[str, Edit] | None = None,
    keep: Collection[str] | None = None,
    tile: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute the steps to keep (None: all) in this type of number, and what they need.

    A step's edit applies before the next reads it. Where no n × n step is kept, or just some,
    scores are worked on in tiles of so many queries and keys (None: as many as stay in cache).

    What grows too large for the type becomes ∞, and then NaN, as it does in any kernel; NumPy
    says nothing here, `overflow` finds it: of what is kept, and of all that it was computed from.
    """
    steps = steps_needed(derivation, keep)
    execution = Execution(steps, given, dtype, edits or {}, keep, tile, progress)
    # Given arrays first: a mask stands after the scores it is about, and blocks read both.
    ordered = sorted(steps, key=lambda step: not isinstance(step.op, Given))
    with np.errstate(all="ignore"):
        for step in in_turn(ordered, execution.back):
            execution.carry_on(step)
        grown = execution.overflow()
    kept = {
        step.name: own(execution.values[step.name], given.get(step.name))
        for step in steps
        if keep is None or step.name in keep
    }
    tiled = execution.tiled
    return Outcome(kept, execution.empty, grown, tiled is not None and tiled.exp is not np.exp)


@dataclass
class Execution:
    """A derivation on its way: the values so far, and the stretch from scores on that tiles may compute."""

    steps: Sequence[Step]
    given: Mapping[str, Array]
    dtype: str
    edits: Mapping[str, Edit]
    keep: Collection[str] | None
    tile: tuple[int, int] | None
    progress: Progress | None
    values: dict[str, Array] = field(default_factory=dict)
    empty: list[list[int]] = field(default_factory=list)
    """The rows of weights that see nothing."""
    tiled: Stretch | None = None
    """The stretch, once tiles have computed it."""
    safe: bool = False
    """Every number of the stretch is sure to be finite."""

    def __post_init__(self) -> None:
        self.stretch = stretch_of(self.steps)
        self.back: list[Step] = []
        """The gradients of the stretch, which tiles compute where they computed the stretch."""
        if self.keep is not None and self.stretch and any(TABLE[step.name].gradient for step in self.steps):
            from attnctl.math.engine.back import back_stretch

            self.back = back_stretch(self.steps, self.keep)

    def carry_on(self, step: Step) -> None:
        """Add the value of the next step, unless tiles have computed it."""
        if self.stretch and step is self.stretch[0]:
            self.begin_stretch()
        if self.tiled and step in self.back:
            if step is self.back[0]:
                from attnctl.math.engine.back import fill_backward

                self.values.update(fill_backward(self.tiled, self.back, self.values))
        elif not (self.tiled and step in self.stretch):
            self.values[step.name] = self.compute(step)

    def begin_stretch(self) -> None:
        """Compute the stretch in tiles, where it is large and not all of it is kept."""
        self.safe = not self.edits and in_range(self.stretch, self.values)
        if self.keep is None or self.edits:
            return
        q, k = (self.values[name] for name in self.stretch[0].inputs)
        if self.tile is None and prod(q.shape[:-1]) * k.shape[-2] <= FEWEST_FOR_TILES:
            return
        inside = names(self.stretch)
        others = [step for step in self.steps if step.name not in inside and step not in self.back]
        left = {*self.keep, *(inside & {name for step in others for name in step.inputs})}
        self.tiled = lay_out(self.steps, self.stretch, self.values, left, self.safe)
        self.empty = blockwise(self.tiled, self.tile, self.progress)
        self.values.update(self.tiled.made())

    def compute(self, step: Step) -> Array:
        """Compute a step whole and edit it; returns what the next steps read."""
        if isinstance(step.op, Given):
            value = self.given[step.name]
        else:
            value = step.op.apply(*(self.values[name] for name in step.inputs))
        if value.dtype != bool:  # masks stay true and false
            value = value.astype(self.dtype, copy=False)
        if step.name == WEIGHTS:  # before edits: a row that an edit clears is not blind
            self.empty = empty_rows(value)
        elif step.name == LOGSUMEXP and WEIGHTS not in names(self.steps):
            self.empty = np.argwhere(np.isneginf(value)).tolist()
        return self.edits[step.name](value) if step.name in self.edits else value

    def overflow(self) -> Found | None:
        """Find the first number that grew too large, among steps that are not sure to be finite."""
        unsure = [step for step in self.steps if not (self.safe and is_n_by_n(step))]
        return overflow(unsure, self.values, self.edits, None if self.safe else self.tiled)


def in_turn(steps: Sequence[Step], back: Sequence[Step]) -> list[Step]:
    """The steps, those of the stretch one after another once all that they read is there."""
    names = {step.name for step in back}
    after = set(names)
    for step in steps:
        if after & set(step.inputs):
            after.add(step.name)
    before = [step for step in steps if step.name not in after]
    return [*before, *back, *(step for step in steps if step.name in after - names)]


def own(value: Array, handed_in: Array | None) -> Array:
    """The value, or a copy where it is the caller's own array, which they may change later."""
    return value.copy() if value is handed_in and value.flags.writeable else value


def names(steps: Iterable[Step]) -> set[str]:
    """Their names."""
    return {step.name for step in steps}


def steps_needed(derivation: Derivation, keep: Collection[str] | None) -> list[Step]:
    """The steps to keep and all they are computed from, in order."""
    if keep is None:
        return list(derivation)
    wanted = set(keep)
    for step in reversed(derivation.steps):
        if step.name in wanted:
            wanted |= set(step.inputs)
    return [step for step in derivation if step.name in wanted]


def lay_out(
    steps: Iterable[Step],
    stretch: Sequence[Step],
    values: Mapping[str, Array],
    keep: Collection[str],
    in_range: bool,
) -> Stretch:
    """A stretch with its arrays: what it reads, spread over batch and heads, and what it will fill."""
    axes = {step.name: step.axes[-2:] for step in steps}
    q, k = (values[name] for name in stretch[0].inputs)
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    sizes = {"query": q.shape[-2], "key": k.shape[-2]}
    outside = {}
    for name in {name for step in stretch for name in step.inputs} - names(stretch):
        own = values[name].shape[-len(axes[name]) :]
        shape = tuple(sizes.get(axis, size) for axis, size in zip(axes[name], own, strict=True))
        outside[name] = np.broadcast_to(values[name], (*lead, *shape))
    kept = {}
    for step in stretch:
        if step.name in keep or step.axes[-1] != "key":
            columns = {**sizes, step.axes[-1]: sizes.get(step.axes[-1]) or values[step.inputs[1]].shape[-1]}
            columns["chunk"] = getattr(step.op, "chunk", 1)
            kept[step.name] = np.zeros((*lead, *(columns[axis] for axis in after_head(step))), q.dtype)
            if hidden := TABLE[step.name].hidden:  # what no block computes is hidden
                kept[step.name].fill(hidden)
    laid = Stretch(stretch, outside, axes, kept, lead, sizes["query"], sizes["key"], in_range)
    if not laid.online:
        return laid
    from attnctl.math.engine.compiled import exp_for

    return replace(laid, exp=exp_for(laid.dtype, laid.computed()))


def empty_rows(weights: Array) -> list[list[int]]:
    """The rows of attention weights that see nothing: indices of (…, head, query)."""
    rows: list[list[int]] = np.argwhere(~weights.any(axis=-1)).tolist()
    return rows
