"""The chapters of a story: what happens at a step, and what can be claimed of its numbers.

Claims are values: anyone can recompute each from the dump. Their cells are full indices into a step,
rows those without the last axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.drawing.show.headline import ULPS, find_ties
from attnctl.drawing.show.tables import repeats_input
from attnctl.math import Array, Cell, names, ops
from attnctl.math.derivation import Step
from attnctl.math.names import HEAD_OUTPUTS, WEIGHTS, is_gradient
from attnctl.record import Trace

MOST_ROWS, MOST_PARTS = 12, 3
"""Rows of a step that are told one by one, values that a row of outputs is said to be made of."""

OPTIONAL = re.compile(r"\[([^\]]*{(\d)}[^\]]*)\]")
"""A part of a sentence that is about an input which may not be there."""


@dataclass(frozen=True)
class Extremes:
    """The largest and the smallest finite number of a step, and the first cell that holds each.

    They are one where all are the same. `whole` says that all are finite, here as in other claims.
    """

    step: str
    largest: Cell
    most: float
    smallest: Cell
    least: float
    whole: bool


@dataclass(frozen=True)
class Hidden:
    """The number of cells of a step that are −∞, and what hid them: a rule, a mask, a bias, an edit."""

    step: str
    by: tuple[tuple[str, int], ...]
    of: int


BLIND, EMPTY, UNMIXED = "blind", "empty", "unmixed"
"""Rows of weights that are all 0, as their scores are all −∞ or though some are not, and rows of head
outputs that are not what the weights make of the values."""


@dataclass(frozen=True)
class OddRows:
    """The rows of a step of which nothing else can be said: `BLIND`, `EMPTY` or `UNMIXED` ones."""

    step: str
    kind: str
    rows: tuple[Cell, ...]


@dataclass(frozen=True)
class TopKeys:
    """Which keys a row of weights looks at most (several where they tie), with which share.

    `seen` are the keys whose scores are not −∞, `hidden` the others, with what hides them; where the
    scores are not known, none is hidden. `scores` are the scores of `keys` where these are the largest
    of the row, and so the reason; none where they are not.
    """

    step: str
    row: Cell
    keys: tuple[int, ...]
    share: float
    seen: int
    hidden: tuple[tuple[str, tuple[int, ...]], ...] = ()
    source: str = ""
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Mix:
    """The keys that a row of head outputs is mixed of, first the one with the largest weight.

    The row is the sum of their values, each times its weight, where values are recorded.
    """

    step: str
    row: Cell
    parts: tuple[tuple[int, float], ...]
    rest: float  # the weights of the other keys together


@dataclass(frozen=True)
class NotFinite:
    """The number of NaN and ∞ in a step (−∞ in scores is a hidden key, and none of these)."""

    step: str
    count: int


Claim = Extremes | Hidden | OddRows | TopKeys | Mix | NotFinite


@dataclass(frozen=True)
class Chapter:
    """A step, or several that were made alike: what happens, and what came out."""

    steps: tuple[Step, ...]
    happens: str
    claims: tuple[Claim, ...] = ()
    left_out: int = 0  # rows of which nothing is said


@dataclass(frozen=True)
class Story:
    """As a string, the text that a pipe gets."""

    trace: Trace
    chapters: tuple[Chapter, ...]

    __str__ = Displayed.__str__


def story(trace: Trace, steps: Sequence[str] | None = None) -> Story:
    """The story of a trace: every step that is recorded, in order, or just these.

    Left out, unless they are asked for, are steps that only repeat another one. What is said of a
    step may rest on others. Raises MissingStep for a step that is not there.
    """
    wanted = list(trace.select(list(trace) if steps is None else steps).steps.values())
    loaded = replace(trace, arrays={name: np.asarray(trace[name]) for name in trace})
    chapters: list[Chapter] = []
    for group in (list(steps) for _, steps in groupby(wanted, way_made)):
        step, before = group[0], chapters[-1] if chapters and steps is None else None
        is_copy = isinstance(step.op, ops.Copy | ops.Merge)
        if is_copy and before and step.inputs[0] == before.steps[-1].name and repeats_input(loaded, step):
            chapters[-1] = replace(before, happens=f"{before.happens} {step.name} is the same matrix.")
        else:
            chapters.append(chapter_of(loaded, group))
    return Story(loaded, tuple(chapters))


def way_made(step: Step) -> tuple[object, ...]:
    """How a step was made: those given, or projected, in a row and in the same way are told together."""
    if isinstance(step.op, ops.Project):
        return ops.Project, step.inputs[0], len(step.inputs)
    return (ops.Given, step.formula) if isinstance(step.op, ops.Given) else (step.name,)


def what_happens(steps: Sequence[Step]) -> str:
    """The sentence of an op; of several steps that were made alike, with all that they read."""
    step, several = steps[0], len(steps) > 1
    words = step.op.words
    if step.name == HEAD_OUTPUTS and isinstance(step.op, ops.MatMul):
        words = "Each query adds up the rows of {1}, each times its weight."
    elif is_slope(step.name) and isinstance(step.op, ops.Given):
        words = "{name} is {formula}: how the loss follows each number of what attention gives."
    elif is_slope(step.name) and isinstance(step.op, ops.Scale) and step.axes[-1] == "key":
        words = "A score moves the loss as much as its scaled one does, times what it was scaled by."
    elif several and isinstance(step.op, ops.Given):
        words = "{name} are {formula}."
    words = OPTIONAL.sub(lambda part: part[1] if int(part[2]) < len(step.inputs) else "", words)
    inputs = zip(*(step.inputs for step in steps), strict=True)
    read = (all_of(dict.fromkeys(map(plainly, alike))) for alike in inputs)
    return words.format(*read, op=step.op, name=all_of(step.name for step in steps), formula=step.formula)


def is_slope(name: str) -> bool:
    """Whether it says how the loss moves with a step."""
    return is_gradient(name) and name != names.DELTA


def plainly(name: str) -> str:
    """A step's name within a sentence: the scaled scores, the head outputs; Q and W_O as they are."""
    return name.replace("_", " ") if name.islower() else name


