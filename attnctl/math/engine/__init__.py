"""Carrying a derivation out: each step in order, from the steps above it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Keep, Progress
from attnctl.math.names import LOGSUMEXP, TABLE, WEIGHTS
from attnctl.math.ops import Given, MatMulT, RowWise
from attnctl.math.steps import Derivation, Step, ancestors

if TYPE_CHECKING:
    from attnctl.math.engine.tiles import Stretch

Edit = Callable[[Array], Array]

Engine = Callable[["Stretch | None", Progress | None], list[list[int]]]
"""Fills what is kept of a stretch, in place of tiles; returns the rows that see nothing.

Raises AttnError for a stretch that it cannot fill, or where there is none.
"""

FEWEST_FOR_TILES = 2**20
"""Fewer scores than this are computed whole, unless tiles are asked for: they would save nothing."""

Found = tuple[str, list[int]]  # a step, and the first of its cells that grew too large
ROOM = 4  # how many times its bound a score may be: rounding, and sums that grow before they shrink


class Outcome(NamedTuple):
    """The values of the steps that were kept, and what is to be known of all that were computed."""

    values: dict[str, Array]
    empty_rows: list[list[int]]  # the rows of weights that see nothing
    overflow: Found | None = None
    """The first step, and its first cell, that grew too large for its type of number."""


def carry_out(  # noqa: PLR0913  (what is computed, and how)
    derivation: Derivation,
    given: Mapping[str, Array],
    dtype: str = "float64",
    *,
    edits: Mapping[str, Edit] | None = None,
    keep: Keep = None,
    tile: tuple[int, int] | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Outcome:
    """Compute the steps to keep (None: all) in this type of number, and what they need.

    A step's edit applies before the next reads it. Where no n × n step is kept, or just some,
    scores are worked on in tiles of so many queries and keys (None: as many as stay in cache).

    What grows too large for the type becomes ∞, and then NaN, as it does in any kernel; NumPy
    says nothing here, `overflow` finds it: of what is kept, and of all that it was computed from.
    """
    steps = steps_needed(derivation, keep)
    execution = Execution(
        steps=steps,
        given=given,
        dtype=dtype,
        edits=edits or {},
        keep=keep,
        tile=tile,
        progress=progress,
        engine=engine,
    )

    if engine and not execution.stretch:
        engine(None, progress)  # which says what it lacks

    # Given arrays first: a mask stands after the scores it is about, and blocks read both.
    ordered = sorted(steps, key=lambda step: not isinstance(step.op, Given))
    with np.errstate(all="ignore"):
        for step in in_turn(ordered, execution.back):
            execution.carry_on(step)
        grown = execution.overflow()

    kept = {}
    for step in steps:
        if keep is None or step.name in keep:
            kept[step.name] = own(execution.values[step.name], handed_in=given.get(step.name))
    return Outcome(kept, execution.empty, grown)


@dataclass
class Execution:
    """A derivation on its way: the values so far, and the stretch from scores on that tiles may compute."""

    steps: Sequence[Step]
    given: Mapping[str, Array]
    dtype: str
    edits: Mapping[str, Edit]
    keep: Keep
    tile: tuple[int, int] | None
    progress: Progress | None
    engine: Engine | None = None
    values: dict[str, Array] = field(default_factory=dict)
    empty: list[list[int]] = field(default_factory=list)  # the rows of weights that see nothing
    tiled: Stretch | None = None  # the stretch, once tiles have computed it
    safe: bool = False  # every number of the stretch is sure to be finite

    def __post_init__(self) -> None:
        self.stretch = stretch_of(self.steps)
        self.back: list[Step] = []
        """The gradients of the stretch, which tiles compute where they computed the stretch."""
        has_gradients = any(TABLE[step.name].gradient for step in self.steps)
        if self.keep is not None and self.stretch and has_gradients:
            from attnctl.math.engine.tiles import back_stretch

            self.back = back_stretch(self.steps, self.keep)

    def carry_on(self, step: Step) -> None:
        """Add the value of the next step, unless tiles have computed it."""
        if self.stretch and step is self.stretch[0]:
            self.begin_stretch()

        if self.tiled and step in self.back:
            if step is self.back[0]:  # with it come all the others
                from attnctl.math.engine.tiles import fill_backward

                self.values.update(fill_backward(self.tiled, self.back, self.values))
            return
        if self.tiled and step in self.stretch:
            return

        self.values[step.name] = self.compute(step)

    def begin_stretch(self) -> None:
        """Compute the stretch in tiles, where it is large and not all of it is kept."""
        self.safe = not self.edits and in_range(self.stretch, self.values)
        if self.keep is None or self.edits:
            return

        q, k = (self.values[name] for name in self.stretch[0].inputs)
        scores = prod(q.shape[:-1]) * k.shape[-2]
        if self.tile is None and self.engine is None and scores <= FEWEST_FOR_TILES:
            return

        from attnctl.math.engine.tiles import blockwise, lay_out_stretch

        # Of the stretch there must be left what is kept, and what a step outside it reads.
        inside = step_names(self.stretch)
        others = [step for step in self.steps if step.name not in inside and step not in self.back]
        read_outside = {name for step in others for name in step.inputs}
        left = {*self.keep, *(inside & read_outside)}

        self.tiled = lay_out_stretch(self.steps, self.stretch, self.values, left, in_range=self.safe)
        if self.engine is not None:
            self.empty = self.engine(self.tiled, self.progress)
        else:
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
        elif step.name == LOGSUMEXP and WEIGHTS not in step_names(self.steps):
            self.empty = np.argwhere(np.isneginf(value)).tolist()
        return self.edits[step.name](value) if step.name in self.edits else value

    def overflow(self) -> Found | None:
        """Find the first number that grew too large, among steps that are not sure to be finite."""
        unsure = [step for step in self.steps if not (self.safe and step.is_n_by_n)]
        return overflow(unsure, self.values, self.edits, None if self.safe else self.tiled)


def in_turn(steps: Sequence[Step], back: Sequence[Step]) -> list[Step]:
    """The steps, those of the stretch one after another once all that they read is there."""
    in_stretch = step_names(back)
    follows = set(in_stretch)
    for step in steps:
        if follows & set(step.inputs):
            follows.add(step.name)

    before = [step for step in steps if step.name not in follows]
    after = [step for step in steps if step.name in follows - in_stretch]
    return [*before, *back, *after]


def own(value: Array, *, handed_in: Array | None) -> Array:
    """The value, or a copy where it is the caller's own array, which they may change later."""
    return value.copy() if value is handed_in and value.flags.writeable else value


