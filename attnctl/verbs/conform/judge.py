"""The answer of a target beside attention in float64, and the error that rounding allows.

The derivation is carried out in float64 on inputs that were rounded to the type, and a few times
more with every result rounded at random in that type (`attnctl.evidence.rounding`): so far off is
plain attention in that type. What a backward pass reads of the forward, the output and the weights,
is rounded so before it is read. A number may be off by `FACTOR` times that scatter and one rounding, all
numbers together by `typical` times the scatter. The ratio is what a case is off by, as a part of what
it may be: above 1 it is wrong. Where rounding hides a good part of how the numbers vary, a
right answer is no evidence. The output is judged first, then the gradients by Q, K and V.

Of the outputs behind the first, what --returns declares is judged, and what others look like is said.
Their axes are found once, in plain attention on sizes that all differ: where queries are as many as heads,
a shape tells nothing. What an output is taken for is reported, and never held against the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.evidence.allowed import FACTOR, allowed_error, root_mean_square, spread, times_scatter, typical
from attnctl.evidence.precision import FLOAT8_E4M3, FLOAT32
from attnctl.evidence.rounding import (
    Known,
    carry_rounding,
    exactly,
    noise,
    pool_scatter,
    round_weights,
    squared_distance,
)
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import Derivation
from attnctl.math.names import (
    DELTA,
    HEAD_OUTPUTS,
    LOGSUMEXP,
    MASKED,
    OUTPUT,
    SCALED,
    SINK,
    WEIGHTS,
    WEIGHTS_AGAIN,
    is_gradient,
)
from attnctl.math.ops import Given
from attnctl.mistakes.chunks import LN2
from attnctl.verbs.conform.call import ENDINGS, NOT_CALLED, Answer
from attnctl.verbs.conform.case import GRADIENTS, PLAIN
from attnctl.verbs.conform.layout import read_answer, shapes_beside
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import IN_TYPE, IN_TYPE_BY_LAYOUT, SUMS
from attnctl.verbs.conform.stored import EIGHT_BITS, precision_in

RUNS = 12
FEWER_RUNS = 6
MANY = 4096
"""Runs of Monte Carlo arithmetic for each case, and where it has many numbers, which tell as much."""

ULPS = 2
"""Units in the last place of its type that any number may be off."""

OF_ROW = 2.0**-4
"""The part of the largest number of its row that any number counts as: kernels sum a row in one scale."""

NEVER_SEEN = 1e-30
"""A size that nobody misses: the smallest of float32 and bfloat16 is below it, that of float16 is not."""

FLUSHED_TERMS = 16
"""Terms of one sum that were made 0 as too small, as compilers of jax and GPUs do."""

JUDGED = 16
"""The last queries that are judged where there are too many."""

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
        precision = precision_in(self.dtype)
        room = allowed_error(
            self.value, self.scatter, self.units * precision.unit, of_row=self.of_row, least=self.least
        )
        # Numbers below the smallest of the type may be 0 there, and some of those that a sum is of.
        terms = FLUSHED_TERMS if precision.smallest < NEVER_SEEN else 1
        return room + terms * precision.smallest

    @property
    def blurred(self) -> float:
        """The error that rounding may give, as a part of how the numbers vary."""
        judged = self.rows[..., None] & np.isfinite(self.scatter) & np.isfinite(self.value)
        numbers = self.value[np.broadcast_to(judged, self.value.shape)]
        return FACTOR * root_mean_square(self.scatter[judged]) / spread(numbers)


@dataclass(frozen=True)
class Expected:
    problem: Problem
    steps: dict[str, Known]
    outputs: Mapping[str, ExpectedOutput]
    seen: Array
    """The rows (batch, head, query) that see a key."""


@dataclass(frozen=True)
class Judgement:
    ratio: float
    """The worst difference, as a part of what is allowed; NaN and wrong shapes are ∞."""
    shows: tuple[str, ...] = ()
    """The right outputs of which it is evidence: rounding does not hide them, nor are they 0."""
    words: str = ""
    output: str = HEAD_OUTPUTS
    """The first output that is wrong, or the worst."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    extra: int | None = None
    """The place of an output behind the first that is wrong."""
    differs: float = 0.0
    """In units in the last place, what should not change at all and does."""

    @property
    def right(self) -> bool:
        return self.ratio <= 1.0


