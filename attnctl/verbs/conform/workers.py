"""A suite whose cases are carried out by workers: each has the target in a process of its own.

What a target is asked first (its layout, its conventions), and calls that are made again and again, are
made here. Cases are then taken in their order, as if each had been called in its turn, so that verdicts
and causes are those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.workers import Engine, call_each
from attnctl.verbs.conform.call import NOT_CALLED
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.judge import Extras
from attnctl.verbs.conform.profile import Request, TargetProfile
from attnctl.verbs.conform.report import Conformance
from attnctl.verbs.conform.run import Progress, Run
from attnctl.verbs.conform.runner import BOUNDED
from attnctl.verbs.conform.suite import CaseDone, Suite
from attnctl.verbs.conform.target import make_target

AT_ONCE = 24
"""Cases that a worker is told of at once, for which it begins the target once."""


class TargetNames(NamedTuple):
    """The words of a target, and of what gives its gradients, where that is another."""

    forward: Sequence[str]
    back: str | None = None


@dataclass(frozen=True)
class CasesTask:
    """Cases, and all that a worker needs to call the target with them."""

    names: TargetNames
    request: Request
    profile: TargetProfile
    profiles: Mapping[str, TargetProfile]
    """How it is called, as was found out here, and by type."""
    extras: Extras
    longest_call: float
    cases: Sequence[tuple[str, Case]]


class CasesDone(NamedTuple):
    cases: Sequence[CaseDone | None]
    """What was found, in order; None of what was not called."""
    lost: int


def hold_by_workers(
    engine: Engine, names: TargetNames, request: Request, progress: Progress | None = None
) -> Conformance:
    """Hold a target to a suite by the workers of an engine. Raises AttnError if it cannot be called."""
    suite = Suite(make_target(names.forward, request), request)
    back = None if names.back is None else make_target([names.back], request)
    ahead = partial(carry_out_ahead, engine, suite, at_its_path(names))
    with suite.opened(back):
        return Run(suite, ahead=ahead).carry_out(progress or (lambda _done, _total: None))


def at_its_path(names: TargetNames) -> TargetNames:
    """The names as workers that stand in another folder find them."""
    forward = [whole_path(word) for word in names.forward] if len(names.forward) == 1 else names.forward
    return TargetNames(forward, names.back and whole_path(names.back))


def whole_path(target: str) -> str:
    """file.py:function with all of its path; anything else as it is."""
    place, colon, function = target.rpartition(":")
    return f"{Path(place).absolute()}:{function}" if colon and place.endswith(".py") else target


def carry_out_ahead(
    engine: Engine,
    suite: Suite,
    names: TargetNames,
    cases: Sequence[tuple[str, Case]],
    longest_call: float,
    progress: Progress,
) -> None:
    """Have workers carry out cases, and keep what they found for the turn of each."""
    parts = [cases[start : start + AT_ONCE] for start in range(0, len(cases), AT_ONCE)]
    tasks = [
        CasesTask(
            names,
            suite.request,
            suite.profile,
            profiles=suite.profiles,
            extras=suite.extras,
            longest_call=longest_call,
            cases=part,
        )
        for part in parts
    ]
    for number, found in call_each(engine, carry_out_cases, tasks):
        suite.target.lost += found.lost
        for (_, case), done in zip(parts[number], found.cases, strict=True):
            if done is not None:
                suite.done[suite.fit(case)] = done
        progress(len(suite.done), len(cases))


def carry_out_cases(task: CasesTask) -> CasesDone:
    """Call the target with cases, as a worker. Raises AttnError where it cannot be called there."""
    request = task.request
    suite = Suite(make_target(task.names.forward, request), request)
    back = None if task.names.back is None else make_target([task.names.back], request)
    with suite.opened(back):
        suite.profile = task.profile
        suite.profiles = dict(task.profiles)
        suite.extras = task.extras
        found = [carry_out_case(suite, name, case, task.longest_call) for name, case in task.cases]
    return CasesDone(found, suite.target.lost)


def carry_out_case(suite: Suite, feature: str, case: Case, longest_call: float) -> CaseDone | None:
    if feature in BOUNDED and suite.predict_time(case) > longest_call:
        return None

    suite.nan_gradients.clear()
    result = suite.run(case)
    if result.answer.error == NOT_CALLED:
        return None
    has_nan = case.dtype in suite.nan_gradients
    return CaseDone(result.answer, result.judgement, suite.seconds, has_nan)
