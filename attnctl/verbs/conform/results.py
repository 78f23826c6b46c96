"""The results of the runs of features: each failure explained, its case made small, saved and run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.values import json_path
from attnctl.base.words import all_of
from attnctl.drawing.screen.text import shell_line
from attnctl.record.trace import Trace
from attnctl.verbs.conform.case import GRADIENTS, Case, Problem
from attnctl.verbs.conform.declared import Request, list_unusual
from attnctl.verbs.conform.diagnosis import (
    ENDINGS,
    LOW_PRECISION,
    Cause,
    diagnose,
    explain_coarse_inside,
    explain_repeats,
    plan_answer,
)
from attnctl.verbs.conform.features import (
    ATTENTION,
    BASE,
    CONVENTIONS,
    GROUPED,
    INPUTS_KEPT,
    LENGTHS,
    OTHER_D_V,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    Feature,
)
from attnctl.verbs.conform.judge import HIDDEN, compare_output
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import (
    AHEAD,
    CORNER,
    LENGTHS_CORNER,
    MASK_KIND,
    MASK_SHAPE,
    MASKED,
    SLIDING,
    TRUE,
    TargetProfile,
)
from attnctl.verbs.conform.report import (
    DIFFERS,
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    Failure,
    FeatureResult,
)
from attnctl.verbs.conform.suite import CaseResult, Suite

MAY_LACK = {LENGTHS: "unequal numbers of queries and keys", OTHER_D_V: "values of another width"}
"""Features that kernels need not have, and often answer wrongly rather than refuse."""

IGNORED_OPTION = "option-ignored"
NOT_SHARED = {LOW_PRECISION, IGNORED_OPTION}
"""Mistakes that explain a failure in one type and say nothing of another."""


@dataclass
class FeatureRun:
    """The cases of one feature in one type, as far as they were run."""

    feature: Feature
    dtype: str
    cases: int = 0
    """Cases that were run, of `of` that there are."""
    of: int = 0
    ratio: float | None = None
    wrong: list[CaseResult] = field(default_factory=list)
    calls: int = 0
    """Calls of the same cases, where they are made again and again."""
    skipped: str = ""
    """The reason why it was not run, or why some of its cases were not."""
    refused: int = 0
    ended: int = 0
    """Calls in which the process of the target ended."""
    shown: set[str] = field(default_factory=set)
    """The outputs of which some case is evidence."""
    differs: str = ""
    """The difference of gradients from call to call, where they are right all the same."""
    ratios: dict[str, float] = field(default_factory=dict)
    """The worst ratio of each output."""

    @property
    def reason(self) -> str:
        """The reason why some of its cases, or of its outputs, were not judged."""
        left = self.of - self.cases
        what = "refused" if self.refused == left else "not run"
        hidden = [name for name in self.ratios if name not in self.shown and not self.wrong]
        are = "is" if left == 1 else "are"
        parts = [f"{left} of its cases {are} {what}: {self.skipped}"] if left else []
        return "; ".join([*parts, *([f"rounding hides {all_of(hidden)}"] if hidden else [])])

    def add(self, found: CaseResult) -> None:
        self.cases += 1
        self.ratio = max(found.judgement.ratio, self.ratio or 0.0)
        self.shown |= {*found.judgement.shows}
        for name, ratio in found.judgement.ratios.items():
            self.ratios[name] = max(ratio, self.ratios.get(name, 0.0))
        self.wrong += [] if found.judgement.right else [found]
        self.ended += found.answer.error in ENDINGS

    def refuse(self, why: str) -> None:
        self.refused += 1
        self.skipped = self.skipped or why

    def result(self, status: str, failure: Failure | None = None) -> FeatureResult:
        """Make its result; it is skipped where no case was run."""
        if not self.cases:
            why = self.skipped or "it has no cases"
            return FeatureResult(self.feature.name, self.dtype, SKIPPED, of=self.of, reason=why)
        return FeatureResult(
            self.feature.name,
            self.dtype,
            status,
            self.cases,
            self.of,
            len(self.wrong),
            self.ratio,
            self.reason,
            failure,
            calls=self.calls,
            ratios=self.ratios,
        )


@dataclass
class SuiteResults:
    """Makes results of the runs of features; causes and small cases of a feature hold for all types."""

    suite: Suite
    name: str
    runs: Sequence[FeatureRun]
    """The runs of all features, among which a cause is looked for."""
    recalled: Cause | None = None
    """The cause that was found before, of a case that is run again."""
    search: Callable[[Sequence[CaseResult]], Cause] | None = None
    """What finds the cause of wrong cases, where it is not `diagnose`."""
    causes: dict[str, Cause] = field(default_factory=dict)
    small: dict[str, CaseResult] = field(default_factory=dict)

    def of(self, run: FeatureRun) -> FeatureResult:
        if run.feature.name == INPUTS_KEPT and not run.skipped:
            self.count_all_calls(run)
        if not run.wrong:
            return run.result(DIFFERS if run.differs else PASSED)
        cause = self.add_way_out(run, self.explain(run))
        saved, first = self.save_failure(run, cause), run.wrong[0]
        words = first.judgement.words or cause.explanation
        failure = Failure(first.case, words, cause.mistake, cause.explanation)
        if saved:
            before, after = self.suite.request.called
            again = shell_line(["attnctl", "conform", *before, "--replay", str(saved), *after])
            failure = replace(failure, replay=again, saved=str(saved))
        status = IGNORED if cause.mistake == IGNORED_OPTION else FAILED
        return run.result(status, failure)

    def add_way_out(self, run: FeatureRun, cause: Cause) -> Cause:
        """Say how to declare that a kernel is not meant for what fails, where plain attention is right."""
        name = run.feature.name
        claimed = name in self.suite.request.profile.features
        if name not in MAY_LACK or claimed or self.recalled or self.find_failing(ATTENTION, run.dtype):
            return cause
        way_out = f"if it is not meant for {MAY_LACK[name]}, say without: [{name}] in --claims"
        return replace(cause, explanation=f"{cause.explanation}; {way_out}".removeprefix("; "))

    def count_all_calls(self, run: FeatureRun) -> None:
        """Count every call in the type: each is held to keeping its inputs."""
        calls = sum(each.cases for each in self.runs if each.dtype == run.dtype and each is not run)
        run.cases, run.of = run.cases + calls, run.of + calls
        run.wrong = [self.suite.changed[run.dtype]] if run.dtype in self.suite.changed else []

    def explain(self, run: FeatureRun) -> Cause:
        """Find the cause of the failing cases of a feature."""
        name, wrong = run.feature.name, run.wrong
        if self.recalled:
            return self.recalled
        if name in {REPEATABLE, REPEATABLE_GRADIENTS}:
            return explain_repeats(wrong[0].answer)
        if name == INPUTS_KEPT:
            what = ", ".join(wrong[0].answer.changed)
            return Cause("inputs-changed", f"it changes its inputs: {what} is not what it was before")
        if name in OPTIONS and name not in {"cache", "out"} and self.suite.ignores(name, wrong):
            keyword = self.suite.signature.keywords[name]
            return Cause(IGNORED_OPTION, f"{keyword} is taken and changes nothing")
        if cause := self.explain_by_attention(run):
            return cause
        before = self.causes.get(name)
        if before is None or before.mistake in NOT_SHARED:
            self.causes[name] = self.search(wrong) if self.search else diagnose(self.suite, wrong)
        cause = self.causes[name]
        return self.explain_by_groups(run) if cause.mistake is None else cause

    def explain_by_attention(self, run: FeatureRun) -> Cause | None:
        """Take the cause of plain attention, which spoils everything; it is not searched again."""
        if any(each.answer.error for each in run.wrong) or run.feature.name in {ATTENTION, GROUPED}:
            return None
        plain = self.find_failing(ATTENTION, run.dtype)
        if plain is None or any(each.answer.error for each in plain.wrong):
            return None
        cause = self.explain(plain)
        if cause.mistake != LOW_PRECISION:
            return cause
        worst = max(run.wrong, key=lambda each: each.judgement.ratio)
        output = self.suite.output_of(worst)
        assert output is not None
        return cause if explain_coarse_inside(self.suite, worst, output) else None

    def explain_by_groups(self, run: FeatureRun) -> Cause:
        """Take the cause of grouped heads where every failing case has them."""
        nothing = self.causes[run.feature.name]
        grouped = self.find_failing(GROUPED, run.dtype)
        shared = all(each.case.heads != each.case.kv_heads for each in run.wrong)
        if run.feature.name == GROUPED or grouped is None or not shared:
            return nothing
        cause = self.explain(grouped)
        return cause if str(cause.mistake).startswith("kv-heads") else nothing

    def find_failing(self, name: str, dtype: str) -> FeatureRun | None:
        same = [each for each in self.runs if each.feature.name == name and each.dtype == dtype]
        return same[0] if same and same[0].wrong else None

    def save_failure(self, run: FeatureRun, cause: Cause) -> Path | None:
        """Save a small failing case, where such files are wanted."""
        name, result = run.feature.name, run.wrong[0]
        if self.suite.request.save is None:
            return None
        if name not in {REPEATABLE, REPEATABLE_GRADIENTS, INPUTS_KEPT}:
            before = self.small.get(name)
            again = None if before is None else self.suite.run(replace(before.case, dtype=run.dtype))
            if again is None or again.judgement.right:
                again = self.small[name] = shrink(result, self.suite)
            result = again
        return save_case(self.suite, result, name, self.name, cause)


def judge_conventions(request: Request, dtype: str, found: Mapping[str, str]) -> list[FeatureResult]:
    """Judge the conventions that are declared by those that were found."""
    declared = {name: each for name, each in request.profile.conventions.items() if name in found}
    if not declared or (request.only and CONVENTIONS not in request.only):
        return []
    wrong = [
        f"{name} is declared {value} and found {found[name]}"
        for name, value in declared.items()
        if found[name] != value
    ]
    words = "; ".join(wrong)
    failure = Failure(replace(BASE, dtype=dtype), words, "convention", words) if wrong else None
    status = FAILED if wrong else PASSED
    cases = len(declared)
    return [FeatureResult(CONVENTIONS, dtype, status, cases, cases, len(wrong), failure=failure)]


# --- a failing case, made small, written as a dump and read again ---

MOST_CALLS = 80
"""Calls that making a case smaller may take."""

MOST_OF_ERRORS = {"hang": 0, "crash": 10, "exit": 10}
"""The limit where each call is a process more, or takes all of its time."""


def shrink(first: CaseResult, suite: Suite) -> CaseResult:
    """Find a small case that fails as this one does; a hang is not tried again."""
    left = MOST_OF_ERRORS.get(first.answer.error, MOST_CALLS)
    best = first
    again = True
    while again and left:
        again = False
        for case in map(suite.fit, list_smaller(best.case)):
            if case == best.case:
                continue
            left -= 1
            found = suite.run(case)
            if fails_alike(found, first, suite):
                best, again = found, True
                break
            if not left:
                break
    return best


def fails_alike(found: CaseResult, first: CaseResult, suite: Suite) -> bool:
    """Tell whether a case fails as the first does, and could have been right."""
    if found.judgement.right or found.answer.error != first.answer.error:
        return False
    if (found.judgement.output in GRADIENTS) != (first.judgement.output in GRADIENTS):
        return False
    wanted = suite.expect(found.case).outputs
    return wanted.get(found.judgement.output, next(iter(wanted.values()))).blurred < HIDDEN


def list_smaller(case: Case) -> Iterator[Case]:
    """List cases with less of one thing, the greatest step first."""
    for name, _ in case.options:
        yield case.without(name)
    usual = Case()
    for name in ("memory", "magnitude"):
        if getattr(case, name) != getattr(usual, name):
            yield replace(case, **{name: getattr(usual, name)})
    if case.batch > 1:
        yield replace(case, batch=1)
    yield from with_fewer_heads(case)
    yield from with_fewer_tokens(case)
    yield from with_fewer_columns(case)


def with_fewer_heads(case: Case) -> Iterator[Case]:
    share = case.heads // case.kv_heads
    if case.kv_heads > 1:
        yield replace(case, heads=share, kv_heads=1)
    for fewer in (1, 2):
        if fewer < share:
            yield replace(case, heads=fewer * case.kv_heads)


def with_fewer_columns(case: Case) -> Iterator[Case]:
    """d_k and d_v stay the same where they are."""
    for size in (2, 4, 8):
        if case.fill != "large" and case.d_k > size:
            yield replace(case, d_k=size, d_v=size if case.d_k == case.d_v else case.d_v)
        if case.d_v > size and case.d_v != case.d_k:
            yield replace(case, d_v=size)


def with_fewer_tokens(case: Case) -> Iterator[Case]:
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


Saved = tuple[Case, str, TargetProfile]
"""A case, its feature, and how the target was called."""

SAVED = {
    "corner": CORNER,
    "window": SLIDING,
    "ahead": AHEAD,
    "lengths": LENGTHS_CORNER,
    "mask": MASK_SHAPE,
    "mask_kind": MASK_KIND,
    "true": TRUE,
    "masked": MASKED,
}
"""The keys of conventions in a dump."""

FOLDER = "attnctl-conform"
"""Where failing cases are saved."""


def save_case(suite: Suite, result: CaseResult, feature: str, target: str, said: Cause) -> Path:
    """Write what a case was given and what came back; the file holds what `read_saved` needs.

    Raises AttnError where the folder cannot be written.
    """
    from attnctl.store.files import open_output
    from attnctl.store.npz import write_npz

    assert suite.request.save is not None
    folder = Path(suite.request.save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttnError(f"{folder}: {error.strerror}; give another folder with --save") from None
    problem = suite.problem(result.case)
    profile = problem.profile
    trace, _ = plan_answer(problem, suite.outputs_in(result))
    conventions = {"layout": profile.layout, "packed": profile.packed}
    header = {
        "conform": {
            "feature": feature,
            "case": problem.case.to_dict(),
            "conventions": conventions | {key: profile[name] for key, name in SAVED.items()},
            "always": list_unusual(profile.always),
            "said": asdict(said),
        },
        "config": make_config(problem, result.case),
    }
    path = folder / f"{slug(target)}-{slug(feature)}-{result.case.dtype}.npz"
    with open_output(path) as stream:
        write_npz(Trace(trace.steps, dict(trace), header), stream)
    return path


def make_config(problem: Problem, case: Case) -> dict[str, Any]:
    """Describe the attention that is meant as a config, which `attnctl check` reads of a dump."""
    rules = [rule.plain() for rule in problem.meant.rules if rule.name != "padding"]
    config = list_unusual(problem.meant) | {"heads": case.heads, "kv_heads": case.kv_heads, "rules": rules}
    if "key_lengths" in problem.passed:
        config["key_lengths"] = problem.passed["key_lengths"].tolist()
    offset = problem.offset if isinstance(problem.offset, int) else list(problem.offset)
    return config | {"causal_offset": offset}


def read_saved(path: str) -> Saved:
    """The case of a dump that `save_case` wrote. Raises AttnError for what is none."""
    from attnctl.inputs.config.schema import validate
    from attnctl.store.source import read_one

    header = read_one(path).header.get("conform")
    if not isinstance(header, dict) or not isinstance(header.get("conventions"), dict):
        raise AttnError(f"{path}: no case of attnctl conform; give a file that it saved")
    said = header["conventions"]
    if unknown := [key for key in said if key not in {"layout", "packed", *SAVED}]:
        raise AttnError(f"{path}: conform.conventions: {unknown[0]} is none of {', '.join(SAVED)}")
    always = validate(
        header.get("always", {}), lambda place: f"{path}: conform.always{json_path(place)[1:]}"
    )
    profile = TargetProfile(said.get("layout", ""), said.get("packed", ""), always=always)
    profile = profile.lay_over({"conventions": {SAVED[key]: said[key] for key in SAVED if key in said}})
    return Case.of(header.get("case")), str(header.get("feature", "")), profile


def recall_cause(path: str, suite: Suite, wrong: Sequence[CaseResult]) -> Cause | None:
    """Recall the cause that was found when a case was saved, if its outputs are still the same."""
    from attnctl.store.source import read_one

    dump = read_one(path)
    said = dump.header["conform"].get("said")
    if not wrong or not isinstance(said, dict):
        return None
    wanted, now = suite.expect(wrong[0].case).outputs, suite.outputs_in(wrong[0])
    if set(now) != set(wanted) or not set(now) <= set(dump):
        return None
    before = {name: np.asarray(dump[name], dtype=np.float64) for name in now}
    if not all(compare_output(replace(wanted[name], value=before[name]), now[name]).right for name in now):
        return None
    return Cause(said.get("mistake"), str(said.get("explanation", "")))


def slug(text: str) -> str:
    text = text.replace("≠", "not")
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "case"
