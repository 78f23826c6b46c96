"""What can be said of a wrong step that no known mistake explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.audit.mistake import Case
from attnctl.audit.record import Record
from attnctl.audit.search import Search
from attnctl.audit.walk import Walker
from attnctl.ops import Given

Array = NDArray[Any]

MOST_DECIMALS = 8


def hint(search: Search) -> str:
    """One sentence on how found and expected numbers are related, if they are."""
    case = search.case
    return rounded(search.record, search.walk.derivation, case) or factor(case) or offset(case) or few(case)


def rounded(record: Record, derivation: Any, case: Case) -> str:
    """That everything agrees if the numbers were rounded for printing."""
    steps = [
        record.value(step.name)
        for step in derivation
        if step.name in record and not isinstance(step.op, Given)
    ]
    if record.strictness.decimals is not None:
        return ""
    for decimals in range(1, MOST_DECIMALS + 1):
        if all((np.round(each, decimals) == each)[np.isfinite(each)].all() for each in steps):
            strictness = replace(record.strictness, decimals=decimals)
            loose = Walker(replace(record, strictness=strictness)).walk(derivation)
            return "" if loose.wrong else f"It agrees to {decimals} decimals: add --decimals {decimals}."
    return ""


def factor(case: Case) -> str:
    """That every number is the same multiple of what it should be."""
    found, right = case.found, case.expected.value
    told = np.isfinite(found) & np.isfinite(right) & (np.abs(right) > 100 * case.expected.error)
    if told.sum() < 2:
        return ""
    ratio = float(np.median(found[told] / right[told]))
    left = np.abs(found[told] - ratio * right[told])
    off = float(np.abs(found[told] - right[told]).max())
    if (left > 2 * (abs(ratio) + 1) * case.expected.error[told]).any() or left.max() > off / 10:
        return ""
    return f"Every number is {ratio:.6g} times what it should be."


def offset(case: Case) -> str:
    """That every number is off by the same amount."""
    found, right = case.found, case.expected.value
    told = np.isfinite(found) & np.isfinite(right)
    if told.sum() < 2:
        return ""
    gap = found[told] - right[told]
    middle = float(np.median(gap))
    if not middle or (np.abs(gap - middle) > 4 * case.expected.error[told]).any():
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
