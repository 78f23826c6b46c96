"""The cause of a failure: experiments of a few calls, and the target's weights handed to `check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of
from attnctl.evidence.precision import FLOAT32, on_grid
from attnctl.inputs.plan.plan import DumpPlan
from attnctl.math import Array
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, PAST_VALUE, WEIGHTS
from attnctl.math.ops import Given
from attnctl.record.trace import Trace
from attnctl.verbs.check.check import check
from attnctl.verbs.conform.call import OTHER, Answer, have_same_bits
from attnctl.verbs.conform.case import GRADIENTS, Case, Problem
from attnctl.verbs.conform.judge import (
    FACTORS,
    WORDS,
    compare_output,
    expect,
    judge_answer,
    name_near_miss,
    name_output,
)
from attnctl.verbs.conform.layout import read_output
from attnctl.verbs.conform.profile import TRUE, TYPES
from attnctl.verbs.conform.suite import CaseResult, Suite

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

ENDINGS = {
    "crash": "the process of the target died",
    "hang": "the target did not answer in time",
    "exit": "the target ended its process",
}
"""Sentences for a process that did not answer."""


@dataclass(frozen=True)
class Cause:
    mistake: str | None
    explanation: str


def diagnose(suite: Suite, wrong: Sequence[CaseResult]) -> Cause:
    answered = [each for each in wrong if not each.answer.error]
    if not answered:
        return explain_end(wrong[0])
    outputs = [each for each in answered if each.judgement.extra is None]
    if not outputs:
        return explain_extra(suite, min(answered, key=simplicity))
    if order := explain_order(suite, outputs[0]):
        return order
    if misshaped := [each for each in outputs if suite.output_of(each) is None]:
        return Cause("wrong-shape", misshaped[0].judgement.words)
    return search_cause(suite, sorted(outputs, key=simplicity)[:MOST_CASES])


def search_cause(suite: Suite, results: Sequence[CaseResult]) -> Cause:
    """Try every explanation on each of these results, and those that take long on the first alone."""
    if results[0].case.fill != "random":
        drawn = suite.run(replace(results[0].case, fill="random"))
        no_use = drawn.judgement.right or suite.output_of(drawn) is None
        results = results if no_use else [drawn, *results]
    quick = (
        explain_unsteady, explain_memory, explain_degenerate, explain_coarse_numbers, explain_by_check,
        explain_factor, explain_coarse_inside,
    )  # fmt: skip
    slow = explain_rounding, explain_nan, explain_by_pairs
    for result, explain in (*product(results, quick), *product(results[:1], slow)):
        output = suite.output_of(result)
        assert output is not None
        if cause := explain(suite, result, output):
            return cause
    return Cause(None, "")


def explain_end(result: CaseResult) -> Cause:
    kind, message = result.answer.error, result.answer.message
    if kind in ENDINGS:
        return Cause(kind, f"{ENDINGS[kind]}: {message}")
    place = f" ({result.answer.place})" if result.answer.place else ""
    return Cause("exception", f"it raises {kind}: {message}{place}")


def explain_extra(suite: Suite, result: CaseResult) -> Cause:
    """Name the mistake in an output behind the first, where the first is right."""
    place = result.judgement.extra
    assert place is not None
    name, outputs = suite.extras[place], result.answer.outputs
    array = outputs[place] if place < len(outputs) else None
    found = name_near_miss(suite.expect(result.case), name, array) if name in FACTORS else None
    if found is None:
        return Cause("extra-output", result.judgement.words)
    mistake, what, fix = found
    return Cause(mistake, f"output {place} is no {WORDS[name]}: {what}: {fix}")


def explain_repeats(answer: Answer) -> Cause:
    repeats = answer.repeats
    if answer.error:
        return Cause("not-repeatable", f"made again and again, the same call fails: {answer.message}")
    if repeats.failed:
        return Cause("not-repeatable", f"call {repeats.calls} with the same inputs raises {repeats.failed}")
    often = f"{repeats.others} of {repeats.calls - 1} calls"
    words = (
        f"the same call with the same inputs gives other bits in {often}, off by up to {repeats.apart:.2g}"
    )
    return Cause("not-repeatable", words)


def simplicity(result: CaseResult) -> tuple[bool, bool, bool, int]:
    """Order cases: drawn numbers first, few of them, but enough that nothing fits by chance."""
    case = result.case
    size = case.batch * case.heads * case.queries * case.keys
    small = min(case.queries, case.keys) < ENOUGH_TOKENS
    return size > MOST_NUMBERS, case.fill != "random", small, size


def explain_unsteady(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain a call that gives other numbers when it is made again."""
    again = suite.answer(result.case)
    if not again.error and have_same_bits(again.outputs, result.answer.outputs):
        return None
    right = not again.error and judge_answer(suite.expect(result.case), again).right
    words = (
        f"the same call again {'is right' if right else 'gives other numbers'}: it is wrong now and then"
    )
    return Cause("not-repeatable", words)


