"""The cause of a failure: experiments of a few calls, and every known mistake made in the failing cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
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
    NearMiss,
    arrange_extra,
    compare_output,
    expect,
    judge_answer,
    name_near_miss,
    name_output,
)
from attnctl.verbs.conform.kinds import explain_kind
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import TYPES
from attnctl.verbs.conform.report import IGNORED_OPTION, Failure
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
    outputs = [result for result in answered if result.judgement.extra is None]
    if not outputs:
        return choose([explain_extra(suite, min(answered, key=simplicity))], wrong, right, best)
    if any(suite.output_of(output) is None for output in outputs):
        no_shape = observe("wrong-shape", lambda x: x.judgement.words * (suite.output_of(x) is None))
        return choose([no_shape], wrong, right, best)
    return search_causes(suite, sorted(outputs, key=simplicity), wrong, right, best)


def search_causes(
    suite: Suite,
    left: Sequence[CaseResult],
    wrong: Sequence[CaseResult],
    right: Sequence[Case],
    best: Diagnosed,
) -> Diagnosed:
    most = MOST_CASES

    def search(result: CaseResult, ways: Sequence[Explain], best: Diagnosed) -> Diagnosed:
        output = suite.outputs_in(result)[result.judgement.output]
        for explain in ways:
            found = explain(suite, result, output)
            causes = [found] if isinstance(found, Cause) else found or ()
            fitting = (cause for cause in causes if cause.explains(result) is not None)
            held = choose(fitting, wrong, right, best)
            if held is not best and not held.fits_by_chance:
                return held
            best = held
        return best

    for result in left:
        if best.explains_all or not most:
            break
        explained = best.cause is not None and best.cause.explains(result) is not None
        best = best if explained else search(result, QUICK, best)
        most -= not (explained and best.is_certain)
    if best.cause is None or best.fits_by_chance:
        best = search(left[0], LONGER, NOTHING)
        return NOTHING if best.failure.spared else best
    return best


def explain_end(result: CaseResult) -> Cause:
    kind = result.answer.error

    def see(other: CaseResult) -> str:
        place = f" ({other.answer.place})" if other.answer.place else ""
        said = f"{ENDINGS.get(kind, f'it raises {kind}')}: {other.answer.message}{place}"
        return said if other.answer.error == kind else ""

    return observe(kind if kind in ENDINGS else "exception", see)


def explain_extra(suite: Suite, result: CaseResult) -> Cause:
    place = result.judgement.extra
    assert place is not None
    name, axes = suite.extras[place]

    def find(other: CaseResult) -> NearMiss | None:
        wanted = suite.expect(other.case)
        given = arrange_extra(wanted, other.answer.output(place), axes)
        return name_near_miss(wanted, name, given) if name in OTHER_BASE else None

    found = find(result)
    mistake, what, fix = found or ("extra-output", "", "")
    words = f"output {place} is no {WORDS[name]}: {what}: {fix}" if found else result.judgement.words
    return observe(mistake, lambda other: words * (other.judgement.extra == place and find(other) == found))


def explain_repeats(answer: Answer) -> Failure:
    often = f"{answer.others} of {answer.calls - 1} calls, off by up to {answer.apart:.2g}"
    words = f"the same call with the same inputs gives other bits in {often}"
    if answer.error:
        words = f"made again and again, the same call fails: {answer.message or answer.error}"
    elif answer.failed:
        words = f"call {answer.calls} with the same inputs raises {answer.failed}"
    elif answer.stale:
        return Failure("earlier-answer", "other numbers in the same arrays have the answer of those before")
    return Failure("not-repeatable", words)


def explain_unsteady(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def explains(other: CaseResult) -> str | None:
        again = suite.answer(other.case)
        same = not again.error and have_same_bits(again.outputs, other.answer.outputs)
        if other.answer.error or same:
            return None
        right = not again.error and judge_answer(suite.expect(other.case), again).right
        return "is right" if right else "gives other numbers"

    words = "the same call again {}: it is wrong now and then"
    return Cause("not-repeatable", words.format, explains, costly=True)


def explain_memory(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def explains(other: CaseResult) -> str | None:
        name, again = other.judgement.output, suite.run(other.case, fill=OTHER)
        here, beside = (suite.outputs_in(found).get(name) for found in (other, again))
        if here is None or beside is None:
            return None
        number = int((here != beside).sum() - (np.isnan(here) & np.isnan(beside)).sum())
        return f"{number} of {here.size} numbers of {name_output(name)}" if number else None

    words = "{} follow what memory held before the call: they are never written, or "
    words += "what is there is added to or read first"
    return Cause("memory-not-written", words.format, explains, costly=True)


def explain_zeros(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    name = result.judgement.output

    def see(other: CaseResult) -> str:
        found = suite.outputs_in(other).get(name)
        return f"{name_output(name)} is all zeros" if found is not None and not found.any() else ""

    return observe("zeros", see)


def ignored_cause(suite: Suite, option: str) -> Cause:
    """An option that changes nothing; a case that is right where it matters contradicts."""

    def matters(case: Case) -> bool:
        """What is right are not the numbers of the case without the option."""
        right, bare = HeldCase.begin(suite.problem(case)), suite.problem(case.without(option))
        plain = bare.plan.derivation
        return option in case.option_values and not right.gives(plain, compute_steps(plain, bare.given))

    def is_ignored(other: CaseResult) -> bool:
        if option not in other.case.option_values or other.answer.error:
            return False
        bare = suite.run(other.case.without(option))
        given, without = (
            found.answer.outputs[:1] if found.judgement.output == HEAD_OUTPUTS else found.answer.gradients
            for found in (other, bare)
        )
        if bare.answer.error or have_same_bits(given, without):
            return not bare.answer.error
        unit = min(TYPES[other.case.dtype].unit, FLOAT32.unit)
        sizes = (np.abs(array).max(initial=0.0) for array in given if array is not None)
        return largest_gap(given, without) <= SAME * unit * max(sizes, default=0.0)

    words = f"{suite.signature.keywords[option]} is taken and changes nothing"
    return Cause(
        IGNORED_OPTION,
        lambda _: words,
        lambda other: "" if is_ignored(other) else None,
        lambda case, _: matters(case),
    )


def explain_nan(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def see(other: CaseResult) -> str:
        if (found := suite.output_of(other)) is None or np.isfinite(found).all():
            return ""
        what, broken = name_output(other.judgement.output), int((~np.isfinite(found)).sum())
        return f"{broken} of {found.size} numbers of {what} are NaN or infinite"

    return observe("nan-output", see)


def explain_by_catalogue(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Every known mistake, those of which nothing is fitted first; in a large case what `check` finds."""
    of_gradients = result.judgement.output in GRADIENTS
    if of_gradients and np.isnan(output).any():
        return  # no mistake that is known gives NaN, and to try them all takes long
    steps = (HEAD_OUTPUTS,) if of_gradients or result.case.heads == 1 else (HEAD_OUTPUTS, CONCAT)
    tried = find_likely(suite, result) if is_large(result.case) else CATALOGUE
    for step, mistake in product(steps, sorted(tried, key=attrgetter("fitted"))):
        if mistake.exact:
            yield plant_cause(suite, mistake, step)


