"""The chapters of a story: what happens at a step, and what can be claimed of its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from attnctl.array import Array, Cell
from attnctl.derivation import Step
from attnctl.display import Displayed
from attnctl.names import HEAD_OUTPUTS, MASK, WEIGHTS
from attnctl.ops import Copy, Given, Hide, MatMul, Merge, Repeat, SinkSoftmax, Softmax
from attnctl.trace import Trace
from attnctl.verbs.story.claims import (
    Blind,
    Claim,
    Hidden,
    Look,
    NotFinite,
    extremes,
    mix,
    moved,
    tied,
)

MOST_ROWS = 12
"""Rows of a step that are told one by one."""

MOST_PARTS = 3
"""Values that a row of outputs is said to be made of."""

MIXING = "Each query adds up the rows of {1}, each times its weight."
"""What a product is where weights meet values."""

GIVEN = "{name} are {formula}."
"""What is said of several that were given alike."""

OPTIONAL = re.compile(r"\[([^\]]*{(\d)}[^\]]*)\]")
"""A part of a sentence that is about an input which may not be there."""


@dataclass(frozen=True)
class Chapter:
    """A step (or several that were given alike): what happens, and what came out."""

    steps: tuple[Step, ...]
    happens: str
    claims: tuple[Claim, ...] = ()
    left_out: int = 0
    """Rows of which nothing is said."""


@dataclass(frozen=True)
class Story:
    """A trace told a step at a time; as a string, the text that a pipe gets."""

    trace: Trace
    chapters: tuple[Chapter, ...]

    __str__ = Displayed.__str__


def story(trace: Trace, steps: Sequence[str] | None = None) -> Story:
    """The story of a trace: every step that is recorded, in order, or just these.

    What is said of a step may rest on others. Raises MissingStep for a step that is not there.
    """
    wanted = list(trace.select(list(trace) if steps is None else steps).steps.values())
    loaded = replace(trace, arrays={name: np.asarray(trace[name]) for name in trace})
    return Story(loaded, tuple(map(chapter_of(loaded), grouped(wanted))))


def grouped(steps: list[Step]) -> Iterator[list[Step]]:
    """The steps one by one; those given one after the other in the same way together."""
    group: list[Step] = []
    for step in steps:
        alike = group and isinstance(step.op, Given) and isinstance(group[-1].op, Given)
        if group and not (alike and step.formula == group[-1].formula):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def what_happens(step: Step, names: str) -> str:
    """The sentence of a step's op; `names` are those of all steps that were given alike."""
    words = step.op.words
    if step.name == HEAD_OUTPUTS and isinstance(step.op, MatMul):
        words = MIXING
    elif names != step.name:
        words = GIVEN
    words = OPTIONAL.sub(lambda part: part[1] if int(part[2]) < len(step.inputs) else "", words)
    return words.format(*map(plainly, step.inputs), op=step.op, name=names, formula=step.formula)


def plainly(name: str) -> str:
    """A step's name within a sentence: the scaled scores, the head outputs; Q and W_O as they are."""
    return name.replace("_", " ") if name.islower() else name