def expect(problem: Problem, derivation: Derivation | None = None) -> Expected:
    """Carry out the derivation, or another one, in float64, and in the type with random rounding.

    Of very many queries the last are carried out, and alone are judged.
    """
    if derivation is None and problem.has_many_scores:
        return replace(expect(problem.last_queries(JUDGED)), problem=problem)

    derivation = derivation or problem.plan.derivation
    steps = carry_out_rounded(problem, derivation)
    seen: Array = np.asarray(steps[WEIGHTS].value.any(axis=-1))
    scatters = scatter_outputs(problem, derivation, steps)

    outputs = {}
    for name, scatter in scatters.items():
        value = steps[name].value
        # What a query that sees no key gives is nobody's to say; each gradient is a number all the same.
        rows = np.ones(value.shape[:-1], dtype=bool) if name in GRADIENTS else seen
        outputs[name] = ExpectedOutput(
            name,
            problem.case.dtype,
            value,
            scatter=scatter,
            rows=rows,
            independent=min(int(seen.sum()), int(rows.sum())),
        )
    return Expected(problem, steps, outputs, seen)


def scatter_outputs(
    problem: Problem, derivation: Derivation, steps: Mapping[str, Known]
) -> dict[str, Array]:
    """Return the scatter of each output, which follows from the problem and the derivation alone."""
    return scatter_together({name: steps[name] for name in problem.outputs})


def carry_out_rounded(problem: Problem, derivation: Derivation) -> dict[str, Known]:
    """Carry out every step, each with its runs in which results are rounded at random in the type."""
    unit = precision_in(problem.case.dtype).unit
    of_sums = unit if sums_in_type(problem) else FLOAT32.unit
    # How far off a score may be that is added up again, of the size of its terms.
    score_unit = min(unit, of_sums) * (1 + sqrt(problem.case.d_k))

    given = problem.given
    steps: dict[str, Known] = {}
    # Weights and delta as a backward pass makes them again; only gradients read them so.
    made_again: dict[str, Known] = {}
    for step in derivation:
        if isinstance(step.op, Given):
            steps[step.name] = exactly(given[step.name])
            continue

        readable = {**steps, **made_again} if is_gradient(step.name) else steps
        inputs = [readable[name] for name in step.inputs]
        known = carry_rounding(step.op, inputs, unit, step.name, of_sums=of_sums)
        if step.name == WEIGHTS and problem.case.dtype in EIGHT_BITS:
            known = round_weights(known, step.name, FLOAT8_E4M3)
        # Each run is carried out once for all that read it; only the latest is kept.
        steps[step.name] = replace(known, run=lru_cache(maxsize=1)(known.run))

        if LOGSUMEXP in steps:
            if step.name.startswith(WEIGHTS_AGAIN):
                steps[step.name] = make_again(steps, step.name, score_unit, derivation)
            elif step.name in {WEIGHTS, DELTA}:
                made_again[step.name] = make_again(steps, step.name, score_unit, derivation)
    return steps


def sums_in_type(problem: Problem) -> bool:
    """Whether the target may keep sums in the type of its inputs: always, or as arrays lie in memory."""
    kept = problem.profile[SUMS]
    return kept == IN_TYPE or (kept == IN_TYPE_BY_LAYOUT and problem.case.memory != PLAIN)


