"""The same call again and again: how often its bits are others, and how likely a race is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from time import monotonic
from typing import Any, Protocol

import numpy as np

RATE, MISSED = 0.02, 0.01
"""A fault in so many of all calls is to be missed with this chance at most."""

CALLS = ceil(log(MISSED) / log(1 - RATE))
"""Calls of one case that this takes."""


def chance_missed(calls: int) -> float:
    """How likely no one of so many calls has a fault that one in fifty has."""
    return float((1 - RATE) ** calls)


class Answer(Protocol):
    """What came of a call: arrays, or how it failed."""

    @property
    def outputs(self) -> tuple[Any, ...]: ...
    @property
    def error(self) -> str: ...
    @property
    def message(self) -> str: ...


@dataclass(frozen=True)
class Repeats:
    """What came of the same call, made again and again."""

    calls: int = 1
    others: int = 0
    """Calls whose bits were not those of the first."""
    apart: float = 0.0
    """How far any output was from the first."""
    failed: str = ""
    """How a call failed, after which there were no more."""
    reused: bool = False
    """Whether an output is overwritten by the next call."""

    @property
    def same(self) -> bool:
        return not (self.others or self.failed)


def repeat(again: Callable[[], Answer], first: Sequence[Any], times: int, seconds: float) -> Repeats:
    """Make a call so many times in all, as long as the time lasts; `first` is what it gave before."""
    calls, others, apart = 1, 0, 0.0
    until = monotonic() + seconds
    while calls < times and monotonic() < until:
        answer = again()
        calls += 1
        if answer.error:
            return Repeats(calls, others, apart, failed=f"{answer.error}: {answer.message}".rstrip(": "))
        if not alike(first, answer.outputs):
            others += 1
            apart = max(apart, distance(first, answer.outputs))
    return Repeats(calls, others, apart)


def alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(bits(x) == bits(y) for x, y in zip(a, b, strict=True))


def bits(array: Any) -> bytes:
    return b"" if array is None else bytes(array.tobytes())


def distance(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The largest difference of two results, ∞ where a number is NaN or shapes differ."""
    if len(a) != len(b) or any(np.shape(x) != np.shape(y) for x, y in zip(a, b, strict=True)):
        return inf
    gaps = [np.abs(np.subtract(x, y, dtype=float)) for x, y in zip(a, b, strict=True) if x is not None]
    return max(float(np.where(np.isnan(gap), inf, gap).max(initial=0.0)) for gap in gaps)
