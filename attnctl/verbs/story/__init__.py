"""The chapters of a story: what happens at a step, and what can be claimed of its numbers.

Claims are values: anyone can recompute each from the dump. Their cells are full indices into a step,
rows those without the last axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import NamedTuple

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

MOST_ROWS = 12
"""Rows of a step that are told one by one."""

MOST_PARTS = 3
"""Values that a row of outputs is said to be made of."""

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


BLIND = "blind"
"""Rows of weights that are all 0, as their scores are all −∞."""

EMPTY = "empty"
"""Rows of weights that are all 0 though some of their scores are not −∞."""

UNMIXED = "unmixed"
"""Rows of head outputs that are not what the weights make of the values."""


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
    wanted = trace.select(list(trace) if steps is None else steps).steps.values()
    loaded = replace(trace, arrays={name: np.asarray(trace[name]) for name in trace})
    chapters: list[Chapter] = []

    for _, alike in groupby(wanted, way_made):
        group = list(alike)
        step = group[0]
        may_join = chapters and steps is None  # a step that was asked for by name has its own chapter
        if may_join and only_repeats(loaded, step, chapters[-1]):
            previous = chapters[-1]
            chapters[-1] = replace(previous, happens=f"{previous.happens} {step.name} is the same matrix.")
        else:
            chapters.append(chapter_of(loaded, group))

    return Story(loaded, tuple(chapters))


def only_repeats(trace: Trace, step: Step, previous: Chapter) -> bool:
    """True where a step copies the last one of the chapter before it, number for number."""
    if not isinstance(step.op, ops.Copy | ops.Merge):
        return False
    return step.inputs[0] == previous.steps[-1].name and repeats_input(trace, step)


def way_made(step: Step) -> tuple[object, ...]:
    """How a step was made: those given, or projected, in a row and in the same way are told together."""
    if isinstance(step.op, ops.Project):
        return ops.Project, step.inputs[0], len(step.inputs)
    if isinstance(step.op, ops.Given):
        return ops.Given, step.formula
    return (step.name,)


def what_happens(steps: Sequence[Step]) -> str:
    """The sentence of an op; of several steps that were made alike, with all that they read."""
    step = steps[0]
    words = OPTIONAL.sub(
        lambda part: part[1] if int(part[2]) < len(step.inputs) else "",
        words_of_step(step, several=len(steps) > 1),
    )

    read = []
    for alike in zip(*(step.inputs for step in steps), strict=True):
        different = dict.fromkeys(map(plainly, alike))
        read.append(all_of(different))

    return words.format(*read, op=step.op, name=all_of(step.name for step in steps), formula=step.formula)


def words_of_step(step: Step, *, several: bool) -> str:
    """The words of the step's op, or better ones where the step's name tells more than its op."""
    is_given = isinstance(step.op, ops.Given)

    if step.name == HEAD_OUTPUTS and isinstance(step.op, ops.MatMul):
        return "Each query adds up the rows of {1}, each times its weight."
    if is_slope(step.name) and is_given:
        return "{name} is {formula}: how the loss follows each number of what attention gives."
    if is_slope(step.name) and isinstance(step.op, ops.Scale) and step.axes[-1] == "key":
        return "A score moves the loss as much as its scaled one does, times what it was scaled by."
    if several and is_given:
        return "{name} are {formula}."
    return step.op.words


def is_slope(name: str) -> bool:
    """Whether it says how the loss moves with a step."""
    return is_gradient(name) and name != names.DELTA


def plainly(name: str) -> str:
    """A step's name within a sentence: the scaled scores, the head outputs; Q and W_O as they are."""
    return name.replace("_", " ") if name.islower() else name


def chapter_of(trace: Trace, steps: list[Step]) -> Chapter:
    happens = what_happens(steps)
    edited = [step.name for step in steps if step.name in trace.edited]
    if edited:
        happens = f"{happens} Then {all_of(edited)} {'was' if len(edited) == 1 else 'were'} edited."
    if len(steps) > 1:
        return Chapter(tuple(steps), happens)

    step = steps[0]
    claims = tuple(claims_of(trace, step))

    rows_left = row_count(trace, step)
    for claim in claims:
        if isinstance(claim, TopKeys | Mix):
            rows_left -= 1
        elif isinstance(claim, OddRows):
            rows_left -= len(claim.rows)

    return Chapter((step,), happens, claims, left_out=rows_left)


def row_count(trace: Trace, step: Step) -> int:
    """The number of rows that could be told of a step, one by one; 0 where it is told as a whole."""
    if step.name == WEIGHTS:
        return int(np.prod(trace[step.name].shape[:-1]))
    if is_mixture(trace, step):
        return len(mixed_rows(trace, step))
    return 0


