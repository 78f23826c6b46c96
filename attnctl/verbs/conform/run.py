"""A target held to every feature, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from pathlib import Path
from types import MappingProxyType

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, plural
from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show.headline import kind_words, positions
from attnctl.verbs.conform import features, uses
from attnctl.verbs.conform.blocks import BlockSize, say_sizes
from attnctl.verbs.conform.call import CALLS, ENDINGS, MISSED, NOT_CALLED, RATE, SENT, Answer, chance_missed
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.declared import list_unusual
from attnctl.verbs.conform.diagnosis import LOW_PRECISION, diagnose, explain_repeats, ignored_cause
from attnctl.verbs.conform.features import (
    ATTENTION,
    BASE,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    find_unfit,
    fit_call,
)
from attnctl.verbs.conform.held import NOTHING, Cause, Diagnosed, choose, spare, unite
from attnctl.verbs.conform.judge import describe_extras, find_declared, judge_answer
from attnctl.verbs.conform.kinds import NOT_SOFTMAX
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.probes import describe_output_type, find_conventions, fit_suite, join_types
from attnctl.verbs.conform.profile import (
    CORNER,
    FLOAT_MASK,
    GROUPED,
    HIDDEN_GRADIENTS,
    LENGTHS,
    MASK_SHAPE,
    OTHER_D_V,
    OUTPUT_TYPE,
    TYPES,
    Request,
)
from attnctl.verbs.conform.relations import RELATIONS, Relation, hold_relation
from attnctl.verbs.conform.report import FAILED, IGNORED, MOST_SAID, Conformance, Failure, FeatureResult
from attnctl.verbs.conform.results import Saved, judge_conventions, recall_cause, save_case, shrink
from attnctl.verbs.conform.suite import ABSENT, CaseResult, Suite

Progress = Callable[[int, int], None]

MOST_ENDED = 2
"""Calls of a feature in which the process of the target may end before no more of it are made."""

SINGLE = (
    "its numbers are right to the digits of float32 only: it keeps some in float32, whatever it is given"
)
"""The reason why float64 is skipped where plain attention is right in float32."""

NO_DECODE = "it takes no cache, and causal does not end at the last key"

ARRAYS_OF = {"numpy": "NumPy arrays", "torch": "tensors of torch", "jax": "arrays of jax"}
OTHER_ARRAYS = {
    "numpy": "--framework torch or jax",
    "torch": "--framework numpy or jax",
    "jax": "--framework numpy or torch",
}
"""What a target is given by a framework, and what it may be given instead."""

OF_OUTPUTS = "it gives gradients, and this is of outputs"

MAY_LACK = {LENGTHS: "unequal numbers of queries and keys", OTHER_D_V: "values of another width"}
"""Features that kernels need not have, and often answer wrongly rather than refuse."""

BOUNDED = {features.MANY_KEYS, features.BLOCK_BOUNDARIES}
"""Features whose calls are left out where the target is too slow for them, as others went."""

QUICK_CALL, LONGEST_CALL = 4.0, 10.0
"""The seconds that a call of these may take."""

QUICK_SECONDS, SECONDS = 2.0, 20.0
"""The time that making one call again and again may take."""


def replay(suite: Suite, saved: Saved) -> Conformance:
    """Run a saved case again. Raises AttnError where the target does not take its options."""
    case, feature, _, dump = saved
    lacking = [option for option, _ in case.options if option not in suite.signature.keywords]
    if lacking:
        raise AttnError(f"{suite.target.name}: nothing in its signature asks for {', '.join(lacking)}")
    run = Run(suite)
    if suite.declared.returns:
        run.find_extras(replace(BASE, dtype=case.dtype))
    again = run.run_feature(feature, (case,), case.dtype)
    run.runs, run.recalled = [again], recall_cause(dump, suite, again.wrong)
    return run.conclude(run.runs)


@dataclass
class Run:
    suite: Suite
    refused: dict[str, str] = field(default_factory=dict)
    """The types that the target does not take, each with why."""
    skips: dict[str, str] = field(default_factory=dict)
    """The features that are not run, each with why."""
    ended: dict[str, FeatureResult] = field(default_factory=dict)
    """Plain attention in each type in which it never came back, or ended its process."""
    unequal: dict[bool, str] = field(default_factory=dict)
    """More queries than keys (True) or fewer, where the target refuses that, with why."""
    not_taken: list[str] = field(default_factory=list)
    """Why captured calls are none of the target's."""
    runs: list[FeatureResult] = field(default_factory=list)
    """The runs of all features, among which a cause is looked for."""
    recalled: Failure | None = None
    """The cause that was found before, of a case that is run again."""
    search: Callable[[Sequence[CaseResult]], Failure] | None = None
    """What finds the cause of wrong cases, where it is not `diagnose`."""
    causes: list[Cause] = field(default_factory=list)
    """What was found to explain a feature, which may explain others."""
    unexplained: set[str] = field(default_factory=set)
    """The features of which nothing was found in another type."""
    diagnosed: dict[tuple[str, str], Diagnosed] = field(default_factory=dict)
    """What is true of the failing cases of a feature in a type."""

    @property
    def request(self) -> Request:
        return self.suite.request

    def carry_out(self, progress: Progress) -> Conformance:
        fitted = fit_suite(self.suite)
        self.refuse_types()
        taken = [dtype for dtype in self.request.dtypes if dtype not in self.refused]
        if not taken:
            return self.conclude(
                FeatureResult(ATTENTION, dtype, of=1, skipped=why) for dtype, why in self.refused.items()
            )
        if {*taken} <= self.ended.keys() or (self.ended and self.suite.is_let_be):
            return self.conclude(self.ended.values())
        taken = [dtype for dtype in taken if dtype not in self.ended]
        found = {dtype: find_conventions(self.suite, dtype) for dtype in taken}
        said = self.find_extras(replace(BASE, dtype=taken[0]))
        self.run_features(self.list_features(taken[0], found[taken[0]]), progress)
        declared = self.suite.declared.conventions.get(OUTPUT_TYPE)
        judged: list[FeatureResult] = []
        for dtype in taken:
            found[dtype] |= describe_output_type(self.suite.output_types[dtype], dtype, declared)
            found[dtype] |= {HIDDEN_GRADIENTS: "NaN"} if dtype in self.suite.nan_gradients else {}
            judged += judge_conventions(self.suite, dtype, found[dtype])
        return self.conclude([*self.runs, *judged], fitted | join_types(found), (*said, *self.list_notes()))

    def conclude(
        self,
        results: Iterable[FeatureResult],
        conventions: Mapping[str, str] = MappingProxyType({}),
        notes: tuple[str, ...] = (),
    ) -> Conformance:
        found = tuple(results)
        for result in found:
            if result.feature == features.INPUTS_KEPT and not result.skipped:
                self.count_all_calls(result)
            if result.wrong:
                self.diagnosed[result.feature, result.dtype] = self.explain(result)
        self.unite_causes()
        for result in found:
            self.add_cause(result)
            why, types = self.request.xfail.get(result.feature, ("", ()))
            if result.dtype in types and result.status in {FAILED, IGNORED}:
                result.known = why
        has_dropout = bool(self.suite.signature.random)
        return Conformance(self.suite.target.name, found, dict(conventions), notes, has_dropout)

    # --- what is found out first ---

    def refuse_types(self) -> None:
        plain = {dtype: self.suite.run(replace(BASE, dtype=dtype)) for dtype in self.request.dtypes}
        self.suite.works = any(result.judgement.right for result in plain.values())
        if all(result.answer.is_exception for result in plain.values()):
            first = next(iter(plain.values()))
            self.refused = dict.fromkeys(plain, self.say_always_raised(first.answer))
            return
        for dtype, result in plain.items():
            if self.suite.is_refusal(result.answer) or result.answer.error == NOT_CALLED:
                self.refused[dtype] = result.judgement.words
            elif result.answer.error in ENDINGS or result.answer.kind in SENT:
                self.ended[dtype] = FeatureResult(ATTENTION, dtype, of=1)
                self.ended[dtype].add(result)
            elif dtype == "float64" and result.answer.dtype in {*TYPES} - {dtype}:
                self.refused[dtype] = f"it answers in {result.answer.dtype}"
            elif dtype == "float64" and "float32" in plain and plain["float32"].judgement.right:
                self.refused |= {dtype: SINGLE} if self.is_single(result) else {}

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

    def is_single(self, result: CaseResult) -> bool:
        """Something is kept in float32, as many programs keep softmax, so float64 is not meant."""
        if result.answer.error or result.judgement.right:
            return False
        return diagnose(self.suite, [result]).failure.mistake == LOW_PRECISION

    def find_extras(self, plain: Case) -> tuple[str, ...]:
        suite = self.suite
        wanted, answer = suite.expect(plain), suite.answer(plain)
        if suite.declared.returns:
            suite.extras = find_declared(wanted, answer, suite.declared.returns)
            return ()
        return tuple(describe_extras(wanted, answer))

    def list_features(self, dtype: str, conventions: Mapping[str, str]) -> dict[str, tuple[Case, ...]]:
        request, suite = self.request, self.suite
        claimed = [name for name in suite.signature.claimed if name not in suite.declared.without]
        base = replace(BASE, dtype=dtype)
        lacking = suite.profile_in(dtype).lacking
        self.unequal = self.refuse_unequal(dtype)
        lengths = LENGTHS not in {*lacking, *suite.declared.without} and not self.unequal
        groups = suite.takes(replace(base, heads=4, kv_heads=2))
        widths = suite.takes(replace(base, d_v=16))
        skips = dict.fromkeys((name for name in OPTIONS if name not in claimed), suite.target.unclaimed)
        skips |= dict.fromkeys(suite.declared.without, "its claims say that it does not have it")
        # Masks of numbers are said to be added by its claims, or as libraries name them.
        added = "float_mask" in suite.declared.features
        added = added or suite.signature.keywords.get("float_mask") == "attn_mask"
        if conventions.get(FLOAT_MASK) == "read as truth values" and not added:
            skips["float_mask"] = "a mask of numbers is read as truth values: it takes boolean masks"
            claimed.remove("float_mask")
        decode = self.list_decode(claimed, dtype, lengths=lengths, groups=groups)
        if not decode:
            skips[features.DECODE] = NO_DECODE
        pairs = features.pairs_cases(claimed)
        few = {} if pairs else {features.PAIRS: "it has fewer than two options"}
        backward = dict.fromkeys(RELATIONS, OF_OUTPUTS) if suite.signature.handed else {}
        self.skips = {**few, **skips, **lacking, **backward, **suite.target.cannot}
        how = {"lengths": lengths, "quick": request.quick}
        found = {
            **features.list_own_features(suite.profile.head_sizes, quick=request.quick),
            **{name: features.option_cases(name, claimed, **how) for name in OPTIONS},
            features.DECODE: decode,
            features.MANY_KEYS: uses.many_keys_cases(claimed, **how),
            features.BLOCK_BOUNDARIES: uses.block_cases(claimed, self.block_sizes, lengths=lengths),
            features.PAIRS: pairs,
            features.RANDOM: features.random_cases(claimed, groups=groups, widths=widths, **how),
            **dict.fromkeys(self.repeated, (features.SMALL, replace(BASE, queries=33, keys=33, seed=1))),
            **features.relation_cases(claimed, request.shape),
            features.INPUTS_KEPT: (BASE,),
        }
        if calls := request.calls:
            taken = [fit_call(call, claimed, suite.profile_in(dtype)) for call in calls]
            self.not_taken = [why for why in taken if isinstance(why, str)]
            found[features.CAPTURED_CALLS] = tuple(case for case in taken if isinstance(case, Case))
            found[features.DRAWN_ALIKE] = features.activation_cases(
                calls, causal="causal" in claimed, groups=groups
            )
        return {name: cases for name, cases in found.items() if not request.only or name in request.only}

    @property
    def longest_call(self) -> float:
        usual = QUICK_CALL if self.request.quick else LONGEST_CALL
        return min(usual, (self.request.timeout or inf) / 4)  # others may go faster than these do

    @property
    def block_sizes(self) -> Sequence[int]:
        """Those that are said, or else those that its source has, and the usual ones."""
        usual = uses.QUICK_BLOCKS if self.request.quick else uses.BLOCKS
        read = [block.size for block in self.read_blocks]
        return self.request.block_sizes or tuple(dict.fromkeys([*read, *usual]))

    @property
    def read_blocks(self) -> Sequence[BlockSize]:
        """The sizes of blocks that the target's source has, as far as cases end there."""
        if self.request.block_sizes:
            return ()
        most = uses.MOST_QUICK_BLOCKS if self.request.quick else uses.MOST_BLOCKS
        return self.suite.target.blocks[:most]

    def list_decode(
        self, claimed: Sequence[str], dtype: str, *, lengths: bool, groups: bool
    ) -> tuple[Case, ...]:
        """The cases of a few new queries, where there is a cache or the last query sees every key."""
        cached = "cache" in claimed
        ends_last = "causal" in claimed and self.suite.profile_in(dtype)[CORNER] == "bottom-right"
        if not (cached or (lengths and (ends_last or "pages" in claimed))):
            return ()
        return uses.decode_cases(claimed, cached=cached, groups=groups, quick=self.request.quick)

    @property
    def repeated(self) -> tuple[str, ...]:
        forward = () if self.suite.signature.handed else (REPEATABLE,)
        return (*forward, REPEATABLE_GRADIENTS) if self.request.backward else forward

    def refuse_unequal(self, dtype: str) -> dict[bool, str]:
        if LENGTHS in {*self.suite.declared.features, *self.suite.declared.without}:
            return {}
        cases = (replace(BASE, dtype=dtype, keys=5), replace(BASE, dtype=dtype, queries=5))
        results = {case.queries > case.keys: self.suite.run(case) for case in cases}
        refused = {more: result for more, result in results.items() if self.suite.is_refusal(result.answer)}
        return {more: result.judgement.words for more, result in refused.items()}

    # --- features ---

    def run_features(self, to_run: Mapping[str, Sequence[Case]], progress: Progress) -> None:
        work = [(*item, dtype) for dtype in self.request.dtypes for item in to_run.items()]
        for name, cases, dtype in work:
            self.runs.append(self.run_feature(name, cases, dtype))
            progress(len(self.runs), len(work))

    def run_feature(self, name: str, cases: Sequence[Case], dtype: str) -> FeatureResult:
        if name in self.skips:
            return FeatureResult(name, dtype, skipped=self.skips[name])
        in_type = [replace(case, dtype=dtype) for case in cases]
        fitted = list(dict.fromkeys(map(self.suite.fit, in_type)))
        run = FeatureResult(name, dtype, of=len(fitted), skipped=self.refused.get(dtype, ""))
        if ended := self.ended.get(dtype):
            return ended if name == ATTENTION else replace(run, skipped=ended.wrong[0].judgement.words)
        if run.skipped:
            return run
        for why in self.not_taken if name == features.CAPTURED_CALLS else ():
            run.of += 1
            run.refuse(why)
        if name in {*self.repeated, features.INPUTS_KEPT}:
            return self.run_repeatedly(name, in_type)
        if name in RELATIONS:
            return self.run_relation(RELATIONS[name], fitted)
        for case in fitted:
            if not self.run_case(run, case):
                break
        if run.cases and not run.wrong and not run.shown:
            return FeatureResult(name, dtype, of=run.of, skipped="rounding hides it in this type")
        return run

    def run_relation(self, relation: Relation, cases: Sequence[Case]) -> FeatureResult:
        run = FeatureResult(relation.name, cases[0].dtype)
        for case in cases:
            problem = self.suite.problem(case, forward=True)
            held = hold_relation(relation, problem, self.suite.call)
            if held is None:
                continue
            run.of += 1
            found, judged = CaseResult(problem.case, *held), held[1]
            if self.is_passed_over(run.feature, found) or self.suite.is_refusal(found.answer):
                run.refuse(judged.words)
            else:
                run.add(found)
            if relation.exact and judged.right and judged.differs:
                off = f"{judged.differs:.2g} units in the last place, which rounding may do"
                run.differs = f"With {relation.name} a row changes by up to {off}, or a leak no larger."
        run.right.clear()  # of its numbers nothing is known
        run.skipped = run.skipped or ("" if run.of else "nothing that it takes has anything to move")
        return run

    def run_case(self, run: FeatureResult, case: Case) -> bool:
        """Run one case of a feature; False where the target is not to be called with more of them."""
        more = case.queries > case.keys - case.past
        if case.queries != case.keys - case.past and more in self.unequal:
            run.refuse(self.unequal[more])
            return True
        if run.feature in BOUNDED and self.suite.predict_time(case) > self.longest_call:
            run.skipped = run.skipped or f"a call would take longer than {self.longest_call:g} s"
            return True
        if case.call and (why := find_unfit(self.suite.problem(case))):
            run.refuse(f"{case.call.name}: {why}")
            return True
        found = self.suite.run(case)
        if self.is_passed_over(run.feature, found):
            run.refuse(found.judgement.words)
            return True
        if run.refused and self.is_broadcast(run.feature, found):
            run.refuse("one kv head is broadcast, and its gradients are not summed over the query heads")
            return True
        run.add(found)
        ended = sum(result.answer.error in ENDINGS for result in run.wrong)
        if found.answer.error == "hang" or ended == MOST_ENDED:
            run.skipped = run.skipped or ENDINGS[found.answer.error]
            return False
        return True

    def is_passed_over(self, feature: str, found: CaseResult) -> bool:
        """A case counts for nothing: the target refuses what it may, or is not called any more."""
        if found.answer.error in {*ABSENT, NOT_CALLED}:
            return True
        case, claimed = found.case, {*self.suite.declared.features}
        if MASK_SHAPE in self.suite.declared.conventions:
            claimed |= {*features.IN_SHAPE}
        is_unequal = case.queries != case.keys - case.past
        if is_unequal and LENGTHS not in claimed:
            return self.suite.is_refusal(found.answer)

        # What nobody says that it has, and plain attention has not.
        asked = {feature, *case.option_values}
        if is_unequal:
            asked.add(LENGTHS)
        is_extra = self.suite.works and bool(case.options) and asked.isdisjoint(claimed)
        may_refuse = is_extra or feature in features.OPTIONAL - claimed
        return may_refuse and self.suite.is_refusal(found.answer)

    def is_broadcast(self, feature: str, found: CaseResult) -> bool:
        """One kv head is broadcast, by a target that refuses several, and its gradients are not summed."""
        if feature != GROUPED or GROUPED in self.suite.declared.features or found.case.kv_heads > 1:
            return False
        wrong = {name for name, ratio in found.judgement.ratios.items() if ratio > 1}
        return bool(wrong) and wrong <= {*GRADIENTS} - self.suite.outputs_in(found).keys()

    def run_repeatedly(self, name: str, cases: Sequence[Case]) -> FeatureResult:
        """Make the same call many times, or once where inputs are to be kept."""
        seconds = QUICK_SECONDS if self.request.quick else SECONDS
        many = {"times": CALLS, "seconds": seconds} if name in self.repeated else {}
        forward, dtype = name == REPEATABLE, cases[0].dtype
        found = [self.suite.run(case, forward=forward, **many) for case in cases]
        called = [result for result in found if result.answer.error != NOT_CALLED]
        answered = [result for result in called if not self.suite.is_refusal(result.answer)]
        if not answered:
            return FeatureResult(name, dtype, of=len(cases), skipped=found[0].judgement.words)
        calls = sum(result.answer.calls for result in answered)
        other = [result for result in answered if result.answer.error or not result.answer.same]
        lenient = name == REPEATABLE_GRADIENTS and not self.suite.declared.deterministic
        wrong = [result for result in other if not (lenient and self.is_right_again(result))]
        run = FeatureResult(name, dtype, len(answered), len(cases), wrong=wrong, calls=calls)
        if other and not wrong:
            said = explain_repeats(other[0].answer).explanation
            run.differs = f"Gradients: {said}; wrong only where --claims say deterministic: true."
        return run

    def is_right_again(self, found: CaseResult) -> bool:
        """The gradients are right that were farthest from those of the first call."""
        if found.answer.error or found.answer.failed:
            return False
        again = replace(found.answer, gradients=found.answer.farthest)
        return judge_answer(self.suite.expect(found.case), again).right

    # --- results ---

    def unite_causes(self) -> None:
        for cause in self.causes:
            same = [key for key, found in self.diagnosed.items() if found.cause is cause]
            united = unite([self.diagnosed[key] for key in same]) if same else []
            self.diagnosed |= zip(same, united, strict=True)
        for run in self.runs:
            if (found := self.diagnosed.get((run.feature, run.dtype))) and found.cause in self.causes:
                self.diagnosed[run.feature, run.dtype] = spare(found, self.list_beside(run))

    def add_cause(self, run: FeatureResult) -> None:
        if not run.wrong:
            return
        found = self.diagnosed[run.feature, run.dtype]
        cause, first = self.add_way_out(run, found.failure), found.shown or run.wrong[0]
        run.failure = replace(cause, case=first.case, words=first.judgement.words or cause.sentence)
        if saved := self.save_failure(run, found):
            again = shell_line(["attnctl", "conform", *self.say_target("--replay", str(saved))])
            run.failure = replace(run.failure, replay=again, saved=str(saved))

    def say_target(self, *flags: str) -> tuple[str, ...]:
        own, back = self.suite.target.words, ["--backward"] if self.request.backward else []
        back += [self.suite.apart[0].name] if self.suite.apart else []
        said = (*self.request.flags, *back, *flags)
        return (*said, *own) if own[:1] == ("--",) else (*own, *said)

    def add_way_out(self, run: FeatureResult, cause: Failure) -> Failure:
        """Say how to declare that a kernel is not meant for what fails, where plain attention is right."""
        name = run.feature
        claimed = name in self.suite.declared.features
        if name not in MAY_LACK or claimed or self.recalled or (ATTENTION, run.dtype) in self.diagnosed:
            return cause
        way_out = f"if it is not meant for {MAY_LACK[name]}, say without: [{name}] in --claims"
        return replace(cause, sentence=f"{cause.sentence}; {way_out}".removeprefix("; "))

    def count_all_calls(self, run: FeatureResult) -> None:
        """Count every call in the type: each is held to keeping its inputs."""
        calls = sum(result.cases for result in self.runs if result.dtype == run.dtype and result is not run)
        run.cases, run.of = run.cases + calls, run.of + calls
        run.wrong = [self.suite.changed[run.dtype]] if run.dtype in self.suite.changed else []

    def explain(self, run: FeatureResult) -> Diagnosed:
        found = self.explain_without_search(run)
        return self.search_cause(run) if found is None else found

    def explain_without_search(self, run: FeatureResult) -> Diagnosed | None:
        """What is known of wrong cases by their feature, or by plain attention; None for nothing."""
        name, wrong = run.feature, run.wrong
        if self.recalled:
            return Diagnosed(self.recalled)
        if name in {REPEATABLE, REPEATABLE_GRADIENTS}:
            first, *others = (explain_repeats(result.answer) for result in wrong)
            alone = any(other.sentence != first.sentence for other in others)
            return Diagnosed(replace(first, alone=alone))
        if name == features.INPUTS_KEPT:
            words = f"it changes its inputs: {', '.join(wrong[0].answer.changed)} is not what it was before"
            return Diagnosed(Failure("inputs-changed", words))
        plain = self.diagnosed.get((ATTENTION, run.dtype))
        if plain is not None and plain.failure.mistake == NOT_SOFTMAX:
            # Whatever else is asked for is asked of something else.
            return Diagnosed(replace(plain.failure, explained=1, failing=1))
        if name in RELATIONS:
            law, failed = RELATIONS[name], all(result.answer.error for result in wrong)
            return NOTHING if failed else Diagnosed(Failure(law.mistake, law.sentence))
        return Diagnosed(self.search(wrong)) if self.search else None

    def search_cause(self, run: FeatureResult) -> Diagnosed:
        name, wrong = run.feature, run.wrong
        right = list(self.list_beside(run))
        best = choose(self.causes, wrong, right)
        is_own = name in OPTIONS and name not in {"cache", "out"}
        if is_own and (ignored := choose([ignored_cause(self.suite, name)], wrong, right)).explains_all:
            best = ignored
        plain = self.diagnosed.get((ATTENTION, run.dtype))
        if (plain is None or plain.cause is not None) and name not in self.unexplained:
            best = diagnose(self.suite, wrong, right, best)
        best = NOTHING if best.fits_by_chance else best
        if best.cause is None:
            self.unexplained.add(name)
        elif best.cause not in self.causes:
            self.causes.append(best.cause)
        return best

    def list_beside(self, run: FeatureResult) -> Iterator[Case]:
        """The right cases of all features; what is said of an option is said of those that have it."""
        others = (other for other in self.runs if other is not run and other.dtype == run.dtype)
        for case in (case for result in (run, *others) for case in result.right):
            if self.suite.problem(case).has_many_scores:
                continue
            if run.feature not in {*OPTIONS} - {*case.option_values}:
                yield case

    def save_failure(self, run: FeatureResult, found: Diagnosed) -> Path | None:
        name, result = run.feature, found.shown or run.wrong[0]
        if self.request.save is None:
            return None
        if name not in {REPEATABLE, REPEATABLE_GRADIENTS, features.INPUTS_KEPT, *RELATIONS}:
            again = shrink(result, self.suite, found.explains)
            if (said := found.say(again)) is not None:
                return save_case(self.suite, again, name, said)
        return save_case(self.suite, result, name, Failure(found.failure.mistake, found.failure.sentence))

    def list_notes(self) -> tuple[str, ...]:
        config = list_unusual(self.suite.declared.always)
        on = [*positions(config.get("positions")), *kind_words(config)]
        out = [f"Always on: {', '.join(on)}."] if on else []
        out += describe_calls(self.runs)
        ran = {run.feature for run in self.runs if run.cases}
        if self.read_blocks and features.BLOCK_BOUNDARIES in ran:
            out.append(say_sizes(self.read_blocks))
        signature = self.suite.signature
        if untried := signature.untried:
            named = f"--map {untried[0]}=OURS says what it is"
            out.append(f"Not tried: {', '.join(untried)}: left at the default in every call ({named}).")
        if random := signature.random:
            out.append(f"Not tried: {', '.join(random)}: what is left out at random is not known.")
        if off := {name: value for name, value in signature.off.items() if name not in signature.used}:
            out.append(f"In every call: {', '.join(f'{name}={value}' for name, value in off.items())}.")
        if self.suite.adds_truths:
            out.append(
                "Its mask is numbers that are added: a boolean one would be added as 1 and 0, and hide "
                "nothing. To hold it to boolean masks, say conventions: {mask: boolean} in --claims."
            )
        if lost := self.suite.target.lost:
            again = f"{plural(lost, 'call')} {'was' if lost == 1 else 'were'} made again"
            out.append(f"Its process was ended by something else (SIGKILL or the like): {again}.")
        if calls := [run.calls for run in self.runs if run.feature in self.repeated and run.calls]:
            least, few = min(calls), f" ({CALLS} would make that {MISSED:g}, but take too long)"
            missed = f"would be missed with a chance of {chance_missed(least):.2g}"
            out.append(
                f"Repeated: {least} calls with the same inputs in each type: "
                f"a fault in {RATE * 100:g} % of calls {missed}{few if least < CALLS else ''}."
            )
        out += dict.fromkeys(run.differs for run in self.runs if run.differs)
        if self.request.backward:
            out += describe_gradients(self.runs, self.suite)
        return tuple(out)


