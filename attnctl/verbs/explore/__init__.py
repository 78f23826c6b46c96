"""The walk through a trace as a value: where one stands, how one came there, what is shown.

Every function takes a walk and gives the next one. Nothing here draws anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Cell
from attnctl.math.arithmetic import abridge
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace
from attnctl.record.cells import parse_address
from attnctl.sources.sentence import Source
from attnctl.verbs.explain import SHOWN, Explainer, Node, Reference, read_by


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
        self.recorded = trace
        self.meant = meant
        self.words = words
        self.explainer = Explainer(trace, meant, full=False)
        self.trace = self.explainer.trace
        self.made = made
        self.before = before
        self.steps = tuple(self.trace)
        self.node = lru_cache(maxsize=256)(lambda step, cell: self.explainer.tree(step, cell, 1))
        self.changed = lru_cache(maxsize=None)(self.compare)

    @property
    def edits(self) -> tuple[str, ...]:
        return self.made.settings.edits if self.made else ()

    def old(self, step: str) -> Array | None:
        """The numbers of a step before the edits, None where there are none to compare."""
        if self.before is None or step not in self.before:
            return None
        array = self.before[step]
        return array if array.shape == self.trace[step].shape else None

    def difference(self, step: str) -> Array | None:
        """What edits added to each number, 0 to the same infinity or NaN; None where nothing was edited."""
        old = self.old(step)
        if old is None:
            return None
        a = self.trace[step].astype(np.float64)
        b = old.astype(np.float64)
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(all="ignore"):
            return np.where(is_same, 0.0, a - b)

    def compare(self, step: str) -> tuple[int, int, float] | None:
        """In how many cells of a step edits changed it, of how many, and by how much at most."""
        difference = self.difference(step)
        if difference is None:
            return None
        sizes = np.abs(difference[~np.isnan(difference)])
        return int(np.count_nonzero(difference)), difference.size, float(sizes.max(initial=0.0))


SAME = {"token": "query", "new": "key"}  # axes of tokens that one goes along with another from step to step


@dataclass(frozen=True)
class Place:
    layer: int
    step: str
    cell: Cell


@dataclass(frozen=True)
class ExplorerState:
    layers: tuple[TracedLayer, ...]
    place: Place
    history: tuple[Place, ...] = ()
    heat: bool = False
    operand: int = 0
    known: dict[str, int] = field(default_factory=dict)
    """Where one stood along each axis when a step last had it."""

    @property
    def layer(self) -> TracedLayer:
        return self.layers[self.place.layer]

    @property
    def trace(self) -> Trace:
        """The trace that is looked at, with the steps that it left out computed."""
        return self.layer.trace

    @property
    def step(self) -> str:
        return self.place.step

    @property
    def array(self) -> Array:
        return self.trace[self.step]

    @property
    def axes(self) -> tuple[str, ...]:
        return self.trace.steps[self.step].axes

    @property
    def empty(self) -> bool:
        return self.array.size == 0

    @property
    def row(self) -> int:
        return self.place.cell[-2] if len(self.place.cell) > 1 else 0

    @property
    def column(self) -> int:
        return self.place.cell[-1] if self.place.cell else 0

    @property
    def lead(self) -> Cell:
        """The head, and the member of a batch: which matrix of the step is shown."""
        return self.place.cell[:-2]

    @cached_property
    def node(self) -> Node | None:
        return None if self.empty else self.layer.node(self.step, self.place.cell)

    @cached_property
    def operands(self) -> tuple[Reference, ...]:
        """The cells that were read for this one, those that the arithmetic shows before the others."""
        found = self.node.explanation if self.node else None
        if found is None:
            return ()
        shown = read_by(abridge(found.expr, SHOWN), found.step)
        return tuple(dict.fromkeys((*shown, *found.inputs)))


def begin(layers: tuple[TracedLayer, ...]) -> ExplorerState:
    """A walk that begins at the attention weights, or at the last step where there are none."""
    steps = layers[0].steps
    step = WEIGHTS if WEIGHTS in steps else steps[-1]
    return ExplorerState(layers, Place(0, step, (0,) * layers[0].trace[step].ndim))


def place_at(walk: ExplorerState, cell: Cell) -> ExplorerState:
    """At this cell of the same step, or at the nearest one that there is."""
    held = tuple(within(place, size) for place, size in zip(cell, walk.array.shape, strict=True))
    known = walk.known | by_axis(walk.axes, held)
    return replace(walk, place=replace(walk.place, cell=held), operand=0, known=known)


def within(place: int, size: int) -> int:
    """The nearest place along an axis of this size; 0 of an axis without any."""
    last = max(size - 1, 0)
    return min(max(place, 0), last)


def by_axis(axes: Sequence[str], places: Cell) -> dict[str, int]:
    """The place along each axis, under the name that goes along from step to step."""
    return {SAME.get(axis, axis): place for axis, place in zip(axes, places, strict=True)}


def move(walk: ExplorerState, rows: int, columns: int) -> ExplorerState:
    return at_cell(walk, walk.row + rows, walk.column + columns)


def at_cell(walk: ExplorerState, row: int, column: int) -> ExplorerState:
    return place_at(walk, (*walk.lead, row, column)[-walk.array.ndim :] if walk.array.ndim else ())


def along(walk: ExplorerState, axis: str, by: int) -> ExplorerState:
    """The next place along the axis of heads or of a batch. Raises AttnError where there is but one."""
    if axis not in walk.axes:
        raise AttnError(f"{walk.step} has no {axis} axis: one matrix for all")
    at = walk.axes.index(axis)
    size = walk.array.shape[at]
    if size == 1:
        raise AttnError(f"there is one {axis}")
    cell = list(walk.place.cell)
    cell[at] = (cell[at] + by) % size
    return place_at(walk, tuple(cell))


def jump(walk: ExplorerState, place: Place) -> ExplorerState:
    """At another cell; Backspace comes back here."""
    history = (*walk.history, walk.place)[-1000:]  # as far as Backspace can go back
    return place_at(replace(walk, place=place, history=history), place.cell)


def back(walk: ExplorerState) -> ExplorerState:
    """Go back to the place before the last jump. Raises AttnError at the beginning."""
    if not walk.history:
        raise AttnError("nothing to go back to")
    last = replace(walk, place=walk.history[-1], history=walk.history[:-1])
    return place_at(last, last.place.cell)


def to_step(walk: ExplorerState, step: str) -> ExplorerState:
    """At a step, where one stands along each of its axes if one does."""
    return jump(walk, Place(walk.place.layer, step, carry_place(walk, walk.trace, step)))


def carry_place(walk: ExplorerState, trace: Trace, step: str) -> Cell:
    """The cell of a step that has the place where one stands, or last stood, along each axis."""
    here = walk.known | by_axis(walk.axes, walk.place.cell)
    cell = []
    for axis, size in zip(trace.steps[step].axes, trace[step].shape, strict=True):
        place = here.get(SAME.get(axis, axis), 0)
        cell.append(within(place, size))
    return tuple(cell)


def go_step(walk: ExplorerState, by: int) -> ExplorerState:
    """The next step, or the one before. Raises AttnError at either end."""
    steps = walk.layer.steps
    at = steps.index(walk.step) + by
    if not 0 <= at < len(steps):
        raise AttnError(f"{walk.step} is the {'first' if by < 0 else 'last'} step")
    return to_step(walk, steps[at])


def to_layer(walk: ExplorerState, by: int) -> ExplorerState:
    """The next of several traces. Raises AttnError where there is but one."""
    if len(walk.layers) == 1:
        raise AttnError("there is one trace; a model gives one a layer (--model DIR --layer all)")
    at = (walk.place.layer + by) % len(walk.layers)
    other = walk.layers[at]
    step = walk.step if walk.step in other.steps else begin((other,)).step
    return jump(walk, Place(at, step, carry_place(walk, other.trace, step)))


def choose_operand(walk: ExplorerState, number: int) -> ExplorerState:
    """With another operand chosen, by its number from 0; they go round. Raises AttnError for none."""
    if walk.operands:
        return replace(walk, operand=number % len(walk.operands))
    why_not = walk.node.why_not if walk.node is not None else ""
    raise AttnError(why_not or "nothing was read for this cell: it was given, or it is what it is")


def follow(walk: ExplorerState) -> ExplorerState:
    """At the cell of the chosen operand. Raises AttnError where there is none."""
    chosen = choose_operand(walk, walk.operand)
    step, cell = chosen.operands[chosen.operand]
    return jump(walk, Place(walk.place.layer, step, cell))


def find_token(walk: ExplorerState, text: str) -> ExplorerState:
    """At a cell by its whole address, or at `row` or `row,column` of the matrix that is shown.

    Raises AttnError where there is none.
    """
    if "[" not in text:
        row, comma, column = text.partition(",")
        places = [str(place) for place in walk.lead]
        places.append(row.strip() or str(walk.row))
        places.append(column.strip() if comma else str(walk.column))
        own_places = places[-walk.array.ndim :]  # a vector has no row
        text = f"{walk.step}[{','.join(own_places)}]"

    address = parse_address(text).spell_out(walk.trace)
    return jump(walk, Place(walk.place.layer, address.step, address.cell(walk.trace)))


def switch_heat(walk: ExplorerState) -> ExplorerState:
    return replace(walk, heat=not walk.heat)


def summary(walk: ExplorerState) -> str:
    """The change that edits made to the step that is shown, "" where nothing was edited."""
    changed = walk.layer.changed(walk.step)
    if changed is None:
        return ""
    cells, total, greatest = changed
    if not cells:
        return "unchanged by the edits"
    return f"{cells:,} of {total:,} changed ({share_text(cells, total)}), most by {greatest:.4g}"


def share_text(cells: int, total: int) -> str:
    """A share as a person reads it: never 0 % where there is one."""
    share = cells / total
    return f"{share:.0%}" if share >= 0.01 else "<1%"
