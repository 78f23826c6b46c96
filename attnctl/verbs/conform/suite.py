"""A target held to every feature, case by case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnctl.errors import raise_all
from attnctl.verbs.conform import features as known
from attnctl.verbs.conform.call import Answer, alike, call_of
from attnctl.verbs.conform.case import TYPES, Case, Conventions, problem_of
from attnctl.verbs.conform.features import ATTENTION, BASE, GROUPED, INPUTS_KEPT, REPEATABLE, Feature
from attnctl.verbs.conform.judge import Expected, Judgement, expected, judged
from attnctl.verbs.conform.library import LIBRARIES, Library
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.report import (
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    Conformance,
    Failure,
    FeatureResult,
)
from attnctl.verbs.conform.signature import Signature, read_signature, sizes_for
from attnctl.verbs.conform.target import Target

REFUSALS = {
    "NotImplementedError",
    "ValueError",
    "TypeError",
    "RuntimeError",
    "AssertionError",
    "IndexError",
}
"""Exceptions by which a target says that it does not have something."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Asked:
    """How a suite is to be run."""

    layout: str = "bhnd"
    library: Library = LIBRARIES[""]
    renames: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(TYPES)
    only: tuple[str, ...] = ()
    """Features to run; none means all."""
    quick: bool = False


@dataclass(frozen=True)
class Outcome:
    """One case, carried out and judged."""

    case: Case
    answer: Answer
    judgement: Judgement
    wanted: Expected | None = None

    @property
    def refused(self) -> bool:
        """Whether the target said that it does not have this."""
        return self.answer.error in REFUSALS


@dataclass
class Suite:
    """Runs cases on a target."""

    target: Target
    asked: Asked
    signature: Signature
    conventions: Conventions = Conventions()  # noqa: RUF009  (frozen)
    changed: dict[str, Outcome] = field(default_factory=dict)
    """By type: a call that changed its inputs."""

    def outcome(self, case: Case, *, twice: bool = False) -> Outcome:
        """Carry out a case and judge it."""
        problem = problem_of(sizes_for(case, self.asked.layout), self.conventions)
        answer = self.target.call(call_of(problem, self.signature, self.asked.layout, twice=twice))
        wanted = expected(problem)
        found = Outcome(problem.case, answer, judged(wanted, answer, self.asked.layout), wanted)
        if answer.changed:
            self.changed.setdefault(case.dtype, found)
        return found

    def has(self, case: Case) -> bool:
        """Whether the target takes a case at all, right or wrong."""
        return not self.outcome(case).refused

    def of_feature(self, feature: Feature, dtype: str) -> FeatureResult:
        """Every case of a feature in one type."""
        if feature.skipped:
            return FeatureResult(feature.name, dtype, SKIPPED, reason=feature.skipped)
        cases = dict.fromkeys(
            sizes_for(replace(case, dtype=dtype), self.asked.layout) for case in feature.cases
        )
        outcomes = [self.outcome(case) for case in cases]
        told = [each for each in outcomes if not (each.refused and feature.optional)]
        if not told:
            return FeatureResult(feature.name, dtype, SKIPPED, reason=outcomes[0].judgement.words)
        wrong = [each for each in told if not each.judgement.right]
        if not wrong and not any(each.judgement.evidence for each in told):
            return FeatureResult(feature.name, dtype, SKIPPED, reason="rounding hides it in this type")
        ratio = max(each.judgement.ratio for each in told)
        failure = Failure(wrong[0].case, wrong[0].judgement.words) if wrong else None
        status = FAILED if wrong else PASSED
        if wrong and feature.name in OPTIONS and self.ignores(feature.name, wrong):
            status = IGNORED
        return FeatureResult(feature.name, dtype, status, len(told), len(wrong), ratio, failure=failure)

    def ignores(self, option: str, wrong: Sequence[Outcome]) -> bool:
        """Whether an option is taken and changes nothing: the answers are those without it."""
        for each in wrong:
            if each.answer.error:
                return False
            bare = self.outcome(each.case.without(option))
            if bare.answer.error or not alike(bare.answer.outputs[:1], each.answer.outputs[:1]):
                return False
        return True

    def repeatable(self, dtype: str) -> FeatureResult:
        """Whether the same call gives the same bits again."""
        cases = [replace(BASE, dtype=dtype), replace(BASE, dtype=dtype, queries=33, keys=33, seed=1)]
        outcomes = [self.outcome(case, twice=True) for case in cases]
        told = [each for each in outcomes if not each.answer.error]
        wrong = [each for each in told if not each.answer.same]
        if not told:
            return FeatureResult(REPEATABLE, dtype, SKIPPED, reason=outcomes[0].judgement.words)
        words = "the same call with the same inputs gives other bits the second time"
        failure = Failure(wrong[0].case, words, "not-repeatable", words) if wrong else None
        return FeatureResult(
            REPEATABLE, dtype, FAILED if wrong else PASSED, len(told), len(wrong), failure=failure
        )

    def inputs_kept(self, dtype: str, calls: int) -> FeatureResult:
        """Whether any call of this type changed its inputs."""
        found = self.changed.get(dtype)
        if found is None:
            return FeatureResult(INPUTS_KEPT, dtype, PASSED, calls)
        words = (
            f"it changes its inputs: {', '.join(found.answer.changed)} is not what it was before the call"
        )
        return FeatureResult(
            INPUTS_KEPT,
            dtype,
            FAILED,
            calls,
            1,
            failure=Failure(found.case, words, "inputs-changed", words),
        )