def describe_calls(runs: Sequence[FeatureResult]) -> Iterator[str]:
    wrong = (found for run in runs if run.feature == features.CAPTURED_CALLS for found in run.wrong)
    if names := list(dict.fromkeys(found.case.call.name for found in wrong if found.case.call)):
        more = f"; and {len(names) - MOST_SAID} more" if len(names) > MOST_SAID else ""
        yield f"Wrong in captured {'; '.join(names[:MOST_SAID])}{more}."


def describe_gradients(runs: Sequence[FeatureResult], suite: Suite) -> Iterator[str]:
    worst: dict[str, float] = {}
    for name, ratio in (item for run in runs for item in run.ratios.items()):
        worst[name] = max(ratio, worst.get(name, 0.0))
    if worst:
        yield f"Largest by output: {', '.join(f'{name} {ratio:.3g}' for name, ratio in worst.items())}."
    # Numbers to learn, whose gradients no case asks for.
    others = [f"by {name}" for name in ("bias", "sinks") if name in suite.signature.claimed]
    if others:
        held = "attnctl check holds them in a dump that has d_output"
        yield f"Judged: gradients by Q, K and V. Not judged: {all_of(others)}; {held}."
    back = suite.signature.claimed if suite.apart is None else suite.apart[1].claimed
    if alone := [name for name in suite.signature.claimed if name not in back or name == "out"]:
        yield f"Of its output alone, as its backward pass does not take it: {', '.join(alone)}."
