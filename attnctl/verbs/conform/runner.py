"""The features of a target, carried out case by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf

from attnctl.base.dataclass import dataclass
from attnctl.verbs.conform import features
from attnctl.verbs.conform.call import CALLS, ENDINGS, NOT_CALLED
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.choice import FeatureChoice, repeated_features
from attnctl.verbs.conform.diagnosis import explain_repeats
from attnctl.verbs.conform.features import (
    ATTENTION,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    find_unfit,
)
from attnctl.verbs.conform.judge import judge_answer
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import (
    GROUPED,
    LENGTHS,
    MASK_SHAPE,
    OTHER_D_V,
    Request,
)
from attnctl.verbs.conform.relations import RELATIONS, Relation, hold_relation
from attnctl.verbs.conform.report import FeatureResult
from attnctl.verbs.conform.suite import ABSENT, CaseResult, Suite

MOST_ENDED = 2
"""Calls of a feature in which the process of the target may end before no more of it are made."""

BOUNDED = {features.MANY_KEYS, features.BLOCK_BOUNDARIES}
"""Features whose calls are left out where the target is too slow for them, as others went."""

OF_SIZES = {
    features.HEAD_SIZES, LENGTHS, OTHER_D_V, features.LAYOUTS, features.MANY_KEYS, features.PAIRS,
    features.BLOCK_BOUNDARIES, features.RANDOM, features.LARGE, features.LARGE_VALUES, features.DECODE,
    *(name for name in OPTIONS if name not in {"causal", "mask"}),
}  # fmt: skip  # fmt: skip
"""Features with many sizes, whose cases a quick run of jax spreads over the types."""

QUICK_CALL = 4.0
LONGEST_CALL = 10.0
"""The seconds that a call of these may take."""

QUICK_SECONDS = 2.0
SECONDS = 20.0
"""The time that making one call again and again may take."""


@dataclass
class FeatureRunner:
    """Runs the features of a target, each in one type."""

    suite: Suite
    choice: FeatureChoice
    refused: dict[str, str] = field(default_factory=dict)
    """The types that the target does not take, each with why."""
    ended: dict[str, FeatureResult] = field(default_factory=dict)
    """Plain attention in each type in which it never came back, or ended its process."""

    @property
    def request(self) -> Request:
        return self.suite.request

    @property
    def longest_call(self) -> float:
        usual = QUICK_CALL if self.request.quick else LONGEST_CALL
        # A quarter of --timeout: the time is predicted from other calls, and may be off by some.
        return min(usual, (self.request.timeout or inf) / 4)

    def list_ahead(self, to_run: Mapping[str, Sequence[Case]]) -> Iterator[tuple[str, Case]]:
        """The cases, with their features, that are one call each, whatever became of those before."""
        apart = {
            *self.choice.skips,
            *repeated_features(self.suite),
            *RELATIONS,
            features.INPUTS_KEPT,
            features.CAPTURED_CALLS,
        }
        for dtype in self.request.dtypes:
            if dtype in self.refused or dtype in self.ended:
                continue
            for name, cases in to_run.items():
                if name not in apart:
                    fitted = [self.suite.fit(replace(case, dtype=dtype)) for case in cases]
                    yield from ((name, case) for case in fitted if not self.is_unequal_refused(case))

    def run_feature(self, name: str, cases: Sequence[Case], dtype: str) -> FeatureResult:
        """Run the cases of a feature in a type, or say why they are not run."""
        if name in self.choice.skips:
            return FeatureResult(name, dtype, skipped=self.choice.skips[name])

        in_type = [replace(case, dtype=dtype) for case in self.spread_over_types(name, cases, dtype)]
        fitted = list(dict.fromkeys(map(self.suite.fit, in_type)))
        run = FeatureResult(name, dtype, of=len(fitted), skipped=self.refused.get(dtype, ""))

        ended = self.ended.get(dtype)
        if ended and name == ATTENTION:
            return ended
        if ended:
            return replace(run, skipped=ended.wrong[0].judgement.words)
        if run.skipped:
            return run

        if name in repeated_features(self.suite) or name == features.INPUTS_KEPT:
            return self.run_repeatedly(name, in_type)
        if name in RELATIONS:
            return self.run_relation(RELATIONS[name], fitted)
        return self.run_cases(run, fitted)

    def spread_over_types(self, name: str, cases: Sequence[Case], dtype: str) -> Sequence[Case]:
        """The part of the cases that is this type's, of a library that compiles for every size.

        In a quick run alone, of features that are about sizes: what is wrong of one is so in any type.
        """
        compiles = self.request.framework == "jax"
        if not compiles or not self.request.quick or name not in OF_SIZES or dtype in self.refused:
            return cases
        taken = [other for other in self.request.dtypes if other not in self.refused]
        return cases[taken.index(dtype) :: len(taken)] or cases[:1]

    def run_cases(self, run: FeatureResult, cases: Sequence[Case]) -> FeatureResult:
        """Run the cases one after the other, until the target is not to be called with more."""
        if run.feature == features.CAPTURED_CALLS:
            for why in self.choice.not_taken:
                run.of += 1
                run.refuse(why)

        for case in cases:
            if not self.run_case(run, case):
                break
        if run.cases and not run.wrong and not run.shown:
            return FeatureResult(
                run.feature, run.dtype, of=run.of, skipped="rounding hides it in this type"
            )
        return run

    def run_case(self, run: FeatureResult, case: Case) -> bool:
        """Run one case of a feature; False where the target is not to be called with more of them."""
        if self.is_unequal_refused(case):
            run.refuse(self.choice.unequal[case.queries > case.keys - case.past])
            return True

        if run.feature in BOUNDED and self.suite.predict_time(case) > self.longest_call:
            run.skipped = run.skipped or f"a call would take longer than {self.longest_call:g} s"
            return True

        unfit = case.call and find_unfit(self.suite.problem(case))
        if case.call and unfit:
            run.refuse(f"{case.call.name}: {unfit}")
            return True

        result = self.suite.run(case)
        if self.is_passed_over(run.feature, result):
            run.refuse(result.judgement.words)
            return True
        if run.refused and self.is_broadcast(run.feature, result):
            run.refuse("one kv head is broadcast, and its gradients are not summed over the query heads")
            return True

        run.add(result)
        error = result.answer.error
        ended = sum(result.answer.error in ENDINGS for result in run.wrong)
        if error == "hang" or ended == MOST_ENDED:
            run.skipped = run.skipped or ENDINGS[error]
            return False
        return True

    def is_unequal_refused(self, case: Case) -> bool:
        new_keys = case.keys - case.past
        return case.queries != new_keys and (case.queries > new_keys) in self.choice.unequal

    def is_passed_over(self, feature: str, result: CaseResult) -> bool:
        """A case counts for nothing: the target refuses what it may, or is not called any more."""
        if result.answer.error in {*ABSENT, NOT_CALLED}:
            return True

        case = result.case
        claimed = {*self.suite.declared.features}
        if MASK_SHAPE in self.suite.declared.conventions:
            claimed |= {*features.IN_SHAPE}
        is_unequal = case.queries != case.keys - case.past
        if is_unequal and LENGTHS not in claimed:
            return self.suite.is_refusal(result.answer)

        # What nobody says that it has, and plain attention has not.
        asked = {feature, *case.option_values}
        if is_unequal:
            asked.add(LENGTHS)
        is_extra = self.suite.works and bool(case.options) and asked.isdisjoint(claimed)
        may_refuse = is_extra or feature in features.OPTIONAL - claimed
        return may_refuse and self.suite.is_refusal(result.answer)

    def is_broadcast(self, feature: str, result: CaseResult) -> bool:
        """One kv head is broadcast, by a target that refuses several, and its gradients are not summed."""
        if feature != GROUPED or GROUPED in self.suite.declared.features or result.case.kv_heads > 1:
            return False
        wrong = {name for name, ratio in result.judgement.ratios.items() if ratio > 1}
        # Gradients that are not there at all: those per query head have not the shape of K and V.
        missing = {*GRADIENTS} - self.suite.outputs_in(result).keys()
        return bool(wrong) and wrong <= missing

    def run_relation(self, relation: Relation, cases: Sequence[Case]) -> FeatureResult:
        run = FeatureResult(relation.name, cases[0].dtype)
        for case in cases:
            problem = self.suite.problem(case, forward=True)
            held = hold_relation(relation, problem, self.suite.call)
            if held is None:
                continue  # the case has nothing that could be moved

            run.of += 1
            answer, judgement = held
            result = CaseResult(problem.case, answer, judgement)
            if self.is_passed_over(run.feature, result) or self.suite.is_refusal(answer):
                run.refuse(judgement.words)
            else:
                run.add(result)

            if relation.exact and judgement.right and judgement.differs:
                off = f"{judgement.differs:.2g} units in the last place, which rounding may do"
                run.differs = f"With {relation.name} a row changes by up to {off}, or a leak no larger."

        # Right cases may speak against a cause. That two calls agree says nothing of their numbers.
        run.right.clear()
        if not run.of and not run.skipped:
            run.skipped = "nothing that it takes has anything to move"
        return run

    def run_repeatedly(self, name: str, cases: Sequence[Case]) -> FeatureResult:
        """Make the same call many times, or once where inputs are to be kept."""
        dtype = cases[0].dtype
        how_often: dict[str, float] = {}
        if name in repeated_features(self.suite):
            how_often = {"times": CALLS, "seconds": QUICK_SECONDS if self.request.quick else SECONDS}

        results = [self.suite.run(case, forward=name == REPEATABLE, **how_often) for case in cases]
        answered = [
            result
            for result in results
            if result.answer.error != NOT_CALLED and not self.suite.is_refusal(result.answer)
        ]
        if not answered:
            return FeatureResult(name, dtype, of=len(cases), skipped=results[0].judgement.words)

        unsteady = [result for result in answered if result.answer.error or not result.answer.same]
        wrong = unsteady
        # Kernels sum gradients by atomic additions, whose order is not the same in every call.
        if name == REPEATABLE_GRADIENTS and not self.suite.declared.deterministic:
            wrong = [result for result in unsteady if not self.is_right_again(result)]

        run = FeatureResult(
            name,
            dtype,
            cases=len(answered),
            of=len(cases),
            wrong=wrong,
            calls=sum(result.answer.calls for result in answered),
        )
        if unsteady and not wrong:
            sentence = explain_repeats(unsteady[0].answer).explanation
            run.differs = f"Gradients: {sentence}; wrong only where --claims say deterministic: true."
        return run

    def is_right_again(self, result: CaseResult) -> bool:
        """The gradients are right that were farthest from those of the first call."""
        if result.answer.error or result.answer.failed:
            return False
        farthest = replace(result.answer, gradients=result.answer.farthest)
        return judge_answer(self.suite.expect(result.case), farthest).right
