"""Causes held to cases: the wrong ones that they are to explain, and those that are right.

A known mistake is a program. It explains a wrong case if with the same detail it gives the numbers that
came back there; if only another detail does, that is said. It contradicts a right case, of any feature, if
its numbers would be wrong there. A number that fits one wrong case of several, or what explains some and
contradicts a right one, fits by chance, and is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import Known, exactly
from attnctl.evidence.walk import Walk
from attnctl.inputs.plan import DumpPlan
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, WEIGHTS
from attnctl.math.ops import Given
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep
from attnctl.record import Trace
from attnctl.verbs.check.diagnosis import spoken
from attnctl.verbs.conform.case import GRADIENTS, Case
from attnctl.verbs.conform.judge import JUDGED, compare_output, expect
from attnctl.verbs.conform.layout import read_output
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import TYPES
from attnctl.verbs.conform.report import Failure
from attnctl.verbs.conform.suite import CaseResult, Suite

UNITS = 16
"""Units of the largest number of its row up to which a number is taken for right without a closer look."""

NEAR = 0.25
"""The part of the differences that a program may leave, to be looked at more closely."""

MOST_MISSED = 2
"""Cases that a mistake does not explain with any detail, after which it is only tried with those known."""

MOST_TRIED = 8
"""Details of several cases that are tried in all."""

MOST_CALLED = 2
"""Cases in which a cause is looked for that takes calls."""

MOST_NUMBERS = 40_000
"""Weights of a case in which every known mistake is tried: more would take seconds."""

ENOUGH_TOKENS = 4
"""Queries and keys of a case that is looked at first."""


@dataclass(frozen=True)
class Cause:
    mistake: str
    say: Callable[[str], str]
    """The sentence, by the detail that is other from case to case."""
    explains: Callable[[CaseResult], str | None]
    """The detail by which it explains a case, perhaps empty; None where it does not."""
    contradicts: Callable[[Case, Collection[str]], bool] = lambda *_: False
    """Whether a case that is right should not be, with any of these details."""
    costly: bool = False
    """Whether it takes calls, so that it is looked for until it is found once."""
    observed: bool = False
    """Whether the sentence says what is seen in the case shown, and nothing of others."""
    explains_with: Callable[[CaseResult, str], bool] | None = None
    """Whether it explains a case with this detail."""
    certain: bool = True
    """Whether it gives certain numbers; else, looked for in one case, it may not be what is wrong."""


@dataclass(frozen=True)
class Diagnosed:
    """What is true of failing cases, and the cause, if there is one, with the cases that it explains."""

    failure: Failure
    cause: Cause | None = None
    explained: tuple[tuple[CaseResult, str], ...] = ()

    @property
    def shown(self) -> CaseResult | None:
        return self.explained[0][0] if self.explained else None

    @property
    def explains_all(self) -> bool:
        return self.is_certain and self.failure.explained == self.failure.failing

    @property
    def is_certain(self) -> bool:
        return self.cause is not None and (self.cause.certain or not self.failure.alone)

    @property
    def fits_by_chance(self) -> bool:
        """Whether it gives the numbers of some cases alone, and is not what is wrong there, either."""
        said = self.failure
        if self.cause is None or self.cause.observed or said.explained == said.failing:
            return False
        number = said.explained == 1 and any(map(str.isdigit, said.details[0]))
        few = not self.cause.certain and 2 * said.explained <= said.failing
        return number or few or said.spared is not None

    @property
    def rank(self) -> tuple[bool, bool, bool, float, bool]:
        """By whether there is a cause, how much it explains, and whether a right case speaks against it."""
        explained = self.failure.explained / self.failure.failing
        no_chance = not self.fits_by_chance
        return self.cause is not None, no_chance, self.is_certain, explained, self.failure.spared is None

    def explains(self, result: CaseResult) -> bool:
        """Whether its cause may be that of another case, too: where that takes calls, it is not asked."""
        return self.cause is None or self.cause.costly or self.say(result) is not None

    @np.errstate(all="ignore")
    def say(self, result: CaseResult) -> Failure | None:
        """What is said of one case, alone; None where its cause is not that of this case."""
        if self.cause is None:
            return Failure(self.failure.mistake, self.failure.sentence)
        detail = self.cause.explains(result)
        return None if detail is None else Failure(self.failure.mistake, self.cause.say(detail))

    def with_detail(self, detail: str) -> Diagnosed:
        assert self.cause is not None  # it has details
        failure = replace(self.failure, sentence=self.cause.say(detail), details=(detail.strip(","),))
        explained = tuple((result, detail) for result, _ in self.explained)
        return replace(self, failure=failure, explained=explained)


NOTHING = Diagnosed(Failure())


@np.errstate(all="ignore")  # what overflows in a wrong program is not what came back
def hold(cause: Cause, wrong: Sequence[CaseResult], right: Sequence[Case]) -> Diagnosed | None:
    """What is true of a cause in these cases; None where it explains none."""
    explained: list[tuple[CaseResult, str]] = []
    for result in sorted(wrong, key=simplicity)[:MOST_CALLED] if cause.costly else wrong:
        if (detail := cause.explains(result)) is not None:
            explained.append((result, detail))
            if cause.costly:
                break
    if not explained:
        return None
    said = tuple(dict.fromkeys(detail.strip(",") for _, detail in explained))
    failure = Failure(cause.mistake, cause.say(explained[0][1]), details=said, alone=len(wrong) > 1)
    if not cause.costly:
        failure = replace(failure, explained=len(explained), failing=len(wrong), alone=False)
    if cause.observed:
        failure = replace(failure, details=said[:1], alone=len(said) > 1)
    return spare(unite([Diagnosed(failure, cause, tuple(explained))])[0], right)


@np.errstate(all="ignore")
def spare(found: Diagnosed, right: Iterable[Case]) -> Diagnosed:
    """The same, with the first right case that speaks against it."""
    assert found.cause is not None  # which is held
    said = {detail for _, detail in found.explained}
    spared = next((case for case in right if found.cause.contradicts(case, said)), None)
    return replace(found, failure=replace(found.failure, spared=spared))


def choose(
    causes: Iterable[Cause], wrong: Sequence[CaseResult], right: Sequence[Case], best: Diagnosed = NOTHING
) -> Diagnosed:
    """The first of these causes that explains all, or the one that explains most."""
    for cause in causes:
        held = hold(cause, wrong, right)
        best = held if held and held.rank > best.rank else best
        if best.explains_all and best.failure.spared is None:
            break
    return best


def observe(mistake: str, see: Callable[[CaseResult], str]) -> Cause:
    """A cause that is seen in each case by itself: what is seen there, or nothing."""
    return Cause(mistake, str, lambda other: see(other) or None, observed=True)


def simplicity(result: CaseResult) -> tuple[bool, bool, bool, int]:
    """Order cases: drawn numbers first, few of them, but enough that nothing fits by chance."""
    case, few = result.case, min(result.case.queries, result.case.keys) < ENOUGH_TOKENS
    return is_large(case), case.fill != "random", few, case.weights


def is_large(case: Case) -> bool:
    return case.weights > MOST_NUMBERS


@np.errstate(all="ignore")
def unite(several: Sequence[Diagnosed]) -> list[Diagnosed]:
    """Findings of one cause with one detail, where that of one case explains all others, too."""
    explained = [result for found in several for result in found.explained]
    details = list(dict.fromkeys(own for _, own in explained))
    cause = several[0].cause
    if cause is None or cause.explains_with is None or len(details) == 1:
        return [*several]
    for detail in details[:MOST_TRIED]:
        if all(detail == own or cause.explains_with(result, detail) for result, own in explained):
            return [found.with_detail(detail) for found in several]
    return [*several]


# --- programs that make known mistakes ---


@dataclass
class Programs:
    suite: Suite
    step: str
    """Where the mistake shows: the output, heads side by side, or the weights."""
    mistake: Mistake
    known: list[Plant] = field(default_factory=list)
    """How it was planted in cases that it explains."""
    missed: int = 0

    def explains(self, result: CaseResult) -> str | None:
        """The detail with which it explains a case: one that is known, or else one that fits."""
        beside = self.begin(result)
        if beside is None:
            return None
        for at, made in enumerate(self.known):
            if (found := beside.find(self.mistake, made)) is not None:
                self.known[at] = found
                return found.detail
        if self.missed == MOST_MISSED:
            return None
        if (found := beside.find(self.mistake)) is not None:
            self.known.append(found)
            return found.detail
        self.missed += 1
        return None

    def explains_with(self, result: CaseResult, detail: str) -> bool:
        beside = self.begin(result)
        same = [made for made in self.known if made.detail == detail]
        return beside is not None and any(beside.find(self.mistake, made) is not None for made in same)

    def contradicts(self, case: Case, said: Collection[str]) -> bool:
        beside = HeldCase.begin(self.suite.problem(case), None, self.step)
        known = [made for made in self.known if made.detail in said]
        programs = [program for made in known for program in beside.programs(self.mistake, made)]
        return bool(programs) and not any(beside.gives(plant.case.derivation, it) for plant, it in programs)

    def begin(self, result: CaseResult) -> HeldCase | None:
        if result.answer.error or result.judgement.extra is not None:
            return None
        problem = self.suite.problem(result.case)
        found = self.suite.outputs_in(result)
        if found and self.step == WEIGHTS:
            weights = read_weights(self.suite, result.case)
            found = {} if weights is None else {WEIGHTS: weights, **found}
        if not found:
            return None
        settled = [name for name, ratio in result.judgement.ratios.items() if ratio <= 1]
        if problem.has_many_scores:
            problem = problem.last_queries(JUDGED)
            found = {name: array[..., -JUDGED:, :] for name, array in found.items()}
        return HeldCase.begin(problem, found, self.step, settled)

    def say(self, detail: str) -> str:
        return ": ".join(spoken(self.mistake, detail))


def read_weights(suite: Suite, case: Case) -> Array | None:
    """Read the weights of a target off its output for unit vectors as values, if it takes that many."""
    problem = suite.problem(replace(case, memory="plain", d_v=case.keys))
    size = problem.arrays["V"].shape
    problem.arrays["V"] = np.broadcast_to(np.eye(*size[2:]), size)
    given = read_output(problem, suite.call(problem))
    if given is None or given.shape[-1] < case.keys:  # a kernel may have head sizes of its own
        return None
    return given[..., : case.keys]


def plant_cause(suite: Suite, mistake: Mistake, step: str = HEAD_OUTPUTS) -> Cause:
    made = Programs(suite, step, mistake)
    return Cause(mistake.name, made.say, made.explains, made.contradicts, explains_with=made.explains_with)


Values = Mapping[str, Array]


def compute_steps(derivation: Derivation, had: Values, known: Mapping[str, Step] | None = None) -> Values:
    """Carry it out in float64 from its inputs, or from the values that steps which are known had."""
    known = known or {}
    values: dict[str, Array] = {}
    for step in derivation:
        same = known.get(step.name) is step and all(values[name] is had[name] for name in step.inputs)
        if isinstance(step.op, Given) or same:
            values[step.name] = had[step.name]
        else:
            values[step.name] = step.op.apply(*(values[name] for name in step.inputs))
    return values


@dataclass(frozen=True)
class HeldCase:
    """A case that programs are held to: what is right in it, and what came back."""

    problem: Problem
    derivation: Derivation
    right: Values
    found: Values
    settled: frozenset[str] = frozenset()
    """The outputs that are right."""

    @classmethod
    def begin(
        cls,
        problem: Problem,
        found: Values | None = None,
        name: str = HEAD_OUTPUTS,
        settled: Iterable[str] = (),
    ) -> HeldCase:
        """With nothing found, it is what is right."""
        derivation = problem.plan.derivation
        right = compute_steps(derivation, problem.given)
        beside = {output: right[output] for output in problem.outputs} if found is None else found
        if name == CONCAT and HEAD_OUTPUTS in beside:
            heads = beside[HEAD_OUTPUTS].swapaxes(1, 2)
            beside = {CONCAT: heads.reshape(*heads.shape[:2], -1)}
        return cls(problem, derivation, right, beside, frozenset(beside if found is None else settled))

    def find(self, mistake: Mistake, like: Plant | None = None) -> Plant | None:
        programs = self.programs(mistake, like)
        return next((plant for plant, made in programs if self.gives(plant.case.derivation, made)), None)

    def programs(self, mistake: Mistake, like: Plant | None) -> Iterator[tuple[Plant, Values]]:
        """The programs that make a mistake: as it may fit, or like it was planted in another case."""
        for plant in mistake.at(self.step(like)):
            try:
                made = compute_steps(plant.case.derivation, self.right, self.derivation.by_name)
            except (AttnError, ValueError, IndexError, TypeError, KeyError):  # what only the right op takes
                continue
            yield plant, made

    def step(self, like: Plant | None) -> WrongStep:
        """The first output that is wrong, or the last, for mistakes to be planted at."""
        case, derivation, right = self.problem.case, self.derivation, self.right
        first = next((name for name in self.found if name not in self.settled), list(self.found)[-1])
        given = {name: right[name] for name in derivation.given}
        steps = {name: derivation[name] for name in (*given, *self.found)}
        plan = DumpPlan(derivation, {**case.sizes, "new": case.keys - case.past})
        record = Record(Trace(steps, {**given, **self.found}, {}), plan)
        known: dict[str, Known | None] = {name: exactly(value) for name, value in right.items()}
        found, expected = self.found[first], exactly(right[first])
        least = UNITS * TYPES[case.dtype].unit * np.abs(expected.value).max(initial=0.0)
        differs = np.abs(found - expected.value) > least
        walk = Walk(record, derivation, {}, known)
        return WrongStep(derivation, record, first, found, expected, differs, walk, like=like)

    def off_by(self, name: str, made: Values) -> float:
        """The largest difference from what was found, as a part of what is taken for right."""
        found, value = self.found[name], made.get(name)
        if value is None or value.shape != found.shape:
            return np.inf
        precision = TYPES[self.problem.case.dtype]
        row = np.abs(found).max(axis=-1, keepdims=True, initial=0.0)
        spoilt = ~np.isfinite(found) & ~(np.abs(value) <= precision.largest)
        same = (found == value) | spoilt | ~self.told(name, made)
        least = UNITS * precision.unit * row + precision.smallest
        off = np.where(same, 0.0, np.abs(found - value) / least)
        return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))

    def told(self, name: str, made: Values) -> Array:
        """Which rows of an output are judged: of what is no gradient those of queries that see a key.

        A program that hides every key of one may have NaN there, which softmax makes of −∞ alone.
        """
        if name in GRADIENTS:
            return np.array(True)
        seen: Array = np.asarray(self.right[WEIGHTS].any(axis=-1))
        seen = np.asarray(seen.all(axis=1) if name == CONCAT else seen)
        scores = made.get(MASKED)
        lost = ~np.isfinite(self.found[name]).any(axis=-1)
        if name == HEAD_OUTPUTS and scores is not None and scores.shape[:-1] == lost.shape == seen.shape:
            seen = seen & ~(lost & np.isneginf(scores).all(axis=-1))
        return seen[..., None]

    def gives(self, derivation: Derivation, made: Values) -> bool:
        """Whether a program gives what was found, and changes something of what is wrong in it."""
        wrong = [name for name in self.found if name not in self.settled]
        if wrong and all(made.get(name) is self.right[name] for name in wrong):
            return False
        if not all(self.is_near(name, made) for name in wrong):
            return False
        far = [name for name in self.found if self.off_by(name, made) > 1]
        wanted = expect(replace(self.problem, outputs=tuple(far)), derivation).outputs
        for name in far:
            rows = np.broadcast_to(self.told(name, made), self.found[name].shape)[..., 0]
            if not compare_output(replace(wanted[name], rows=rows), self.found[name]).right:
                return False
        return True

    def is_near(self, name: str, made: Values) -> bool:
        """Whether a program leaves little of what is wrong of an output, or nothing was to be changed."""
        found, right, value = self.found[name], self.right[name], made.get(name)
        if value is right:
            return True
        if value is None or value.shape != found.shape:
            return False
        told = np.broadcast_to(self.told(name, made), found.shape) & np.isfinite(found)
        left, gap = (np.square(np.where(told, array - found, 0.0)).sum() for array in (value, right))
        return bool(left <= NEAR**2 * gap)
