"""The cause of a failure: experiments of a few calls, and every known mistake made in the failing cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.inputs.plan import DumpPlan
from attnctl.math import Array
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, WEIGHTS
from attnctl.math.ops import Given
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake
from attnctl.record import Trace
from attnctl.verbs.check.check import check
from attnctl.verbs.conform.call import ENDINGS, OTHER, Answer, have_same_bits, largest_gap
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.held import (
    NOTHING,
    CarriedOut,
    Cause,
    Diagnosed,
    HeldCase,
    choose,
    compute_steps,
    is_large,
    observe,
    plant_cause,
    simplicity,
)
from attnctl.verbs.conform.judge import (
    OTHER_BASE,
    WORDS,
    ExpectedOutput,
    WrongLogsumexp,
    arrange_extra,
    compare_output,
    expect,
    judge_answer,
    name_near_miss,
    name_output,
)
from attnctl.verbs.conform.kinds import explain_kind
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.report import IGNORED_OPTION, Failure
from attnctl.verbs.conform.stored import TYPES, precision_in
from attnctl.verbs.conform.suite import CaseResult, Suite

MOST_CASES = 3
"""Failing cases that are looked at before a feature's failure stays unexplained."""

LEAST_ROUNDING = 0.01
"""The least error of arithmetic in a coarser type, as a part of the error allowed there."""

NEARLY = 8.0
"""Ratios up to this may come of rounding alone, in more places than plain attention does."""

SAME = 4.0
"""Units of the largest number by which products of other sizes may round the same numbers otherwise."""

LOW_PRECISION = "low-precision"

Explain = Callable[[Suite, CaseResult, Array], "Cause | Iterator[Cause] | None"]
"""A way to explain the output of one case; of causes the likeliest first."""


@np.errstate(all="ignore")  # what overflows in a wrong program is not what came back
def diagnose(
    suite: Suite, wrong: Sequence[CaseResult], right: Sequence[Case] = (), best: Diagnosed = NOTHING
) -> Diagnosed:
    """Find what explains more of these cases than the best known cause, and makes no right one wrong."""
    if best.explains_all:
        return best

    answered = [result for result in wrong if not result.answer.error]
    if not answered:
        return choose([explain_end(wrong[0])], wrong, right, best)

    # Extra outputs are judged where the first is right, and are looked at where no other case is wrong.
    outputs = [result for result in answered if result.judgement.extra is None]
    if not outputs:
        return choose([explain_extra(suite, min(answered, key=simplicity))], wrong, right, best)

    if any(suite.output_of(result) is None for result in outputs):
        return choose([explain_shape(suite)], wrong, right, best)
    return search_causes(suite, sorted(outputs, key=simplicity), wrong, right, best=best)


def search_causes(
    suite: Suite,
    to_explain: Sequence[CaseResult],
    wrong: Sequence[CaseResult],
    right: Sequence[Case],
    *,
    best: Diagnosed,
) -> Diagnosed:
    """Look at the simplest cases one after the other, for what is wrong in all."""

    def search(result: CaseResult, ways: Sequence[Explain], best: Diagnosed) -> Diagnosed:
        output = suite.outputs_in(result)[result.judgement.output]
        for explain in ways:
            explanation = explain(suite, result, output)
            causes = [explanation] if isinstance(explanation, Cause) else explanation or ()
            fitting = (cause for cause in causes if cause.explains(result) is not None)
            chosen = choose(fitting, wrong, right, best)
            if chosen is not best and not chosen.fits_by_chance:
                return chosen
            best = chosen
        return best

    cases_left = MOST_CASES
    for result in to_explain:
        if best.explains_all or not cases_left:
            break
        is_explained = best.cause is not None and best.cause.explains(result) is not None
        if not is_explained:
            best = search(result, QUICK, best)
        if not is_explained or not best.is_certain:
            cases_left -= 1

    # These describe what is seen, or fit almost anything, so they come when nothing else is found.
    if best.cause is None or best.fits_by_chance:
        best = search(to_explain[0], LONGER, NOTHING)
        return NOTHING if best.failure.spared else best
    return best


def explain_end(result: CaseResult) -> Cause:
    """How a call ended without an answer."""
    error = result.answer.error
    title = ENDINGS.get(error, f"it raises {error}")

    def see(other: CaseResult) -> str:
        if other.answer.error != error:
            return ""
        place = f" ({other.answer.place})" if other.answer.place else ""
        return f"{title}: {other.answer.message}{place}"

    return observe(error if error in ENDINGS else "exception", see)


def explain_shape(suite: Suite) -> Cause:
    """An output that is not there in the right shape, as its judgement says."""

    def see(other: CaseResult) -> str:
        return "" if suite.output_of(other) is not None else other.judgement.words

    return observe("wrong-shape", see)


