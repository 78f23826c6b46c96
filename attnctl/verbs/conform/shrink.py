"""A failing case made smaller: fewer heads, tokens, columns and options, as long as it fails alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.judge import HIDDEN

if TYPE_CHECKING:
    from attnctl.verbs.conform.suite import Outcome, Suite

MOST_CALLS = 80
"""Calls that making a case smaller may take."""

MOST_OF_ERRORS = {"hang": 0, "crash": 10, "exit": 10}
"""The same where each call is a process more, or takes all of its time."""


def shrunk(first: Outcome, suite: Suite) -> Outcome:
    """The smallest case found that fails as this one does; a hang is not tried again."""
    left = MOST_OF_ERRORS.get(first.answer.error, MOST_CALLS)
    best = first
    again = True
    while again and left:
        again = False
        for case in map(suite.sized, smaller(best.case)):
            if case == best.case:
                continue
            left -= 1
            found = suite.outcome(case)
            if alike(found, first, suite):
                best, again = found, True
                break
            if not left:
                break
    return best


def alike(found: Outcome, first: Outcome, suite: Suite) -> bool:
    """Whether a case fails as another does, and could have been right."""
    if found.judgement.right or found.answer.error != first.answer.error:
        return False
    return suite.wanted(found.case).blurred < HIDDEN


def smaller(case: Case) -> Iterator[Case]:
    """Cases with less of one thing, the greatest step first."""
    for name, _ in case.options:
        yield case.without(name)
    usual = Case()
    for name in ("memory", "magnitude"):
        if getattr(case, name) != getattr(usual, name):
            yield replace(case, **{name: getattr(usual, name)})
    if case.batch > 1:
        yield replace(case, batch=1)
    yield from fewer_heads(case)
    yield from fewer_tokens(case)
    yield from fewer_columns(case)


def fewer_heads(case: Case) -> Iterator[Case]:
    share = case.heads // case.kv_heads
    if case.kv_heads > 1:
        yield replace(case, heads=share, kv_heads=1)
    for fewer in (1, 2):
        if fewer < share:
            yield replace(case, heads=fewer * case.kv_heads)


def fewer_columns(case: Case) -> Iterator[Case]:
    """d_k and d_v stay the same where they are."""
    for size in (2, 4, 8):
        if case.fill != "large" and case.d_k > size:
            yield replace(case, d_k=size, d_v=size if case.d_k == case.d_v else case.d_v)
        if case.d_v > size and case.d_v != case.d_k:
            yield replace(case, d_v=size)


def fewer_tokens(case: Case) -> Iterator[Case]:
    """As many queries as keys stay as many."""
    past = case.past
    new = case.keys - past
    if case.queries == new:
        for n in dict.fromkeys((2, case.queries // 2, case.queries - 1)):
            if 0 < n < case.queries:
                yield replace(case, queries=n, keys=n + past)
        return
    for n in dict.fromkeys((1, case.queries // 2, case.queries - 1)):
        if 0 < n < case.queries:
            yield replace(case, queries=n)
    for m in dict.fromkeys((2, case.keys // 2, case.keys - 1)):
        if past < m < case.keys:
            yield replace(case, keys=m)