def make_again(steps: Mapping[str, Known], name: str, unit: float, lines: Derivation) -> Known:
    """The weights as a backward pass makes them again: exp(s − L), of an L stored in float32 or better.

    All of a row are off by one factor, which softmax never is: its shares add up to 1. So is a delta that
    is made of them. A weight is off by one of its own, too, as terms of its score are added up again:
    then gradients of a row of scores do not add up to 0, and columns of K that are far from 0 show that.
    """
    known = steps[name]
    logsumexp = steps[LOGSUMEXP].value
    off_of_row = np.where(np.isfinite(logsumexp), logsumexp, 0.0) * unit

    # √Σ(qk)² is the size of the terms of a score, to which its rounding is in proportion.
    q, k = (np.square(steps[read].value) for read in lines["scores"].inputs)
    size_of_terms = np.sqrt(q @ k.swapaxes(-1, -2))
    off_of_score = lines["scaled_scores"].op.apply(size_of_terms) * unit

    def run(number: int) -> Array:
        factor = 1.0 + off_of_row * noise(f"{name} again", number, off_of_row.shape)
        if known.value.ndim > factor.ndim:  # weights; a delta has one number for each row
            own = off_of_score * noise(f"{name} of scores", number, off_of_score.shape)
            factor = factor[..., None] + own
        return known.run(number) * factor

    return replace(known, run=run)


def scatter_together(steps: Mapping[str, Known]) -> dict[str, Array]:
    """Return the scatter of several steps, whose runs have most in common."""
    is_small = all(step.value.size < MANY for step in steps.values())
    runs = RUNS if is_small else FEWER_RUNS
    squares = {name: np.zeros(step.value.shape) for name, step in steps.items()}

    with np.errstate(all="ignore"):
        # A run at a time for all steps: what they read is kept for the latest run alone.
        for number in range(runs):
            for name, step in steps.items():
                squares[name] += squared_distance(step.run(number), step.value)
        return {name: pool_scatter(squares[name] / runs, step.value, runs) for name, step in steps.items()}


def scatter_of(known: Known) -> Array:
    return scatter_together({"": known})[""]


def judge_answer(expected: Expected, answer: Answer) -> Judgement:
    if answer.error:
        return judge_failure(answer)
    arrays = read_answer(expected.problem, answer)
    return join_judgements(
        judge_output(expected, name, arrays.get(name), answer) for name in expected.outputs
    )


def judge_failure(answer: Answer) -> Judgement:
    """Judge a call that ended without an answer; where it is no exception, its message says all."""
    is_exception = answer.error not in {NOT_CALLED, *ENDINGS}
    words = f"{answer.error}: {answer.message}" if is_exception else answer.message
    return Judgement(inf, words=words.rstrip(": "))


def join_judgements(judgements: Iterable[Judgement]) -> Judgement:
    """Join the judgements of several outputs: the first that is wrong, or the worst."""
    every = list(judgements)
    ratios = {judgement.output: judgement.ratio for judgement in every}
    shows = tuple(name for judgement in every for name in judgement.shows)

    wrong = [judgement for judgement in every if not judgement.right]
    if not wrong:
        worst = max(every, key=lambda judgement: judgement.ratio, default=Judgement(0.0))
        return replace(worst, shows=shows, ratios=ratios)

    first, *others = wrong
    words = first.words
    if others:
        are = "is" if len(others) == 1 else "are"
        words += f"; {all_of([judgement.output for judgement in others])} {are} wrong, too"
    return replace(first, words=words, shows=shows, ratios=ratios)


def judge_output(expected: Expected, name: str, array: Array | None, answer: Answer) -> Judgement:
    title = name_output(name)
    if array is not None and array.dtype.kind not in "fiu":
        return Judgement(inf, words=f"{title} has the type {array.dtype}", output=name)
    if array is not None:
        return compare_output(expected.outputs[name], array)

    came, meant = shapes_beside(expected.problem, answer, name)
    if came is None:
        words = f"it returns no array of real numbers for {title}"
    else:
        words = f"{title} has the shape {list(came.shape)}, not {list(meant)}"
        if name == HEAD_OUTPUTS:
            words += "; --layout IN:OUT says how it answers"
    return Judgement(inf, words=words, output=name)


