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
from itertools import product
from math import inf, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.evidence.allowed import FACTOR, allowed_error, root_mean_square, spread, times_scatter, typical
from attnctl.evidence.precision import FLOAT32
from attnctl.evidence.rounding import Known, carry_rounding, exactly, noise, pool_scatter, squared_distance
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
from attnctl.verbs.conform.profile import IN_TYPE, IN_TYPE_BY_LAYOUT, SUMS, TYPES

RUNS, FEWER_RUNS, MANY = 12, 6, 4096
"""Runs of Monte Carlo arithmetic for each case, and where it has many numbers, which tell as much."""

ULPS = 2
"""Units in the last place of its type that any number may be off."""

OF_ROW = 2.0**-4
"""The part of the largest number of its row that any number counts as: kernels sum a row in one scale."""

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
    unit = TYPES[problem.case.dtype].unit
    of_sums = unit if sums_in_type(problem) else FLOAT32.unit
    sums = min(unit, of_sums) * (1 + sqrt(problem.case.d_k))
    given, steps = problem.given, dict[str, Known]()
    again: dict[str, Known] = {}
    lines = derivation or problem.plan.derivation
    for step in lines:
        if isinstance(step.op, Given):
            steps[step.name] = exactly(given[step.name])
            continue
        read = {**steps, **again} if is_gradient(step.name) else steps
        inputs = [read[name] for name in step.inputs]
        known = carry_rounding(step.op, inputs, unit, step.name, of_sums=of_sums)
        # Each run is carried out once for all that read it; only the latest is kept.
        steps[step.name] = replace(known, run=lru_cache(maxsize=1)(known.run))
        if step.name.startswith(WEIGHTS_AGAIN) and LOGSUMEXP in steps:
            steps[step.name] = make_again(steps, step.name, sums, lines)
        if step.name in {WEIGHTS, DELTA} and LOGSUMEXP in steps:
            again[step.name] = make_again(steps, step.name, sums, lines)
    seen: Array = np.asarray(steps[WEIGHTS].value.any(axis=-1))
    scatters = scatter_together({name: steps[name] for name in problem.outputs})
    outputs = {}
    for name, scatter in scatters.items():
        value = steps[name].value
        rows = np.ones(value.shape[:-1], dtype=bool) if name in GRADIENTS else seen
        independent = min(int(seen.sum()), int(rows.sum()))
        outputs[name] = ExpectedOutput(name, problem.case.dtype, value, scatter, rows, independent)
    return Expected(problem, steps, outputs, seen)


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
    known, total = steps[name], steps[LOGSUMEXP].value
    size = np.where(np.isfinite(total), total, 0.0) * unit
    q, k = (np.square(steps[read].value) for read in lines["scores"].inputs)
    own = lines["scaled_scores"].op.apply(np.sqrt(q @ k.swapaxes(-1, -2))) * unit

    def run(number: int) -> Array:
        off = 1.0 + size * noise(f"{name} again", number, size.shape)
        if known.value.ndim > off.ndim:
            off = off[..., None] + own * noise(f"{name} of scores", number, own.shape)
        return known.run(number) * off

    return replace(known, run=run)


def scatter_together(steps: Mapping[str, Known]) -> dict[str, Array]:
    """Return the scatter of several steps, whose runs have most in common."""
    runs = RUNS if all(step.value.size < MANY for step in steps.values()) else FEWER_RUNS
    squares = {name: np.zeros(step.value.shape) for name, step in steps.items()}
    with np.errstate(all="ignore"):
        for number in range(runs):
            for name, step in steps.items():
                squares[name] += squared_distance(step.run(number), step.value)
        return {name: pool_scatter(squares[name] / runs, step.value, runs) for name, step in steps.items()}


def scatter_of(known: Known) -> Array:
    return scatter_together({"": known})[""]


def judge_answer(wanted: Expected, answer: Answer) -> Judgement:
    if answer.error:
        return judge_failure(answer)
    given = read_answer(wanted.problem, answer)
    return join_judgements(judge_output(wanted, name, given.get(name), answer) for name in wanted.outputs)


def judge_failure(answer: Answer) -> Judgement:
    named = answer.error not in {NOT_CALLED, *ENDINGS}
    words = f"{answer.error}: {answer.message}" if named else answer.message
    return Judgement(inf, words=words.rstrip(": "))


