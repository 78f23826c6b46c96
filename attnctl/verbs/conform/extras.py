"""The outputs behind the first: what --returns declares is judged, and what others look like is said.

Their axes are found once, in plain attention on sizes that all differ: where queries are as many as heads,
a shape tells nothing. What an output is taken for is reported, and never held against the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import MASKED, OUTPUT, SCALED, SINK, WEIGHTS
from attnctl.mistakes.chunks import LN2
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.judge import Expected, ExpectedOutput, Judgement, scatter_of

SCORES, LSE, LSE2, MAXIMUM, SUM = "scores", "logsumexp", "logsumexp2", "maximum", "sum"
NOT_JUDGED = "-"

RETURNS = (OUTPUT, LSE, LSE2, WEIGHTS, SCORES, SCALED, MASKED, MAXIMUM, SUM, NOT_JUDGED)
"""The names that may be declared; masked scores are those that softmax reads, masked or not."""

WORDS = {LSE: "log-sum-exp", LSE2: "log-sum-exp in base 2"}
"""Those that are not called by their names."""

UNITS = 8
"""Units in the last place that an extra output may be off, of itself or of 1."""


Extras = dict[int, tuple[str, str]]
"""Outputs behind the first by their places: what each is, and its axes."""

OF_ROWS = ("b h n", "b n h", "b h n 1", "b n h 1", "(b h) n", "(b n) h", "(b h) n 1", "(b h n)",
           "n b h", "n h b", "h b n")  # fmt: skip
OF_CELLS = ("b h n m", "b n h m", "(b h) n m", "(b h n) m", "b h (n m)")
"""The axes that a number for each query, and one for each query and key, may come in."""


def find_declared(wanted: Expected, answer: Answer, returns: Sequence[str]) -> Extras:
    """Find the axes of declared outputs: those in which one is right, or else those of its shape."""
    found = {}
    forms = expect_extras(wanted)
    for place, name in enumerate(returns):
        if not place or name == NOT_JUDGED:
            continue
        given = answer.outputs[place] if place < len(answer.outputs) else None
        tried = OF_CELLS if name in forms and forms[name][0].ndim == 4 else OF_ROWS
        laid = dict(arrangements(wanted, given, tried))
        right = [axes for axes, array in laid.items() if measure_extra(wanted, name, array) <= 1]
        found[place] = name, [*right, *laid, tried[0]][0]
    return found


def expect_extras(wanted: Expected) -> dict[str, tuple[Array, ...]]:
    """Compute what extra outputs may be: scores a later step's, sum and maximum with a sink or not."""
    values = {name: step.value for name, step in wanted.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    last = values[scores[-1]]
    top, total = sum_rows(last)
    totals, tops = [total], [top]
    with np.errstate(all="ignore"):
        if SINK in values:
            totals.append(total + np.exp(values[SINK][..., None] - top))
            tops.append(np.maximum(top, values[SINK][..., None]))
        sums = tuple(top + np.log(total) for total in totals)
    return {
        WEIGHTS: (values[WEIGHTS],),
        **{name: tuple(values[later] for later in scores[at:]) for at, name in enumerate(scores)},
        MASKED: (last,),
        LSE: sums,
        LSE2: tuple(sum_ / LN2 for sum_ in sums),
        MAXIMUM: tuple(tops),
        SUM: tuple(totals),
    }


def sum_rows(scores: Array) -> tuple[Array, Array]:
    """The maximum m of each row, and Σ exp(s − m)."""
    top = scores.max(axis=-1)
    with np.errstate(all="ignore"):
        return top, np.exp(scores - np.where(np.isfinite(top), top, 0.0)[..., None]).sum(axis=-1)


def describe_extras(wanted: Expected, answer: Answer) -> Iterator[str]:
    """What outputs that nobody declares look like in plain attention."""
    for place, array in enumerate(answer.outputs[1:], start=1):
        laid = [each for _, each in arrangements(wanted, array, (*OF_ROWS, *OF_CELLS))]
        tried = product(expect_extras(wanted), laid)
        name = next((name for name, each in tried if measure_extra(wanted, name, each) <= 1), None)
        if name:
            how = f"--returns {','.join([OUTPUT, *[NOT_JUDGED] * (place - 1), name])} declares it"
            yield f"Output {place} looks like the {WORDS.get(name, name)} and is not judged; {how}."
        elif array is not None:
            yield f"Output {place}, of shape {list(array.shape)}, is not known and not judged."


def judge_extras(wanted: Expected, answer: Answer, extras: Extras, first: Judgement) -> Judgement:
    """Judge the outputs behind the first: the first of them that is wrong, or else `first`."""
    forms = expect_extras(wanted)
    for place, (name, axes) in extras.items():
        if name not in forms:
            continue
        array = answer.outputs[place] if place < len(answer.outputs) else None
        off = measure_extra(wanted, name, arrange_extra(wanted, array, axes))
        if off > 1:
            what = "is not there" if array is None else f"is no {WORDS.get(name, name)}"
            words = f"the output is right, but output {place} {what}"
            return replace(first, ratio=off, words=words, extra=place)
    return first


def measure_extra(wanted: Expected, name: str, given: Array | None) -> float:
    """Return the largest error as a part of the error allowed; ∞ for another shape and for NaN."""
    return min(measure_form(wanted, name, value, given) for value in expect_extras(wanted)[name])


def measure_form(wanted: Expected, name: str, value: Array, given: Array | None) -> float:
    if given is None or given.shape != value.shape:
        return inf
    rows = wanted.seen if value.ndim == 3 else np.broadcast_to(wanted.seen[..., None], value.shape)
    last = [step for step in wanted.steps if step.endswith("scores")][-1]
    known = wanted.steps[name if name in wanted.steps else last]
    scatter = scatter_of(known)
    if known.value.ndim != value.ndim:
        scatter = scatter.max(axis=-1, where=np.isfinite(known.value), initial=0.0)
    dtype = wanted.problem.case.dtype
    right = ExpectedOutput(name, dtype, value, scatter, rows, 1, units=UNITS, of_row=0.0, least=1.0)
    with np.errstate(all="ignore"):
        off = np.where(given == value, 0.0, np.abs(given - value)) / right.allowed
        off = np.where(rows & np.isfinite(value), off, 0.0)
    return float(np.where(np.isnan(off), inf, off).max(initial=0.0))


def arrange_extra(wanted: Expected, array: Array | None, axes: str) -> Array | None:
    """Bring an output in these axes to (batch, head, query[, key]); None where it has others."""
    if array is None or array.dtype.kind not in "fiu":
        return None
    own = {axis: size for axis, size in zip("bhnm", wanted.problem.scores, strict=True) if axis in axes}
    try:
        return rearrange(array, f"{axes} -> b h n{' m' * ('m' in axes)}", **own)
    except ValueError:
        return None


def arrangements(wanted: Expected, array: Array | None, ways: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """The axes in which an output may come, each with the output in ours."""
    laid = ((axes, arrange_extra(wanted, array, axes)) for axes in ways)
    yield from ((axes, output) for axes, output in laid if output is not None)


# --- a log-sum-exp that is none ---

NearMiss = tuple[str, str, str]
"""A mistake, its sentence, and what to write instead."""

OTHER_BASE: dict[str, NearMiss] = {
    LSE: ("lse-base", "it is in base 2", f"multiply it by ln 2, or declare it as {LSE2}"),
    LSE2: ("lse-base", "it is in base e", f"divide it by ln 2, or declare it as {LSE}"),
}
NO_MAXIMUM = ("lse-without-maximum", "the maximum of each row is left out of it",
              "add it: m + log Σ exp(s − m)")  # fmt: skip


def name_near_miss(wanted: Expected, name: str, given: Array | None) -> NearMiss | None:
    """Name what programs give for a log-sum-exp in base e or 2."""
    known = expect_extras(wanted)
    with np.errstate(all="ignore"):
        total = np.log(known[SUM][0])
    other = known[LSE if name == LSE2 else LSE2]
    for said, forms in ((OTHER_BASE[name], other), (NO_MAXIMUM, (total, total / LN2))):
        if any(measure_form(wanted, LSE, form, given) <= 1 for form in forms):
            return said
    return None