def claims_of(trace: Trace, step: Step) -> Iterator[Claim]:
    array = trace[step.name]
    if array.dtype == bool or not array.size:
        return

    is_scores = step.symbol == names.TABLE[names.MASKED].symbol
    # −∞ is what scores of hidden keys are, and the logarithm of a sum over no keys.
    may_be_minus_infinite = is_scores or step.name in {names.CHUNK_LOGSUMEXP, names.LOGSUMEXP}
    strange = np.isnan(array) | np.isposinf(array)
    if not may_be_minus_infinite:
        strange |= np.isneginf(array)
    if strange.any():
        yield NotFinite(step.name, int(strange.sum()))

    if step.name == WEIGHTS:
        yield from without_weight(trace, array)
        yield from islice(top_keys_of(trace, step, array), MOST_ROWS)
    elif is_mixture(trace, step):
        yield from mixes(trace, step)
    else:
        yield from claims_of_whole(trace, step, is_scores=is_scores)


def claims_of_whole(trace: Trace, step: Step, *, is_scores: bool) -> Iterator[Hidden | Extremes]:
    """What can be said of a step that is not told row by row: how much is hidden, and its extremes."""
    array = trace[step.name]
    hides = is_scores and isinstance(step.op, ops.Hide)
    if hides or (is_scores and np.isneginf(array).any()):
        yield hidden_claim(trace, step)

    # A step that only hides or moves numbers has the extremes of the step it took them from.
    moves = isinstance(step.op, ops.Copy | ops.Given | ops.Merge | ops.Repeat)
    if hides or moves:
        return

    claim = extremes(step.name, array)
    if claim is not None:
        yield claim


def hidden_claim(trace: Trace, step: Step) -> Hidden:
    causes, numbers = hidden_reasons(trace, step.name)
    by = []
    for number, cause in enumerate(causes):
        count = int((numbers == number).sum())
        if count:
            by.append((cause, count))
    return Hidden(step.name, tuple(by), trace[step.name].size)


def without_weight(trace: Trace, weights: Array) -> Iterator[OddRows]:
    """The rows whose weights are all 0: as they see nothing, or for another reason."""
    all_zero = np.asarray(~weights.any(axis=-1))
    source = source_of_weights(trace)
    sees_nothing = np.isneginf(trace[source]).all(axis=-1) if source else False

    blind = all_zero & sees_nothing
    if blind.any():
        yield OddRows(WEIGHTS, BLIND, rows_where(blind))

    empty = all_zero & ~blind
    if empty.any():
        yield OddRows(WEIGHTS, EMPTY, rows_where(empty))


def top_keys_of(trace: Trace, step: Step, array: Array) -> Iterator[TopKeys]:
    source = source_of_weights(trace)
    nothing_hidden = HiddenReasons([], np.full(array.shape, SEEN))
    reasons = hidden_reasons(trace, source) if source else nothing_hidden

    for row in np.ndindex(*array.shape[:-1]):
        weights = array[row]
        if not np.isfinite(weights).all() or not weights.max() > 0:
            continue

        keys = find_ties(weights)
        yield TopKeys(
            step=step.name,
            row=row,
            keys=keys,
            share=float(weights[list(keys)].max()),
            seen=int((reasons.numbers[row] == SEEN).sum()),
            hidden=hidden_keys(reasons, row),
            source=source,
            scores=scores_of_keys(trace[source][row], keys) if source else (),
        )