def run(target: Target, name: str, asked: Asked, progress: Progress | None = None) -> Conformance:
    """Hold a target to every feature. Raises AttnError where it cannot be called at all."""
    try:
        target.start()
        signature = read_signature(target.parameters, asked.library, asked.renames)
        suite = Suite(target, asked, signature)
        return carried_out(suite, name, progress or (lambda _done, _total: None))
    finally:
        target.close()


def carried_out(suite: Suite, name: str, progress: Progress) -> Conformance:
    """Every feature in every type that the target takes."""
    plain = {dtype: suite.outcome(replace(BASE, dtype=dtype)) for dtype in suite.asked.dtypes}
    taken = [dtype for dtype, each in plain.items() if not each.refused]
    features = wanted(suite, taken[0]) if taken else [Feature(ATTENTION)]
    done, total = 0, len(suite.asked.dtypes) * len(features)
    results = []
    for dtype in suite.asked.dtypes:
        for feature in features:
            if dtype not in taken:
                reason = plain[dtype].judgement.words
                results.append(FeatureResult(feature.name, dtype, SKIPPED, reason=reason))
            elif feature.name == REPEATABLE:
                results.append(suite.repeatable(dtype))
            elif feature.name == INPUTS_KEPT:
                calls = sum(each.cases for each in results if each.dtype == dtype)
                results.append(suite.inputs_kept(dtype, calls))
            else:
                results.append(suite.of_feature(feature, dtype))
            done += 1
            progress(done, total)
    return Conformance(name, tuple(results))


def wanted(suite: Suite, dtype: str) -> list[Feature]:
    """The features to run, with what this target has."""
    asked, claimed = suite.asked, suite.signature.claimed
    base = replace(BASE, dtype=dtype)
    lengths = suite.has(replace(base, queries=5)) and suite.has(replace(base, keys=5))
    groups = suite.has(replace(base, heads=4, kv_heads=2)) and asked.layout != "nd"
    widths = suite.has(replace(base, d_v=16))
    quick = asked.quick
    found = list(known.own_features(quick=quick))
    if asked.layout == "nd":
        found = [
            replace(each, skipped="the layout nd has one head") if each.name == GROUPED else each
            for each in found
        ]
    for name in OPTIONS:
        if name in claimed:
            found.append(known.of_option(name, lengths=lengths, quick=quick))
        else:
            found.append(Feature(name, skipped="no keyword of its signature asks for it"))
    found.append(known.pairs(claimed))
    found.append(known.random(claimed, lengths=lengths, groups=groups, widths=widths, quick=quick))
    found += [Feature(REPEATABLE), Feature(INPUTS_KEPT)]
    names = [each.name for each in found]
    raise_all(
        f"--feature {name}: there is none of this name; there are {', '.join(names)}"
        for name in asked.only
        if name not in names
    )
    return [each for each in found if not asked.only or each.name in asked.only]
