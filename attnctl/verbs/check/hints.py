"""What can be said of a wrong step that no known mistake explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnctl.array import Array
from attnctl.derivation import Step
from attnctl.ops import Given
from attnctl.verbs.check.mistake import Case
from attnctl.verbs.check.precision import FLOAT32, on_grid
from attnctl.verbs.check.record import Record, Strictness
from attnctl.verbs.check.search import Search
from attnctl.verbs.check.walk import Walk, Walker

MOST_DECIMALS = 8


def hint(search: Search) -> str:
    """One sentence on how found and expected numbers are related, if they are."""
    case = search.case
    return factor(case) or offset(case) or few(case)


def printed(record: Record, walk: Walk) -> str:
    """That everything agrees if the numbers were rounded when they were written down."""
    steps = [record.value(step.name) for step in walk.derivation if derived(step, record)]
    if record.strictness != Strictness() or all(on_grid(each, FLOAT32.bits) for each in steps):
        return ""
    for decimals in range(2, MOST_DECIMALS + 1):
        if all((np.round(each, decimals) == each)[np.isfinite(each)].all() for each in steps):
            loosely = replace(record, strictness=Strictness(decimals=decimals))
            wrong = Walker(loosely).walk(walk.derivation).wrong
            return "" if wrong else f"It agrees to {decimals} decimals: add --decimals {decimals}."
    return ""


def derived(step: Step, record: Record) -> bool:
    """Whether a step is recorded and should follow from others."""
    return step.name in record and not isinstance(step.op, Given)


def factor(case: Case) -> str:
    """That every number is the same multiple of what it should be."""
    found, right, error = finite(case)
    large = np.abs(right) > 100 * error
    if large.sum() < 2:
        return ""
    ratio = float(np.median(found[large] / right[large]))
    left, off = np.abs(found - ratio * right), float(np.abs(found - right).max())
    if (left > 2 * (abs(ratio) + 1) * error).any() or left.max() > off / 10:
        return ""
    return f"Every number is {ratio:.6g} times what it should be."


def finite(case: Case) -> tuple[Array, Array, Array]:
    """Found and expected numbers, and how far off the expected ones may be, where both are finite."""
    told = np.isfinite(case.found) & np.isfinite(case.expected.value)
    slack = case.record.strictness.last_place
    return case.found[told], case.expected.value[told], case.expected.error[told] + slack


def offset(case: Case) -> str:
    """That every number is off by the same amount."""
    found, right, error = finite(case)
    if found.size < 2:
        return ""
    gap = found - right
    middle = float(np.median(gap))
    if not middle or (np.abs(gap - middle) > 4 * error).any():
        return ""
    return f"Every number is {abs(middle):.6g} too {'large' if middle > 0 else 'small'}."


def few(case: Case) -> str:
    """Where the wrong numbers are, if they are all in one head, row or column."""
    axes = case.record.trace.steps[case.first].axes
    places = np.argwhere(case.differs)
    if len(places) < 2:
        return ""
    alone = [
        f"{axis} {places[0, at]}"
        for at, axis in enumerate(axes)
        if case.differs.shape[at] > 1 and (places[:, at] == places[0, at]).all()
    ]
    return f"All of them are at {', '.join(alone)}." if alone else ""