def explain_extra(suite: Suite, result: CaseResult) -> Cause:
    """An output behind the first that is not what it is declared to be."""
    place = result.judgement.extra
    assert place is not None
    name, axes = suite.extras[place]

    def find(other: CaseResult) -> WrongLogsumexp | None:
        if name not in OTHER_BASE:
            return None
        expected = suite.expect(other.case)
        array = arrange_extra(expected, other.answer.output(place), axes)
        return name_near_miss(expected, name, array)

    near_miss = find(result)
    if near_miss:
        mistake = near_miss.mistake
        words = f"output {place} is no {WORDS[name]}: {near_miss.sentence}: {near_miss.fix}"
    else:
        mistake = "extra-output"
        words = result.judgement.words

    def see(other: CaseResult) -> str:
        is_same = other.judgement.extra == place and find(other) == near_miss
        return words if is_same else ""

    return observe(mistake, see)


def explain_repeats(answer: Answer) -> Failure:
    """What went wrong where the same call was made again and again."""
    if answer.error:
        words = f"made again and again, the same call fails: {answer.message or answer.error}"
    elif answer.failed:
        words = f"call {answer.calls} with the same inputs raises {answer.failed}"
    elif answer.stale:
        return Failure("earlier-answer", "other numbers in the same arrays have the answer of those before")
    else:
        often = f"{answer.others} of {answer.calls - 1} calls, off by up to {answer.apart:.2g}"
        words = f"the same call with the same inputs gives other bits in {often}"
    return Failure("not-repeatable", words)


