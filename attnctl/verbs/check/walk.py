"""The walk: every recorded step beside what its recorded inputs make of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from attnctl.array import Array
from attnctl.derivation import Derivation, Step
from attnctl.errors import AttnError
from attnctl.ops import Given, Softmax, Unstated
from attnctl.verbs.check.record import Record, with_shapes
from attnctl.verbs.check.rounding import FACTOR, LARGE, Known, anything, carried, either, free, typical

Index = tuple[int, ...]

CLOSE, FAR = 0.2, 100.0
"""How many times its scatter a step is off when a few runs are enough to say that it is right, or wrong."""

SAME = 1e-12
"""Numbers that vary by less than this part of the largest are all the same."""


class Verdict(str, Enum):
    """What can be said of a step."""

    AGREES = "agrees"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"
    GIVEN = "given"
    EDITED = "edited"
    NOT_RECORDED = "not recorded"
    NOT_FILLED = "not filled in"
    NOT_CHECKABLE = "not checkable"


@dataclass(frozen=True)
class Gap:
    """How far a recorded step is from what it should be: its largest difference, and where that is."""

    largest: float
    allowed: float
    """What that number may be off by."""
    at: Index
    found: float
    expected: float
    differing: int
    nan: int
    """How many of those that differ are NaN and should not be."""
    of: int
    filled: int
    """How many are filled in at all."""


@dataclass(frozen=True)
class Checked:
    """One step, and what was found."""

    name: str
    verdict: Verdict
    gap: Gap | None = None
    blurred: float = 0.0
    """What all numbers may be off by, as a part of how far they vary."""


@dataclass(frozen=True)
class Walk:
    """Every step of a derivation, checked; and the values of those that are not recorded."""

    derivation: Derivation
    steps: dict[str, Checked]
    values: dict[str, Known | None]

    @property
    def wrong(self) -> list[str]:
        """The steps that disagree, in order."""
        return [name for name, step in self.steps.items() if step.verdict is Verdict.WRONG]

    def gap(self, name: str) -> Gap:
        """How far off a step is that was compared."""
        gap = self.steps[name].gap
        assert gap is not None
        return gap


@dataclass(frozen=True)
class Walker:
    """Walks derivations over one record.

    A row of attention weights that sees nothing where it is not meant to (a mistake in the mask
    hid all its keys) may hold anything: programs differ in what they make of it. With `lenient`
    that goes for the rows that are meant to see nothing too.
    """

    record: Record
    lenient: bool = False

    def walk(self, derivation: Derivation, before: Walk | None = None, until: str | None = None) -> Walk:
        """Check every step (or those up to one), reusing what another walk found where nothing changed."""
        steps: dict[str, Checked] = {}
        values: dict[str, Known | None] = {}
        changed: set[str] = set()
        old = {} if before is None else {step.name: step for step in before.derivation}
        for step in derivation:
            if before is not None and old.get(step.name) is step and changed.isdisjoint(step.inputs):
                steps[step.name], values[step.name] = before.steps[step.name], before.values[step.name]
            else:
                steps[step.name], values[step.name] = self.step(step, values)
                if step.name not in self.record or step.name in self.record.blanks:
                    changed.add(step.name)
            if step.name == until:
                break
        return Walk(derivation, steps, values)

    def step(self, step: Step, values: dict[str, Known | None]) -> tuple[Checked, Known | None]:
        """What is to be said of one step; and its value, where the record does not hold it."""
        record, name = self.record, step.name
        if isinstance(step.op, Given):
            return Checked(name, Verdict.GIVEN if name in record else Verdict.NOT_RECORDED), None
        if name in record.edited:
            return Checked(name, Verdict.EDITED), None
        expected = self.expected(step, values)
        if name not in record:
            return Checked(name, Verdict.NOT_RECORDED), expected
        if expected is None:
            return Checked(name, Verdict.NOT_CHECKABLE), None
        with_shapes(name, record.trace[name], expected.value)
        blank = record.blanks.get(name)
        if blank is None:
            return checked(record, name, expected), None
        if blank.all():
            return Checked(name, Verdict.NOT_FILLED), expected
        filled = either(blank, expected, record.known(name))
        return checked(record, name, expected, blank), filled

    def expected(self, step: Step, values: dict[str, Known | None]) -> Known | None:
        """What the step's inputs make of it; None where they do not tell."""
        if isinstance(step.op, Unstated):
            return None
        inputs = [self.input(name, values) for name in step.inputs]
        found = [each for each in inputs if each is not None]
        if len(found) < len(inputs):
            return None
        try:
            unit, factors = self.record.precision(step.name).unit, self.record.factors_of(step.name)
            value = carried(step.op, found, unit, step.name, factors)
        except (
            ValueError,
            IndexError,
            TypeError,
            ArithmeticError,
        ):  # a step that was not written by attnctl
            shapes = ", ".join(
                f"{name} {' × '.join(map(str, each.value.shape))}"
                for name, each in zip(step.inputs, found, strict=True)
            )
            raise AttnError(f"{step.name}: its inputs do not go together ({shapes})") from None
        recorded = (known for name, known in zip(step.inputs, found, strict=True) if name in self.record)
        if any(np.isnan(known.value).any() for known in recorded):  # what follows from NaN, nobody can say
            value = anything(value, np.isnan(value.value))
        return self.excused(value, found[0].value) if isinstance(step.op, Softmax) else value

    def input(self, name: str, values: dict[str, Known | None]) -> Known | None:
        """The value of a step that stands above: recorded, or recomputed."""
        if name in self.record and name not in self.record.blanks:
            return self.record.known(name)
        return values.get(name)

    def excused(self, weights: Known, scores: Array) -> Known:
        """The weights, free to be anything in rows that see nothing and are not meant to."""
        nothing = np.asarray(np.isneginf(scores).all(axis=-1, keepdims=True))
        if nothing.any() and not self.lenient:
            nothing = np.logical_and(nothing, ~self.record.unseen(scores))
        if not nothing.any():
            return weights
        return anything(weights, nothing)


