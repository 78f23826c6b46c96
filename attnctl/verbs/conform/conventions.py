"""What a target does where programs differ: found out by calls, reported, and failed only if declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attnctl.array import Array
from attnctl.verbs.conform.call import back
from attnctl.verbs.conform.case import Conventions, Problem, problem_of
from attnctl.verbs.conform.features import BASE
from attnctl.verbs.conform.judge import expected, judged
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.signature import sizes_for

if TYPE_CHECKING:
    from attnctl.verbs.conform.suite import Suite

CORNER, HIDDEN_ROWS, PADDING = "causal corner", "rows that see nothing", "NaN in padding"
LENGTHS_CORNER = "causal with key lengths"
SLIDING, AHEAD, FLOAT_MASK = "sliding window", "ahead of a sliding window", "float mask"

NEITHER, ADDED, TRUTHS = "neither", "added", "read as truth values"

KNOWN: dict[str, tuple[str, ...]] = {
    CORNER: ("top-left", "bottom-right"),
    LENGTHS_CORNER: ("first key", "each length"),
    HIDDEN_ROWS: ("zeros", "NaN", "mean"),
    PADDING: ("hidden", "spreads"),
    SLIDING: ("W", "W + 1"),
    AHEAD: ("none", "the same", "all"),
    FLOAT_MASK: (ADDED, TRUTHS),
}
"""Every convention with the values that may be declared."""


@dataclass(frozen=True)
class Found:
    """What was found out, and what it means for judging."""

    conventions: Conventions
    told: dict[str, str]


def found_out(suite: Suite, dtype: str, declared: Mapping[str, str]) -> Found:
    """Find out what the target does; what is declared is what it is judged by."""
    told = dict([*corner(suite, dtype), *sliding_window(suite, dtype)])
    corner_meant = declared.get(CORNER, told.get(CORNER, NEITHER))
    conventions = Conventions(
        corner=corner_meant if corner_meant in KNOWN[CORNER] else "top-left",
        window=declared.get(SLIDING, told.get(SLIDING, "W")),
        ahead=declared.get(AHEAD, told.get(AHEAD, "none")),
    )
    suite.conventions = conventions
    told |= dict(corner_of_lengths(suite, dtype))
    ends = declared.get(LENGTHS_CORNER, told.get(LENGTHS_CORNER, "first key"))
    suite.conventions = conventions = replace(conventions, lengths=ends)
    told |= dict([*float_mask(suite, dtype), *hidden_rows(suite, dtype), *padding(suite, dtype)])
    return Found(conventions, told)


def right_with(suite: Suite, problem: Problem) -> bool | None:
    """Whether the target answers what is meant; None where it takes no such call."""
    answer = suite.call(problem)
    if answer.error:
        return None
    return judged(expected(problem), answer, suite.asked.layout).right


def corner(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Where the diagonal begins when there are more keys than queries."""
    names = [name for name in ("causal", "window", "sliding_window") if name in suite.signature.claimed]
    if not names:
        return
    case = sizes_for(replace(BASE, dtype=dtype, fill="who", queries=5), suite.asked.layout)
    value = OPTIONS[names[0]].values(case)[0]
    for name in KNOWN[CORNER]:
        right = right_with(suite, problem_of(case.having(**{names[0]: value}), Conventions(name)))
        if right is None:
            return
        if right:
            yield CORNER, name
            return
    yield CORNER, NEITHER


def corner_of_lengths(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Where the diagonal is with key lengths: as without, or so that the last query sees the last key."""
    if not {"causal", "key_lengths"} <= set(suite.signature.claimed):
        return
    case = sizes_for(replace(BASE, dtype=dtype, fill="who"), suite.asked.layout)
    case = case.having(causal=True, key_lengths="garbage")
    for name in KNOWN[LENGTHS_CORNER]:
        if right_with(suite, problem_of(case, replace(suite.conventions, lengths=name))):
            yield LENGTHS_CORNER, name
            return


def sliding_window(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """How many keys a sliding window has, and whether there are any ahead of the query."""
    if "sliding_window" not in suite.signature.claimed:
        return
    case = sizes_for(replace(BASE, dtype=dtype, fill="who"), suite.asked.layout).having(sliding_window=4)
    for ahead in KNOWN[AHEAD]:
        for keys in KNOWN[SLIDING]:
            if right_with(suite, problem_of(case, Conventions(window=keys, ahead=ahead))):
                yield SLIDING, keys
                yield AHEAD, ahead
                return


def float_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Whether a mask of numbers is added, or taken for a boolean one."""
    if "float_mask" not in suite.signature.claimed:
        return
    case = sizes_for(replace(BASE, dtype=dtype), suite.asked.layout).having(float_mask="same")
    problem = problem_of(case, suite.conventions)
    answer = suite.call(problem)
    if answer.error:
        return
    if judged(expected(problem), answer, suite.asked.layout).right:
        yield FLOAT_MASK, ADDED
        return
    mask = problem.passed["float_mask"]
    for seen in (mask != 0, np.where(np.isneginf(mask), 0.0, mask) != 0):
        truths = problem_of(case.without("float_mask"), suite.conventions)
        truths.hide(seen)
        if judged(expected(truths), answer, suite.asked.layout).right:
            yield FLOAT_MASK, TRUTHS
            return


def hidden_rows(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """What the output of a query is that sees no key at all."""
    case = sizes_for(replace(BASE, dtype=dtype), suite.asked.layout)
    if "mask" in suite.signature.claimed:
        problem = problem_of(case.having(mask="same"), suite.conventions)
        problem.passed["mask"][..., 4, :] = False
        problem.hide(problem.passed["mask"])
    elif "causal" in suite.signature.claimed and suite.conventions.corner == "bottom-right":
        problem = problem_of(replace(case, keys=5).having(causal=True), suite.conventions)
    else:
        return
    answer = suite.call(problem)
    output = expected(problem).output
    found = None if answer.error or not answer.outputs else answer.outputs[0]
    if found is None or (given := back(found, suite.asked.layout)).shape != output.shape:
        return
    yield HIDDEN_ROWS, row_words(given[0, 0, 4], problem.arrays["V"][0, 0])


def row_words(row: Array, values: Array) -> str:
    """What the output of a query that sees nothing is."""
    if np.isnan(row).any():
        return "NaN"
    if not row.any():
        return "zeros"
    near = np.abs(row - values.mean(axis=0)) <= 0.02 * np.abs(values).max()
    return "mean" if near.all() else "other numbers"


def padding(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Whether NaN behind the lengths reaches the output."""
    if "key_lengths" not in suite.signature.claimed:
        return
    case = sizes_for(replace(BASE, dtype=dtype), suite.asked.layout).having(key_lengths="nan")
    problem = problem_of(case, suite.conventions)
    answer = suite.call(problem)
    found = None if answer.error or not answer.outputs else answer.outputs[0]
    if found is not None:
        yield PADDING, "spreads" if np.isnan(found).any() else "hidden"


def broken(told: Mapping[str, str], declared: Mapping[str, str]) -> list[str]:
    """Declared conventions that do not hold, in words."""
    return [
        f"{name} is declared {value} and found {told[name]}"
        for name, value in declared.items()
        if name in told and told[name] != value
    ]