class chapter_of:  # noqa: N801  (a function that knows its trace)
    """Makes the chapters of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.hiding = next((step for step in trace.steps.values() if isinstance(step.op, Hide)), None)

    def __call__(self, steps: list[Step]) -> Chapter:
        """The chapter of these steps."""
        names = " and ".join(filter(None, [", ".join(s.name for s in steps[:-1]), steps[-1].name]))
        step, happens = steps[0], what_happens(steps[0], names)
        if len(steps) > 1:
            return Chapter(tuple(steps), happens)
        claims = list(islice(self.claims(step), MOST_ROWS + 4))
        rows = [claim for claim in claims if not isinstance(claim, NotFinite | Blind)]
        return Chapter((step,), happens, tuple(claims), max(0, self.row_count(step) - len(rows)))

    def row_count(self, step: Step) -> int:
        """How many rows could be told of a step, one by one; 0 where it is told as a whole."""
        array = self.trace[step.name]
        if not self.by_row(step):
            return 0
        return int(np.prod(array.shape[:-1])) - len(self.blind_rows())

    def by_row(self, step: Step) -> bool:
        """Whether a step is told row by row."""
        mixing = step.name == HEAD_OUTPUTS and isinstance(step.op, MatMul) and WEIGHTS in self.trace
        return step.name == WEIGHTS or mixing

    def claims(self, step: Step) -> Iterator[Claim]:
        """What can be said of the numbers of a step."""
        array = self.trace[step.name]
        if array.dtype == bool or not array.size:
            return
        strange = np.isnan(array) | np.isposinf(array)
        if not step.name.endswith("scores"):
            strange |= np.isneginf(array)
        if strange.any():
            yield NotFinite(step.name, int(strange.sum()))
        if step.name == WEIGHTS:
            yield from self.blind()
            yield from islice(self.looks(step, array), MOST_ROWS)
        elif self.by_row(step):
            yield from islice(self.mixes(step, array), MOST_ROWS)
        elif isinstance(step.op, Hide):
            yield self.hidden(step, array)
        else:
            yield from self.of_the_whole(step, array)

    def of_the_whole(self, step: Step, array: Array) -> Iterator[Claim]:
        """How a step differs from what it was made of, or how far its numbers reach."""
        changes = not isinstance(step.op, Copy | Given | Merge | Repeat) and step.inputs
        if isinstance(step.op, Copy) or (changes and step.inputs[0] in self.trace):
            before = self.trace.arrays.get(step.inputs[0])
            found = None if before is None else moved(step.name, step.inputs[0], array, before)
            if found is not None and self.trace.steps[step.inputs[0]].axes == step.axes:
                yield found
                return
        reach = extremes(step.name, array)
        if reach is not None:
            yield reach

    # --- who sees whom ---

    def hidden(self, step: Step, array: Array) -> Hidden:
        """How many cells are hidden, and by which rule."""
        reasons = self.reasons(array.shape)
        counts = tuple((word, int((reasons == at).sum())) for at, word in enumerate(self.rule_words()))
        return Hidden(step.name, tuple(each for each in counts if each[1]), array.size)

    def rule_words(self) -> list[str]:
        """The names of what hides, in the order in which reasons count them."""
        if self.hiding is None or not isinstance(self.hiding.op, Hide):
            return []
        return [rule.name for rule in self.hiding.op.rules] + [MASK] * (len(self.hiding.inputs) > 1)

    def reasons(self, shape: tuple[int, ...]) -> Array:
        """For each cell the number of the rule that hides it, −1 where none does."""
        if self.hiding is None or not isinstance(self.hiding.op, Hide):
            return np.full(shape, -1)
        masks = [self.trace[name] for name in self.hiding.inputs[1:] if name in self.trace]
        return self.hiding.op.hidden_by(shape, *masks)

    def blind_rows(self) -> list[Cell]:
        """The rows that see nothing."""
        if self.hiding is None or WEIGHTS not in self.trace:
            return []
        seen = (self.reasons(self.trace[WEIGHTS].shape) < 0).any(axis=-1)
        return [tuple(map(int, row)) for row in np.argwhere(~seen)]

    def blind(self) -> Iterator[Blind]:
        """That rows see nothing, where they do."""
        rows = self.blind_rows()
        if rows:
            yield Blind(WEIGHTS, tuple(rows))

    # --- row by row ---

    def looks(self, step: Step, array: Array) -> Iterator[Look]:
        """What each row looks at."""
        reasons, words = self.reasons(array.shape), self.rule_words()
        softmax = isinstance(step.op, Softmax | SinkSoftmax) and step.inputs[0] in self.trace
        source = step.inputs[0] if softmax else ""
        for row in np.ndindex(*array.shape[:-1]):
            weights, why = array[row], reasons[row]
            if not np.isfinite(weights).all() or not (why < 0).any():
                continue
            keys = tied(weights)
            hidden = tuple(
                (word, tuple(map(int, np.flatnonzero(why == at))))
                for at, word in enumerate(words)
                if (why == at).any()
            )
            scores = self.reason_for(source, row, keys) if source else ()
            share, seen = float(weights[list(keys)].max()), int((why < 0).sum())
            yield Look(step.name, row, keys, share, seen, hidden, source, scores)

    def reason_for(self, source: str, row: Cell, keys: tuple[int, ...]) -> tuple[float, ...]:
        """The scores of these keys, where they are the largest of the row."""
        scores = self.trace[source][row]
        own = scores[list(keys)]
        others = np.delete(scores, list(keys))
        larger = not others.size or own.min() > others.max()
        return tuple(map(float, own)) if larger and np.isfinite(own).all() else ()

    def mixes(self, step: Step, array: Array) -> Iterator[Claim]:
        """What each row of the outputs is made of."""
        weights = self.trace[WEIGHTS]
        for row in np.ndindex(*array.shape[:-1]):
            own = weights[row] if weights.shape[:-1] == array.shape[:-1] else np.array([np.nan])
            if np.isfinite(own).all() and own.any():
                yield mix(step.name, row, own, MOST_PARTS)
