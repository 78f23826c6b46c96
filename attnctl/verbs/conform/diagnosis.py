"""The cause of a failure: experiments of a few calls, and the target's weights handed to `check`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.inputs.plan import DumpPlan
from attnctl.math import Array
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, PAST_VALUE, WEIGHTS
from attnctl.math.ops import Given
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake, Plant
from attnctl.record import Trace
from attnctl.verbs.check.check import check
from attnctl.verbs.check.report import Finding
from attnctl.verbs.conform.call import ENDINGS, OTHER, Answer, have_same_bits
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.extras import FACTORS, WORDS, NearMiss, arrange_extra, name_near_miss
from attnctl.verbs.conform.held import (
    NOTHING,
    CarriedOut,
    Cause,
    Details,
    Diagnosed,
    HeldCase,
    hold,
    plant_cause,
)
from attnctl.verbs.conform.judge import ExpectedOutput, compare_output, expect, judge_answer, name_output
from attnctl.verbs.conform.layout import read_output
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import TRUE, TYPES
from attnctl.verbs.conform.report import IGNORED_OPTION, Failure
from attnctl.verbs.conform.suite import CaseResult, Suite, digest_of, wrong_arrays

MOST_CASES = 3
"""Failing cases that are looked at before a feature's failure stays unexplained."""

MOST_NUMBERS = 40_000
"""Weights of a case that is handed to `check`: more would take seconds."""

ENOUGH_TOKENS = 4
"""Queries and keys of a case that is looked at first."""

LEAST_ROUNDING = 0.01
"""The least error of arithmetic in a coarser type, as a part of the error allowed there."""

LEAST_FACTOR, MOST_FACTOR = 0.02, 1e6
"""Nearer to 1 a factor is rounding, and beyond this the numbers are 0 in any type."""

NEARLY = 8.0
"""Ratios up to this may come of rounding alone, in more places than plain attention does."""

LOW_PRECISION = "low-precision"

EARLIER = "earlier-answer"
KEPT = "what is kept from call to call must follow from all numbers of the inputs"

Explain = Callable[[Suite, CaseResult, Array], "Cause | Iterator[Cause] | None"]
"""A way to explain the output of one case; of causes the likeliest first."""


def diagnose(
    suite: Suite, wrong: Sequence[CaseResult], right: Sequence[Case] = (), best: Diagnosed = NOTHING
) -> Diagnosed:
    """Find the cause that explains most of these cases, and makes none wrong of those that are right.

    It is looked for in cases that the best one known does not explain.
    """
    if best.explains_all:
        return best
    answered = [each for each in wrong if not each.answer.error]
    if not answered:
        return choose([explain_end(wrong[0])], wrong, right, best)
    outputs = [each for each in answered if each.judgement.extra is None]
    if not outputs:
        return choose([explain_extra(suite, min(answered, key=simplicity))], wrong, right, best)
    if order := explain_order(suite, outputs[0]):
        return choose([order], wrong, right, best)
    if any(suite.output_of(each) is None for each in outputs):
        return choose([explain_shape(suite)], wrong, right, best)
    left = sorted(outputs, key=simplicity)
    for result in list_searched(suite, left):
        if best.cause is None or best.cause.explains(result) is None:
            best = choose(search_cause(suite, result), wrong, right, best)
        if best.explains_all:
            return best
    return best if best.cause else choose(search_longer(suite, left[0]), wrong, right)


def choose(
    causes: Iterable[Cause],
    wrong: Sequence[CaseResult],
    right: Sequence[Case],
    best: Diagnosed = NOTHING,
) -> Diagnosed:
    """The first of these causes that explains all, or the one that explains most."""
    for cause in causes:
        held = hold(cause, wrong, right)
        best = held if held and held.rank > best.rank else best
        if best.is_all:
            break
    return best


def list_searched(suite: Suite, results: Sequence[CaseResult]) -> Iterator[CaseResult]:
    """The cases in which a cause is searched: of drawn numbers first, where that one is wrong, too."""
    if results[0].case.fill != "random":
        drawn = suite.run(replace(results[0].case, fill="random"))
        if not drawn.judgement.right and suite.output_of(drawn) is not None:
            yield drawn
    yield from results[:MOST_CASES]