def name_output(name: str) -> str:
    return {HEAD_OUTPUTS: "the output", LOGSUMEXP: "the log-sum-exp"}.get(name, f"the gradient {name}")


@np.errstate(over="ignore", invalid="ignore")  # weights made without a mask are large; −∞ may be right
def compare_output(expected: ExpectedOutput, array: Array) -> Judgement:
    """Judge an output (batch, head, row, column)."""
    title = name_output(expected.name)
    value = expected.value
    array = array[..., -value.shape[-2] :, :]  # of many queries the last are judged
    rows = np.broadcast_to(expected.rows[..., None], array.shape)

    # Equal numbers are right whatever they are: two infinities, too, whose difference is NaN.
    differs = rows & (array != value)
    gap = np.where(differs, np.abs(array - value), 0.0)
    broken = differs & ~np.isfinite(array)
    if broken.any():
        cell = tuple(int(place) for place in np.argwhere(broken)[0])
        return Judgement(inf, words=f"{title} is {array[cell]} at {list(cell)}", output=expected.name)

    ratios = np.where(rows & np.isfinite(expected.allowed), gap / expected.allowed, 0.0)
    cell = tuple(int(place) for place in np.unravel_index(int(ratios.argmax()), ratios.shape))
    worst = float(ratios[cell])
    together = measure_together(expected, gap, rows)
    ratio = max(worst, together)

    if ratio <= 1:
        has_numbers = bool((np.abs(value) > NEGLIGIBLE).any(where=rows))
        is_evidence = has_numbers and expected.blurred < HIDDEN
        shows = (expected.name,) if is_evidence else ()
        return Judgement(ratio, shows, output=expected.name)
    if worst <= 1:
        words = f"the numbers of {title} are off together by {ratio:.2g} times what rounding explains"
    else:
        # Adding 0 makes −0 a plain 0.
        words = (
            f"{title} is {array[cell] + 0:.6g} at {list(cell)} and should be {value[cell] + 0:.6g} "
            f"(off by {gap[cell]:.2g}, {expected.allowed[cell]:.2g} allowed)"
        )
    return Judgement(ratio, words=words, output=expected.name)


def measure_together(expected: ExpectedOutput, gap: Array, rows: Array) -> float:
    """How far off all numbers are together, as a part of what rounding explains.

    Numbers that are each a little off, in every row, pass one by one; together they tell.
    """
    value = expected.value
    scatter = expected.scatter
    judged = rows & (scatter > NEGLIGIBLE) & np.isfinite(scatter) & np.isfinite(value)
    precision = precision_in(expected.dtype)
    slack = ULPS * precision.unit * np.abs(value) + precision.smallest
    off = times_scatter(gap[judged], scatter[judged], slack[judged])
    return root_mean_square(off) / typical(expected.independent)


# --- the outputs behind the first ---

SCORES = "scores"
LSE = "logsumexp"
LSE2 = "logsumexp2"
MAXIMUM = "maximum"
SUM = "sum"
NOT_JUDGED = "-"

RETURNS = (OUTPUT, LSE, LSE2, WEIGHTS, SCORES, SCALED, MASKED, MAXIMUM, SUM, NOT_JUDGED)
"""The names that may be declared; masked scores are those that softmax reads, masked or not."""

OF_MERGE = ((OUTPUT, LSE), (OUTPUT, LSE2))
"""What a merge may return."""

WORDS = {LSE: "log-sum-exp", LSE2: "log-sum-exp in base 2"}
"""Those that are not called by their names."""

UNITS = 8
"""Units in the last place that an extra output may be off, of itself or of 1."""


Extras = dict[int, tuple[str, str]]
"""Outputs behind the first by their places: what each is, and its axes."""

