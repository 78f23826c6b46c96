"""What a target returns behind its output: weights, scores or a log-sum-exp, where they are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log

import numpy as np

from attnctl.array import Array
from attnctl.names import SINK, WEIGHTS
from attnctl.verbs.check.rounding import FACTOR
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import TYPES
from attnctl.verbs.conform.judge import Expected, Judgement, scatter_of
from attnctl.verbs.conform.layout import apart, axes_out

LSE = "log-sum-exp"

UNITS = 8
"""Units in the last place that a second output may be off, of itself or of 1."""


def known_seconds(wanted: Expected) -> dict[str, Array]:
    """What a second output may be, by name."""
    values = {name: each.value for name, each in wanted.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    if SINK in values:  # programs differ in whether the sink is in the sum
        return {WEIGHTS: values[WEIGHTS]}
    last = values[scores[-1]]
    with np.errstate(all="ignore"):
        top = last.max(axis=-1)
        total = np.exp(last - np.where(np.isfinite(top), top, 0.0)[..., None]).sum(axis=-1)
        lse = top + np.log(total)
    return {
        WEIGHTS: values[WEIGHTS],
        **{name: values[name] for name in scores},
        LSE: lse,
        "log2-sum-exp": lse / log(2.0),
        "maximum": top,
        "sum": total,
    }


def recognised(wanted: Expected, answer: Answer) -> dict[int, str]:
    """The outputs behind the first that are known, by place."""
    found = {}
    known = known_seconds(wanted)
    for place, array in enumerate(answer.outputs[1:], start=1):
        names = (name for name, value in known.items() if ratio(wanted, name, value, array) <= 1)
        name = next(names, None)
        if name is not None:
            found[place] = name
    return found


def judged_seconds(
    wanted: Expected, answer: Answer, seconds: Mapping[int, str], first: Judgement
) -> Judgement:
    """The judgement of a case whose output is right, with what comes behind it."""
    known = known_seconds(wanted)
    for place, name in seconds.items():
        if name not in known:
            continue
        array = answer.outputs[place] if place < len(answer.outputs) else None
        off = ratio(wanted, name, known[name], array)
        if off > 1:
            return replace(first, ratio=off, words=f"the output is right, but output {place} is no {name}")
    return first


def ratio(wanted: Expected, name: str, value: Array, array: Array | None) -> float:
    """How far off a second output is, as a part of what it may be; ∞ for another shape and NaN."""
    axes = axes_out(wanted.problem.conventions.layout)
    given = None if array is None else in_our_layout(array, value, axes)
    if given is None:
        return inf
    rows = wanted.seen if value.ndim == 3 else np.broadcast_to(wanted.seen[..., None], value.shape)
    last = [each for each in wanted.steps if each.endswith("scores")][-1]
    known = wanted.steps[name if name in wanted.steps else last]
    scatter = scatter_of(known)
    if known.value.ndim != value.ndim:
        scatter = scatter.max(axis=-1, where=np.isfinite(known.value), initial=0.0)
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        room = FACTOR * scatter + UNITS * TYPES[wanted.problem.case.dtype].unit * np.maximum(size, 1.0)
        off = np.where(given == value, 0.0, np.abs(given - value)) / room
        off = np.where(rows & np.isfinite(value), off, 0.0)
    return float(np.where(np.isnan(off), inf, off).max(initial=0.0))


def in_our_layout(array: Array, value: Array, axes: str) -> Array | None:
    """A second output over (batch, head, query[, key]), None where it has another shape."""
    lead = sum(letter not in apart(axes) for letter in "bh")
    given: Array = array.reshape((*[1] * lead, *array.shape))
    if given.ndim == value.ndim + 1 and given.shape[-1] == 1:
        given = given[..., 0]
    if given.shape != value.shape and axes == "bnhd" and given.ndim == 3:
        given = given.swapaxes(1, 2)
    return given if given.shape == value.shape and given.dtype.kind in "fiu" else None