def find_likely(suite: Suite, result: CaseResult) -> Sequence[Mistake]:
    """What `check` finds in an answer: to try every mistake in a large case would take a minute."""
    if suite.problem(result.case).has_many_scores:
        return ()
    trace, plan = plan_answer(suite.problem(result.case), suite.outputs_in(result))
    try:
        findings = check(trace, plan, pairs=False).findings
    except AttnError:
        return ()
    return [finding.planted[0] for finding in findings if finding.planted]


def explain_by_weights(suite: Suite, result: CaseResult, output: Array) -> Iterator[Cause]:
    """Dropout, which the weights alone tell."""
    if result.judgement.output == HEAD_OUTPUTS and not result.case.past:
        for mistake in CATALOGUE:
            if "dropout" in mistake.name:
                yield replace(plant_cause(suite, mistake, WEIGHTS), costly=True, certain=False)


def plan_answer(problem: Problem, found: dict[str, Array]) -> tuple[Trace, DumpPlan]:
    derivation, case = problem.plan.derivation, problem.case
    arrays = {**problem.given, **found}
    steps = {step.name: step for step in derivation if isinstance(step.op, Given) or step.name in found}
    sizes = {**case.sizes, "new": case.keys - case.past}
    header: dict[str, Any] = {"config": {"dtype": "float64" if case.dtype == "bfloat16" else case.dtype}}
    trace = Trace(steps, {name: np.asarray(arrays[name]) for name in steps}, header)
    return trace, DumpPlan(derivation, sizes)


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
        found = suite.outputs_in(other)
        off = [item for item, ratio in other.judgement.ratios.items() if ratio > 1]
        if TYPES[name].bits >= TYPES[other.case.dtype].bits or not off or not {*off} <= found.keys():
            return False
        problem = suite.problem(other.case)
        wanted = expect(replace(problem, case=replace(problem.case, dtype=name))).outputs
        ratio = max(compare_output(wanted[output], found[output]).ratio for output in off)
        return ratio <= 1 and (other is not result or ratio > LEAST_ROUNDING)

    def contradicts(case: Case, _: Collection[str]) -> bool:
        """Drawn numbers would show the type."""
        problem, output = suite.problem(case), result.judgement.output
        if case.fill != "random" or output not in problem.outputs:
            return False
        coarse = expect(replace(problem, case=replace(problem.case, dtype=name))).outputs[output]
        return not compare_output(suite.expect(case).outputs[output], coarse.value + coarse.scatter).right

    def explains(other: CaseResult) -> str | None:
        return f"{other.case.dtype}:{name}" if is_coarse(other, name) else None

    name = next((name for name in names if is_coarse(result, name)), "")
    words = f"the numbers are right to the digits of {name} only: it is computed or kept in it; "
    words += "say --dtype {} if that is meant, as by autocast"
    return Cause(LOW_PRECISION, words.format, explains, contradicts, certain=False) if name else None


def explain_rounding(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    def see(other: CaseResult) -> str:
        judged = other.judgement
        return describe_rounding(name_output(judged.output), judged.ratio, other.case.dtype).sentence

    return observe("too-much-rounding", see)


def describe_rounding(what: str, ratio: float, dtype: str) -> Failure:
    """Name what may be rounding in more places, and say it; nothing for a fine type, and for far off."""
    if TYPES[dtype].bits >= FLOAT32.bits or ratio > NEARLY:
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
