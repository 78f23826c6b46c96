"""The answer of a target beside attention in float64, and the error that rounding allows.

The derivation is carried out in float64 on inputs that were rounded to the type, and a few times
more with every result rounded at random in that type (`attnctl.evidence.rounding`): so far off is
plain attention in that type. A number may be off by `FACTOR` times that scatter and one rounding, all
numbers together by `typical` times the scatter. The ratio is what a case is off by, as a part of what
it may be: above 1 it is wrong. Where rounding hides a good part of how the numbers vary, a
right answer is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from attnctl.evidence.judge import root_mean_square, spread
from attnctl.evidence.rounding import FACTOR, Known, carry_rounding, exactly, typical
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, WEIGHTS
from attnctl.math.ops import Given
from attnctl.verbs.conform.call import Answer, read_output
from attnctl.verbs.conform.case import Problem
from attnctl.verbs.conform.conventions import AXES, TYPES
from attnctl.verbs.conform.layout import axes_in, axes_out, lay_out, read_back

RUNS, FEWER_RUNS, MANY = 12, 6, 4096
"""Runs of Monte Carlo arithmetic for each case, and where it has many numbers, which tell as much."""

ULPS = 2
"""Units in the last place of its type that any number may be off."""

HIDDEN = 0.3
"""The part of the numbers' spread that rounding may hide before a right answer is no evidence."""

NEGLIGIBLE = 1e-30
"""Below this, numbers are 0 in any type."""


@dataclass(frozen=True)
class Expected:
    """The steps of attention in one case, and the error allowed in the output."""

    problem: Problem
    steps: dict[str, Known]
    output: Array
    scatter: Array
    allowed: Array
    seen: Array
    """The rows (batch, head, query) that see a key."""

    @property
    def blurred(self) -> float:
        told = self.seen[..., None] & np.isfinite(self.scatter)
        numbers = self.output[np.broadcast_to(told, self.output.shape)]
        return FACTOR * root_mean_square(self.scatter[told[..., 0]]) / spread(numbers)


@dataclass(frozen=True)
class Judgement:
    """The error of an answer."""

    ratio: float
    """The worst difference, as a part of what is allowed; NaN and wrong shapes are ∞."""
    evidence: bool = True
    """A right answer of this case is evidence."""
    words: str = ""
    """The error in words, where the answer is wrong."""
    at: tuple[int, ...] | None = None
    extra: int | None = None
    """The place of an output behind the first that is wrong."""

    @property
    def right(self) -> bool:
        return self.ratio <= 1.0


def expect(problem: Problem) -> Expected:
    """Carry out the derivation in float64, and in the type with random rounding."""
    unit = TYPES[problem.case.dtype].unit
    steps: dict[str, Known] = {}
    for step in problem.derivation:
        if isinstance(step.op, Given):
            steps[step.name] = exactly(problem.arrays[step.name])
        else:
            steps[step.name] = carry_rounding(
                step.op, [steps[name] for name in step.inputs], unit, step.name
            )
    known = steps[HEAD_OUTPUTS]
    scatter = scatter_of(known)
    precision = TYPES[problem.case.dtype]
    size = np.where(np.isfinite(known.value), np.abs(known.value), 0.0)
    rows = np.abs(size).max(axis=-1, keepdims=True)
    allowed = FACTOR * scatter + ULPS * unit * np.maximum(size, rows * 2.0**-4) + precision.smallest
    seen: Array = np.asarray(steps[WEIGHTS].value.any(axis=-1))
    return Expected(problem, steps, known.value, scatter, allowed, seen)


def scatter_of(known: Known) -> Array:
    return known.scatter_in(RUNS if known.value.size < MANY else FEWER_RUNS)


def judge_answer(wanted: Expected, answer: Answer) -> Judgement:
    """Judge the first output of an answer."""
    if answer.error:
        named = answer.error not in {"not called", "hang", "crash", "exit"}
        words = f"{answer.error}: {answer.message}" if named else answer.message
        return Judgement(inf, words=words.rstrip(": "))
    found = answer.outputs[0] if answer.outputs else None
    if found is None:
        return Judgement(inf, words="it returns no array")
    given = read_output(wanted.problem, answer)
    if given is None:
        return Judgement(inf, words=describe_shape(wanted, found))
    if given.dtype.kind not in "fiu":
        return Judgement(inf, words=f"the output has the type {given.dtype}")
    return compare_output(wanted, given)


def describe_shape(wanted: Expected, found: Array) -> str:
    """Describe the shape of an output, and name the layout in which it would be right."""
    layout, heads = wanted.problem.conventions.layout, wanted.problem.case.heads
    want = list(lay_out(wanted.output, axes_out(layout)).shape)
    read = {axes: read_back(found, axes, heads) for axes in AXES}
    other = next(
        (axes for axes, out in read.items() if out is not None and out.shape == wanted.output.shape), None
    )
    hint = f"; if that is how it answers, say --layout {axes_in(layout)}:{other}" if other else ""
    return f"the output has the shape {list(found.shape)}, not {want}{hint}"


def compare_output(wanted: Expected, found: Array) -> Judgement:
    """Judge an output (batch, head, query, d_v)."""
    rows = np.broadcast_to(wanted.seen[..., None], found.shape)
    gap = np.where(rows, np.abs(found - wanted.output), 0.0)
    broken = rows & ~np.isfinite(found)
    if broken.any():
        at = tuple(int(i) for i in np.argwhere(broken)[0])
        return Judgement(inf, words=f"the output is {found[at]} at {list(at)}", at=at)
    ratios = np.where(rows & np.isfinite(wanted.allowed), gap / wanted.allowed, 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(ratios.argmax()), ratios.shape))
    worst = float(ratios[at])
    told = rows & (wanted.scatter > NEGLIGIBLE) & np.isfinite(wanted.scatter)
    slack = ULPS * TYPES[wanted.problem.case.dtype].unit * np.abs(wanted.output)
    together = root_mean_square(np.maximum(gap - slack, 0.0)[told] / wanted.scatter[told])
    ratio = max(worst, together / typical(int(wanted.seen.sum())))
    evidence = wanted.blurred < HIDDEN and bool(wanted.seen.any())
    if ratio <= 1:
        return Judgement(ratio, evidence, at=at)
    words = (
        f"the output is {found[at]:.6g} at {list(at)} and should be {wanted.output[at]:.6g} "
        f"(off by {gap[at]:.2g}, {wanted.allowed[at]:.2g} allowed)"
    )
    if worst <= 1:
        words = f"the outputs are off together by {ratio:.2g} times what rounding explains"
    return Judgement(ratio, evidence, words, at)