def join_judgements(judgements: Iterable[Judgement]) -> Judgement:
    """Join the judgements of several outputs: the first that is wrong, or the worst."""
    found = list(judgements)
    ratios = {verdict.output: verdict.ratio for verdict in found}
    shows = tuple(name for verdict in found for name in verdict.shows)
    wrong = [verdict for verdict in found if not verdict.right]
    if not wrong:
        worst = max(found, key=lambda verdict: verdict.ratio, default=Judgement(0.0))
        return replace(worst, shows=shows, ratios=ratios)
    more = [verdict.output for verdict in wrong[1:]]
    beside = f"; {all_of(more)} {'is' if len(more) == 1 else 'are'} wrong, too" if more else ""
    return replace(wrong[0], words=wrong[0].words + beside, shows=shows, ratios=ratios)


def judge_output(wanted: Expected, name: str, given: Array | None, answer: Answer) -> Judgement:
    if given is not None and given.dtype.kind not in "fiu":
        return Judgement(inf, words=f"{name_output(name)} has the type {given.dtype}", output=name)
    if given is not None:
        return compare_output(wanted.outputs[name], given)
    found, asked = shapes_beside(wanted.problem, answer, name)
    words = f"it returns no array of real numbers for {name_output(name)}"
    if found is not None:
        words = f"{name_output(name)} has the shape {list(found.shape)}, not {list(asked)}"
        words += "; --layout IN:OUT says how it answers" * (name == HEAD_OUTPUTS)
    return Judgement(inf, words=words, output=name)


def name_output(name: str) -> str:
    return {HEAD_OUTPUTS: "the output", LOGSUMEXP: "the log-sum-exp"}.get(name, f"the gradient {name}")


@np.errstate(over="ignore", invalid="ignore")  # weights made without a mask are large; −∞ may be right
def compare_output(wanted: ExpectedOutput, found: Array) -> Judgement:
    """Judge an output (batch, head, row, column)."""
    name, value = name_output(wanted.name), wanted.value
    found = found[..., -value.shape[-2] :, :]
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
    precision = TYPES[wanted.dtype]
    slack = ULPS * precision.unit * np.abs(value) + precision.smallest
    together = root_mean_square(times_scatter(gap[told], wanted.scatter[told], slack[told]))
    ratio = max(worst, together / typical(wanted.independent))
    told_at_all = bool((np.abs(value) > NEGLIGIBLE).any(where=rows)) and wanted.blurred < HIDDEN
    shows = (wanted.name,) if told_at_all else ()
    if ratio <= 1:
        return Judgement(ratio, shows, output=wanted.name)
    words = (
        f"{name} is {found[at] + 0:.6g} at {list(at)} and should be {value[at] + 0:.6g} "
        f"(off by {gap[at]:.2g}, {wanted.allowed[at]:.2g} allowed)"
    )
    if worst <= 1:
        words = f"the numbers of {name} are off together by {ratio:.2g} times what rounding explains"
    return Judgement(ratio, words=words, output=wanted.name)


# --- the outputs behind the first ---

SCORES, LSE, LSE2, MAXIMUM, SUM = "scores", "logsumexp", "logsumexp2", "maximum", "sum"
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


def find_declared(wanted: Expected, answer: Answer, returns: Sequence[str]) -> Extras:
    """Find the axes of declared outputs: those in which one is right, or else those of its shape."""
    found = {}
    forms = expect_extras(wanted)
    for place, name in enumerate(returns):
        if not place or name == NOT_JUDGED:
            continue
        given = answer.output(place)
        tried = OF_CELLS if name in forms and forms[name][0].ndim == 4 else OF_ROWS
        laid = arrangements(wanted, given, tried)
        right = [axes for axes, array in laid.items() if measure_extra(wanted, name, array) <= 1]
        found[place] = name, [*right, *laid, tried[0]][0]
    return found


def expect_extras(wanted: Expected) -> dict[str, tuple[Array, ...]]:
    """Compute what extra outputs may be: scores a later step's, sum and maximum with a sink or not."""
    values = {name: step.value for name, step in wanted.steps.items()}
    scores = [name for name in values if name.endswith("scores")]
    last = values[scores[-1]]
    top = last.max(axis=-1)
    with np.errstate(all="ignore"):
        total = np.exp(last - np.where(np.isfinite(top), top, 0.0)[..., None]).sum(axis=-1)
        totals, tops = [total], [top]
        if SINK in values:
            totals.append(total + np.exp(values[SINK][..., None] - top))
            tops.append(np.maximum(top, values[SINK][..., None]))
        sums = tuple(top + np.log(total) for total in totals)
    return {
        WEIGHTS: (values[WEIGHTS],),
        **{name: tuple(values[later] for later in scores[at:]) for at, name in enumerate(scores)},
        MASKED: (last,),
        LSE: sums,
        LSE2: tuple(sum_ / LN2 for sum_ in sums),
        MAXIMUM: tuple(tops),
        SUM: tuple(totals),
    }


