"""The answer of a target beside attention in float64, and the error that rounding allows.

The derivation is carried out in float64 on inputs that were rounded to the type, and a few times
more with every result rounded at random in that type (`attnctl.evidence.rounding`): so far off is
plain attention in that type. What a backward pass reads of the forward, the output and the weights,
is rounded so before it is read. A number may be off by `FACTOR` times that scatter and one rounding, all
numbers together by `typical` times the scatter. The ratio is what a case is off by, as a part of what
it may be: above 1 it is wrong. Where rounding hides a good part of how the numbers vary, a
right answer is no evidence. The output is judged first, then the gradients by Q, K and V. Outputs behind
the first are declared by --returns, else recognised, else reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from math import inf, log, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.evidence.allowed import (
    FACTOR,
    allowed_error,
    root_mean_square,
    spread,
    times_scatter,
    typical,
)
from attnctl.evidence.precision import FLOAT32
from attnctl.evidence.rounding import (
    Known,
    carry_rounding,
    exactly,
    noise,
    pool_scatter,
    squared_distance,
)
from attnctl.math import Array
from attnctl.math.names import DELTA, HEAD_OUTPUTS, LOGSUMEXP, MASKED, OUTPUT, SCALED, SINK, TABLE, WEIGHTS
from attnctl.math.ops import Given
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import GRADIENTS, Problem
from attnctl.verbs.conform.layout import read_answer, read_back, shapes_beside, split_axes
from attnctl.verbs.conform.profile import AXES, TYPES

RUNS, FEWER_RUNS, MANY = 12, 6, 4096
"""Runs of Monte Carlo arithmetic for each case, and where it has many numbers, which tell as much."""

ULPS = 2
"""Units in the last place of its type that any number may be off."""

OF_ROW = 2.0**-4
"""The part of the largest number of its row that any number counts as: kernels sum a row in one scale."""

HIDDEN = 0.3
"""The part of the numbers' spread that rounding may hide before a right answer is no evidence."""

NEGLIGIBLE = 1e-30
"""Below this, numbers are 0 in any type."""


@dataclass(frozen=True)
class ExpectedOutput:
    """One output of a case, over (batch, head, row, column), and the error allowed in it."""

    name: str
    dtype: str
    value: Array
    scatter: Array
    rows: Array
    """The rows (batch, head, row) that are judged: of the output those that see a key."""
    independent: int
    """The rows whose errors have nothing to do with each other: queries at most."""
    units: int = ULPS
    """Units in the last place that any number may be off, of itself as it counts."""
    of_row: float = OF_ROW
    least: float = 0.0

    @cached_property
    def allowed(self) -> Array:
        precision = TYPES[self.dtype]
        units, least = self.units * precision.unit, self.least
        room = allowed_error(self.value, self.scatter, units, of_row=self.of_row, least=least)
        return room + precision.smallest

    @property
    def blurred(self) -> float:
        """The error that rounding may give, as a part of how the numbers vary."""
        told = self.rows[..., None] & np.isfinite(self.scatter) & np.isfinite(self.value)
        numbers = self.value[np.broadcast_to(told, self.value.shape)]
        return FACTOR * root_mean_square(self.scatter[told]) / spread(numbers)


@dataclass(frozen=True)
class Expected:
    """The steps of attention in one case, and the outputs that are judged."""

    problem: Problem
    steps: dict[str, Known]
    outputs: Mapping[str, ExpectedOutput]
    seen: Array
    """The rows (batch, head, query) that see a key."""

    @property
    def output(self) -> Array:
        return self.steps[HEAD_OUTPUTS].value