def search_cause(suite: Suite, result: CaseResult) -> Iterator[Cause]:
    """Try every explanation of one case; those of the first kind that explains it."""
    quick = (
        explain_unsteady, explain_memory, explain_earlier, explain_degenerate, explain_coarse_numbers,
        explain_by_check, explain_factor, explain_coarse_inside,
    )  # fmt: skip
    return try_each(suite, result, quick)


def search_longer(suite: Suite, result: CaseResult) -> Iterator[Cause]:
    return try_each(suite, result, (explain_rounding, explain_nan, explain_by_pairs))


def try_each(suite: Suite, result: CaseResult, ways: Sequence[Explain]) -> Iterator[Cause]:
    output = suite.output_of(result)
    assert output is not None
    for explain in ways:
        found = explain(suite, result, output)
        causes = iter([found] if isinstance(found, Cause) else found or ())
        if first := next(causes, None):
            yield first
            yield from causes
            return


def explain_end(result: CaseResult) -> Cause:
    kind = result.answer.error

    def explains(other: CaseResult) -> Details | None:
        if other.answer.error != kind:
            return None
        place = f" ({other.answer.place})" if other.answer.place else ""
        said = f"{ENDINGS.get(kind, f'it raises {kind}')}: {other.answer.message}"
        return (said if kind in ENDINGS else f"{said}{place}",)

    return Cause(kind if kind in ENDINGS else "exception", "".join, explains, observed=True)


def explain_shape(suite: Suite) -> Cause:
    def explains(other: CaseResult) -> Details | None:
        return None if suite.output_of(other) is not None else (other.judgement.words,)

    return Cause("wrong-shape", "".join, explains, observed=True)


def explain_extra(suite: Suite, result: CaseResult) -> Cause:
    """Name the mistake in an output behind the first, where the first is right."""
    place = result.judgement.extra
    assert place is not None
    name, axes = suite.extras[place]

    def find(other: CaseResult) -> NearMiss | None:
        outputs, wanted = other.answer.outputs, suite.expect(other.case)
        given = arrange_extra(wanted, outputs[place] if place < len(outputs) else None, axes)
        return name_near_miss(wanted, name, given) if name in FACTORS else None

    found = find(result)
    if found is None:
        words = result.judgement.words
        return name_cause("extra-output", words, lambda other: other.judgement.extra == place)
    mistake, what, fix = found
    words = f"output {place} is no {WORDS[name]}: {what}: {fix}"
    return name_cause(mistake, words, lambda other: other.judgement.extra == place and find(other) == found)


def explain_repeats(answer: Answer) -> Failure:
    repeats = answer.repeats
    if answer.error:
        return Failure("not-repeatable", f"made again and again, the same call fails: {answer.message}")
    if repeats.failed:
        return Failure(
            "not-repeatable", f"call {repeats.calls} with the same inputs raises {repeats.failed}"
        )
    if repeats.stale:
        return Failure(EARLIER, f"other numbers in the same arrays have the answer of those before: {KEPT}")
    often = f"{repeats.others} of {repeats.calls - 1} calls"
    words = (
        f"the same call with the same inputs gives other bits in {often}, off by up to {repeats.apart:.2g}"
    )
    return Failure("not-repeatable", words)


def name_cause(
    mistake: str, words: str, explains: Callable[[CaseResult], bool], *, costly: bool = False
) -> Cause:
    """A cause of which the same is said of every case."""
    return Cause(mistake, lambda _: words, lambda other: () if explains(other) else None, costly=costly)


def where_it_shows(cause: Cause, result: CaseResult) -> Cause | None:
    """A cause, if it explains this case."""
    return cause if cause.explains(result) is not None else None


