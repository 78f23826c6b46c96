"""A target held to every feature, in every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnctl.base.errors import AttnError
from attnctl.drawing.show.headline import kind_words, positions
from attnctl.verbs.conform import features
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.conventions import FLOAT_MASK, OUTPUT_TYPE, TRUTHS
from attnctl.verbs.conform.declared import unusual
from attnctl.verbs.conform.diagnosis import (
    ENDINGS,
    LOW_PRECISION,
    Diagnosis,
    coarse_inside,
    diagnose,
    not_repeatable,
)
from attnctl.verbs.conform.extra_outputs import describe, places_of, recognise
from attnctl.verbs.conform.features import (
    ATTENTION,
    BASE,
    CONVENTIONS,
    GROUPED,
    INPUTS_KEPT,
    LENGTHS,
    REPEATABLE,
    SMALL,
    Feature,
)
from attnctl.verbs.conform.fit import fit
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.probes import broken, found_out, in_words, output_type
from attnctl.verbs.conform.repeat import CALLS, MISSED, RATE, chance_missed
from attnctl.verbs.conform.replay import Saved, command, said_before, save
from attnctl.verbs.conform.report import (
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    XFAIL,
    Conformance,
    Failure,
    FeatureResult,
    left_out,
)
from attnctl.verbs.conform.shrink import shrunk
from attnctl.verbs.conform.suite import ABSENT, NOT_CALLED, Asked, Outcome, Suite, start_target
from attnctl.verbs.conform.target import Target

Progress = Callable[[int, int], None]

Work = tuple[Feature, str]
"""A feature, and the type to run it in."""

IGNORED_OPTION = "option-ignored"
NOT_SHARED = {LOW_PRECISION, IGNORED_OPTION}
"""What explains a failure in one type and says nothing of another."""

MOST_ENDED = 2
"""Calls of a feature in which the process of the target may end before no more of it are made."""

SINGLE = (
    "its numbers are right to the digits of float32 only: it keeps some in float32, whatever it is given"
)
"""Why float64 is skipped where plain attention is right in float32."""

QUICK_SECONDS, SECONDS = 2.0, 20.0
"""The time that making one call again and again may take."""

COARSER = {"float32", "float16", "bfloat16"}
"""What a target may answer in that does not have float64."""


@dataclass
class Told:
    """What the cases of one feature in one type gave."""

    feature: Feature
    dtype: str
    cases: int = 0
    of: int = 0
    """Cases that there are of it."""
    ratio: float | None = None
    wrong: list[Outcome] = field(default_factory=list)
    calls: int = 0
    """Calls of the same cases, where they are made again and again."""
    skipped: str = ""
    """Why it was not run, or some of its cases were not."""
    refused: int = 0

    @property
    def reason(self) -> str:
        """Why some of its cases were not run."""
        left = self.of - self.cases
        return (
            left_out(left, "refused" if self.refused == left else "not run", self.skipped) if left else ""
        )


def run(target: Target, name: str, asked: Asked, progress: Progress | None = None) -> Conformance:
    """Hold a target to every feature. Raises AttnError where it cannot be called at all."""
    with start_target(target, asked) as signature:
        return Run(Suite(target, asked, signature), name).carried_out(
            progress or (lambda _done, _total: None)
        )


def replay(target: Target, name: str, asked: Asked, path: str, saved: Saved) -> Conformance:
    """Run the case of a file again; what gives the same output is called what it was.

    Raises AttnError where the target cannot be called.
    """
    case, feature, conventions, always = saved
    asked = replace(asked, said=replace(asked.said, always=always))
    with start_target(target, asked) as signature:
        suite = Suite(target, asked, signature)
        suite.conventions[case.dtype] = conventions
        lacking = [option for option, _ in case.options if option not in suite.signature.keywords]
        if lacking:
            raise AttnError(f"{name}: nothing in its signature asks for {', '.join(lacking)}")
        one = Feature(feature, (case,))
        found = Run(suite, name)
        told = (
            found.repeated(one, case.dtype) if feature == REPEATABLE else found.cases(one, case.dtype, {})
        )
        found.said = said_before(path, suite, told.wrong)
        return Conformance(name, (found.result(told, [told]),))


@dataclass
class Run:
    """One run of a suite; diagnoses and small cases of a feature hold for all types."""

    suite: Suite
    name: str
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    small: dict[str, Outcome] = field(default_factory=dict)
    reused: bool = False
    """Whether an output is overwritten by the next call."""
    said: Diagnosis | None = None
    """What was said before of the one case that is run again."""
    unequal: dict[bool, str] = field(default_factory=dict)
    """Whether there are more queries than keys or fewer, where that is refused, with why."""
    hung: list[Told] = field(default_factory=list)
    """Plain attention in each type in which it never came back."""

    @property
    def asked(self) -> Asked:
        return self.suite.asked

    def carried_out(self, progress: Progress) -> Conformance:
        """Every feature in every type that the target takes."""
        fitted = fit(self.suite)
        refused = self.refused_types()
        taken = [dtype for dtype in self.asked.dtypes if dtype not in refused]
        if not taken:
            results = [
                FeatureResult(ATTENTION, dtype, SKIPPED, of=1, reason=why) for dtype, why in refused.items()
            ]
            return Conformance(self.name, tuple(results))
        if len(self.hung) == len(taken) or (self.hung and self.suite.is_let_be):
            results = [self.result(each, []) for each in self.hung]
            return Conformance(self.name, tuple(known_to_fail(each, self.asked) for each in results))
        found = {dtype: found_out(self.suite, dtype, self.asked.declared) for dtype in taken}
        plain = replace(BASE, dtype=taken[0])
        said = self.take_extras(plain)
        to_run = self.features(taken[0], found[taken[0]])
        work = [(feature, dtype) for dtype in self.asked.dtypes for feature in to_run]
        total = len(work)
        told: list[Told] = []
        for each in self.mapped(lambda one: self.cases(one[0], one[1], refused), work):
            told.append(each)
            progress(len(told), total)
        for dtype in taken:
            seen, declared = self.suite.output_types[dtype], self.asked.declared.get(OUTPUT_TYPE)
            found[dtype] |= output_type(seen, dtype, declared)
        results = [self.result(each, told) for each in told]
        results += [each for dtype in taken for each in self.declared(dtype, found[dtype])]
        return Conformance(
            self.name,
            tuple(known_to_fail(each, self.asked) for each in results),
            {**fitted, **in_words(found)},
            (*said, *self.notes(told)),
        )

    def mapped(self, carry_out: Callable[[Work], Told], work: Sequence[Work]) -> Iterator[Told]:
        """What each piece of work gives, in order; an interrupt ends the target before its threads."""
        if self.asked.jobs == 1:
            yield from map(carry_out, work)
            return
        with ThreadPoolExecutor(self.asked.jobs) as pool:
            try:
                yield from pool.map(carry_out, work)
            except BaseException:
                self.suite.target.close()
                raise

    def refused_types(self) -> dict[str, str]:
        """The types that the target does not take, each with why; those in which it hangs are `hung`."""
        out = {}
        plain = {dtype: self.suite.outcome(replace(BASE, dtype=dtype)) for dtype in self.asked.dtypes}
        for dtype, each in plain.items():
            if self.suite.is_refusal(each.answer):
                out[dtype] = each.judgement.words
            elif each.answer.error == "hang":
                once = Feature(ATTENTION, (BASE,))
                self.hung.append(Told(once, dtype, 1, 1, each.judgement.ratio, [each]))
            elif dtype == "float64" and each.answer.dtype in COARSER:
                out[dtype] = f"it answers in {each.answer.dtype}"
            elif dtype == "float64" and "float32" in plain and plain["float32"].judgement.right:
                out |= {dtype: SINGLE} if self.is_single(each) else {}
        return out

    def is_single(self, outcome: Outcome) -> bool:
        """Whether it keeps something in float32, as many programs keep softmax: float64 is not meant."""
        if outcome.answer.error or outcome.judgement.right:
            return False
        return diagnose(self.suite, [outcome]).mistake == LOW_PRECISION

    def take_extras(self, plain: Case) -> tuple[str, ...]:
        """Know what the outputs behind the first are, as declared or as they look; what is said of them."""
        if self.asked.returns:
            self.suite.extras = places_of(self.asked.returns)
            return ()
        wanted, answer = self.suite.wanted(plain), self.suite.answer(plain)
        self.suite.extras = recognise(wanted, answer)
        return tuple(describe(wanted, answer, self.suite.extras))

    def notes(self, told: Sequence[Told]) -> tuple[str, ...]:
        config = unusual(self.asked.said.always)
        on = [*positions(config.get("positions")), *kind_words(config)]
        out = [f"Always on: {', '.join(on)}."] if on else []
        if self.reused:
            out.append("Its output is in the same memory in every call: the next call overwrites it.")
        if calls := [each.calls for each in told if each.feature.name == REPEATABLE and each.calls]:
            out.append(often(min(calls)))
        return tuple(out)

    def features(self, dtype: str, told: Mapping[str, str]) -> list[Feature]:
        """The features to run, with what this target has."""
        asked, suite = self.asked, self.suite
        claimed = [name for name in suite.signature.claimed if name not in asked.claims.without]
        base = replace(BASE, dtype=dtype)
        lacking = suite.sizes.lacking(suite.conventions_in(dtype))
        self.unequal = self.refused_unequal(dtype)
        lengths = LENGTHS not in {*lacking, *asked.claims.without} and not self.unequal
        groups = suite.has(replace(base, heads=4, kv_heads=2))
        widths = suite.has(replace(base, d_v=16))
        skips = dict.fromkeys((name for name in OPTIONS if name not in claimed), suite.target.unclaimed)
        skips |= dict.fromkeys(asked.claims.without, "its claims say that it does not have it")
        if told.get(FLOAT_MASK) == TRUTHS and not self.takes_float_masks():
            skips["float_mask"] = "a mask of numbers is read as truth values: it takes boolean masks"
            claimed.remove("float_mask")
        skips |= {**lacking, **suite.target.cannot}
        found = [
            *features.own_features(suite.sizes.head_sizes, quick=asked.quick),
            *(features.of_option(name, claimed, lengths=lengths, quick=asked.quick) for name in OPTIONS),
            features.pairs(claimed),
            features.random(claimed, lengths=lengths, groups=groups, widths=widths, quick=asked.quick),
            Feature(REPEATABLE, (SMALL, replace(BASE, queries=33, keys=33, seed=1))),
            Feature(INPUTS_KEPT, (BASE,)),
        ]
        found = [replace(each, skipped=skips.get(each.name, each.skipped)) for each in found]
        return [each for each in found if not asked.only or each.name in asked.only]

    def refused_unequal(self, dtype: str) -> dict[bool, str]:
        """Whether there are more queries than keys or fewer, where that is refused, with why."""
        if LENGTHS in {*self.asked.claims.features, *self.asked.claims.without}:
            return {}
        cases = (replace(BASE, dtype=dtype, keys=5), replace(BASE, dtype=dtype, queries=5))
        outcomes = {case.queries > case.keys: self.suite.outcome(case) for case in cases}
        refused = {more: each for more, each in outcomes.items() if self.suite.is_refusal(each.answer)}
        return {more: each.judgement.words for more, each in refused.items()}

    def takes_float_masks(self) -> bool:
        """Whether masks of numbers are said to be added: by its claims, or as libraries name them."""
        keyword = self.suite.signature.keywords["float_mask"]
        return "float_mask" in self.asked.claims.features or keyword == "attn_mask"

    def cases(self, feature: Feature, dtype: str, refused: Mapping[str, str]) -> Told:
        """Every case of a feature in one type."""
        if feature.skipped:
            return Told(feature, dtype, skipped=feature.skipped)
        cases = list(dict.fromkeys(self.suite.sized(replace(case, dtype=dtype)) for case in feature.cases))
        told = Told(feature, dtype, of=len(cases), skipped=refused.get(dtype, ""))
        if told.skipped:
            return told
        if feature.name in {REPEATABLE, INPUTS_KEPT}:
            return self.repeated(feature, dtype)
        evidence, ended = False, 0
        for case in cases:
            rows = case.keys - case.past
            refusal = self.unequal.get(case.queries > rows, "") if case.queries != rows else ""
            found = None if refusal else self.suite.outcome(case)
            if found is None or self.is_passed_over(feature, found):
                told.skipped = told.skipped or (refusal if found is None else found.judgement.words)
                told.refused += 1
                continue
            told.cases += 1
            told.ratio = max(found.judgement.ratio, told.ratio or 0.0)
            evidence = evidence or found.judgement.evidence
            if not found.judgement.right:
                told.wrong.append(found)
            ended += found.answer.error in ENDINGS
            if found.answer.error == "hang" or ended == MOST_ENDED:
                told.skipped = told.skipped or ENDINGS[found.answer.error]
                break
        if told.cases and not told.wrong and not evidence:
            return Told(feature, dtype, of=told.of, skipped="rounding hides it in this type")
        return told

    def is_passed_over(self, feature: Feature, found: Outcome) -> bool:
        """Whether a case counts for nothing: the target refuses what it may, or is not called any more."""
        if found.answer.error in {*ABSENT, NOT_CALLED}:
            return True
        case, claimed = found.case, self.asked.claims.features
        unequal = case.queries != case.keys - case.past and LENGTHS not in claimed
        may_refuse = unequal or (feature.optional and feature.name not in claimed)
        return may_refuse and self.suite.is_refusal(found.answer)

    def repeated(self, feature: Feature, dtype: str) -> Told:
        """Whether the same call gives the same bits again; of inputs that are kept it is made once."""
        cases = [replace(each, dtype=dtype) for each in feature.cases]
        many = {"times": CALLS, "seconds": QUICK_SECONDS if self.asked.quick else SECONDS}
        outcomes = [
            self.suite.outcome(case, **(many if feature.name == REPEATABLE else {})) for case in cases
        ]
        ran = [
            each
            for each in outcomes
            if not (self.suite.is_refusal(each.answer) or each.answer.error == NOT_CALLED)
        ]
        if not ran:
            return Told(feature, dtype, of=len(cases), skipped=outcomes[0].judgement.words)
        calls = sum(each.answer.repeats.calls for each in ran)
        wrong = [each for each in ran if each.answer.error or not each.answer.repeats.same]
        self.reused |= any(each.answer.repeats.reused for each in ran)
        return Told(feature, dtype, len(ran), len(cases), wrong=wrong, calls=calls)

    def result(self, told: Told, others: Sequence[Told]) -> FeatureResult:
        """What became of a feature in one type."""
        name, dtype = told.feature.name, told.dtype
        if name == INPUTS_KEPT and not told.skipped:
            calls = sum(each.cases for each in others if each.dtype == dtype and each is not told)
            told.cases, told.of = told.cases + calls, told.of + calls
            told.wrong = [self.suite.changed[dtype]] if dtype in self.suite.changed else []
        if not told.cases:
            why = told.skipped or "it has no cases"
            return FeatureResult(name, dtype, SKIPPED, of=told.of, reason=why)
        passed = FeatureResult(
            name, dtype, PASSED, told.cases, told.of, 0, told.ratio, told.reason, calls=told.calls
        )
        if not told.wrong:
            return passed
        found = self.diagnosis(told, others)
        saved = self.saved(told, found)
        failure = Failure(
            told.wrong[0].case,
            told.wrong[0].judgement.words or found.explanation,
            found.mistake,
            found.explanation,
            command(self.asked.called, saved) if saved else "",
            str(saved or ""),
        )
        status = IGNORED if found.mistake == IGNORED_OPTION else FAILED
        return replace(passed, status=status, failed=len(told.wrong), failure=failure)

    def diagnosis(self, told: Told, others: Sequence[Told]) -> Diagnosis:
        """What explains the failing cases of a feature."""
        name, wrong = told.feature.name, told.wrong
        if self.said:
            return self.said
        if name == REPEATABLE:
            return not_repeatable(wrong[0].answer)
        if name == INPUTS_KEPT:
            what = ", ".join(wrong[0].answer.changed)
            return Diagnosis("inputs-changed", f"it changes its inputs: {what} is not what it was before")
        if name in OPTIONS and name not in {"cache", "out"} and self.suite.ignores(name, wrong):
            keyword = self.suite.signature.keywords[name]
            return Diagnosis(IGNORED_OPTION, f"{keyword} is taken and changes nothing")
        if found := self.of_attention(told, others):
            return found
        before = self.diagnoses.get(name)
        if before is None or before.mistake in NOT_SHARED:
            self.diagnoses[name] = diagnose(self.suite, wrong)
        found = self.diagnoses[name]
        return self.of_grouped_heads(told, others) if found.mistake is None else found

    def of_attention(self, told: Told, others: Sequence[Told]) -> Diagnosis | None:
        """What is wrong with attention itself, and so with everything: it is not searched again."""
        if any(each.answer.error for each in told.wrong) or told.feature.name in {ATTENTION, GROUPED}:
            return None
        plain = self.same_type(told, ATTENTION, others)
        if plain is None or any(each.answer.error for each in plain.wrong):
            return None
        found = self.diagnosis(plain, others)
        worst = max(told.wrong, key=lambda each: each.judgement.ratio)
        also_wrong = found.mistake == LOW_PRECISION and not coarse_inside(self.suite, worst)
        return None if also_wrong else found

    def of_grouped_heads(self, told: Told, others: Sequence[Told]) -> Diagnosis:
        """What is wrong with kv heads, which only cases that share them can tell."""
        nothing = self.diagnoses[told.feature.name]
        grouped = self.same_type(told, GROUPED, others)
        shared = all(each.case.heads != each.case.kv_heads for each in told.wrong)
        if told.feature.name == GROUPED or grouped is None or not shared:
            return nothing
        found = self.diagnosis(grouped, ())
        return found if str(found.mistake).startswith("kv-heads") else nothing

    def same_type(self, told: Told, name: str, others: Sequence[Told]) -> Told | None:
        """Another feature that fails in the same type."""
        same = [each for each in others if each.feature.name == name and each.dtype == told.dtype]
        return same[0] if same and same[0].wrong else None

    def saved(self, told: Told, found: Diagnosis) -> Path | None:
        """The file of a small failing case, where such files are wanted."""
        name = told.feature.name
        if self.asked.save is None:
            return None
        special = name in {REPEATABLE, INPUTS_KEPT}
        outcome = told.wrong[0]
        if not special:
            before = self.small.get(name)
            again = None if before is None else self.suite.outcome(replace(before.case, dtype=told.dtype))
            if again is None or again.judgement.right:
                again = shrunk(outcome, self.suite)
                self.small[name] = again
            outcome = again
        return save(self.suite, outcome, name, self.name, found)

    def declared(self, dtype: str, found: Mapping[str, str]) -> list[FeatureResult]:
        """Whether the conventions that are declared hold."""
        asked = self.asked
        declared = {name: each for name, each in asked.declared.items() if name in found}
        if not declared or (asked.only and CONVENTIONS not in asked.only):
            return []
        wrong = broken(found, declared)
        words = "; ".join(wrong)
        failure = Failure(replace(BASE, dtype=dtype), words, "convention", words) if wrong else None
        status = FAILED if wrong else PASSED
        cases = len(declared)
        return [FeatureResult(CONVENTIONS, dtype, status, cases, cases, len(wrong), failure=failure)]


def often(calls: int) -> str:
    """How many calls say that it is repeatable, and what they may have missed."""
    missed = (
        f"a fault in {RATE * 100:g} % of calls would be missed with a chance of {chance_missed(calls):.2g}"
    )
    few = "" if calls >= CALLS else f" ({CALLS} would make that {MISSED:g}, but take too long)"
    return f"Repeated: {calls} calls with the same inputs in each type: {missed}{few}."


def known_to_fail(result: FeatureResult, asked: Asked) -> FeatureResult:
    """The result; an expected failure where someone has said why it fails."""
    known = asked.xfail.get(result.feature)
    if known is None or result.dtype not in known.types or result.status not in {FAILED, IGNORED}:
        return result
    return replace(result, status=XFAIL, known=known.why)