def explain_unsteady(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """The same call has other numbers when it is made again."""

    def explains(other: CaseResult) -> str | None:
        again = suite.answer(other.case)
        is_same = not again.error and have_same_bits(again.outputs, other.answer.outputs)
        if other.answer.error or is_same:
            return None
        is_right = not again.error and judge_answer(suite.expect(other.case), again).right
        return "is right" if is_right else "gives other numbers"

    words = "the same call again {}: it is wrong now and then"
    return Cause("not-repeatable", words.format, explains, costly=True)


def explain_memory(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Numbers that are others where memory held something else before the call."""

    def explains(other: CaseResult) -> str | None:
        name = other.judgement.output
        first = suite.outputs_in(other).get(name)
        second = suite.outputs_in(suite.run(other.case, fill=OTHER)).get(name)
        if first is None or second is None:
            return None

        both_nan = np.isnan(first) & np.isnan(second)
        number = int((first != second).sum() - both_nan.sum())
        return f"{number} of {first.size} numbers of {name_output(name)}" if number else None

    words = (
        "{} follow what memory held before the call: they are never written, or "
        "what is there is added to or read first"
    )
    return Cause("memory-not-written", words.format, explains, costly=True)


def explain_zeros(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    name = result.judgement.output

    def see(other: CaseResult) -> str:
        array = suite.outputs_in(other).get(name)
        return f"{name_output(name)} is all zeros" if array is not None and not array.any() else ""

    return observe("zeros", see)


def ignored_cause(suite: Suite, option: str) -> Cause:
    """An option that changes nothing; a case that is right where it matters contradicts."""

    def matters(case: Case) -> bool:
        """What is right are not the numbers of the case without the option."""
        right = HeldCase.begin(suite.problem(case))
        bare = suite.problem(case.without(option))
        derivation = bare.plan.derivation
        if option not in case.option_values:
            return False
        return not right.gives(CarriedOut(derivation, compute_steps(derivation, bare.given)))

    def is_ignored(other: CaseResult) -> bool:
        if option not in other.case.option_values or other.answer.error:
            return False
        bare = suite.run(other.case.without(option))
        if bare.answer.error:
            return False

        arrays = judged_arrays(other)
        bare_arrays = judged_arrays(bare)
        if have_same_bits(arrays, bare_arrays):
            return True
        # Without the option the program may multiply matrices of other sizes, which round otherwise.
        unit = min(precision_in(other.case.dtype).unit, FLOAT32.unit)
        sizes = (np.abs(array).max(initial=0.0) for array in arrays if array is not None)
        return largest_gap(arrays, bare_arrays) <= SAME * unit * max(sizes, default=0.0)

    words = f"{suite.signature.keywords[option]} is taken and changes nothing"
    return Cause(
        IGNORED_OPTION,
        lambda _: words,
        lambda other: "" if is_ignored(other) else None,
        contradicts=lambda case, _: matters(case),
    )


def judged_arrays(result: CaseResult) -> Sequence[Array | None]:
    """The output, or the gradients, whichever is wrong."""
    if result.judgement.output == HEAD_OUTPUTS:
        return result.answer.outputs[:1]
    return result.answer.gradients


def explain_nan(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def see(other: CaseResult) -> str:
        array = suite.output_of(other)
        if array is None or np.isfinite(array).all():
            return ""
        broken = int((~np.isfinite(array)).sum())
        title = name_output(other.judgement.output)
        return f"{broken} of {array.size} numbers of {title} are NaN or infinite"

    return observe("nan-output", see)


def explain_by_catalogue(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Every known mistake, those of which nothing is fitted first; in a large case what `check` finds."""
    is_gradient = result.judgement.output in GRADIENTS
    if is_gradient and np.isnan(output).any():
        return  # no mistake that is known gives NaN, and to try them all takes long

    # Heads side by side tell what mixes heads: of one head, and of gradients, that is nothing new.
    steps = [HEAD_OUTPUTS]
    if not is_gradient and result.case.heads > 1:
        steps.append(CONCAT)

    tried = find_likely(suite, result) if is_large(result.case) else CATALOGUE
    by_freedom = sorted(tried, key=attrgetter("fitted"))
    for step in steps:
        for mistake in by_freedom:
            if mistake.exact:
                yield plant_cause(suite, mistake, step)


def find_likely(suite: Suite, result: CaseResult) -> Sequence[Mistake]:
    """What `check` finds in an answer: to try every mistake in a large case would take a minute."""
    problem = suite.problem(result.case)
    if problem.has_many_scores:
        return ()
    trace, plan = plan_answer(problem, suite.outputs_in(result))
    try:
        findings = check(trace, plan, pairs=False).findings
    except AttnError:
        return ()
    return [finding.planted[0] for finding in findings if finding.planted]


def explain_by_weights(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Dropout, which the weights alone tell."""
    if result.judgement.output != HEAD_OUTPUTS or result.case.past:
        return
    for mistake in CATALOGUE:
        if "dropout" in mistake.name:
            yield replace(plant_cause(suite, mistake, WEIGHTS), costly=True, certain=False)


def plan_answer(problem: Problem, outputs: dict[str, Array]) -> tuple[Trace, DumpPlan]:
    """What a target was given and what came back as a trace, with how that should have come about."""
    derivation = problem.plan.derivation
    case = problem.case
    arrays = {**problem.given, **outputs}
    steps = {}
    for step in derivation:
        if isinstance(step.op, Given) or step.name in outputs:
            steps[step.name] = step

    # NumPy has no bfloat16, and its numbers are all of float64.
    dtype = "float64" if case.dtype == "bfloat16" else case.dtype
    header: dict[str, Any] = {"config": {"dtype": dtype}}
    trace = Trace(steps, {name: np.asarray(arrays[name]) for name in steps}, header)
    return trace, DumpPlan(derivation, {**case.sizes, "new": case.keys - case.past})


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

    def expect_in(dtype: str, case: Case) -> Mapping[str, ExpectedOutput]:
        problem = suite.problem(case)
        return expect(replace(problem, case=replace(problem.case, dtype=dtype))).outputs

    def is_coarse(other: CaseResult, dtype: str) -> bool:
        arrays = suite.outputs_in(other)
        wrong = [name for name, ratio in other.judgement.ratios.items() if ratio > 1]
        is_coarser = precision_in(dtype).bits < precision_in(other.case.dtype).bits
        if not is_coarser or not wrong or not arrays.keys() >= {*wrong}:
            return False

        expected = expect_in(dtype, other.case)
        ratio = max(compare_output(expected[name], arrays[name]).ratio for name in wrong)
        # A type that is really used costs more than that: the case that names it has to show it.
        return ratio <= 1 and (other is not result or ratio > LEAST_ROUNDING)

    dtype = next((name for name in names if is_coarse(result, name)), None)
    if dtype is None:
        return None

    def contradicts(case: Case, _: Collection[str]) -> bool:
        """Drawn numbers would show the type."""
        name = result.judgement.output
        if case.fill != "random" or name not in suite.problem(case).outputs:
            return False
        coarse = expect_in(dtype, case)[name]
        return not compare_output(suite.expect(case).outputs[name], coarse.value + coarse.scatter).right

    def explains(other: CaseResult) -> str | None:
        return f"{other.case.dtype}:{dtype}" if is_coarse(other, dtype) else None

    words = (
        f"the numbers are right to the digits of {dtype} only: it is computed or kept in it; "
        "say --dtype {} if that is meant, as by autocast"
    )
    return Cause(LOW_PRECISION, words.format, explains, contradicts=contradicts, certain=False)


def explain_rounding(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def see(other: CaseResult) -> str:
        judgement = other.judgement
        return describe_rounding(name_output(judgement.output), judgement.ratio, other.case.dtype).sentence

    return observe("too-much-rounding", see)


def describe_rounding(what: str, ratio: float, dtype: str) -> Failure:
    """Name what may be rounding in more places, and say it; nothing for a fine type, and for far off."""
    if precision_in(dtype).bits >= FLOAT32.bits or ratio > NEARLY:
        return Failure()
    words = (
        f"no mistake is found, but {what} is off by {ratio:.2g} times what rounding to {dtype} explains: "
        "keep what is not stored in float32, as scores, log-sum-exp, delta and sums are"
    )
    return Failure("too-much-rounding", words)


QUICK: tuple[Explain, ...] = (
    explain_unsteady, explain_memory, explain_zeros, explain_coarse_numbers,
    explain_by_catalogue, explain_kind, explain_coarse_inside,
)  # fmt: skip
LONGER: tuple[Explain, ...] = (explain_rounding, explain_nan, explain_by_weights)
"""The explanations of a case, those first that are quick or of which others look much alike."""
