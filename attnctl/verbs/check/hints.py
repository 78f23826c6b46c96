"""What can be said of a wrong step that no known mistake explains: how it is related to the right one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.evidence.record import Record, Strictness
from attnctl.evidence.walk import Walk, Walker
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.ops import Given
from attnctl.mistakes.fit import in_digits
from attnctl.mistakes.mistake import WrongStep
from attnctl.mistakes.softmax import dropped_later
from attnctl.verbs.check.places import few, spread
from attnctl.verbs.check.search import Search

MOST_DECIMALS = 8

SAME = 1e-3
"""Numbers are those of another array when what is left is less than this, relatively."""

MOST_COMPARED = 100_000_000
"""Numbers that looking for each slice among the others may compare."""

NOT_ALL_TRIED = (
    "Not every pair of mistakes was tried, nor every number that might explain it: there are too many."
)


def hint(search: Search) -> str:
    """One or two sentences on how found and expected numbers are related, and where they differ."""
    only = f" This is said of {search.part}; the rest was not searched." if search.part else ""
    return relate(search) + only


def relate(search: Search) -> str:
    """How found and expected numbers of a search are related, and where they differ."""
    case = search.case
    relation = (
        factor(case)
        or offset(case)
        or other_array(case)
        or other_place(case)
        or by_axis(case)
        or sums(case)
        or dropout(case)
    )
    where = few(case)
    if relation:
        return f"{relation} {where}".strip()
    tried = NOT_ALL_TRIED if case.effort.exceeded else ""
    return f"{where or spread(case)} {tried}".strip()


def agrees_as_printed(record: Record, walk: Walk) -> str:
    """That everything agrees if the numbers were rounded when they were written down."""
    steps = [record.trace[step.name] for step in walk.derivation if follows_from_others(step, record)]
    if record.strictness != Strictness() or all(on_grid(each, FLOAT32.bits) for each in steps):
        return ""
    for decimals in range(2, MOST_DECIMALS + 1):
        if all((np.round(each, decimals) == each)[np.isfinite(each)].all() for each in steps):
            loosely = replace(record, strictness=Strictness(decimals=decimals))
            wrong = Walker(loosely).walk(walk.derivation).wrong
            return "" if wrong else f"It agrees to {decimals} decimals: add --decimals {decimals}."
    return ""


def follows_from_others(step: Step, record: Record) -> bool:
    """Whether a step is recorded and should follow from others."""
    return step.name in record and not isinstance(step.op, Given)


# --- one number for all ---


def factor(case: WrongStep) -> str:
    """That every number is the same multiple of what it should be."""
    found, right, error = finite(case)
    large = np.abs(right) > 100 * error
    if large.sum() < 2 or not told_in_numbers(case):
        return ""
    ratio = float(np.median(found[large] / right[large]))
    left, off = np.abs(found - ratio * right), float(np.abs(found - right).max())
    if (left > 2 * (abs(ratio) + 1) * error).any() or left.max() > off / 10:
        return ""
    return f"Every number is {in_digits(ratio, fewest=6)} times what it should be."


def told_in_numbers(case: WrongStep) -> bool:
    """Whether the differences are all between finite numbers, not in what is hidden."""
    return bool(np.isfinite(case.expected.value - case.found)[case.differs].all())


def finite(case: WrongStep) -> tuple[Array, Array, Array]:
    """Found and expected numbers, and how far off the expected ones may be, where both are finite."""
    told = np.isfinite(case.found) & np.isfinite(case.expected.value)
    slack = case.record.strictness.last_place
    return case.found[told], case.expected.value[told], case.expected.error[told] + slack


def offset(case: WrongStep) -> str:
    found, right, error = finite(case)
    if found.size < 2 or not told_in_numbers(case):
        return ""
    gap = found - right
    middle, size = float(np.median(gap)), float(np.abs(gap).max())
    if not middle or (np.abs(gap - middle) > np.minimum(4 * error, size / 10)).any():
        return ""
    return f"Every number is {abs(middle):.6g} too {'large' if middle > 0 else 'small'}."


# --- other arrays ---


def other_array(case: WrongStep) -> str:
    """That the numbers, or the differences, are those of another array or its transpose."""
    right = case.expected.value
    for what, numbers in (
        ("The difference equals", case.found - right),
        ("The numbers are those of", case.found),
    ):
        if not np.isfinite(numbers).all():
            continue
        for name, array in [*arrays(case), ("what it should be", right)]:
            for said, other in ((name, array), (f"{name} transposed", array.swapaxes(-1, -2))):
                alike = fits_into(other, numbers)
                if alike is not None and np.ptp(alike) and alike is not right:
                    for sign, minus in ((1, ""), (-1, "−")):
                        if same(numbers, sign * alike):
                            return f"{what} {minus}{said}."
    return ""


def arrays(case: WrongStep) -> Iterator[tuple[str, Array]]:
    """Every array that is recorded or was computed, but the one that is wrong."""
    for step in case.derivation:
        if step.name == case.first:
            continue
        known = case.walk.values.get(step.name)
        array = known.value if known else None
        if step.name in case.record:
            array = case.record.value(step.name)
        if array is not None and array.ndim > 1 and array.dtype != bool:
            yield step.name, array


def fits_into(array: Array, numbers: Array) -> Array | None:
    """An array of the same shape, or one that broadcasts to it, heads side by side where that helps."""
    if array.ndim == numbers.ndim + 1:
        array = array.swapaxes(-3, -2).reshape(*array.shape[:-3], array.shape[-2], -1)
    try:
        return np.broadcast_to(array, numbers.shape)
    except ValueError:
        return None


def same(numbers: Array, others: Array) -> bool:
    """Whether two arrays are the same but for a small part."""
    size = float(np.square(numbers).sum())
    return bool(size > 0 and np.square(numbers - others).sum() < SAME**2 * size)


# --- other places ---


def other_place(case: WrongStep) -> str:
    """That along an axis each slice is another one of what it should be."""
    axes = case.record.trace.steps[case.first].axes
    if not np.isfinite(case.found).all():
        return ""
    for at, axis in enumerate(axes):
        size = case.found.shape[at]
        if size > 1 and size * case.found.size <= MOST_COMPARED:
            found = np.moveaxis(case.found, at, 0).reshape(size, -1)
            right = np.moveaxis(case.expected.value, at, 0).reshape(size, -1)
            places = nearest(found, right)
            if places is not None and list(places) != list(range(size)):
                shown = ", ".join(
                    f"{here} is {there}" for here, there in enumerate(places[:8]) if here != there
                )
                return f"Along {axis} the numbers are those of other places: {shown}{', …' * (size > 8)}."
    return ""


def nearest(found: Array, right: Array) -> list[int] | None:
    """For each row of one array the row of the other that is the same; None where one has none."""
    if not np.isfinite(right).all():
        return None
    places = []
    for row in found:
        gaps = np.square(right - row).sum(axis=1)
        best = int(gaps.argmin())
        if gaps[best] > SAME**2 * np.square(row).sum():
            return None
        places.append(best)
    return places


def by_axis(case: WrongStep) -> str:
    """That the factor, or the offset, is one and the same in each head or row."""
    axes = case.record.trace.steps[case.first].axes
    told = np.isfinite(case.found) & np.isfinite(case.expected.value)
    if not told_in_numbers(case):
        return ""
    found, right = (np.where(told, array, 0.0) for array in (case.found, case.expected.value))
    for kept in range(1, len(axes)):  # (head,), (head, query): a number for each
        sizes, words = tuple(range(kept, len(axes))), " and ".join(axes[:kept])
        if any(found.shape[at] > 1 for at in sizes):
            norm = np.square(right).sum(axis=sizes, keepdims=True)
            ratios = (found * right).sum(axis=sizes, keepdims=True) / np.where(norm == 0, 1, norm)
            if same(found, ratios * right):
                return f"By {words}, the numbers are a multiple of what they should be: {span(ratios)}."
            counts = told.sum(axis=sizes, keepdims=True)
            gaps = np.where(told, found - right, 0.0).sum(axis=sizes, keepdims=True) / np.maximum(counts, 1)
            if same(found - right, np.where(told, gaps, 0.0)):
                return f"By {words}, the numbers are off by one amount: {span(gaps)}."
    return ""


def dropout(case: WrongStep) -> str:
    """That the rows that see few keys are made of weights with dropout; the others do not tell."""
    if found := dropped_later(case):
        return (
            f"Where few keys are seen, dropout (p = {found.p}) after the weights were written down gives "
            "these numbers: call model.eval(), or write the weights down after it."
        )
    return ""


def span(values: Array) -> str:
    """All of a few numbers, or the least and the greatest."""
    flat = values.reshape(-1)
    if flat.size <= 8:
        return ", ".join(f"{value:.4g}" for value in flat)
    return f"{flat.min():.4g} to {flat.max():.4g}"


def sums(case: WrongStep) -> str:
    """What the rows of attention weights sum to, where it is not 1."""
    if case.first != "attention_weights" or not np.isfinite(case.found).all():
        return ""
    rows = case.found.sum(axis=-1)
    if np.abs(rows - case.expected.value.sum(axis=-1)).max() < SAME:
        return ""
    columns = case.found.sum(axis=-2)
    also = " Columns sum to 1." if np.abs(columns - 1).max() < SAME else ""
    return f"Rows sum to {span(rows)} instead of 1.{also}"
