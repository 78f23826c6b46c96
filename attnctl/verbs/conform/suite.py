"""A target held to every feature, case by case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnctl.verbs.conform import features
from attnctl.verbs.conform.call import Answer, alike, call_of
from attnctl.verbs.conform.case import TYPES, Case, Conventions, problem_of
from attnctl.verbs.conform.claims import Claims, Known
from attnctl.verbs.conform.conventions import FLOAT_MASK, TRUTHS, Found, broken, found_out
from attnctl.verbs.conform.features import (
    ATTENTION,
    BASE,
    CONVENTIONS,
    GROUPED,
    INPUTS_KEPT,
    REPEATABLE,
    Feature,
)
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

ABSENT = {"NotImplementedError"}
"""By this exception a target says that it does not have what it takes a keyword for."""

REFUSALS = ABSENT | {"ValueError", "TypeError", "RuntimeError", "AssertionError", "IndexError"}
"""Exceptions by which a target says that it does not have what nobody claimed."""

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
    claims: Claims = Claims()  # noqa: RUF009  (frozen)
    xfail: Mapping[str, Known] = field(default_factory=dict)
    save: str | None = None
    """The folder for failing cases."""

    @property
    def declared(self) -> dict[str, str]:
        """The conventions that are declared, by the library or by claims."""
        return {**self.library.conventions, **self.claims.conventions}


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
        may_refuse = feature.optional and feature.name not in self.asked.claims.features
        told = [each for each in outcomes if each.answer.error not in (REFUSALS if may_refuse else ABSENT)]
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

    def result(self, feature: Feature, dtype: str, before: Sequence[FeatureResult]) -> FeatureResult:
        """What becomes of a feature in one type, after others."""
        if feature.name == REPEATABLE:
            return self.repeatable(dtype)
        if feature.name == INPUTS_KEPT:
            return self.inputs_kept(dtype, sum(each.cases for each in before if each.dtype == dtype))
        return self.of_feature(feature, dtype)

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
    asked = suite.asked
    plain = {dtype: suite.outcome(replace(BASE, dtype=dtype)) for dtype in asked.dtypes}
    taken = [dtype for dtype, each in plain.items() if not each.refused]
    if not taken:
        refused = [
            FeatureResult(ATTENTION, dtype, SKIPPED, reason=plain[dtype].judgement.words) for dtype in plain
        ]
        return Conformance(name, tuple(refused))
    found = found_out(suite, taken[0], asked.declared)
    to_run = wanted(suite, taken[0], found)
    total = len(asked.dtypes) * len(to_run)
    results: list[FeatureResult] = []
    for dtype in asked.dtypes:
        for feature in to_run:
            if dtype in taken:
                results.append(suite.result(feature, dtype, results))
            else:
                reason = plain[dtype].judgement.words
                results.append(FeatureResult(feature.name, dtype, SKIPPED, reason=reason))
            progress(len(results), total)
    results += declared_results(suite, taken[0], found)
    return Conformance(name, tuple(known_to_fail(each, asked) for each in results), found.told)


def declared_results(suite: Suite, dtype: str, found: Found) -> list[FeatureResult]:
    """Whether the conventions that are declared hold."""
    declared = {name: each for name, each in suite.asked.declared.items() if name in found.told}
    if not declared or (suite.asked.only and CONVENTIONS not in suite.asked.only):
        return []
    wrong = broken(found.told, declared)
    words = "; ".join(wrong)
    failure = Failure(replace(BASE, dtype=dtype), words, "convention", words) if wrong else None
    status = FAILED if wrong else PASSED
    return [FeatureResult(CONVENTIONS, dtype, status, len(declared), len(wrong), failure=failure)]


def known_to_fail(result: FeatureResult, asked: Asked) -> FeatureResult:
    """The result, with why it is known to fail where someone has said so."""
    known = asked.xfail.get(result.feature)
    if known is None or result.dtype not in known.types or result.status not in {FAILED, IGNORED}:
        return result
    return replace(result, known=known.why)


def wanted(suite: Suite, dtype: str, told: Found) -> list[Feature]:
    """The features to run, with what this target has."""
    asked = suite.asked
    claimed = [name for name in suite.signature.claimed if name not in asked.claims.without]
    base = replace(BASE, dtype=dtype)
    lengths = suite.has(replace(base, queries=5)) and suite.has(replace(base, keys=5))
    groups = suite.has(replace(base, heads=4, kv_heads=2)) and asked.layout != "nd"
    widths = suite.has(replace(base, d_v=16))
    skips = {name: "no keyword of its signature asks for it" for name in OPTIONS if name not in claimed}
    skips |= dict.fromkeys(asked.claims.without, "its claims say that it does not have it")
    if told.told.get(FLOAT_MASK) == TRUTHS:
        skips["float_mask"] = "a mask of numbers is read as truth values: it takes boolean masks"
        claimed.remove("float_mask")
    if asked.layout == "nd":
        skips[GROUPED] = "the layout nd has one head"
    found = [
        *features.own_features(quick=asked.quick),
        *(features.of_option(name, lengths=lengths, quick=asked.quick) for name in OPTIONS),
        features.pairs(claimed),
        features.random(claimed, lengths=lengths, groups=groups, widths=widths, quick=asked.quick),
        Feature(REPEATABLE),
        Feature(INPUTS_KEPT),
    ]
    found = [replace(each, skipped=skips.get(each.name, each.skipped)) for each in found]
    return [each for each in found if not asked.only or each.name in asked.only]
