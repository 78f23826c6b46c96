"""A target held to every feature, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show.headline import kind_words, positions
from attnctl.verbs.conform import features
from attnctl.verbs.conform.call import CALLS, MISSED, RATE, Target, chance_missed
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.declared import Request, list_unusual
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
    GROUPED,
    INPUTS_KEPT,
    LENGTHS,
    OPTIONAL,
    OTHER_D_V,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    SMALL,
    Feature,
    list_lacking,
)
from attnctl.verbs.conform.judge import describe_extras, judge_answer, judged_places, recognise_extras
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.probes import describe_output_type, find_conventions, fit_suite, join_types
from attnctl.verbs.conform.profile import FLOAT_MASK, HIDDEN_GRADIENTS, OUTPUT_TYPE, TRUTHS, TYPES
from attnctl.verbs.conform.report import (
    DIFFERS,
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    XFAIL,
    Conformance,
    Failure,
    FeatureResult,
)
from attnctl.verbs.conform.results import (
    FeatureRun,
    Saved,
    judge_conventions,
    recall_cause,
    save_case,
    shrink,
)
from attnctl.verbs.conform.suite import ABSENT, NOT_CALLED, CaseResult, Suite, start_suite

Progress = Callable[[int, int], None]

MOST_ENDED = 2
"""Calls of a feature in which the process of the target may end before no more of it are made."""

SINGLE = (
    "its numbers are right to the digits of float32 only: it keeps some in float32, whatever it is given"
)
"""The reason why float64 is skipped where plain attention is right in float32."""

MAY_LACK = {LENGTHS: "unequal numbers of queries and keys", OTHER_D_V: "values of another width"}
"""Features that kernels need not have, and often answer wrongly rather than refuse."""

IGNORED_OPTION = "option-ignored"
NOT_SHARED = {LOW_PRECISION, IGNORED_OPTION}
"""Mistakes that explain a failure in one type and say nothing of another."""

QUICK_SECONDS, SECONDS = 2.0, 20.0
"""The time that making one call again and again may take."""


def run(
    target: Target, name: str, request: Request, progress: Progress, apart: Target | None = None
) -> Conformance:
    """Hold a target to every feature; `apart` is what gives its gradients, where it does not.

    Raises AttnError where it cannot be called at all.
    """
    with start_suite(target, request, apart) as suite:
        return Run(suite, name).carry_out(progress)


def replay(
    target: Target, name: str, request: Request, path: str, saved: Saved, apart: Target | None = None
) -> Conformance:
    """Run the case of a file again; the same output has the same cause as before.

    Raises AttnError where the target cannot be called.
    """
    case, feature, profile = saved
    request = replace(request, profile=replace(request.profile, always=profile.always))
    with start_suite(target, request, apart) as suite:
        suite.profiles[case.dtype] = replace(
            suite.profile, layout=profile.layout, packed=profile.packed, conventions=profile.conventions
        )
        lacking = [option for option, _ in case.options if option not in suite.signature.keywords]
        if lacking:
            raise AttnError(f"{name}: nothing in its signature asks for {', '.join(lacking)}")
        run = Run(suite, name)
        again = run.run_feature(Feature(feature, (case,)), case.dtype)
        run.runs, run.recalled = [again], recall_cause(path, suite, again.wrong)
        return Conformance(name, (run.make_result(again),))


@dataclass
class Run:
    suite: Suite
    name: str
    reused: bool = False
    """An output is overwritten by the next call."""
    refused: dict[str, str] = field(default_factory=dict)
    """The types that the target does not take, each with why."""
    hung: list[FeatureRun] = field(default_factory=list)
    """Plain attention in each type in which it never came back."""
    unequal: dict[bool, str] = field(default_factory=dict)
    """More queries than keys (True) or fewer, where the target refuses that, with why."""
    runs: list[FeatureRun] = field(default_factory=list)
    """The runs of all features, among which a cause is looked for."""
    recalled: Cause | None = None
    """The cause that was found before, of a case that is run again."""
    search: Callable[[Sequence[CaseResult]], Cause] | None = None
    """What finds the cause of wrong cases, where it is not `diagnose`."""
    causes: dict[str, Cause] = field(default_factory=dict)
    """By feature, for all types; so are `small` cases."""
    small: dict[str, CaseResult] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        return self.suite.request

    def carry_out(self, progress: Progress) -> Conformance:
        fitted = fit_suite(self.suite)
        self.refuse_types()
        taken = [dtype for dtype in self.request.dtypes if dtype not in self.refused]
        if not taken:
            return self.conclude(
                FeatureResult(ATTENTION, dtype, SKIPPED, of=1, reason=why)
                for dtype, why in self.refused.items()
            )
        if len(self.hung) == len(taken) or (self.hung and self.suite.is_let_be):
            return self.conclude(map(self.make_result, self.hung))
        found = {dtype: find_conventions(self.suite, dtype) for dtype in taken}
        said = self.find_extras(replace(BASE, dtype=taken[0]))
        self.run_features(self.list_features(taken[0], found[taken[0]]), progress)
        declared = self.request.profile.conventions.get(OUTPUT_TYPE)
        for dtype in taken:
            found[dtype] |= describe_output_type(self.suite.output_types[dtype], dtype, declared)
            found[dtype] |= {HIDDEN_GRADIENTS: "NaN"} if dtype in self.suite.nan_gradients else {}
        results = list(map(self.make_result, self.runs))
        results += [
            each for dtype in taken for each in judge_conventions(self.request, dtype, found[dtype])
        ]
        return self.conclude(results, {**fitted, **join_types(found)}, (*said, *self.list_notes()))

    def conclude(
        self,
        results: Iterable[FeatureResult],
        conventions: Mapping[str, str] = MappingProxyType({}),
        notes: tuple[str, ...] = (),
    ) -> Conformance:
        """Put the results together; those that someone expects to fail are marked."""
        marked = []
        for result in results:
            why, types = self.request.xfail.get(result.feature, ("", ()))
            expected = result.dtype in types and result.status in {FAILED, IGNORED}
            marked.append(replace(result, status=XFAIL, known=why) if expected else result)
        return Conformance(self.name, tuple(marked), dict(conventions), notes)

    # --- what is found out first ---

    def refuse_types(self) -> None:
        """Find the types that the target does not take, and those in which it hangs."""
        plain = {dtype: self.suite.run(replace(BASE, dtype=dtype)) for dtype in self.request.dtypes}
        for dtype, each in plain.items():
            if self.suite.is_refusal(each.answer):
                self.refused[dtype] = each.judgement.words
            elif each.answer.error == "hang":
                once = Feature(ATTENTION, (BASE,))
                self.hung.append(FeatureRun(once, dtype, 1, 1, each.judgement.ratio, [each]))
            elif dtype == "float64" and each.answer.dtype in {*TYPES} - {dtype}:
                self.refused[dtype] = f"it answers in {each.answer.dtype}"
            elif dtype == "float64" and "float32" in plain and plain["float32"].judgement.right:
                self.refused |= {dtype: SINGLE} if self.is_single(each) else {}

    def is_single(self, result: CaseResult) -> bool:
        """Something is kept in float32, as many programs keep softmax, so float64 is not meant."""
        if result.answer.error or result.judgement.right:
            return False
        return diagnose(self.suite, [result]).mistake == LOW_PRECISION

    def find_extras(self, plain: Case) -> tuple[str, ...]:
        """Name the outputs behind the first, as declared or as they look, and describe the latter."""
        if self.request.profile.returns:
            self.suite.extras = judged_places(self.request.profile.returns)
            return ()
        wanted, answer = self.suite.expect(plain), self.suite.answer(plain)
        self.suite.extras = recognise_extras(wanted, answer)
        return tuple(describe_extras(wanted, answer, self.suite.extras))

    def list_features(self, dtype: str, conventions: Mapping[str, str]) -> list[Feature]:
        """List the features to run, with cases of sizes and options that this target has."""
        request, suite = self.request, self.suite
        claimed = [name for name in suite.signature.claimed if name not in request.profile.without]
        base = replace(BASE, dtype=dtype)
        lacking = list_lacking(suite.profile_in(dtype))
        self.unequal = self.refuse_unequal(dtype)
        lengths = LENGTHS not in {*lacking, *request.profile.without} and not self.unequal
        groups = suite.takes(replace(base, heads=4, kv_heads=2))
        widths = suite.takes(replace(base, d_v=16))
        skips = dict.fromkeys((name for name in OPTIONS if name not in claimed), suite.target.unclaimed)
        skips |= dict.fromkeys(request.profile.without, "its claims say that it does not have it")
        # Masks of numbers are said to be added by its claims, or as libraries name them.
        added = "float_mask" in request.profile.features
        added = added or suite.signature.keywords.get("float_mask") == "attn_mask"
        if conventions.get(FLOAT_MASK) == TRUTHS and not added:
            skips["float_mask"] = "a mask of numbers is read as truth values: it takes boolean masks"
            claimed.remove("float_mask")
        skips |= {**lacking, **suite.target.cannot}
        found = [
            *features.list_own_features(suite.profile.head_sizes, quick=request.quick),
            *(
                features.option_feature(name, claimed, lengths=lengths, quick=request.quick)
                for name in OPTIONS
            ),
            features.pairs_feature(claimed),
            features.random_feature(
                claimed, lengths=lengths, groups=groups, widths=widths, quick=request.quick
            ),
            *(Feature(name, (SMALL, replace(BASE, queries=33, keys=33, seed=1))) for name in self.repeated),
            Feature(INPUTS_KEPT, (BASE,)),
        ]
        found = [replace(each, skipped=skips.get(each.name, each.skipped)) for each in found]
        return [each for each in found if not request.only or each.name in request.only]

    @property
    def repeated(self) -> tuple[str, ...]:
        """The features whose cases are called again and again."""
        forward = () if self.suite.signature.handed else (REPEATABLE,)
        return (*forward, REPEATABLE_GRADIENTS) if self.request.backward else forward

    def refuse_unequal(self, dtype: str) -> dict[bool, str]:
        """Find out whether more queries than keys, or fewer, are refused, and why."""
        if LENGTHS in {*self.request.profile.features, *self.request.profile.without}:
            return {}
        cases = (replace(BASE, dtype=dtype, keys=5), replace(BASE, dtype=dtype, queries=5))
        results = {case.queries > case.keys: self.suite.run(case) for case in cases}
        refused = {more: each for more, each in results.items() if self.suite.is_refusal(each.answer)}
        return {more: each.judgement.words for more, each in refused.items()}

    # --- features ---

    def run_features(self, to_run: Sequence[Feature], progress: Progress) -> None:
        """Run each feature in each type, in order; an interrupt ends the target before its threads."""
        work = [(feature, dtype) for dtype in self.request.dtypes for feature in to_run]
        with ThreadPoolExecutor(self.request.jobs) as pool:
            carry_out = map if self.request.jobs == 1 else pool.map
            try:
                for run in carry_out(lambda each: self.run_feature(*each), work):
                    self.runs.append(run)
                    progress(len(self.runs), len(work))
            except BaseException:
                self.suite.target.close()
                raise

    def run_feature(self, feature: Feature, dtype: str) -> FeatureRun:
        if feature.skipped:
            return FeatureRun(feature, dtype, skipped=feature.skipped)
        cases = list(dict.fromkeys(self.suite.fit(replace(case, dtype=dtype)) for case in feature.cases))
        run = FeatureRun(feature, dtype, of=len(cases), skipped=self.refused.get(dtype, ""))
        if run.skipped:
            return run
        if feature.name in {*self.repeated, INPUTS_KEPT}:
            return self.run_repeatedly(feature, dtype)
        for case in cases:
            if not self.run_case(run, case):
                break
        if run.cases and not run.wrong and not run.shown:
            return FeatureRun(feature, dtype, of=run.of, skipped="rounding hides it in this type")
        return run

    def run_case(self, run: FeatureRun, case: Case) -> bool:
        """Run one case of a feature; False where the target is not to be called with more of them."""
        more = case.queries > case.keys - case.past
        if case.queries != case.keys - case.past and more in self.unequal:
            run.refuse(self.unequal[more])
            return True
        found = self.suite.run(case)
        if self.is_passed_over(run.feature, found):
            run.refuse(found.judgement.words)
            return True
        if run.refused and self.is_broadcast(run.feature, found):
            run.refuse("one kv head is broadcast, and its gradients are not summed over the query heads")
            return True
        run.add(found)
        if found.answer.error == "hang" or run.ended == MOST_ENDED:
            run.skipped = run.skipped or ENDINGS[found.answer.error]
            return False
        return True

    def is_passed_over(self, feature: Feature, found: CaseResult) -> bool:
        """A case counts for nothing: the target refuses what it may, or is not called any more."""
        if found.answer.error in {*ABSENT, NOT_CALLED}:
            return True
        case, claimed = found.case, self.request.profile.features
        unequal = case.queries != case.keys - case.past and LENGTHS not in claimed
        may_refuse = unequal or feature.name in OPTIONAL - {*claimed}
        return may_refuse and self.suite.is_refusal(found.answer)

    def is_broadcast(self, feature: Feature, found: CaseResult) -> bool:
        """One kv head is broadcast, by a target that refuses several, and its gradients are not summed."""
        if feature.name != GROUPED or GROUPED in self.request.profile.features or found.case.kv_heads > 1:
            return False
        wrong = {name for name, ratio in found.judgement.ratios.items() if ratio > 1}
        return bool(wrong) and wrong <= {*GRADIENTS} - self.suite.outputs_in(found).keys()

    def run_repeatedly(self, feature: Feature, dtype: str) -> FeatureRun:
        """Make the same call many times, or once where inputs are to be kept."""
        cases = [replace(each, dtype=dtype) for each in feature.cases]
        seconds = QUICK_SECONDS if self.request.quick else SECONDS
        many = {"times": CALLS, "seconds": seconds} if feature.name in self.repeated else {}
        forward = feature.name == REPEATABLE
        found = [self.suite.run(case, forward=forward, **many) for case in cases]
        answered = [
            each
            for each in found
            if not (self.suite.is_refusal(each.answer) or each.answer.error == NOT_CALLED)
        ]
        if not answered:
            return FeatureRun(feature, dtype, of=len(cases), skipped=found[0].judgement.words)
        calls = sum(each.answer.repeats.calls for each in answered)
        other = [each for each in answered if each.answer.error or not each.answer.repeats.same]
        lenient = feature.name == REPEATABLE_GRADIENTS and not self.request.profile.deterministic
        wrong = [each for each in other if not (lenient and self.is_right_again(each))]
        self.reused |= any(each.answer.repeats.reused for each in answered)
        run = FeatureRun(feature, dtype, len(answered), len(cases), wrong=wrong, calls=calls)
        run.differs = "" if wrong or not other else explain_repeats(other[0].answer).explanation
        return run

    def is_right_again(self, found: CaseResult) -> bool:
        """The gradients are right that were farthest from those of the first call."""
        repeats = found.answer.repeats
        if found.answer.error or repeats.failed:
            return False
        again = replace(found.answer, gradients=repeats.farthest)
        return judge_answer(self.suite.expect(found.case), again).right

    # --- results ---

    def make_result(self, run: FeatureRun) -> FeatureResult:
        if run.feature.name == INPUTS_KEPT and not run.skipped:
            self.count_all_calls(run)
        if not run.wrong:
            return run.result(DIFFERS if run.differs else PASSED)
        cause = self.add_way_out(run, self.explain(run))
        saved, first = self.save_failure(run, cause), run.wrong[0]
        words = first.judgement.words or cause.explanation
        failure = Failure(first.case, words, cause.mistake, cause.explanation)
        if saved:
            before, after = self.request.called
            again = shell_line(["attnctl", "conform", *before, "--replay", str(saved), *after])
            failure = replace(failure, replay=again, saved=str(saved))
        status = IGNORED if cause.mistake == IGNORED_OPTION else FAILED
        return run.result(status, failure)

    def add_way_out(self, run: FeatureRun, cause: Cause) -> Cause:
        """Say how to declare that a kernel is not meant for what fails, where plain attention is right."""
        name = run.feature.name
        claimed = name in self.request.profile.features
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
        if self.request.save is None:
            return None
        if name not in {REPEATABLE, REPEATABLE_GRADIENTS, INPUTS_KEPT}:
            before = self.small.get(name)
            again = None if before is None else self.suite.run(replace(before.case, dtype=run.dtype))
            if again is None or again.judgement.right:
                again = self.small[name] = shrink(result, self.suite)
            result = again
        return save_case(self.suite, result, name, self.name, cause)

    def list_notes(self) -> tuple[str, ...]:
        config = list_unusual(self.request.profile.always)
        on = [*positions(config.get("positions")), *kind_words(config)]
        out = [f"Always on: {', '.join(on)}."] if on else []
        if untried := self.suite.signature.untried:
            named = f"--map {untried[0]}=OURS says what it is"
            out.append(f"Not tried: {', '.join(untried)}: left at the default in every call ({named}).")
        if self.reused:
            out.append("Its output is in the same memory in every call: the next call overwrites it.")
        if calls := [each.calls for each in self.runs if each.feature.name in self.repeated and each.calls]:
            least, few = min(calls), f" ({CALLS} would make that {MISSED:g}, but take too long)"
            missed = f"would be missed with a chance of {chance_missed(least):.2g}"
            out.append(
                f"Repeated: {least} calls with the same inputs in each type: "
                f"a fault in {RATE * 100:g} % of calls {missed}{few if least < CALLS else ''}."
            )
        differing = dict.fromkeys(each.differs for each in self.runs if each.differs)
        allowed = "wrong only where --claims say deterministic: true"
        out += [f"Gradients: {each}; {allowed}." for each in differing]
        if self.request.backward:
            out += describe_gradients(self.runs, self.suite)
        return tuple(out)


def describe_gradients(runs: Sequence[FeatureRun], suite: Suite) -> Iterator[str]:
    """Say how far off each output is, and which options its gradients are not asked for with."""
    worst: dict[str, float] = {}
    for name, ratio in (each for run in runs for each in run.ratios.items()):
        worst[name] = max(ratio, worst.get(name, 0.0))
    if worst:
        yield f"Largest by output: {', '.join(f'{name} {ratio:.3g}' for name, ratio in worst.items())}."
    # Numbers to learn, whose gradients no case asks for.
    others = [f"by {name}" for name in ("bias", "sinks") if name in suite.signature.claimed]
    others += [f"{suite.more_gradients} more that it returns"] if suite.more_gradients else []
    if others:
        held = "attnctl check holds them in a dump that has d_output"
        yield f"Judged: gradients by Q, K and V. Not judged: {all_of(others)}; {held}."
    back = suite.signature.claimed if suite.apart is None else suite.apart[1].claimed
    if alone := [name for name in suite.signature.claimed if name not in back or name == "out"]:
        yield f"Of its output alone, as its backward pass does not take it: {', '.join(alone)}."
