"""A target held to every feature, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.verbs.conform import features
from attnctl.verbs.conform.call import ENDINGS, NOT_CALLED, SENT, Answer
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.causes import CauseSearch, Search
from attnctl.verbs.conform.choice import FeatureChoice
from attnctl.verbs.conform.diagnosis import LOW_PRECISION, diagnose
from attnctl.verbs.conform.features import (
    ATTENTION,
    BASE,
)
from attnctl.verbs.conform.judge import describe_extras, find_declared
from attnctl.verbs.conform.notes import list_notes
from attnctl.verbs.conform.probes import describe_output_type, find_conventions, fit_suite, join_types
from attnctl.verbs.conform.profile import (
    HIDDEN_GRADIENTS,
    OUTPUT_TYPE,
    Request,
)
from attnctl.verbs.conform.report import FAILED, IGNORED, Conformance, Failure, FeatureResult
from attnctl.verbs.conform.results import Saved, judge_conventions, recall_cause
from attnctl.verbs.conform.runner import FeatureRunner
from attnctl.verbs.conform.stored import TYPES
from attnctl.verbs.conform.suite import CaseResult, Suite

Progress = Callable[[int, int], None]

Ahead = Callable[[Sequence[tuple[str, Case]], float, Progress], None]
"""What has cases of features carried out before their turn; none that is likely to take so many seconds."""

SINGLE = (
    "its numbers are right to the digits of float32 only: it keeps some in float32, whatever it is given"
)
"""The reason why float64 is skipped where plain attention is right in float32."""

ARRAYS_OF = {"numpy": "NumPy arrays", "torch": "tensors of torch", "jax": "arrays of jax"}
OTHER_ARRAYS = {
    "numpy": "--framework torch or jax",
    "torch": "--framework numpy or jax",
    "jax": "--framework numpy or torch",
}
"""What a target is given by a framework, and what it may be given instead."""


def replay(suite: Suite, saved: Saved) -> Conformance:
    """Run a saved case again. Raises AttnError where the target does not take its options."""
    case = saved.case
    lacking = [option for option, _ in case.options if option not in suite.signature.keywords]
    if lacking:
        raise AttnError(f"{suite.target.name}: nothing in its signature asks for {', '.join(lacking)}")

    run = Run(suite)
    # Judging a declared output needs its axes, which only plain attention tells.
    if suite.declared.returns:
        run.find_extras(replace(BASE, dtype=case.dtype))

    result = run.runner.run_feature(saved.feature, (case,), case.dtype)
    run.runs = [result]
    run.recalled = recall_cause(saved.dump, suite, result.wrong)
    return run.conclude(run.runs)


@dataclass
class Run:
    """A target held to all features in all types, and what is learnt of its failures on the way."""

    suite: Suite
    runs: list[FeatureResult] = field(default_factory=list)
    """The runs of all features."""
    recalled: Failure | None = None
    """The cause that was found before, of a case that is run again."""
    search: Search | None = None
    """What finds the cause of wrong cases, where it is not looked for in the catalogue."""
    ahead: Ahead | None = None

    def __post_init__(self) -> None:
        self.choice = FeatureChoice(self.suite)
        self.runner = FeatureRunner(self.suite, self.choice)

    @property
    def request(self) -> Request:
        return self.suite.request

    def carry_out(self, progress: Progress) -> Conformance:
        fitted = fit_suite(self.suite)
        self.refuse_types()
        refused = self.runner.refused
        ended = self.runner.ended
        taken = [dtype for dtype in self.request.dtypes if dtype not in refused]
        if not taken:
            return self.conclude(
                FeatureResult(ATTENTION, dtype, of=1, skipped=why) for dtype, why in refused.items()
            )

        every_type_ended = {*taken} <= ended.keys()
        if every_type_ended or (ended and self.suite.is_let_be):
            return self.conclude(ended.values())

        # Conventions come first: by them the target is called from then on, also for its extra outputs.
        taken = [dtype for dtype in taken if dtype not in ended]
        conventions = {dtype: find_conventions(self.suite, dtype) for dtype in taken}
        extras = self.find_extras(replace(BASE, dtype=taken[0]))
        to_run = self.choice.list_features(taken[0], conventions[taken[0]])
        if self.ahead:
            self.ahead(list(self.runner.list_ahead(to_run)), self.runner.longest_call, progress)
        self.run_features(to_run, progress)

        judged = []
        for dtype in taken:
            conventions[dtype] |= self.describe_outputs(dtype)
            judged += judge_conventions(self.suite, dtype, conventions[dtype])

        return self.conclude(
            [*self.runs, *judged],
            conventions=fitted | join_types(conventions),
            notes=(*extras, *list_notes(self.suite, self.runs, self.choice.read_blocks)),
        )

    def describe_outputs(self, dtype: str) -> dict[str, str]:
        """Describe what only the run of all features shows: the outputs' types, and gradients of NaN."""
        declared = self.suite.declared.conventions.get(OUTPUT_TYPE)
        conventions = describe_output_type(self.suite.output_types[dtype], dtype, declared)
        if dtype in self.suite.nan_gradients:
            conventions[HIDDEN_GRADIENTS] = "NaN"
        return conventions

    def conclude(
        self,
        results: Iterable[FeatureResult],
        conventions: Mapping[str, str] = MappingProxyType({}),
        notes: tuple[str, ...] = (),
    ) -> Conformance:
        """Explain every failure, and join all results to a conformance."""
        features_run = tuple(results)

        for result in features_run:
            if result.feature == features.INPUTS_KEPT and not result.skipped:
                self.count_all_calls(result)

        CauseSearch(self.suite, self.runs, self.recalled, self.search).explain_all(features_run)
        for result in features_run:
            why, dtypes = self.request.xfail.get(result.feature, ("", ()))
            if result.dtype in dtypes and result.status in {FAILED, IGNORED}:
                result.known = why

        return Conformance(
            self.suite.target.name,
            features_run,
            dict(conventions),
            notes=notes,
            has_dropout=bool(self.suite.signature.random),
        )

    def refuse_types(self) -> None:
        """Call plain attention in every type; sort out those it does not take, and those that end it."""
        refused = self.runner.refused
        ended = self.runner.ended
        plain = {dtype: self.suite.run(replace(BASE, dtype=dtype)) for dtype in self.request.dtypes}
        self.suite.works = any(result.judgement.right for result in plain.values())

        if all(result.answer.is_exception for result in plain.values()):
            first = next(iter(plain.values()))
            refused |= dict.fromkeys(plain, self.say_always_raised(first.answer))
            return

        for dtype, result in plain.items():
            answer = result.answer
            if self.suite.is_refusal(answer) or answer.error == NOT_CALLED:
                refused[dtype] = result.judgement.words
            elif answer.error in ENDINGS or answer.kind in SENT:
                ended[dtype] = FeatureResult(ATTENTION, dtype, of=1)
                ended[dtype].add(result)
            elif dtype == "float64" and answer.dtype in {*TYPES} - {dtype}:
                refused[dtype] = f"it answers in {answer.dtype}"
            elif dtype == "float64" and self.is_single(plain):
                refused[dtype] = SINGLE

    def say_always_raised(self, answer: Answer) -> str:
        """Say what every call raises, where, what it was called with, and what may be meant instead."""
        framework = self.request.framework
        place = f" ({answer.place})" if answer.place else ""
        return (
            f"every call raises {answer.error}: {answer.message}{place}; "
            f"it is given Q, K and V as {ARRAYS_OF[framework]}, in every layout: "
            f"say {OTHER_ARRAYS[framework]} if it takes others, --layout and --head-sizes "
            "for what it takes, or wrap it in a function (q, k, v)"
        )

    def is_single(self, plain: Mapping[str, CaseResult]) -> bool:
        """Something is kept in float32, as many programs keep softmax, so float64 is not meant.

        Where float32 is right, an error in float64 may be the rounding of float32 alone.
        """
        if "float32" not in plain or not plain["float32"].judgement.right:
            return False
        result = plain["float64"]
        if result.answer.error or result.judgement.right:
            return False
        return diagnose(self.suite, [result]).failure.mistake == LOW_PRECISION

    def find_extras(self, plain: Case) -> tuple[str, ...]:
        """Find the outputs behind the first; return what is said of those that nobody declared."""
        expected = self.suite.expect(plain)
        answer = self.suite.answer(plain)
        returns = self.suite.declared.returns
        if returns:
            self.suite.extras = find_declared(expected, answer, returns)
            return ()
        return tuple(describe_extras(expected, answer))

    def run_features(self, to_run: Mapping[str, Sequence[Case]], progress: Progress) -> None:
        total = len(self.request.dtypes) * len(to_run)
        for dtype in self.request.dtypes:
            for name, cases in to_run.items():
                self.runs.append(self.runner.run_feature(name, cases, dtype))
                progress(len(self.runs), total)

    def count_all_calls(self, run: FeatureResult) -> None:
        """Count every call in the type: each is held to keeping its inputs."""
        calls = sum(result.cases for result in self.runs if result.dtype == run.dtype and result is not run)
        run.cases += calls
        run.of += calls

        run.wrong = []
        if run.dtype in self.suite.changed:
            run.wrong.append(self.suite.changed[run.dtype])