def step_names(steps: Iterable[Step]) -> set[str]:
    """Their names."""
    return {step.name for step in steps}


def steps_needed(derivation: Derivation, keep: Keep) -> list[Step]:
    """The steps to keep and all they are computed from, in order."""
    if keep is None:
        return list(derivation)
    wanted = ancestors(derivation, keep)
    return [step for step in derivation if step.name in wanted]


def stretch_of(steps: Iterable[Step]) -> list[Step]:
    """The steps from scores to head outputs: those with a row of keys for each query, and what reads rows.

    Softmax comes after all that reads its scores, and A V after softmax. There is no stretch, and all
    is computed whole, where something is made of the weights before they are mixed.
    """
    forward = [step for step in steps if not TABLE[step.name].gradient]
    scores = [step for step in forward if step.is_n_by_n]
    if any(WEIGHTS in step.inputs for step in scores):
        return []

    names = step_names(scores)
    others = [step for step in forward if isinstance(step.op, RowWise) and step.name not in names]
    rows = [step for step in others if names & set(step.inputs)]

    def turn(step: Step) -> int:
        if WEIGHTS in step.inputs:
            return 2
        return 1 if step.name == WEIGHTS else 0

    return sorted([*scores, *rows], key=turn)


def empty_rows(weights: Array) -> list[list[int]]:
    """The rows of attention weights that see nothing: indices of (…, head, query)."""
    rows: list[list[int]] = np.argwhere(~weights.any(axis=-1)).tolist()
    return rows


# --- numbers that grew too large for their type: the first of them, whatever is kept ---


def overflow(
    steps: Iterable[Step],
    values: Mapping[str, Array],
    edited: Collection[str] = (),
    tiled: Stretch | None = None,
) -> Found | None:
    """The first step, and its first cell, that grew too large for its type of number.

    Scores may be −∞ from the step on that hides them, which an edit does, too. Steps of a `tiled`
    stretch that have no value are computed again.
    """
    steps = [step for step in steps if not isinstance(step.op, Given)]
    hiding: set[str] = set()  # steps in which −∞ may be meant
    is_hidden = False
    for step in steps:
        if step.name in edited or (step.is_n_by_n and step.op.hides):
            is_hidden = True  # and in all that follow
        if is_hidden or step.op.log_of_sum:
            hiding.add(step.name)

    cells_in_tiles: dict[str, list[int]] = {}
    if tiled:
        from attnctl.math.engine.tiles import find_in_tiles

        cells_in_tiles = find_in_tiles(
            tiled, lambda step, value: first_cell(value, hides=step.name in hiding)
        )

    for step in steps:
        if step.name in values:
            cell = first_cell(values[step.name], hides=step.name in hiding)
        else:
            cell = cells_in_tiles.get(step.name)
        if cell is not None:
            return step.name, cell
    return None


def first_cell(array: Array, *, hides: bool) -> list[int] | None:
    """The first cell that is not finite, and not −∞ where that hides."""
    is_fine = np.isfinite(array)
    if is_fine.all():
        return None

    if hides:
        is_fine |= np.isneginf(array)
    grown = np.argwhere(~is_fine)
    return list(map(int, grown[0])) if len(grown) else None


def in_range(stretch: Sequence[Step], values: Mapping[str, Array]) -> bool:
    """True where no score of a stretch can grow too large: |q·k| ≤ |q| |k| (Cauchy and Schwarz)."""
    product, *others = [step for step in stretch if step.is_n_by_n]
    if not isinstance(product.op, MatMulT):
        return False
    for step in stretch:
        mixed = () if step.is_n_by_n else step.inputs[1:]
        if not all(np.isfinite(values[name]).all() for name in mixed):
            return False

    q, k = (values[name] for name in product.inputs)
    limit = float(np.finfo(q.dtype).max) / ROOM
    largest = largest_norm(q) * largest_norm(k)
    reach = q.shape[-2] + k.shape[-2]  # no query is farther from a key

    for step in others:
        if not largest <= limit:  # or NaN
            return False
        beside = [values[name] for name in step.inputs[1:]]
        largest = step.op.largest_score(largest, reach, *beside)
    return largest <= limit


def largest_norm(rows: Array) -> float:
    """The largest √Σ x² of all rows (…, d)."""
    squares = np.einsum("...d,...d->...", rows, rows, dtype=np.float64, casting="unsafe")
    return sqrt(squares.max(initial=0))