@dataclass(frozen=True)
class Judgement:
    ratio: float
    """The worst difference, as a part of what is allowed; NaN and wrong shapes are ∞."""
    shows: tuple[str, ...] = ()
    """The outputs of which a right answer is evidence: rounding does not hide them."""
    words: str = ""
    """The error in words, where the answer is wrong."""
    output: str = HEAD_OUTPUTS
    """The first output that is wrong, or the worst."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """The ratio of each output."""
    extra: int | None = None
    """The place of an output behind the first that is wrong."""

    @property
    def right(self) -> bool:
        return self.ratio <= 1.0


def expect(problem: Problem) -> Expected:
    """Carry out the derivation in float64, and in the type with random rounding."""
    unit = TYPES[problem.case.dtype].unit
    sums = min(unit, FLOAT32.unit) * (1 + sqrt(problem.case.d_k))
    steps: dict[str, Known] = {}
    again: dict[str, Known] = {}
    for step in problem.plan.derivation:
        if isinstance(step.op, Given):
            steps[step.name] = exactly(problem.arrays[step.name])
            continue
        read = {**steps, **again} if TABLE[step.name].gradient else steps
        inputs = [read[name] for name in step.inputs]
        known = carry_rounding(step.op, inputs, unit, step.name)
        # Each run is carried out once for all that read it; only the latest is kept.
        steps[step.name] = replace(known, run=lru_cache(maxsize=1)(known.run))
        if step.name in {WEIGHTS, DELTA} and LOGSUMEXP in steps:
            again[step.name] = make_again(steps[step.name], steps[LOGSUMEXP].value, sums, step.name)
    seen: Array = np.asarray(steps[WEIGHTS].value.any(axis=-1))
    scatters = scatter_together({name: steps[name] for name in problem.outputs})
    outputs = {}
    for name, scatter in scatters.items():
        value = steps[name].value
        rows = np.ones(value.shape[:-1], dtype=bool) if name in GRADIENTS else seen
        independent = min(int(seen.sum()), int(rows.sum()))
        outputs[name] = ExpectedOutput(name, problem.case.dtype, value, scatter, rows, independent)
    return Expected(problem, steps, outputs, seen)


def make_again(known: Known, total: Array, unit: float, name: str) -> Known:
    """The weights as a backward pass makes them again: exp(s − L), of an L stored in float32 or better.

    All of a row are off by one factor, which softmax never is: its shares add up to 1. So is a delta that
    is made of them.
    """
    size = np.where(np.isfinite(total), total, 0.0) * unit

    def run(number: int) -> Array:
        off = 1.0 + size * noise(f"{name} again", number, size.shape)
        return known.run(number) * (off if known.value.ndim == off.ndim else off[..., None])

    return replace(known, run=run)


def scatter_together(steps: Mapping[str, Known]) -> dict[str, Array]:
    """Return the scatter of several steps, whose runs have most in common."""
    runs = RUNS if all(each.value.size < MANY for each in steps.values()) else FEWER_RUNS
    squares = {name: np.zeros(each.value.shape) for name, each in steps.items()}
    with np.errstate(all="ignore"):
        for number in range(runs):
            for name, each in steps.items():
                squares[name] += squared_distance(each.run(number), each.value)
        return {name: pool_scatter(squares[name] / runs, each.value, runs) for name, each in steps.items()}


def scatter_of(known: Known) -> Array:
    return scatter_together({"": known})[""]


def judge_answer(wanted: Expected, answer: Answer) -> Judgement:
    """Judge the outputs of an answer that it is asked for, the first of them first."""
    if answer.error:
        return judge_failure(answer)
    given = read_answer(wanted.problem, answer)
    return join_judgements(judge_output(wanted, name, given.get(name), answer) for name in wanted.outputs)


def judge_failure(answer: Answer) -> Judgement:
    named = answer.error not in {"not called", "hang", "crash", "exit"}
    words = f"{answer.error}: {answer.message}" if named else answer.message
    return Judgement(inf, words=words.rstrip(": "))


def join_judgements(judgements: Iterable[Judgement]) -> Judgement:
    """Join the judgements of several outputs: the first that is wrong, or the worst."""
    found = list(judgements)
    ratios = {each.output: each.ratio for each in found}
    wrong = [each for each in found if not each.right]
    if not wrong:
        worst = max(found, key=lambda each: each.ratio, default=Judgement(0.0))
        return replace(worst, shows=tuple(name for each in found for name in each.shows), ratios=ratios)
    right = [each.output for each in found if each.right and each.output in GRADIENTS]
    beside = f"; {all_of(right)} {'is' if len(right) == 1 else 'are'} right" if right else ""
    return replace(wrong[0], words=wrong[0].words + beside, ratios=ratios)


def judge_output(wanted: Expected, name: str, given: Array | None, answer: Answer) -> Judgement:
    if given is not None and given.dtype.kind not in "fiu":
        return Judgement(inf, words=f"{name_output(name)} has the type {given.dtype}", output=name)
    if given is not None:
        return compare_output(wanted.outputs[name], given)
    found, asked = shapes_beside(wanted.problem, answer, name)
    words = f"it returns no array for {name_output(name)}"
    if found is not None:
        words = f"{name_output(name)} has the shape {list(found.shape)}, not {list(asked)}"
        words += suggest_layout(wanted, found) if name == HEAD_OUTPUTS else ""
    return Judgement(inf, words=words, output=name)


def name_output(name: str) -> str:
    named = {HEAD_OUTPUTS: "the output", LOGSUMEXP: "the log-sum-exp"}
    return named.get(name, f"the gradient {name}")


def suggest_layout(wanted: Expected, found: Array) -> str:
    """Name the layout in which an output of another shape would be right."""
    axes_in, heads = wanted.problem.profile.axes, wanted.problem.case.heads
    read = {axes: read_back(found, axes, heads) for axes in AXES}
    other = next(
        (axes for axes, out in read.items() if out is not None and out.shape == wanted.output.shape), None
    )
    return f"; if that is how it answers, say --layout {axes_in}:{other}" if other else ""


@np.errstate(over="ignore", invalid="ignore")  # weights made without a mask are large; −∞ may be right
def compare_output(wanted: ExpectedOutput, found: Array) -> Judgement:
    """Judge an output (batch, head, row, column)."""
    name, value = name_output(wanted.name), wanted.value
    rows = np.broadcast_to(wanted.rows[..., None], found.shape)
    other = rows & (found != value)
    gap = np.where(other, np.abs(found - value), 0.0)
    broken = other & ~np.isfinite(found)
    if broken.any():
        at = tuple(int(i) for i in np.argwhere(broken)[0])
        return Judgement(inf, words=f"{name} is {found[at]} at {list(at)}", output=wanted.name)
    ratios = np.where(rows & np.isfinite(wanted.allowed), gap / wanted.allowed, 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(ratios.argmax()), ratios.shape))
    worst = float(ratios[at])
    told = rows & (wanted.scatter > NEGLIGIBLE) & np.isfinite(wanted.scatter) & np.isfinite(value)
    slack = ULPS * TYPES[wanted.dtype].unit * np.abs(value)
    together = root_mean_square(times_scatter(gap[told], wanted.scatter[told], slack[told]))
    ratio = max(worst, together / typical(wanted.independent))
    shows = (wanted.name,) if wanted.blurred < HIDDEN and wanted.rows.any() else ()
    if ratio <= 1:
        return Judgement(ratio, shows, output=wanted.name)
    words = (
        f"{name} is {found[at] + 0:.6g} at {list(at)} and should be {value[at] + 0:.6g} "
        f"(off by {gap[at]:.2g}, {wanted.allowed[at]:.2g} allowed)"
    )
    if worst <= 1:
        words = f"the numbers of {name} are off together by {ratio:.2g} times what rounding explains"
    return Judgement(ratio, shows, words, wanted.name)


# --- the outputs behind the first ---

SCORES, LSE, LSE2, MAXIMUM, SUM = "scores", "logsumexp", "logsumexp2", "maximum", "sum"
NOT_JUDGED = "-"

RETURNS = (OUTPUT, LSE, LSE2, WEIGHTS, SCORES, SCALED, MASKED, MAXIMUM, SUM, NOT_JUDGED)
"""The names that may be declared; masked scores are those that softmax reads, masked or not."""

WORDS = {LSE: "log-sum-exp", LSE2: "log-sum-exp in base 2"}
"""Those that are not called by their names."""

LN2 = log(2.0)

UNITS = 8
"""Units in the last place that an extra output may be off, of itself or of 1."""


def judged_places(returns: Sequence[str]) -> dict[int, str]:
    """Find the places of declared outputs behind the first that are judged."""
    return {place: name for place, name in enumerate(returns) if place and name != NOT_JUDGED}


def expect_extras(wanted: Expected) -> dict[str, tuple[Array, ...]]:
    """Compute the arrays that extra outputs may be: scores a later step's, a sum with its sink or not."""
    values = {name: each.value for name, each in wanted.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    last = values[scores[-1]]
    top, total = sum_rows(last)
    totals = [total]
    with np.errstate(all="ignore"):
        if SINK in values:
            totals.append(total + np.exp(values[SINK][..., None] - top))
        sums = tuple(top + np.log(each) for each in totals)
    return {
        WEIGHTS: (values[WEIGHTS],),
        **{name: tuple(values[later] for later in scores[at:]) for at, name in enumerate(scores)},
        MASKED: (last,),
        LSE: sums,
        LSE2: tuple(each / LN2 for each in sums),
        MAXIMUM: (top,),
        SUM: tuple(totals),
    }


def sum_rows(scores: Array) -> tuple[Array, Array]:
    """The maximum m of each row, and Σ exp(s − m)."""
    top = scores.max(axis=-1)
    with np.errstate(all="ignore"):
        return top, np.exp(scores - np.where(np.isfinite(top), top, 0.0)[..., None]).sum(axis=-1)


def recognise_extras(wanted: Expected, answer: Answer) -> dict[int, str]:
    found = {}
    forms = expect_extras(wanted)
    for place, array in enumerate(answer.outputs[1:], start=1):
        name = next((name for name in forms if measure_extra(wanted, name, forms[name], array) <= 1), None)
        if name is not None:
            found[place] = name
    return found


def describe_extras(wanted: Expected, answer: Answer, known: Mapping[int, str]) -> Iterator[str]:
    """Describe the outputs behind the first, which nobody declared."""
    for place, array in enumerate(answer.outputs[1:], start=1):
        if place in known:
            name = known[place]
            yield f"Output {place} is taken for the {WORDS.get(name, name)}, and held to it."
        elif arrange_extra(array, wanted.seen.shape, wanted) is not None:
            near = name_near_miss(wanted, LSE, array)
            yield (
                f"Output {place} has a number for each query and is no log-sum-exp in base e or 2"
                f"{f': {near[1]}' if near else ''}. "
                "It is not judged; --returns output,logsumexp declares it."
            )
        elif array is not None:
            yield f"Output {place}, of shape {list(array.shape)}, is not known and not judged."


def judge_extras(
    wanted: Expected, answer: Answer, extras: Mapping[int, str], first: Judgement
) -> Judgement:
    forms = expect_extras(wanted)
    for place, name in extras.items():
        if name not in forms:
            continue
        array = answer.outputs[place] if place < len(answer.outputs) else None
        off = measure_extra(wanted, name, forms[name], array)
        if off > 1:
            what = "is not there" if array is None else f"is no {WORDS.get(name, name)}"
            return replace(
                first, ratio=off, words=f"the output is right, but output {place} {what}", extra=place
            )
    return first


def measure_extra(wanted: Expected, name: str, forms: Sequence[Array], array: Array | None) -> float:
    """Return the largest error as a part of the error allowed; ∞ for another shape and for NaN."""
    return min(measure_form(wanted, name, value, array) for value in forms)


def measure_form(wanted: Expected, name: str, value: Array, array: Array | None) -> float:
    given = arrange_extra(array, value.shape, wanted)
    if given is None:
        return inf
    rows = wanted.seen if value.ndim == 3 else np.broadcast_to(wanted.seen[..., None], value.shape)
    last = [each for each in wanted.steps if each.endswith("scores")][-1]
    known = wanted.steps[name if name in wanted.steps else last]
    scatter = scatter_of(known)
    if known.value.ndim != value.ndim:
        scatter = scatter.max(axis=-1, where=np.isfinite(known.value), initial=0.0)
    dtype = wanted.problem.case.dtype
    right = ExpectedOutput(name, dtype, value, scatter, rows, 1, units=UNITS, of_row=0.0, least=1.0)
    with np.errstate(all="ignore"):
        off = np.where(given == value, 0.0, np.abs(given - value)) / right.allowed
        off = np.where(rows & np.isfinite(value), off, 0.0)
    return float(np.where(np.isnan(off), inf, off).max(initial=0.0))


def arrange_extra(array: Array | None, shape: tuple[int, ...], wanted: Expected) -> Array | None:
    """Arrange an extra output over (batch, head, query[, key]); None where it has another shape."""
    if array is None or array.dtype.kind not in "fiu":
        return None
    axes = wanted.problem.profile.axes_out
    given: Array = array.reshape(
        (*[1] * sum(letter not in split_axes(axes) for letter in "bh"), *array.shape)
    )
    if given.ndim == len(shape) + 1 and given.shape[-1] == 1:
        given = given[..., 0]
    if given.ndim == len(shape) - 1 and given.shape == (shape[0] * shape[1], *shape[2:]):
        given = given.reshape(shape)
    if given.shape != shape and axes == "bnhd" and given.ndim == 3:
        given = given.swapaxes(1, 2)
    return given if given.shape == shape else None


# --- a log-sum-exp that is none ---

NearMiss = tuple[str, str, str]
"""A mistake, its sentence, and what to write instead."""

FACTORS: dict[str, dict[float, NearMiss]] = {
    LSE: {
        1 / LN2: ("lse-base", "it is in base 2", f"multiply it by ln 2, or declare it as {LSE2}"),
        LN2: ("lse-factor", "it is multiplied by ln 2", "leave the factor out"),
        1 / LN2**2: ("lse-factor", "it is divided by ln 2 twice", "leave the factors out"),
    },
    LSE2: {
        1.0: ("lse-base", "it is in base e", f"divide it by ln 2, or declare it as {LSE}"),
        LN2: ("lse-factor", "it is multiplied by ln 2 rather than divided", "divide by ln 2"),
        1 / LN2**2: ("lse-factor", "it is divided by ln 2 twice", "divide once"),
    },
}
"""By the output meant: factors of the natural log-sum-exp that programs give."""

NO_MAXIMUM = (
    "lse-without-maximum",
    "the maximum of each row is left out of it",
    "add it: m + log Σ exp(s − m)",
)
MIXED = ("lse-mixed-bases", "its maximum and its logarithm are in different bases", "take both in one base")
NEGATIVE = ("lse-negative", "it has the wrong sign", "leave the minus out")
NO_LOGARITHM = ("lse-no-logarithm", "it is the sum, without a logarithm", "take m + log of it")
NO_SUM = ("lse-maximum-alone", "it is the maximum of each row alone", "add log Σ exp(s − m)")
NO_SCALE = ("lse-other-scores", "it is of scores that are not scaled", "take it of what softmax reads")
NO_MASK = ("lse-other-scores", "what is hidden is in it", "take it of what softmax reads")


def name_near_miss(wanted: Expected, name: str, array: Array | None) -> NearMiss | None:
    found = near_misses(wanted, name)
    return next((said for said, forms in found if measure_extra(wanted, LSE, forms, array) <= 1), None)


def near_misses(wanted: Expected, name: str) -> Iterator[tuple[NearMiss, tuple[Array, ...]]]:
    """List what programs give for a log-sum-exp in base e or 2, each in either base."""
    known = expect_extras(wanted)
    right, top, total = known[LSE][0], known[MAXIMUM][0], known[SUM][0]
    with np.errstate(all="ignore"):
        yield from ((said, (right * factor,)) for factor, said in FACTORS[name].items())
        yield NO_MAXIMUM, (np.log(total), np.log2(total))
        yield MIXED, (top + np.log2(total), top / LN2 + np.log(total))
        yield NEGATIVE, (-right, -right / LN2)
        yield NO_LOGARITHM, (total,)
        yield NO_SUM, (top, top / LN2)
        for step, said in ((SCORES, NO_SCALE), (SCALED, NO_MASK)):
            top, total = sum_rows(wanted.steps[step].value)
            sums = top + np.log(total)
            yield said, (sums, sums / LN2)