def chapter_of(trace: Trace, steps: list[Step]) -> Chapter:
    step, happens = steps[0], what_happens(steps)
    if edited := [step.name for step in steps if step.name in trace.edited]:
        happens = f"{happens} Then {all_of(edited)} {'was' if len(edited) == 1 else 'were'} edited."
    if len(steps) > 1:
        return Chapter(tuple(steps), happens)
    claims = tuple(claims_of(trace, step))
    told = sum(isinstance(claim, TopKeys | Mix) for claim in claims)
    named = sum(len(claim.rows) for claim in claims if isinstance(claim, OddRows))
    return Chapter((step,), happens, claims, row_count(trace, step) - told - named)


def row_count(trace: Trace, step: Step) -> int:
    """The number of rows that could be told of a step, one by one; 0 where it is told as a whole."""
    if step.name == WEIGHTS:
        return int(np.prod(trace[step.name].shape[:-1]))
    return len(mixed_rows(trace, step)) if is_mixture(trace, step) else 0


def claims_of(trace: Trace, step: Step) -> Iterator[Claim]:
    array = trace[step.name]
    if array.dtype == bool or not array.size:
        return
    scores = step.symbol == names.TABLE[names.MASKED].symbol
    nothing = scores or step.name in {names.CHUNK_LOGSUMEXP, names.LOGSUMEXP}  # −∞ is of what sees nothing
    strange = np.isnan(array) | np.isposinf(array) | (np.isneginf(array) & (not nothing))
    if strange.any():
        yield NotFinite(step.name, int(strange.sum()))
    if step.name == WEIGHTS:
        yield from without_weight(trace, array)
        yield from islice(top_keys_of(trace, step, array), MOST_ROWS)
    elif is_mixture(trace, step):
        yield from mixes(trace, step)
    else:
        hides = isinstance(step.op, ops.Hide) and scores
        if hides or (scores and np.isneginf(array).any()):
            words, reasons = hidden_reasons(trace, step.name)
            counts = [(word, int((reasons == at).sum())) for at, word in enumerate(words)]
            yield Hidden(step.name, tuple(count for count in counts if count[1]), array.size)
        as_it_is = ops.Copy | ops.Given | ops.Merge | ops.Repeat
        reach = None if hides or isinstance(step.op, as_it_is) else extremes(step.name, array)
        if reach is not None:
            yield reach


def without_weight(trace: Trace, weights: Array) -> Iterator[OddRows]:
    """The rows whose weights are all 0: as they see nothing, or for another reason."""
    nothing, source = np.asarray(~weights.any(axis=-1)), source_of_weights(trace)
    blind = nothing & (np.isneginf(trace[source]).all(axis=-1) if source else False)
    if blind.any():
        yield OddRows(WEIGHTS, BLIND, rows_where(blind))
    if (nothing & ~blind).any():
        yield OddRows(WEIGHTS, EMPTY, rows_where(nothing & ~blind))


def top_keys_of(trace: Trace, step: Step, array: Array) -> Iterator[TopKeys]:
    source = source_of_weights(trace)
    words, reasons = hidden_reasons(trace, source) if source else ([], np.full(array.shape, -1))
    for row in np.ndindex(*array.shape[:-1]):
        weights, why = array[row], reasons[row]
        if not np.isfinite(weights).all() or not weights.max() > 0:
            continue
        keys = find_ties(weights)
        causes = ((word, np.flatnonzero(why == at)) for at, word in enumerate(words))
        hidden = tuple((word, tuple(map(int, places))) for word, places in causes if places.size)
        scores: tuple[float, ...] = ()
        if source:  # the scores of these keys, where they are the largest of the row
            own, others = trace[source][row][list(keys)], np.delete(trace[source][row], list(keys))
            largest = not others.size or own.min() > others.max()
            scores = tuple(map(float, own)) if largest and np.isfinite(own).all() else ()
        share, seen = float(weights[list(keys)].max()), int((why < 0).sum())
        yield TopKeys(step.name, row, keys, share, seen, hidden, source, scores)


