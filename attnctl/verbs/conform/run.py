"""A target held to every feature, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, plural
from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show.headline import kind_words, positions
from attnctl.inputs.config.settings import NONE
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
from attnctl.verbs.conform.places import GO_BY_POSITIONS, goes_by_positions
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
    Request,
)
from attnctl.verbs.conform.relations import RELATIONS, Relation, hold_relation
from attnctl.verbs.conform.report import FAILED, IGNORED, MOST_SAID, Conformance, Failure, FeatureResult
from attnctl.verbs.conform.results import Saved, judge_conventions, recall_cause, save_case, shrink
from attnctl.verbs.conform.stored import INT8, TYPES
from attnctl.verbs.conform.suite import ABSENT, CaseResult, Suite

Progress = Callable[[int, int], None]

Ahead = Callable[[Sequence[tuple[str, Case]], float, Progress], None]
"""What has cases of features carried out before their turn; none that is likely to take so many seconds."""

MOST_ENDED = 2
"""Calls of a feature in which the process of the target may end before no more of it are made."""

SINGLE = (
    "its numbers are right to the digits of float32 only: it keeps some in float32, whatever it is given"
)
"""The reason why float64 is skipped where plain attention is right in float32."""

NO_POSITIONS = "nothing of it is known to go by them; say --positions rope if it turns Q and K"

NO_DECODE = "it takes no cache, and causal does not end at the last key"

ARRAYS_OF = {"numpy": "NumPy arrays", "torch": "tensors of torch", "jax": "arrays of jax"}
OTHER_ARRAYS = {
    "numpy": "--framework torch or jax",
    "torch": "--framework numpy or jax",
    "jax": "--framework numpy or torch",
}
"""What a target is given by a framework, and what it may be given instead."""

OF_OUTPUTS = "it gives gradients, and this is of outputs"

OF_WHOLE_NUMBERS = "what it stores is whole numbers, which another scale would round"

MAY_LACK = {LENGTHS: "unequal numbers of queries and keys", OTHER_D_V: "values of another width"}
"""Features that kernels need not have, and often answer wrongly rather than refuse."""

BOUNDED = {features.MANY_KEYS, features.BLOCK_BOUNDARIES}
"""Features whose calls are left out where the target is too slow for them, as others went."""

OF_SIZES = {
    features.HEAD_SIZES, LENGTHS, OTHER_D_V, features.LAYOUTS, features.MANY_KEYS, features.PAIRS,
    features.BLOCK_BOUNDARIES, features.RANDOM, features.LARGE, features.LARGE_VALUES, features.DECODE,
    *(name for name in OPTIONS if name not in {"causal", "mask"}),
}  # fmt: skip
"""Features with many sizes, whose cases a quick run of jax spreads over the types."""

SPREAD_NOTE = (
    "jax compiles for every size: of features with many sizes each type has its part of the cases; "
    "without --quick it has all."
)

QUICK_CALL = 4.0
LONGEST_CALL = 10.0
"""The seconds that a call of these may take."""

QUICK_SECONDS = 2.0
SECONDS = 20.0
"""The time that making one call again and again may take."""


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

    result = run.run_feature(saved.feature, (case,), case.dtype)
    run.runs = [result]
    run.recalled = recall_cause(saved.dump, suite, result.wrong)
    return run.conclude(run.runs)


class Abilities(NamedTuple):
    """The sizes that a target takes beside those of plain attention."""

    lengths: bool
    """Other numbers of queries than of keys."""
    groups: bool
    """Fewer kv heads than heads."""
    widths: bool
    """Values of another width than keys."""


@dataclass
class Run:
    """A target held to all features in all types, and what is learnt of its failures on the way."""

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
    ahead: Ahead | None = None

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

        every_type_ended = {*taken} <= self.ended.keys()
        if every_type_ended or (self.ended and self.suite.is_let_be):
            return self.conclude(self.ended.values())

        # Conventions come first: by them the target is called from then on, also for its extra outputs.
        taken = [dtype for dtype in taken if dtype not in self.ended]
        conventions = {dtype: find_conventions(self.suite, dtype) for dtype in taken}
        extras = self.find_extras(replace(BASE, dtype=taken[0]))
        to_run = self.list_features(taken[0], conventions[taken[0]])
        if self.ahead:
            self.ahead(list(self.list_ahead(to_run)), self.longest_call, progress)
        self.run_features(to_run, progress)

        judged = []
        for dtype in taken:
            conventions[dtype] |= self.describe_outputs(dtype)
            judged += judge_conventions(self.suite, dtype, conventions[dtype])

        return self.conclude(
            [*self.runs, *judged],
            conventions=fitted | join_types(conventions),
            notes=(*extras, *self.list_notes()),
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

        # In the order of features: a cause found for one is tried first on those that come later.
        for result in features_run:
            if result.feature == features.INPUTS_KEPT and not result.skipped:
                self.count_all_calls(result)
            if result.wrong:
                self.diagnosed[result.feature, result.dtype] = self.explain(result)
        self.unite_causes()

        for result in features_run:
            self.add_cause(result)
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

    # --- what is found out first ---

    def refuse_types(self) -> None:
        """Call plain attention in every type; sort out those it does not take, and those that end it."""
        plain = {dtype: self.suite.run(replace(BASE, dtype=dtype)) for dtype in self.request.dtypes}
        self.suite.works = any(result.judgement.right for result in plain.values())

        if all(result.answer.is_exception for result in plain.values()):
            first = next(iter(plain.values()))
            self.refused = dict.fromkeys(plain, self.say_always_raised(first.answer))
            return

        for dtype, result in plain.items():
            answer = result.answer
            if self.suite.is_refusal(answer) or answer.error == NOT_CALLED:
                self.refused[dtype] = result.judgement.words
            elif answer.error in ENDINGS or answer.kind in SENT:
                self.ended[dtype] = FeatureResult(ATTENTION, dtype, of=1)
                self.ended[dtype].add(result)
            elif dtype == "float64" and answer.dtype in {*TYPES} - {dtype}:
                self.refused[dtype] = f"it answers in {answer.dtype}"
            elif dtype == "float64" and "float32" in plain and plain["float32"].judgement.right:
                # float32 is right, so an error in float64 may be the rounding of float32 alone.
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
        """Find the outputs behind the first; return what is said of those that nobody declared."""
        expected = self.suite.expect(plain)
        answer = self.suite.answer(plain)
        returns = self.suite.declared.returns
        if returns:
            self.suite.extras = find_declared(expected, answer, returns)
            return ()
        return tuple(describe_extras(expected, answer))

    def list_features(self, dtype: str, conventions: Mapping[str, str]) -> dict[str, tuple[Case, ...]]:
        """List the features to run, each with its cases; note which of them are skipped, and why."""
        abilities = self.find_abilities(dtype)
        claimed = self.list_claimed(conventions)
        decode = self.list_decode(claimed, dtype, abilities)
        pairs = features.pairs_cases(claimed)

        self.skips = {}
        # Where several reasons hold for a feature, the last one is said.
        if not pairs:
            self.skips[features.PAIRS] = "it has fewer than two options"
        self.skips |= self.list_unclaimed(claimed)
        if not decode:
            self.skips[features.DECODE] = NO_DECODE
        self.skips |= self.suite.profile_in(dtype).lacking
        if INT8 in self.suite.declared.stored.values():
            self.skips |= dict.fromkeys(RELATIONS, OF_WHOLE_NUMBERS)
        if self.suite.signature.handed:
            self.skips |= dict.fromkeys(RELATIONS, OF_OUTPUTS)
        self.skips |= self.suite.target.cannot

        quick = self.request.quick
        lengths = abilities.lengths
        repeated = (features.SMALL, replace(BASE, queries=33, keys=33, seed=1))

        to_run = features.list_own_features(self.suite.profile.head_sizes, quick=quick)
        for name in OPTIONS:
            to_run[name] = features.option_cases(name, claimed, lengths=lengths, quick=quick)
        to_run[features.DECODE] = decode
        to_run[features.MANY_KEYS] = uses.many_keys_cases(claimed, lengths=lengths, quick=quick)
        to_run[features.BLOCK_BOUNDARIES] = uses.block_cases(claimed, self.block_sizes, lengths=lengths)
        to_run[features.PAIRS] = pairs
        to_run[features.RANDOM] = features.random_cases(
            claimed, lengths=lengths, groups=abilities.groups, widths=abilities.widths, quick=quick
        )
        to_run |= dict.fromkeys(self.repeated, repeated)
        to_run |= features.relation_cases(claimed, self.request.shape)
        # Every call before it is held to keeping its inputs, too; see `count_all_calls`.
        to_run[features.INPUTS_KEPT] = (BASE,)
        if self.request.calls:
            to_run |= self.list_captured(claimed, dtype, groups=abilities.groups)

        only = self.request.only
        return {name: cases for name, cases in to_run.items() if not only or name in only}

    def find_abilities(self, dtype: str) -> Abilities:
        """Ask in a few calls which sizes the target takes beside the plainest."""
        base = replace(BASE, dtype=dtype)
        self.unequal = self.refuse_unequal(dtype)
        lacks_lengths = LENGTHS in {*self.suite.profile_in(dtype).lacking, *self.suite.declared.without}
        return Abilities(
            lengths=not lacks_lengths and not self.unequal,
            groups=self.suite.takes(replace(base, heads=4, kv_heads=2)),
            widths=self.suite.takes(replace(base, d_v=16)),
        )

    def list_claimed(self, conventions: Mapping[str, str]) -> list[str]:
        """List the options that are tried: those it takes, but a mask of numbers read as truth values."""
        suite = self.suite
        claimed = [name for name in suite.signature.claimed if name not in suite.declared.without]

        # Masks of numbers are added where its claims say so, or where they are called as in libraries.
        is_added = (
            "float_mask" in suite.declared.features
            or suite.signature.keywords.get("float_mask") == "attn_mask"
        )
        if conventions.get(FLOAT_MASK) == "read as truth values" and not is_added:
            claimed.remove("float_mask")
        return claimed

    def list_unclaimed(self, claimed: Sequence[str]) -> dict[str, str]:
        """List the options that are not tried, each with why."""
        suite = self.suite
        skips = {}
        for name in OPTIONS:
            if name in suite.declared.without or name in claimed:
                continue
            skips[name] = suite.target.unclaimed
            if name in suite.signature.claimed:
                skips[name] = "a mask of numbers is read as truth values: it takes boolean masks"
        if "positions" in claimed and not self.goes_by_positions(claimed):
            skips["positions"] = NO_POSITIONS
        return skips | dict.fromkeys(suite.declared.without, "its claims say that it does not have it")

    def goes_by_positions(self, claimed: Sequence[str]) -> bool:
        """Whether anything that is known of the target may go by positions."""
        always = self.suite.profile.always
        has_options = not {*GO_BY_POSITIONS}.isdisjoint(claimed)
        return has_options or always.positions != NONE or any(map(goes_by_positions, always.rules))

    def list_captured(
        self, claimed: Sequence[str], dtype: str, *, groups: bool
    ) -> dict[str, tuple[Case, ...]]:
        """List the cases of captured calls, as far as the target takes them, and of numbers drawn alike."""
        calls = self.request.calls
        profile = self.suite.profile_in(dtype)
        cases: list[Case] = []
        self.not_taken = []
        for call in calls:
            fitted = fit_call(call, claimed, profile)
            if isinstance(fitted, Case):
                cases.append(fitted)
            else:
                self.not_taken.append(fitted)

        alike = features.activation_cases(calls, causal="causal" in claimed, groups=groups)
        return {features.CAPTURED_CALLS: tuple(cases), features.DRAWN_ALIKE: alike}

    @property
    def longest_call(self) -> float:
        usual = QUICK_CALL if self.request.quick else LONGEST_CALL
        # A quarter of --timeout: the time is predicted from other calls, and may be off by some.
        return min(usual, (self.request.timeout or inf) / 4)

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

    def list_decode(self, claimed: Sequence[str], dtype: str, abilities: Abilities) -> tuple[Case, ...]:
        """The cases of a few new queries, where there is a cache or the last query sees every key."""
        is_cached = "cache" in claimed
        ends_last = "causal" in claimed and self.suite.profile_in(dtype)[CORNER] == "bottom-right"
        sees_every_key = abilities.lengths and (ends_last or "pages" in claimed)
        if not is_cached and not sees_every_key:
            return ()

        quick = self.request.quick
        return uses.decode_cases(claimed, cached=is_cached, groups=abilities.groups, quick=quick)

    @property
    def repeated(self) -> tuple[str, ...]:
        """The features that make one call again and again."""
        repeated = []
        if not self.suite.signature.handed:
            repeated.append(REPEATABLE)
        if self.request.backward:
            repeated.append(REPEATABLE_GRADIENTS)
        return tuple(repeated)

    def refuse_unequal(self, dtype: str) -> dict[bool, str]:
        """Ask whether more queries than keys, or fewer, are refused, where its claims say neither."""
        if LENGTHS in {*self.suite.declared.features, *self.suite.declared.without}:
            return {}

        refused = {}
        for case in (replace(BASE, dtype=dtype, keys=5), replace(BASE, dtype=dtype, queries=5)):
            result = self.suite.run(case)
            if self.suite.is_refusal(result.answer):
                refused[case.queries > case.keys] = result.judgement.words
        return refused

    # --- features ---

    def run_features(self, to_run: Mapping[str, Sequence[Case]], progress: Progress) -> None:
        total = len(self.request.dtypes) * len(to_run)
        for dtype in self.request.dtypes:
            for name, cases in to_run.items():
                self.runs.append(self.run_feature(name, cases, dtype))
                progress(len(self.runs), total)

    def list_ahead(self, to_run: Mapping[str, Sequence[Case]]) -> Iterator[tuple[str, Case]]:
        """The cases, with their features, that are one call each, whatever became of those before."""
        apart = {*self.skips, *self.repeated, *RELATIONS, features.INPUTS_KEPT, features.CAPTURED_CALLS}
        for dtype in self.request.dtypes:
            if dtype in self.refused or dtype in self.ended:
                continue
            for name, cases in to_run.items():
                if name not in apart:
                    fitted = [self.suite.fit(replace(case, dtype=dtype)) for case in cases]
                    yield from ((name, case) for case in fitted if not self.is_unequal_refused(case))

    def run_feature(self, name: str, cases: Sequence[Case], dtype: str) -> FeatureResult:
        """Run the cases of a feature in a type, or say why they are not run."""
        if name in self.skips:
            return FeatureResult(name, dtype, skipped=self.skips[name])

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

        if name in self.repeated or name == features.INPUTS_KEPT:
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
            for why in self.not_taken:
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

    def run_case(self, run: FeatureResult, case: Case) -> bool:
        """Run one case of a feature; False where the target is not to be called with more of them."""
        if self.is_unequal_refused(case):
            run.refuse(self.unequal[case.queries > case.keys - case.past])
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
        return case.queries != new_keys and (case.queries > new_keys) in self.unequal

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

    def run_repeatedly(self, name: str, cases: Sequence[Case]) -> FeatureResult:
        """Make the same call many times, or once where inputs are to be kept."""
        dtype = cases[0].dtype
        how_often: dict[str, float] = {}
        if name in self.repeated:
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

    # --- results ---

    def unite_causes(self) -> None:
        """Say one detail for all features of a cause, where it explains all; look again at right cases."""
        for cause in self.causes:
            keys = [key for key, diagnosed in self.diagnosed.items() if diagnosed.cause is cause]
            if keys:
                united = unite([self.diagnosed[key] for key in keys])
                self.diagnosed |= zip(keys, united, strict=True)

        # Only now all causes have the detail that they are said with, and every feature has run.
        for run in self.runs:
            diagnosed = self.diagnosed.get((run.feature, run.dtype))
            if diagnosed and diagnosed.cause in self.causes:
                self.diagnosed[run.feature, run.dtype] = spare(diagnosed, self.list_beside(run))

    def add_cause(self, run: FeatureResult) -> None:
        """Add to a result that fails why it does, and how to run the case again that shows it."""
        if not run.wrong:
            return
        diagnosed = self.diagnosed[run.feature, run.dtype]
        failure = self.add_way_out(run, diagnosed.failure)
        shown = diagnosed.shown or run.wrong[0]
        words = shown.judgement.words or failure.sentence
        run.failure = replace(failure, case=shown.case, words=words)

        saved = self.save_failure(run, diagnosed)
        if saved:
            command = shell_line(["attnctl", "conform", *self.say_target("--replay", str(saved))])
            run.failure = replace(run.failure, replay=command, saved=str(saved))

    def say_target(self, *flags: str) -> tuple[str, ...]:
        """The words of the command line that call this target again, with `flags` more."""
        options = [*self.request.flags]
        if self.request.backward:
            options.append("--backward")
        if self.suite.apart:
            options.append(self.suite.apart[0].name)
        options += flags

        # What follows -- is the target's own, so that options stand before it.
        target = self.suite.target.words
        return (*options, *target) if target[:1] == ("--",) else (*target, *options)

    def add_way_out(self, run: FeatureResult, failure: Failure) -> Failure:
        """Say how to declare that a kernel is not meant for what fails, where plain attention is right."""
        name = run.feature
        if name not in MAY_LACK or name in self.suite.declared.features:
            return failure
        if self.recalled or (ATTENTION, run.dtype) in self.diagnosed:
            return failure
        way_out = f"if it is not meant for {MAY_LACK[name]}, say without: [{name}] in --claims"
        return replace(failure, sentence=f"{failure.sentence}; {way_out}".removeprefix("; "))

    def count_all_calls(self, run: FeatureResult) -> None:
        """Count every call in the type: each is held to keeping its inputs."""
        calls = sum(result.cases for result in self.runs if result.dtype == run.dtype and result is not run)
        run.cases += calls
        run.of += calls

        run.wrong = []
        if run.dtype in self.suite.changed:
            run.wrong.append(self.suite.changed[run.dtype])

    def explain(self, run: FeatureResult) -> Diagnosed:
        known = self.explain_without_search(run)
        return self.search_cause(run) if known is None else known

    def explain_without_search(self, run: FeatureResult) -> Diagnosed | None:
        """What is known of wrong cases by their feature, or by plain attention; None for nothing."""
        name = run.feature
        wrong = run.wrong
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
            relation = RELATIONS[name]
            never_answered = all(result.answer.error for result in wrong)
            return NOTHING if never_answered else Diagnosed(Failure(relation.mistake, relation.sentence))
        return Diagnosed(self.search(wrong)) if self.search else None

    def search_cause(self, run: FeatureResult) -> Diagnosed:
        """Look for what explains wrong cases: causes found before, an ignored option, then all others."""
        name = run.feature
        wrong = run.wrong
        right = list(self.list_beside(run))
        best = choose(self.causes, wrong, right)

        # Without its cache a case has other keys, a buffer for the output changes no numbers, and what is
        # stored in few bits has its scales in every case.
        if name in OPTIONS and name not in {"cache", "out", "scales"}:
            ignored = choose([ignored_cause(self.suite, name)], wrong, right)
            if ignored.explains_all:
                best = ignored

        # Where plain attention fails, and nobody knows why, nothing is found by its options either.
        plain = self.diagnosed.get((ATTENTION, run.dtype))
        may_be_found = plain is None or plain.cause is not None
        if may_be_found and name not in self.unexplained:
            best = diagnose(self.suite, wrong, right, best)

        if best.fits_by_chance:
            best = NOTHING
        if best.cause is None:
            self.unexplained.add(name)
        elif best.cause not in self.causes:
            self.causes.append(best.cause)
        return best

    def list_beside(self, run: FeatureResult) -> Iterator[Case]:
        """The right cases of all features; what is said of an option is said of those that have it."""
        others = [other for other in self.runs if other is not run and other.dtype == run.dtype]
        for result in (run, *others):
            for case in result.right:
                if self.suite.problem(case).has_many_scores:
                    continue  # only its last rows are judged
                is_other_option = run.feature in OPTIONS and run.feature not in case.option_values
                if not is_other_option:
                    yield case

    def save_failure(self, run: FeatureResult, diagnosed: Diagnosed) -> Path | None:
        """Save a case that fails, made small where the cause allows it."""
        name = run.feature
        result = diagnosed.shown or run.wrong[0]
        if self.request.save is None:
            return None

        # What shows between several calls shows in no smaller case alone.
        if name not in {REPEATABLE, REPEATABLE_GRADIENTS, features.INPUTS_KEPT, *RELATIONS}:
            smaller = shrink(result, self.suite, diagnosed.explains)
            failure = diagnosed.say(smaller)
            if failure is not None:
                return save_case(self.suite, smaller, name, failure)

        failure = Failure(diagnosed.failure.mistake, diagnosed.failure.sentence)
        return save_case(self.suite, result, name, failure)

    def list_notes(self) -> tuple[str, ...]:
        """The sentences below the table."""
        notes = []
        config = list_unusual(self.suite.declared.always)
        always_on = [*positions(config.get("positions")), *kind_words(config)]
        if always_on:
            notes.append(f"Always on: {', '.join(always_on)}.")

        for own, stored in self.suite.declared.stored.items():
            notes.append(f"K, V and caches are stored in {stored}, beside Q in {own}.")
        if self.request.quick and self.request.framework == "jax" and len(self.request.dtypes) > 1:
            notes.append(SPREAD_NOTE)
        notes += describe_calls(self.runs)
        ran = {run.feature for run in self.runs if run.cases}
        if self.read_blocks and features.BLOCK_BOUNDARIES in ran:
            notes.append(say_sizes(self.read_blocks))
        notes += self.describe_signature()

        if self.suite.adds_truths:
            notes.append(
                "Its mask is numbers that are added: a boolean one would be added as 1 and 0, and hide "
                "nothing. To hold it to boolean masks, say conventions: {mask: boolean} in --claims."
            )
        lost = self.suite.target.lost
        if lost:
            made_again = f"{plural(lost, 'call')} {'was' if lost == 1 else 'were'} made again"
            notes.append(f"Its process was ended by something else (SIGKILL or the like): {made_again}.")

        notes += self.describe_repeats()
        notes += dict.fromkeys(run.differs for run in self.runs if run.differs)
        if self.request.backward:
            notes += describe_gradients(self.runs, self.suite)
        return tuple(notes)

    def describe_signature(self) -> Iterator[str]:
        """Say which of its parameters are never passed, or always the same."""
        signature = self.suite.signature
        if signature.untried:
            named = f"--map {signature.untried[0]}=OURS says what it is"
            names = ", ".join(signature.untried)
            yield f"Not tried: {names}: left at the default in every call ({named})."
        if signature.random:
            yield f"Not tried: {', '.join(signature.random)}: what is left out at random is not known."

        off = [f"{name}={value}" for name, value in signature.off.items() if name not in signature.used]
        if off:
            yield f"In every call: {', '.join(off)}."

    def describe_repeats(self) -> Iterator[str]:
        """Say how many calls were made again, and what a rare fault had as a chance to be missed."""
        calls = [run.calls for run in self.runs if run.feature in self.repeated and run.calls]
        if not calls:
            return
        least = min(calls)
        too_few = ""
        if least < CALLS:
            too_few = f" ({CALLS} would make that {MISSED:g}, but take too long)"
        missed = f"would be missed with a chance of {chance_missed(least):.2g}"
        yield (
            f"Repeated: {least} calls with the same inputs in each type: "
            f"a fault in {RATE * 100:g} % of calls {missed}{too_few}."
        )


def describe_calls(runs: Sequence[FeatureResult]) -> Iterator[str]:
    """Name the captured calls that are answered wrongly."""
    names: dict[str, None] = {}
    for run in runs:
        if run.feature == features.CAPTURED_CALLS:
            names |= dict.fromkeys(result.case.call.name for result in run.wrong if result.case.call)
    if not names:
        return

    more = f"; and {len(names) - MOST_SAID} more" if len(names) > MOST_SAID else ""
    yield f"Wrong in captured {'; '.join(list(names)[:MOST_SAID])}{more}."


def describe_gradients(runs: Sequence[FeatureResult], suite: Suite) -> Iterator[str]:
    """Say how far off each output is, and which gradients and options nobody judged."""
    worst: dict[str, float] = {}
    for run in runs:
        for name, ratio in run.ratios.items():
            worst[name] = max(ratio, worst.get(name, 0.0))
    if worst:
        yield f"Largest by output: {', '.join(f'{name} {ratio:.3g}' for name, ratio in worst.items())}."

    # Numbers to learn, whose gradients no case asks for.
    others = [f"by {name}" for name in ("bias", "sinks") if name in suite.signature.claimed]
    if others:
        held = "attnctl check holds them in a dump that has d_output"
        yield f"Judged: gradients by Q, K and V. Not judged: {all_of(others)}; {held}."

    back = suite.signature.claimed if suite.apart is None else suite.apart[1].claimed
    forward_only = [name for name in suite.signature.claimed if name not in back or name == "out"]
    if forward_only:
        yield f"Of its output alone, as its backward pass does not take it: {', '.join(forward_only)}."