def describe_extras(wanted: Expected, answer: Answer) -> Iterator[str]:
    """What outputs that nobody declares look like in plain attention."""
    for place, array in enumerate(answer.outputs[1:], start=1):
        tried = product(expect_extras(wanted), arrangements(wanted, array, (*OF_ROWS, *OF_CELLS)).values())
        name = next((name for name, output in tried if measure_extra(wanted, name, output) <= 1), None)
        if name:
            how = f"--returns {','.join([OUTPUT, *[NOT_JUDGED] * (place - 1), name])} declares it"
            yield f"Output {place} looks like the {WORDS.get(name, name)} and is not judged; {how}."
        elif array is not None:
            yield f"Output {place}, of shape {list(array.shape)}, is not known and not judged."


def judge_extras(wanted: Expected, answer: Answer, extras: Extras, first: Judgement) -> Judgement:
    """Judge the outputs behind the first: the first of them that is wrong, or else `first`."""
    if wanted.problem.has_many_scores:
        return first
    forms = expect_extras(wanted)
    for place, (name, axes) in extras.items():
        if name not in forms:
            continue
        array = answer.output(place)
        off = measure_extra(wanted, name, arrange_extra(wanted, array, axes))
        if off > 1:
            what = "is not there" if array is None else f"is no {WORDS.get(name, name)}"
            words = f"the output is right, but output {place} {what}"
            return replace(first, ratio=off, words=words, extra=place)
    return first


def measure_extra(wanted: Expected, name: str, given: Array | None) -> float:
    """Return the largest error as a part of the error allowed; ∞ for another shape and for NaN."""
    return min(measure_form(wanted, name, value, given) for value in expect_extras(wanted)[name])


def measure_form(wanted: Expected, name: str, value: Array, given: Array | None) -> float:
    if given is None or given.shape != value.shape:
        return inf
    rows = wanted.seen if value.ndim == 3 else np.broadcast_to(wanted.seen[..., None], value.shape)
    last = [step for step in wanted.steps if step.endswith("scores")][-1]
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


def arrange_extra(wanted: Expected, array: Array | None, axes: str) -> Array | None:
    """Bring an output in these axes to (batch, head, query[, key]); None where it has others."""
    if array is None or array.dtype.kind not in "fiu":
        return None
    own = {axis: size for axis, size in zip("bhnm", wanted.problem.scores, strict=True) if axis in axes}
    try:
        return rearrange(array, f"{axes} -> b h n{' m' * ('m' in axes)}", **own)
    except ValueError:
        return None


def arrangements(wanted: Expected, array: Array | None, ways: Sequence[str]) -> dict[str, Array]:
    """The axes in which an output may come, each with the output in ours."""
    laid = {axes: arrange_extra(wanted, array, axes) for axes in ways}
    return {axes: output for axes, output in laid.items() if output is not None}


# --- a log-sum-exp that is none ---

NearMiss = tuple[str, str, str]
"""A mistake, its sentence, and what to write instead."""

OTHER_BASE: dict[str, NearMiss] = {
    LSE: ("lse-base", "it is in base 2", f"multiply it by ln 2, or declare it as {LSE2}"),
    LSE2: ("lse-base", "it is in base e", f"divide it by ln 2, or declare it as {LSE}"),
}
NO_MAXIMUM = ("lse-without-maximum", "the maximum of each row is left out of it",
              "add it: m + log Σ exp(s − m)")  # fmt: skip


def name_near_miss(wanted: Expected, name: str, given: Array | None) -> NearMiss | None:
    """Name what programs give for a log-sum-exp in base e or 2."""
    known = expect_extras(wanted)
    with np.errstate(all="ignore"):
        total = np.log(known[SUM][0])
    other = known[LSE if name == LSE2 else LSE2]
    for said, forms in ((OTHER_BASE[name], other), (NO_MAXIMUM, (total, total / LN2))):
        if any(measure_form(wanted, LSE, form, given) <= 1 for form in forms):
            return said
    return None