def is_mixture(trace: Trace, step: Step) -> bool:
    made = step.name == HEAD_OUTPUTS and isinstance(step.op, ops.MatMul) and step.inputs[0] in trace
    return made and trace[step.inputs[0]].shape[:-1] == trace[step.name].shape[:-1]


def mixes(trace: Trace, step: Step) -> Iterator[Mix | OddRows]:
    rows, array, weights = mixed_rows(trace, step), trace[step.name], trace[step.inputs[0]]
    values = trace.arrays.get(step.inputs[1])
    if values is None:
        unmixed = tuple(rows) if step.name in trace.edited else ()
    else:
        unmixed = tuple(row for row in rows if not same_mixture(array[row], weights[row], values[row[:-1]]))
    if unmixed:
        yield OddRows(step.name, UNMIXED, unmixed)
    for row in [row for row in rows if row not in unmixed][:MOST_ROWS]:
        own = weights[row]
        keys = np.argsort(-own, kind="stable")[:MOST_PARTS]
        parts = tuple((int(key), float(own[key])) for key in keys if own[key] > 0)
        rest = float(own.sum(dtype=np.float64)) - sum(share for _, share in parts)
        yield Mix(step.name, row, parts, max(rest, 0.0))


def mixed_rows(trace: Trace, step: Step) -> list[Cell]:
    """The rows of outputs of which weights can say what they are made of: none of these is below 0."""
    weights = trace[step.inputs[0]]
    return [
        row
        for row in np.ndindex(*trace[step.name].shape[:-1])
        if np.isfinite(weights[row]).all() and weights[row].any() and (weights[row] >= 0).all()
    ]


def rows_where(where: Array) -> tuple[Cell, ...]:
    return tuple(tuple(map(int, row)) for row in np.argwhere(where))


def source_of_weights(trace: Trace) -> str:
    """The scores that softmax made the weights of; empty where these are not what it made."""
    step = trace.steps.get(WEIGHTS)
    if step is None or WEIGHTS in trace.edited or not isinstance(step.op, ops.Softmax | ops.SinkSoftmax):
        return ""
    return step.inputs[0] if step.inputs[0] in trace else ""


def hidden_reasons(trace: Trace, name: str) -> tuple[list[str], Array]:
    """What first made scores −∞: the causes, and the number of each score's, −1 where it is seen."""
    words: list[str] = []
    why = np.full(trace[name].shape, -1)
    chain: list[Step] = []
    while name in trace and trace.steps[name].axes[-2:] == ("query", "key"):
        chain.insert(0, trace.steps[name])
        name = (*chain[0].inputs, "")[0]
    for step in chain:
        hidden = np.isneginf(trace[step.name])
        why[~hidden] = -1
        for word, where in hidden_causes(trace, step):
            new = hidden & (why < 0) & where
            if new.any():
                words += [word] * (word not in words)
                why[new] = words.index(word)
    return words, why


def hidden_causes(trace: Trace, step: Step) -> Iterator[tuple[str, Array]]:
    """Each cause that may have made scores −∞ at a step, and where, the first that did so first."""
    shape = trace[step.name].shape
    others = [np.asarray(trace[name]) for name in step.inputs[1:] if name in trace]
    if isinstance(step.op, ops.Hide):
        by = step.op.hidden_by(shape, *others)
        causes = [rule.label for rule in step.op.rules] + [names.MASK] * len(others)
        yield from ((word, by == at) for at, word in enumerate(causes))
    if isinstance(step.op, ops.Add) and others:
        yield step.inputs[1], np.broadcast_to(np.isneginf(others[0]), shape)
    yield "an edit" if step.name in trace.edited else "overflow", np.ones(shape, bool)


def extremes(step: str, array: Array) -> Extremes | None:
    """The largest and the smallest of the finite numbers; None where there are none."""
    finite = np.isfinite(array)
    if not finite.any():
        return None
    top = index_of(np.where(finite, array, -np.inf).argmax(), array)
    bottom = index_of(np.where(finite, array, np.inf).argmin(), array)
    return Extremes(step, top, float(array[top]), bottom, float(array[bottom]), bool(finite.all()))


def index_of(flat: np.intp, array: Array) -> Cell:
    return tuple(int(at) for at in np.unravel_index(flat, array.shape))


def same_mixture(output: Array, weights: Array, values: Array) -> bool:
    """True where an output row is Σ weight · value, but for rounding in its type."""
    terms = np.abs(weights.astype(np.float64)[:, None] * values).sum(axis=0)
    off = np.abs(weights.astype(np.float64) @ values - output)
    return bool((off <= ULPS * np.finfo(output.dtype).eps * (len(weights) + 1) * terms).all())
