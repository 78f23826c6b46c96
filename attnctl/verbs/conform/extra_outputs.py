"""The outputs of a target behind the first: declared by --returns, else recognised, else reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, log

import numpy as np

from attnctl.math import Array
from attnctl.math.names import MASKED, OUTPUT, SCALED, SINK, WEIGHTS
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.judge import Expected, ExpectedOutput, Judgement, scatter_of
from attnctl.verbs.conform.layout import split_axes

SCORES, LSE, LSE2, MAXIMUM, SUM = "scores", "logsumexp", "logsumexp2", "maximum", "sum"
NOT_JUDGED = "-"

RETURNS = (OUTPUT, LSE, LSE2, WEIGHTS, SCORES, SCALED, MASKED, MAXIMUM, SUM, NOT_JUDGED)
"""The names that may be declared; masked scores are those that softmax reads, masked or not."""

WORDS = {LSE: "log-sum-exp", LSE2: "log-sum-exp in base 2"}
"""Those that are not called by their names."""

LN2 = log(2.0)

DECLARE = "It is not judged; --returns output,logsumexp declares it."

UNITS = 8
"""Units in the last place that an extra output may be off, of itself or of 1."""

Forms = dict[str, tuple[Array, ...]]
"""By name, the arrays of which an extra output may be any."""


def judged_places(returns: Sequence[str]) -> dict[int, str]:
    """Find the places of declared outputs behind the first that are judged."""
    return {place: name for place, name in enumerate(returns) if place and name != NOT_JUDGED}


def expect_extras(wanted: Expected) -> Forms:
    """Compute the forms of extra outputs: scores may be a later step's, a sum has its sink or not."""
    values = {name: each.value for name, each in wanted.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    last = values[scores[-1]]
    top, total = sum_rows(last)
    totals = [total]
    with np.errstate(all="ignore"):
        if SINK in values:
            totals.append(total + np.exp(values[SINK][..., None] - top))
        sums = tuple(top + np.log(each) for each in totals)
    return {
        WEIGHTS: (values[WEIGHTS],),
        **{name: tuple(values[later] for later in scores[at:]) for at, name in enumerate(scores)},
        MASKED: (last,),
        LSE: sums,
        LSE2: tuple(each / LN2 for each in sums),
        MAXIMUM: (top,),
        SUM: tuple(totals),
    }


def sum_rows(scores: Array) -> tuple[Array, Array]:
    """The maximum m of each row, and Σ exp(s − m)."""
    top = scores.max(axis=-1)
    with np.errstate(all="ignore"):
        return top, np.exp(scores - np.where(np.isfinite(top), top, 0.0)[..., None]).sum(axis=-1)


def recognise_extras(wanted: Expected, answer: Answer) -> dict[int, str]:
    found = {}
    forms = expect_extras(wanted)
    for place, array in enumerate(answer.outputs[1:], start=1):
        name = next((name for name in forms if measure_extra(wanted, name, forms[name], array) <= 1), None)
        if name is not None:
            found[place] = name
    return found


def describe_extras(wanted: Expected, answer: Answer, known: Mapping[int, str]) -> Iterator[str]:
    """Describe the outputs behind the first, which nobody declared."""
    for place, array in enumerate(answer.outputs[1:], start=1):
        if place in known:
            name = known[place]
            yield f"Output {place} is taken for the {WORDS.get(name, name)}, and held to it."
        elif arrange_extra(array, wanted.seen.shape, wanted) is not None:
            near = name_near_miss(wanted, LSE, array)
            yield (
                f"Output {place} has a number for each query and is no log-sum-exp in base e or 2"
                f"{f': {near[1]}' if near else ''}. {DECLARE}"
            )
        elif array is not None:
            yield f"Output {place}, of shape {list(array.shape)}, is not known and not judged."


def judge_extras(
    wanted: Expected, answer: Answer, extras: Mapping[int, str], first: Judgement
) -> Judgement:
    """Judge what comes behind an output that is right."""
    forms = expect_extras(wanted)
    for place, name in extras.items():
        if name not in forms:
            continue
        array = answer.outputs[place] if place < len(answer.outputs) else None
        off = measure_extra(wanted, name, forms[name], array)
        if off > 1:
            what = "is not there" if array is None else f"is no {WORDS.get(name, name)}"
            return replace(
                first, ratio=off, words=f"the output is right, but output {place} {what}", extra=place
            )
    return first


def measure_extra(wanted: Expected, name: str, forms: Sequence[Array], array: Array | None) -> float:
    """Return the largest error as a part of the error allowed; ∞ for another shape and for NaN."""
    return min(measure_form(wanted, name, value, array) for value in forms)


def measure_form(wanted: Expected, name: str, value: Array, array: Array | None) -> float:
    given = arrange_extra(array, value.shape, wanted)
    if given is None:
        return inf
    rows = wanted.seen if value.ndim == 3 else np.broadcast_to(wanted.seen[..., None], value.shape)
    last = [each for each in wanted.steps if each.endswith("scores")][-1]
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


def arrange_extra(array: Array | None, shape: tuple[int, ...], wanted: Expected) -> Array | None:
    """Arrange an extra output over (batch, head, query[, key]); None where it has another shape."""
    if array is None or array.dtype.kind not in "fiu":
        return None
    axes = wanted.problem.profile.axes_out
    given: Array = array.reshape(
        (*[1] * sum(letter not in split_axes(axes) for letter in "bh"), *array.shape)
    )
    if given.ndim == len(shape) + 1 and given.shape[-1] == 1:
        given = given[..., 0]
    if given.ndim == len(shape) - 1 and given.shape == (shape[0] * shape[1], *shape[2:]):
        given = given.reshape(shape)
    if given.shape != shape and axes == "bnhd" and given.ndim == 3:
        given = given.swapaxes(1, 2)
    return given if given.shape == shape else None


# --- a log-sum-exp that is none ---

NearMiss = tuple[str, str, str]
"""A mistake, its sentence, and what to write instead."""

FACTORS: dict[str, dict[float, NearMiss]] = {
    LSE: {
        1 / LN2: ("lse-base", "it is in base 2", f"multiply it by ln 2, or declare it as {LSE2}"),
        LN2: ("lse-factor", "it is multiplied by ln 2", "leave the factor out"),
        1 / LN2**2: ("lse-factor", "it is divided by ln 2 twice", "leave the factors out"),
    },
    LSE2: {
        1.0: ("lse-base", "it is in base e", f"divide it by ln 2, or declare it as {LSE}"),
        LN2: ("lse-factor", "it is multiplied by ln 2 rather than divided", "divide by ln 2"),
        1 / LN2**2: ("lse-factor", "it is divided by ln 2 twice", "divide once"),
    },
}
"""By the output meant: factors of the natural log-sum-exp that programs give."""

NO_MAXIMUM = (
    "lse-without-maximum",
    "the maximum of each row is left out of it",
    "add it: m + log Σ exp(s − m)",
)
MIXED = ("lse-mixed-bases", "its maximum and its logarithm are in different bases", "take both in one base")
NEGATIVE = ("lse-negative", "it has the wrong sign", "leave the minus out")
NO_LOGARITHM = ("lse-no-logarithm", "it is the sum, without a logarithm", "take m + log of it")
NO_SUM = ("lse-maximum-alone", "it is the maximum of each row alone", "add log Σ exp(s − m)")
NO_SCALE = ("lse-other-scores", "it is of scores that are not scaled", "take it of what softmax reads")
NO_MASK = ("lse-other-scores", "what is hidden is in it", "take it of what softmax reads")


def name_near_miss(wanted: Expected, name: str, array: Array | None) -> NearMiss | None:
    for said, forms in near_misses(wanted, name):
        if measure_extra(wanted, LSE, forms, array) <= 1:
            return said
    return None


def near_misses(wanted: Expected, name: str) -> Iterator[tuple[NearMiss, tuple[Array, ...]]]:
    """List what programs give for a log-sum-exp in base e or 2, each in either base."""
    known = expect_extras(wanted)
    right, top, total = known[LSE][0], known[MAXIMUM][0], known[SUM][0]
    with np.errstate(all="ignore"):
        yield from ((said, (right * factor,)) for factor, said in FACTORS[name].items())
        yield NO_MAXIMUM, (np.log(total), np.log2(total))
        yield MIXED, (top + np.log2(total), top / LN2 + np.log(total))
        yield NEGATIVE, (-right, -right / LN2)
        yield NO_LOGARITHM, (total,)
        yield NO_SUM, (top, top / LN2)
        for step, said in ((SCORES, NO_SCALE), (SCALED, NO_MASK)):
            top, total = sum_rows(wanted.steps[step].value)
            sums = top + np.log(total)
            yield said, (sums, sums / LN2)