def simplicity(result: CaseResult) -> tuple[bool, bool, bool, int]:
    """Order cases: drawn numbers first, few of them, but enough that nothing fits by chance."""
    case = result.case
    size = case.batch * case.heads * case.queries * case.keys
    small = min(case.queries, case.keys) < ENOUGH_TOKENS
    return size > MOST_NUMBERS, case.fill != "random", small, size


def explain_earlier(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain an output that an earlier call had, of other Q, K and V."""

    def explains(other: CaseResult) -> Details | None:
        first, found = suite.outputs_had.get(digest_of(wrong_arrays(other))), suite.output_of(other)
        if first is None or found is None or not np.isfinite(found).all() or not np.ptp(found):
            return None
        if bare(first) == bare(other.case):
            return None
        return (f"it gives the answer of an earlier call ({first}): {KEPT}",)

    return where_it_shows(Cause(EARLIER, "".join, explains, observed=True), result)


def bare(case: Case) -> Case:
    """The case of the same Q, K and V without its options."""
    return replace(case, options=(), memory="plain")


def explain_unsteady(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain a call that gives other numbers when it is made again."""

    def explains(other: CaseResult) -> Details | None:
        again = suite.answer(other.case)
        if other.answer.error:
            return None
        if not again.error and have_same_bits(again.outputs, other.answer.outputs):
            return None
        right = not again.error and judge_answer(suite.expect(other.case), again).right
        return ("is right" if right else "gives other numbers",)

    return where_it_shows(
        Cause(
            "not-repeatable",
            lambda said: f"the same call again {said[0]}: it is wrong now and then",
            explains,
            costly=True,
        ),
        result,
    )


def explain_memory(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain numbers that follow what memory held before the call."""
    what = name_output(result.judgement.output)

    def count(found: CaseResult) -> tuple[int, int, bool]:
        """Numbers that follow, of all, and whether memory is all that there is."""
        here, name = suite.outputs_in(found), found.judgement.output
        beside = suite.outputs_in(suite.run(found.case, fill=OTHER)).get(name)
        if beside is None or name not in here:
            return 0, 0, False
        differ = (here[name] != beside) & ~(np.isnan(here[name]) & np.isnan(beside))
        return int(differ.sum()), differ.size, bool(differ.all() and not np.ptp(beside))

    number, _, nothing = count(result)
    if nothing:
        words = f"nothing is written to {what}: it holds what memory held"
        return name_cause("output-not-written", words, lambda other: count(other)[2], costly=True)

    def explains(other: CaseResult) -> Details | None:
        number, size, _ = count(other)
        return (f"{number} of {size}",) if number else None

    def say(said: Details) -> str:
        return (
            f"{said[0]} numbers of {what} follow what memory held before the call: "
            "they are never written, or what is there is added to or read first"
        )

    return Cause("memory-not-written", say, explains, costly=True) if number else None


def explain_degenerate(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain outputs that have nothing to do with attention: zeros, or the mean of V."""
    name = result.judgement.output

    def is_zero(other: CaseResult) -> bool:
        found = suite.outputs_in(other).get(name)
        return found is not None and not found.any()

    def is_mean(other: CaseResult) -> bool:
        found = suite.outputs_in(other).get(HEAD_OUTPUTS)
        if found is None or name != HEAD_OUTPUTS:
            return False
        values = suite.problem(other.case).plan.run()
        v = values[next(each for each in ("V_shared", "present_value", "V") if each in values)]
        mean = np.broadcast_to(v.mean(axis=-2, keepdims=True), found.shape)
        room = 16 * TYPES[other.case.dtype].unit * np.abs(v).max()
        return bool(np.abs(found - mean).max() <= room)

    if is_zero(result):
        words = f"{name_output(name)} is all zeros: nothing was written to it"
        return name_cause("zeros", words, is_zero)
    if result.case.fill == "random" and result.case.keys > 1 and is_mean(result):
        words = "the output is the mean of V whatever the scores are"
        return name_cause("mean-of-values", words, is_mean)
    return None


def ignored_cause(suite: Suite, option: str, wrong: Sequence[CaseResult]) -> Cause:
    """An option that changes nothing in these cases; a right one where it matters contradicts."""

    def matters(case: Case) -> bool:
        if option not in case.option_values:
            return False
        beside, bare = HeldCase.begin(suite.problem(case)), suite.problem(case.without(option))
        return not beside.gives(CarriedOut.run(bare, bare.plan.derivation))

    def is_ignored(other: CaseResult) -> bool:
        """In a case of another feature its numbers are those without it."""
        if option not in other.case.option_values or other.answer.error:
            return any(other is each for each in wrong)
        beside = HeldCase.begin(suite.problem(other.case), suite.outputs_in(other))
        bare = suite.problem(other.case.without(option))
        program = CarriedOut.run(bare, bare.plan.derivation)
        return any(other is each for each in wrong) or (bool(beside.found) and beside.gives(program))

    words = f"{suite.signature.keywords[option]} is taken and changes nothing"
    return replace(name_cause(IGNORED_OPTION, words, is_ignored), contradicts=matters)


def explain_order(suite: Suite, result: CaseResult) -> Cause | None:
    """Explain gradients that are right in another order."""
    given = result.answer.gradients

    def is_turned(other: CaseResult, order: Sequence[int]) -> bool:
        gradients = other.answer.gradients
        if len(gradients) != len(order):
            return False
        turned = replace(other.answer, gradients=tuple(gradients[at] for at in order))
        return judge_answer(suite.expect(other.case), turned).right

    for order in permutations(range(len(given))) if len(given) == len(GRADIENTS) else ():
        if is_turned(result, order):
            found = all_of([GRADIENTS[order.index(at)] for at in range(len(order))])
            words = f"it returns {found}, in this order: return {all_of([*GRADIENTS])}"
            turned = partial(is_turned, order=order)
            return name_cause("gradients-in-other-order", words, turned)
    return None


def explain_factor(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain gradients that are right but for factors, as no mistake of a known kind makes them."""
    factors_of: dict[Details, dict[str, float]] = {}

    def explains(other: CaseResult) -> Details | None:
        found, wanted = suite.outputs_in(other), suite.expect(other.case).outputs
        factors: dict[str, float] = {}
        if other.judgement.output not in GRADIENTS:
            return None
        for name in (each for each, ratio in other.judgement.ratios.items() if ratio > 1):
            factor = find_factor(wanted[name], found[name]) if name in found else None
            if factor is None:
                return None
            factors[name] = factor
        said = tuple(f"{name} is {factor:.4g} times what it should be" for name, factor in factors.items())
        factors_of.setdefault(said, factors)
        return said or None

    def explains_with(other: CaseResult, said: Details) -> bool:
        found, wanted = suite.outputs_in(other), suite.expect(other.case).outputs
        factors = {**dict.fromkeys(GRADIENTS, 1.0), **factors_of[said]}
        return all(
            name in found and compare_output(wanted[name], found[name] / factor).right
            for name, factor in factors.items()
        )

    def say(said: Details) -> str:
        return f"{all_of(said)}: leave the factor{'s' * (len(said) > 1)} out"

    cause = Cause("gradient-factor", say, explains, explains_with=explains_with)
    return where_it_shows(cause, result)


def find_factor(wanted: ExpectedOutput, found: Array) -> float | None:
    """The factor that is all that is wrong of a gradient."""
    with np.errstate(all="ignore"):
        fitted = float((found * wanted.value).sum() / np.square(wanted.value).sum())
    if not np.isfinite(fitted) or abs(fitted) > MOST_FACTOR or abs(fitted - 1) < LEAST_FACTOR:
        return None
    tried = (*(float(f"{fitted:.{digits}g}") for digits in (1, 2, 3)), fitted)
    return next((each for each in tried if each and compare_output(wanted, found / each).right), None)


def explain_nan(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain NaN or ∞ that no known mistake gives."""
    what = name_output(result.judgement.output)

    def explains(other: CaseResult) -> Details | None:
        found = suite.output_of(other)
        broken = 0 if found is None else int((~np.isfinite(found)).sum())
        same = other.judgement.output == result.judgement.output
        return (f"{broken} of {found.size}",) if found is not None and broken and same else None

    say = partial("{0[0]} numbers of {1} are NaN or infinite".format)
    return where_it_shows(Cause("nan-output", lambda said: say(said, what), explains), result)


def read_weights(suite: Suite, case: Case) -> Array | None:
    """Read the weights of a target off its outputs for values that are unit vectors, d_v keys at a time."""
    problem = suite.problem(replace(case, memory="plain"))
    past = problem.arrays[PAST_VALUE] if case.past else None
    parts = []
    for start in range(0, case.keys, case.d_v):
        values = np.zeros((case.batch, case.kv_heads, case.keys, case.d_v))
        here = np.arange(start, min(start + case.d_v, case.keys))
        values[..., here, here - start] = 1.0
        problem.arrays["V"] = values[..., case.past :, :]
        if past is not None:
            problem.arrays[PAST_VALUE] = values[..., : case.past, :]
            problem.passed["cache"] = (problem.passed["cache"][0], problem.arrays[PAST_VALUE])
        given = read_output(problem, suite.call(problem))
        if given is None:
            return None
        parts.append(given[..., : here.size])
    return np.concatenate(parts, axis=-1)


def explain_by_check(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Name the mistakes that `check` finds in the weights and the output, or in the output alone."""
    if result.judgement.output in GRADIENTS and np.isnan(output).any():
        return  # no mistake that is known gives NaN, and to try them all takes long
    for record in record_answer(suite, result, output):
        causes = list(check_answer(suite, result, record, pairs=False))
        yield from causes
        if any(each.certain for each in causes):
            return


def explain_by_pairs(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Look for two mistakes at once, which takes seconds, where most is recorded."""
    return check_answer(suite, result, next(record_answer(suite, result, output)), pairs=True)


def check_answer(
    suite: Suite, result: CaseResult, found: dict[str, Array], *, pairs: bool
) -> Iterator[Cause]:
    """The causes that `check` names in an answer.

    The others of the mistakes that it names explain as much of this case, and may explain more of all.
    """
    findings = find_mistakes(suite, result, found, pairs=pairs)
    planted = [each.planted for each in findings if each.planted]
    if not planted:
        return
    step = CONCAT if CONCAT in found else HEAD_OUTPUTS
    cause = add_hint(suite, result, plant_cause(suite, planted, step))
    yield cause if hold(cause, [result], ()) else seen_by_check(suite, cause, planted)
    also = [each for each in CATALOGUE if each.name in findings[0].also] if len(findings) == 1 else []
    yield from (plant_cause(suite, [(each, None)], step) for each in also)


def find_mistakes(
    suite: Suite, result: CaseResult, found: dict[str, Array], *, pairs: bool = False
) -> Sequence[Finding]:
    """Hand an answer to `check`; nothing where its findings do not explain all of it."""
    trace, plan = plan_answer(suite.problem(result.case), found)
    try:
        findings = check(trace, plan, pairs=pairs).findings
    except AttnError:
        return ()
    return findings if all(each.planted for each in findings) else ()


def seen_by_check(suite: Suite, cause: Cause, planted: Sequence[tuple[Mistake, Plant]]) -> Cause:
    """A cause that takes the weights to see, or that gives no certain numbers: `check` is asked again."""
    names = [mistake.name for mistake, _ in planted]

    def explains(other: CaseResult) -> Details | None:
        output = suite.output_of(other)
        for record in record_answer(suite, other, output) if output is not None else ():
            findings = find_mistakes(suite, other, record)
            if [each.mistake for each in findings] == names:
                return tuple(each.planted[1].detail for each in findings if each.planted)
        return None

    return Cause(cause.mistake, cause.say, explains, costly=True, certain=False)


def record_answer(suite: Suite, result: CaseResult, output: Array) -> Iterator[dict[str, Array]]:
    """Record an answer as steps: with its weights, alone, and as heads side by side; or its gradients."""
    if result.judgement.output in GRADIENTS:
        yield suite.outputs_in(result)
        return
    weights = read_weights(suite, result.case)
    if weights is not None:
        yield {WEIGHTS: weights, HEAD_OUTPUTS: output}
    yield {HEAD_OUTPUTS: output}
    if result.case.heads > 1:
        batch, heads, queries, d_v = output.shape
        yield {CONCAT: output.swapaxes(1, 2).reshape(batch, queries, heads * d_v)}


def plan_answer(problem: Problem, found: dict[str, Array]) -> tuple[Trace, DumpPlan]:
    """A trace of a case's inputs and of the steps found, beside what was meant."""
    derivation, case = problem.plan.derivation, problem.case
    arrays = {**problem.arrays, **found}
    steps = {step.name: step for step in derivation if isinstance(step.op, Given) or step.name in found}
    sizes = {**case.sizes, "new": case.keys - case.past}
    header: dict[str, Any] = {"config": {"dtype": "float64" if case.dtype == "bfloat16" else case.dtype}}
    trace = Trace(steps, {name: np.asarray(arrays[name]) for name in steps}, header)
    return trace, DumpPlan(derivation, sizes)


def add_hint(suite: Suite, result: CaseResult, cause: Cause) -> Cause:
    """Add the option that declares a mistake as meant, where there is one."""
    keyword = suite.signature.keywords.get("mask")
    how = {
        "mask-added": f"say --map {keyword}=float_mask if it takes only masks that are added",
        "mask-inverted": f"claim {{{TRUE}: hidden}} among the conventions of --claims if that is meant",
    }
    if "mask" not in result.case.option_values or cause.mistake not in how:
        return cause
    return replace(cause, say=lambda details: f"{cause.say(details)}; or {how[cause.mistake]}")


def explain_coarse_numbers(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain numbers all of a coarser type; first, as rounding looks like much else to `check`."""
    names = [name for name in TYPES if on_grid(output, TYPES[name].bits)]
    return explain_coarse_inside(suite, result, output, names)


def explain_coarse_inside(
    suite: Suite, result: CaseResult, output: Array, names: Sequence[str] = tuple(TYPES)
) -> Cause | None:
    """Find the first of these types to whose digits the numbers are right, and no further.

    With all types it is tried last, as it would explain a small mistake too.
    """

    def is_coarse(other: CaseResult, name: str) -> bool:
        found = suite.output_of(other)
        if found is None or TYPES[name].bits >= TYPES[other.case.dtype].bits:
            return False
        problem = suite.problem(other.case)
        wanted = expect(replace(problem, case=replace(problem.case, dtype=name)))
        ratio = compare_output(wanted.outputs[other.judgement.output], found).ratio
        return ratio <= 1 and (other is not result or ratio > LEAST_ROUNDING)

    def explains(name: str, other: CaseResult) -> Details | None:
        return (other.case.dtype,) if is_coarse(other, name) else None

    for name in names:
        if is_coarse(result, name):
            return Cause(LOW_PRECISION, partial(say_coarse, name), partial(explains, name))
    return None


def say_coarse(name: str, types: Details) -> str:
    words = f"the numbers are right to the digits of {name} only: it is computed or kept in it"
    return f"{words}; say --dtype {types[0]}:{name} if that is meant, as by autocast"


def explain_rounding(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain what is off by little more than the rounding of a coarse type."""

    def explains(other: CaseResult) -> Details | None:
        judged = other.judgement
        said = describe_rounding(name_output(judged.output), judged.ratio, other.case.dtype)
        return (said.sentence,) if said else None

    return where_it_shows(Cause("too-much-rounding", "".join, explains, observed=True), result)


def describe_rounding(what: str, ratio: float, dtype: str) -> Failure | None:
    """Name what may be rounding in more places, and say it; None for a fine type, and for far off."""
    if TYPES[dtype].bits >= FLOAT32.bits or ratio > NEARLY:
        return None
    words = (
        f"no mistake is found, but {what} is off by {ratio:.2g} times what rounding to {dtype} explains: "
        "keep what is not stored in float32, as scores, log-sum-exp, delta and sums are"
    )
    return Failure("too-much-rounding", words)
