"""The results of the runs of features: each failure explained, its case made small and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.verbs.conform.claims import Request
from attnctl.verbs.conform.diagnosis import (
    ENDINGS,
    LOW_PRECISION,
    Cause,
    diagnose,
    explain_coarse_inside,
    explain_repeats,
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
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.probes import list_broken
from attnctl.verbs.conform.replay import save_case, shrink, write_replay_line
from attnctl.verbs.conform.report import (
    DIFFERS,
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    Failure,
    FeatureResult,
    describe_left_out,
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
        parts = [describe_left_out(left, what, self.skipped)] if left else []
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
        saved = self.save_failure(run, cause)
        failure = Failure(
            run.wrong[0].case,
            run.wrong[0].judgement.words or cause.explanation,
            cause.mistake,
            cause.explanation,
            write_replay_line(self.suite.request.called, saved) if saved else "",
            str(saved or ""),
        )
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
    wrong = list_broken(found, declared)
    words = "; ".join(wrong)
    failure = Failure(replace(BASE, dtype=dtype), words, "convention", words) if wrong else None
    status = FAILED if wrong else PASSED
    cases = len(declared)
    return [FeatureResult(CONVENTIONS, dtype, status, cases, cases, len(wrong), failure=failure)]