def explain_memory(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain numbers that follow what memory held before the call."""
    other = suite.run(result.case, fill=OTHER)
    beside = suite.outputs_in(other).get(result.judgement.output)
    if beside is None:
        return None
    what = name_output(result.judgement.output)
    count = int(((output != beside) & ~(np.isnan(output) & np.isnan(beside))).sum())
    if count == output.size and not np.ptp(beside):
        return Cause("output-not-written", f"nothing is written to {what}: it holds what memory held")
    words = (
        f"{count} of {output.size} numbers of {what} follow what memory held before the call: "
        "they are never written, or what is there is added to or read first"
    )
    return Cause("memory-not-written", words) if count else None


def explain_degenerate(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain outputs that have nothing to do with attention: zeros, or the mean of V."""
    problem = suite.problem(result.case)
    if not output.any():
        return Cause(
            "zeros", f"{name_output(result.judgement.output)} is all zeros: nothing was written to it"
        )
    if result.judgement.output != HEAD_OUTPUTS:
        return None
    values = expect(problem).steps
    name = next(each for each in ("V_shared", "present_value", "V") if each in values)
    v = values[name].value
    if result.case.fill == "random" and result.case.keys > 1:
        mean = np.broadcast_to(v.mean(axis=-2, keepdims=True), output.shape)
        room = 16 * TYPES[result.case.dtype].unit * np.abs(v).max()
        if np.abs(output - mean).max() <= room:
            return Cause("mean-of-values", "the output is the mean of V whatever the scores are")
    return None


def explain_order(suite: Suite, result: CaseResult) -> Cause | None:
    """Explain gradients that are right in another order."""
    wanted, given = suite.expect(result.case), result.answer.gradients
    for other in permutations(range(len(given))) if len(given) == len(GRADIENTS) else ():
        turned = replace(result.answer, gradients=tuple(given[at] for at in other))
        if judge_answer(wanted, turned).right:
            found = all_of([GRADIENTS[other.index(at)] for at in range(len(other))])
            right = all_of([*GRADIENTS])
            return Cause("gradients-in-other-order", f"it returns {found}, in this order: return {right}")
    return None


def explain_factor(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain gradients that are right but for a factor, as no mistake of a known kind makes it."""
    name = result.judgement.output
    wanted = suite.expect(result.case).outputs[name]
    with np.errstate(all="ignore"):
        factor = float((output * wanted.value).sum() / np.square(wanted.value).sum())
    is_none = not np.isfinite(factor) or abs(factor) > MOST_FACTOR or abs(factor - 1) < LEAST_FACTOR
    if name not in GRADIENTS or is_none or not factor or not compare_output(wanted, output / factor).right:
        return None
    return Cause("gradient-factor", f"{name} is {factor:.4g} times what it should be: leave the factor out")


def explain_nan(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain NaN or ∞ that no known mistake gives."""
    count = int((~np.isfinite(output)).sum())
    words = (
        f"{count} of {output.size} numbers of {name_output(result.judgement.output)} are NaN or infinite"
    )
    return Cause("nan-output", words) if count else None


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


def explain_by_check(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Name the mistake that `check` finds in the weights and the output, or in the output alone."""
    if result.judgement.output in GRADIENTS and np.isnan(output).any():
        return None  # no mistake that is known gives NaN, and to try them all takes long
    problem = suite.problem(result.case)
    records = record_answer(suite, result, output)
    cause = next(filter(None, (check_answer(problem, each, pairs=False) for each in records)), None)
    return add_hint(suite, result, cause) if cause else None


def explain_by_pairs(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Look for two mistakes at once, which takes seconds, where most is recorded."""
    return check_answer(suite.problem(result.case), next(record_answer(suite, result, output)), pairs=True)


def check_answer(problem: Problem, found: dict[str, Array], *, pairs: bool) -> Cause | None:
    """Hand an answer to `check`; None where its findings do not explain all of it."""
    trace, plan = plan_answer(problem, found)
    try:
        report = check(trace, plan, pairs=pairs)
    except AttnError:
        return None
    names = dict.fromkeys(each.mistake for each in report.findings if each.mistake)
    if not names or not all(each.mistake for each in report.findings):
        return None
    sentences = [f"{each.words}: {each.fix}" if each.fix else each.words for each in report.findings]
    return Cause(" and ".join(names), "; and ".join(dict.fromkeys(sentences)))


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
    return replace(cause, explanation=f"{cause.explanation}; or {how[cause.mistake]}")


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
    problem = suite.problem(result.case)
    for name in names:
        if TYPES[name].bits < TYPES[result.case.dtype].bits:
            wanted = expect(replace(problem, case=replace(problem.case, dtype=name)))
            ratio = compare_output(wanted.outputs[result.judgement.output], output).ratio
            if LEAST_ROUNDING < ratio <= 1:
                words = f"the numbers are right to the digits of {name} only: it is computed or kept in it"
                return Cause(LOW_PRECISION, words)
    return None


def explain_rounding(suite: Suite, result: CaseResult, output: Array) -> Cause | None:
    """Explain what is off by little more than the rounding of a coarse type."""
    judged = result.judgement
    return describe_rounding(name_output(judged.output), judged.ratio, result.case.dtype)


def describe_rounding(what: str, ratio: float, dtype: str) -> Cause | None:
    """Name what may be rounding in more places, and say it; None for a fine type, and for far off."""
    if TYPES[dtype].bits >= FLOAT32.bits or ratio > NEARLY:
        return None
    words = (
        f"no mistake is found, but {what} is off by {ratio:.2g} times what rounding to {dtype} explains: "
        "keep what is not stored in float32, as scores, log-sum-exp, delta and sums are"
    )
    return Cause("too-much-rounding", words)