OF_ROWS = ("b h n", "b n h", "b h n 1", "b n h 1", "(b h) n", "(b n) h", "(b h) n 1", "(b h n)",
           "n b h", "n h b", "h b n")  # fmt: skip
OF_CELLS = ("b h n m", "b n h m", "(b h) n m", "(b h n) m", "b h (n m)")
"""The axes that a number for each query, and one for each query and key, may come in."""


def find_declared(expected: Expected, answer: Answer, returns: Sequence[str]) -> Extras:
    """Find the axes of declared outputs: those in which one is right, or else those of its shape."""
    extras = {}
    forms = expect_extras(expected)
    for place, name in enumerate(returns):
        if place == 0 or name == NOT_JUDGED:
            continue
        is_of_cells = name in forms and forms[name][0].ndim == 4
        layouts = OF_CELLS if is_of_cells else OF_ROWS

        arrays = arrangements(expected, answer.output(place), layouts)
        right = [axes for axes, array in arrays.items() if measure_extra(expected, name, array) <= 1]
        # One that fits no axes is judged in the usual ones, and found wrong.
        likeliest = [*right, *arrays, layouts[0]]
        extras[place] = name, likeliest[0]
    return extras


def expect_extras(expected: Expected) -> dict[str, tuple[Array, ...]]:
    """Compute what extra outputs may be: scores a later step's, sum and maximum with a sink or not."""
    values = {name: step.value for name, step in expected.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    last = values[scores[-1]]
    maximum = last.max(axis=-1)

    with np.errstate(all="ignore"):
        subtracted = np.where(np.isfinite(maximum), maximum, 0.0)[..., None]
        total = np.exp(last - subtracted).sum(axis=-1)
        totals = [total]
        maxima = [maximum]
        if SINK in values:
            sink = values[SINK][..., None]
            totals.append(total + np.exp(sink - maximum))
            maxima.append(np.maximum(maximum, sink))
        logsumexps = tuple(maximum + np.log(total) for total in totals)

    extras: dict[str, tuple[Array, ...]] = {WEIGHTS: (values[WEIGHTS],)}
    for number, name in enumerate(scores):
        extras[name] = tuple(values[later] for later in scores[number:])
    return extras | {
        MASKED: (last,),
        LSE: logsumexps,
        LSE2: tuple(logsumexp / LN2 for logsumexp in logsumexps),
        MAXIMUM: tuple(maxima),
        SUM: tuple(totals),
    }


def describe_extras(expected: Expected, answer: Answer) -> Iterator[str]:
    """What outputs that nobody declares look like in plain attention."""
    for place, array in enumerate(answer.outputs[1:], start=1):
        name = recognize_extra(expected, array)
        if name:
            returns = [OUTPUT, *[NOT_JUDGED] * (place - 1), name]
            declared = f"--returns {','.join(returns)} declares it"
            yield f"Output {place} looks like the {WORDS.get(name, name)} and is not judged; {declared}."
        elif array is not None:
            yield f"Output {place}, of shape {list(array.shape)}, is not known and not judged."


def recognize_extra(expected: Expected, array: Array | None) -> str | None:
    """The first output that this one is, in some axes."""
    arrays = arrangements(expected, array, (*OF_ROWS, *OF_CELLS))
    for name in expect_extras(expected):
        if any(measure_extra(expected, name, arranged) <= 1 for arranged in arrays.values()):
            return name
    return None


def judge_extras(expected: Expected, answer: Answer, extras: Extras, first: Judgement) -> Judgement:
    """Judge the outputs behind the first: the first of them that is wrong, or else `first`."""
    # Of many scores only the last rows are computed, of an output that has them all.
    if expected.problem.has_many_scores:
        return first

    forms = expect_extras(expected)
    for place, (name, axes) in extras.items():
        if name not in forms:
            continue  # a step that this case has not
        array = answer.output(place)
        ratio = measure_extra(expected, name, arrange_extra(expected, array, axes))
        if ratio > 1:
            problem = "is not there" if array is None else f"is no {WORDS.get(name, name)}"
            words = f"the output is right, but output {place} {problem}"
            return replace(first, ratio=ratio, words=words, extra=place)
    return first


def measure_extra(expected: Expected, name: str, array: Array | None) -> float:
    """Return the largest error as a part of the error allowed; ∞ for another shape and for NaN."""
    return min(measure_form(expected, name, value, array) for value in expect_extras(expected)[name])


def measure_form(expected: Expected, name: str, value: Array, array: Array | None) -> float:
    """The same for one of the values that an output may have."""
    if array is None or array.shape != value.shape:
        return inf

    seen = expected.seen
    rows = seen if value.ndim == 3 else np.broadcast_to(seen[..., None], value.shape)
    scores = [step for step in expected.steps if step.endswith("scores")]
    # What is no step itself is made of the last scores, and scatters as they do.
    known = expected.steps[name if name in expected.steps else scores[-1]]
    scatter = scatter_of(known)
    if known.value.ndim != value.ndim:
        scatter = scatter.max(axis=-1, where=np.isfinite(known.value), initial=0.0)

    right = ExpectedOutput(
        name,
        expected.problem.case.dtype,
        value,
        scatter=scatter,
        rows=rows,
        independent=1,
        units=UNITS,
        of_row=0.0,
        least=1.0,
    )
    with np.errstate(all="ignore"):
        off = np.where(array == value, 0.0, np.abs(array - value)) / right.allowed
        off = np.where(rows & np.isfinite(value), off, 0.0)
    return float(np.where(np.isnan(off), inf, off).max(initial=0.0))


def arrange_extra(expected: Expected, array: Array | None, axes: str) -> Array | None:
    """Bring an output in these axes to (batch, head, query[, key]); None where it has others."""
    if array is None or array.dtype.kind not in "fiu":
        return None
    sizes = dict(zip("bhnm", expected.problem.scores, strict=True))
    of_axes = {axis: size for axis, size in sizes.items() if axis in axes}
    ours = "b h n m" if "m" in axes else "b h n"
    try:
        return rearrange(array, f"{axes} -> {ours}", **of_axes)
    except ValueError:
        return None


def arrangements(expected: Expected, array: Array | None, layouts: Sequence[str]) -> dict[str, Array]:
    """The axes in which an output may come, each with the output in ours."""
    arranged = {axes: arrange_extra(expected, array, axes) for axes in layouts}
    return {axes: output for axes, output in arranged.items() if output is not None}


# --- a log-sum-exp that is none ---


class WrongLogsumexp(NamedTuple):
    """What programs give in place of a log-sum-exp."""

    mistake: str
    sentence: str
    fix: str
    """What to write instead."""


OTHER_BASE = {
    LSE: WrongLogsumexp("lse-base", "it is in base 2", f"multiply it by ln 2, or declare it as {LSE2}"),
    LSE2: WrongLogsumexp("lse-base", "it is in base e", f"divide it by ln 2, or declare it as {LSE}"),
}
NO_MAXIMUM = WrongLogsumexp(
    "lse-without-maximum",
    "the maximum of each row is left out of it",
    "add it: m + log Σ exp(s − m)",
)


def name_near_miss(expected: Expected, name: str, array: Array | None) -> WrongLogsumexp | None:
    """Name what programs give for a log-sum-exp in base e or 2."""
    extras = expect_extras(expected)
    with np.errstate(all="ignore"):
        total = np.log(extras[SUM][0])

    in_other_base = extras[LSE if name == LSE2 else LSE2]
    if any(measure_form(expected, LSE, form, array) <= 1 for form in in_other_base):
        return OTHER_BASE[name]
    if any(measure_form(expected, LSE, form, array) <= 1 for form in (total, total / LN2)):
        return NO_MAXIMUM
    return None