def hidden_keys(reasons: HiddenReasons, row: Cell) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Each cause that hides keys from a row, with these keys."""
    hidden = []
    for number, cause in enumerate(reasons.causes):
        keys = np.flatnonzero(reasons.numbers[row] == number)
        if keys.size:
            hidden.append((cause, tuple(map(int, keys))))
    return tuple(hidden)


def scores_of_keys(scores: Array, keys: Sequence[int]) -> tuple[float, ...]:
    """The scores of these keys; none where they are not the largest of the row, and so not the reason."""
    chosen = scores[list(keys)]
    others = np.delete(scores, list(keys))
    if others.size and not chosen.min() > others.max():
        return ()
    if not np.isfinite(chosen).all():
        return ()
    return tuple(map(float, chosen))


def is_mixture(trace: Trace, step: Step) -> bool:
    """True for head outputs of which the weights are recorded, a row of them for each row of outputs."""
    if step.name != HEAD_OUTPUTS or not isinstance(step.op, ops.MatMul):
        return False
    weights = step.inputs[0]
    return weights in trace and trace[weights].shape[:-1] == trace[step.name].shape[:-1]


def mixes(trace: Trace, step: Step) -> Iterator[Mix | OddRows]:
    rows = mixed_rows(trace, step)
    weights = trace[step.inputs[0]]

    unmixed = unmixed_rows(trace, step, rows)
    if unmixed:
        yield OddRows(step.name, UNMIXED, unmixed)

    others = [row for row in rows if row not in unmixed]
    for row in others[:MOST_ROWS]:
        row_weights = weights[row]
        largest = np.argsort(-row_weights, kind="stable")[:MOST_PARTS]
        parts = tuple((int(key), float(row_weights[key])) for key in largest if row_weights[key] > 0)

        # Rounding may put the sum of a row a little below its own parts.
        whole = float(row_weights.sum(dtype=np.float64))
        rest = whole - sum(share for _, share in parts)
        yield Mix(step.name, row, parts, max(rest, 0.0))


def unmixed_rows(trace: Trace, step: Step, rows: Sequence[Cell]) -> tuple[Cell, ...]:
    """The rows of outputs that are not what the weights make of the values."""
    outputs = trace[step.name]
    weights = trace[step.inputs[0]]
    values = trace.arrays.get(step.inputs[1])
    if values is None:  # nothing to hold them to: only an edit tells that they are something else
        return tuple(rows) if step.name in trace.edited else ()
    return tuple(row for row in rows if not same_mixture(outputs[row], weights[row], values[row[:-1]]))


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


SEEN = -1
"""In place of the number of a cause: the score is not −∞."""


class HiddenReasons(NamedTuple):
    """What first made scores −∞: the causes, and for each score the number of its cause, or `SEEN`."""

    causes: list[str]
    numbers: Array


def hidden_reasons(trace: Trace, name: str) -> HiddenReasons:
    """Follow scores from the first recorded step on to `name`, and note what hid each."""
    causes: list[str] = []
    numbers = np.full(trace[name].shape, SEEN)

    for step in steps_of_scores(trace, name):
        hidden = np.isneginf(trace[step.name])
        numbers[~hidden] = SEEN  # an edit may have brought back what an earlier step hid

        for cause, where in hidden_causes(trace, step):
            new = hidden & (numbers == SEEN) & where
            if not new.any():
                continue
            if cause not in causes:
                causes.append(cause)
            numbers[new] = causes.index(cause)

    return HiddenReasons(causes, numbers)


def steps_of_scores(trace: Trace, name: str) -> list[Step]:
    """The steps through which scores went, query by key, from the first that is recorded to `name`."""
    chain: list[Step] = []
    while name in trace and trace.steps[name].axes[-2:] == ("query", "key"):
        step = trace.steps[name]
        chain.append(step)
        if not step.inputs:
            break
        name = step.inputs[0]
    return chain[::-1]


def hidden_causes(trace: Trace, step: Step) -> Iterator[tuple[str, Array]]:
    """Each cause that may have made scores −∞ at a step, and where, the first that did so first."""
    shape = trace[step.name].shape
    others = [np.asarray(trace[name]) for name in step.inputs[1:] if name in trace]

    if isinstance(step.op, ops.Hide):
        hidden_by = step.op.hidden_by(shape, *others)
        causes = [rule.label for rule in step.op.rules]
        causes += [names.MASK for _ in others]
        for number, cause in enumerate(causes):
            yield cause, hidden_by == number

    if isinstance(step.op, ops.Add) and others:
        yield step.inputs[1], np.broadcast_to(np.isneginf(others[0]), shape)

    # What is −∞ for none of these reasons was edited, or has overflowed.
    yield "an edit" if step.name in trace.edited else "overflow", np.ones(shape, bool)


def extremes(step: str, array: Array) -> Extremes | None:
    """The largest and the smallest of the finite numbers; None where there are none."""
    finite = np.isfinite(array)
    if not finite.any():
        return None

    largest = index_of(np.where(finite, array, -np.inf).argmax(), array)
    smallest = index_of(np.where(finite, array, np.inf).argmin(), array)
    return Extremes(
        step=step,
        largest=largest,
        most=float(array[largest]),
        smallest=smallest,
        least=float(array[smallest]),
        whole=bool(finite.all()),
    )


def index_of(flat: np.intp, array: Array) -> Cell:
    return tuple(map(int, np.unravel_index(flat, array.shape)))


def same_mixture(output: Array, weights: Array, values: Array) -> bool:
    """True where an output row is Σ weight · value, but for rounding in its type."""
    exact = weights.astype(np.float64)
    sizes = np.abs(exact[:, None] * values).sum(axis=0)
    off = np.abs(exact @ values - output)

    # Each of the products and sums may be off by half a unit in the last place of what it adds up.
    allowed = ULPS * np.finfo(output.dtype).eps * (len(weights) + 1) * sizes
    return bool((off <= allowed).all())