@dataclass(frozen=True)
class Judged:
    """Found and expected numbers side by side, each with what it may be off by."""

    gap: Array
    """|found − expected|."""
    allowed: Array
    wrong: Array
    """Which numbers rounding does not explain."""
    blurred: float
    """What all numbers may be off by, as a part of how far they vary."""
    beyond: float
    """How many times their scatter all numbers are off, as a root mean square."""


def judged(record: Record, name: str, expected: Known) -> Judged:
    """A recorded step beside what it should be, number by number."""
    roughly = judged_by(record, name, expected, expected.rough_scatter)
    certain = roughly.beyond > FAR or (roughly.beyond < CLOSE and not roughly.wrong.any())
    if certain or expected.value.size < LARGE:
        return roughly
    return judged_by(record, name, expected, expected.scatter)


def judged_by(record: Record, name: str, expected: Known, scatter: Array) -> Judged:
    """The same, where right programs scatter so."""
    found, value = record.value(name), expected.value
    precision, asked = record.precision(name), record.strictness
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    error, slack = expected.error_by(scatter), precision.smallest + asked.last_place
    allowed = asked.allowed(value, error + precision.unit * size + slack)
    gap = np.abs(found - value)
    told = np.isfinite(gap) & np.isfinite(scatter) & (scatter > 0)
    most = typical(value[..., 0].size)
    beyond = np.maximum(gap - slack, 0.0)[told] / scatter[told]
    if not asked.told and root_mean_square(beyond[beyond <= FACTOR]) > most:  # one wrong number is but one
        allowed = np.where(told, np.minimum(allowed, most * scatter + slack), allowed)
    fine = (gap <= allowed) | (found == value) | free(error)
    fine |= np.isnan(value) & np.isnan(found)
    gap = np.where(fine & ~np.isfinite(gap), 0.0, gap)
    if np.isneginf(value).any():
        fine |= np.isneginf(value) & vanishes(found, np.isneginf(value), precision.vanishing)
        gap = np.where(fine & ~np.isfinite(gap), 0.0, gap)
    blur = most * root_mean_square(scatter[told]) + asked.last_place
    blurred = 0.0 if asked.told else blur / spread(value, told)
    return Judged(gap, allowed, ~fine, blurred, root_mean_square(beyond))


def root_mean_square(x: Array) -> float:
    """Of all numbers; 0 of none."""
    return float(np.sqrt(np.square(x).mean())) if x.size else 0.0


def spread(value: Array, told: Array) -> float:
    """How far the numbers of a step vary; where they are all the same, their size."""
    numbers = value[told]
    largest = float(np.abs(numbers).max(initial=0.0))
    varied = float(numbers.std()) if numbers.size else 0.0
    return varied if varied > SAME * largest else largest or np.inf


def differing(record: Record, name: str, expected: Known) -> tuple[Array, Array]:
    """|found − expected| for each number, and which of them rounding does not explain."""
    judgement = judged(record, name, expected)
    return judgement.gap, judgement.wrong


def vanishes(found: Array, hidden: Array, limit: float) -> Array:
    """Where a finite number stands for −∞ and softmax makes 0 of it all the same."""
    top = np.where(hidden, -np.inf, found).max(axis=-1, keepdims=True)
    return found - top < limit


def checked(record: Record, name: str, expected: Known, blank: Array | None = None) -> Checked:
    """The verdict on a recorded step; cells still blank are left out."""
    judgement = judged(record, name, expected)
    gap = gap_of(judgement, record.value(name), expected.value, blank)
    if gap.differing:
        return Checked(name, Verdict.WRONG, gap)
    told = judgement.blurred <= record.strictness.blur
    return Checked(name, Verdict.AGREES if told else Verdict.CANNOT_TELL, gap, judgement.blurred)


def gap_of(judgement: Judged, found: Array, expected: Array, blank: Array | None) -> Gap:
    """The largest difference of a step, and how many there are."""
    gap, wrong = judgement.gap, judgement.wrong
    if blank is not None:
        wrong, gap = wrong & ~blank, np.where(blank, 0.0, gap)
    count = int(wrong.sum())
    among = np.where(wrong, gap, -1.0) if count else gap
    nan = np.isnan(among)
    ranked = np.where(nan, -0.5 if count else -1.0, among)  # a NaN is shown where there is nothing else
    at = tuple(int(i) for i in np.unravel_index(int(ranked.argmax()), ranked.shape))
    return Gap(
        float(gap[at]) if count or not nan[at] else 0.0,
        float(judgement.allowed[at]),
        at,
        float(found[at]),
        float(expected[at]),
        count,
        int((wrong & nan).sum()),
        gap.size,
        gap.size if blank is None else int((~blank).sum()),
    )


def nothing_checked(steps: Iterable[Checked]) -> bool:
    """Whether no step could be compared with anything."""
    return not any(step.verdict in {Verdict.AGREES, Verdict.WRONG, Verdict.CANNOT_TELL} for step in steps)
