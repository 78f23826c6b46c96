"""Causes held to cases: the wrong ones that they are to explain, and those that are right.

A known mistake is a program. It explains a wrong case if with the same detail it gives the numbers that
came back there; if only another detail does, that is said. It contradicts a right case, of any feature, if
its numbers would be wrong there. A number that fits one wrong case of several, or what explains some and
contradicts a right one, fits by chance, and is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

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
from attnctl.verbs.conform.report import Failure
from attnctl.verbs.conform.stored import precision_in
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


class Rank(NamedTuple):
    """How well a cause explains cases, what matters most first."""

    has_cause: bool
    is_no_chance: bool
    is_certain: bool
    explained: float
    """The part of the failing cases."""
    is_uncontradicted: bool
    """No right case speaks against it."""


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
        failure = self.failure
        if self.cause is None or self.cause.observed or failure.explained == failure.failing:
            return False
        if failure.spared is not None:
            return True

        # One number more to choose fits one case of several easily.
        is_number = any(map(str.isdigit, failure.details[0]))
        explains_few = 2 * failure.explained <= failure.failing
        return (failure.explained == 1 and is_number) or (explains_few and not self.cause.certain)

    @property
    def rank(self) -> Rank:
        return Rank(
            has_cause=self.cause is not None,
            is_no_chance=not self.fits_by_chance,
            is_certain=self.is_certain,
            explained=self.failure.explained / self.failure.failing,
            is_uncontradicted=self.failure.spared is None,
        )

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
    explained = explain_each(cause, wrong)
    if not explained:
        return None

    details = tuple(dict.fromkeys(detail.strip(",") for _, detail in explained))
    sentence = cause.say(explained[0][1])
    if cause.costly:
        # It was looked for in one case, so nothing is said of how many it explains.
        failure = Failure(cause.mistake, sentence, details=details, alone=len(wrong) > 1)
    else:
        failure = Failure(
            cause.mistake, sentence, details=details, explained=len(explained), failing=len(wrong)
        )
    if cause.observed:
        failure = replace(failure, details=details[:1], alone=len(details) > 1)

    diagnosed = Diagnosed(failure, cause, tuple(explained))
    return spare(unite([diagnosed])[0], right)


def explain_each(cause: Cause, wrong: Sequence[CaseResult]) -> list[tuple[CaseResult, str]]:
    """The cases that a cause explains, each with its detail; one case alone where that takes calls."""
    if not cause.costly:
        details = [(result, cause.explains(result)) for result in wrong]
        return [(result, detail) for result, detail in details if detail is not None]

    for result in sorted(wrong, key=simplicity)[:MOST_CALLED]:
        detail = cause.explains(result)
        if detail is not None:
            return [(result, detail)]
    return []


@np.errstate(all="ignore")
def spare(diagnosed: Diagnosed, right: Iterable[Case]) -> Diagnosed:
    """The same, with the first right case that speaks against it."""
    assert diagnosed.cause is not None  # which is held
    details = {detail for _, detail in diagnosed.explained}
    spared = next((case for case in right if diagnosed.cause.contradicts(case, details)), None)
    return replace(diagnosed, failure=replace(diagnosed.failure, spared=spared))


def choose(
    causes: Iterable[Cause], wrong: Sequence[CaseResult], right: Sequence[Case], best: Diagnosed = NOTHING
) -> Diagnosed:
    """The first of these causes that explains all, or the one that explains most."""
    for cause in causes:
        held = hold(cause, wrong, right)
        if held and held.rank > best.rank:
            best = held
        if best.explains_all and best.failure.spared is None:
            break
    return best


def observe(mistake: str, see: Callable[[CaseResult], str]) -> Cause:
    """A cause that is seen in each case by itself: what is seen there, or nothing."""
    return Cause(mistake, str, lambda other: see(other) or None, observed=True)


def simplicity(result: CaseResult) -> tuple[bool, bool, bool, int]:
    """Order cases: drawn numbers first, few of them, but enough that nothing fits by chance."""
    case = result.case
    has_few_tokens = min(case.queries, case.keys) < ENOUGH_TOKENS
    return is_large(case), case.fill != "random", has_few_tokens, case.weights


def is_large(case: Case) -> bool:
    return case.weights > MOST_NUMBERS


@np.errstate(all="ignore")
def unite(several: Sequence[Diagnosed]) -> list[Diagnosed]:
    """Findings of one cause with one detail, where that of one case explains all others, too."""
    explained = [pair for diagnosed in several for pair in diagnosed.explained]
    details = list(dict.fromkeys(detail for _, detail in explained))
    cause = several[0].cause
    if cause is None or cause.explains_with is None or len(details) == 1:
        return [*several]

    for detail in details[:MOST_TRIED]:
        if all(detail == own or cause.explains_with(result, detail) for result, own in explained):
            return [diagnosed.with_detail(detail) for diagnosed in several]
    return [*several]


# --- programs that make known mistakes ---


@dataclass
class Programs:
    """A known mistake, made in the programs of cases."""

    suite: Suite
    step: str
    """Where the mistake shows: the output, heads side by side, or the weights."""
    mistake: Mistake
    known: list[Plant] = field(default_factory=list)
    """How it was planted in cases that it explains."""
    missed: int = 0

    def explains(self, result: CaseResult) -> str | None:
        """The detail with which it explains a case: one that is known, or else one that fits."""
        held_case = self.begin(result)
        if held_case is None:
            return None

        for number, known in enumerate(self.known):
            plant = held_case.find(self.mistake, known)
            if plant is not None:
                self.known[number] = plant
                return plant.detail

        # To look for new details takes most of the time.
        if self.missed == MOST_MISSED:
            return None
        plant = held_case.find(self.mistake)
        if plant is None:
            self.missed += 1
            return None
        self.known.append(plant)
        return plant.detail

    def explains_with(self, result: CaseResult, detail: str) -> bool:
        held_case = self.begin(result)
        if held_case is None:
            return False
        plants = [plant for plant in self.known if plant.detail == detail]
        return any(held_case.find(self.mistake, plant) is not None for plant in plants)

    def contradicts(self, case: Case, details: Collection[str]) -> bool:
        """Whether no program with one of these details gives what is right in a case."""
        held_case = HeldCase.begin(self.suite.problem(case), None, self.step)
        programs: list[CarriedOut] = []
        for known in self.known:
            if known.detail in details:
                programs += (program for _, program in held_case.programs(self.mistake, known))
        return bool(programs) and not any(held_case.gives(program) for program in programs)

    def begin(self, result: CaseResult) -> HeldCase | None:
        """The case as programs are held to it; None where nothing came back that they could give."""
        if result.answer.error or result.judgement.extra is not None:
            return None

        problem = self.suite.problem(result.case)
        outputs = self.suite.outputs_in(result)
        if outputs and self.step == WEIGHTS:
            weights = read_weights(self.suite, result.case)
            # The weights come first: the mistake is planted at the first output that is wrong.
            outputs = {} if weights is None else {WEIGHTS: weights, **outputs}
        if not outputs:
            return None

        settled = [name for name, ratio in result.judgement.ratios.items() if ratio <= 1]
        if problem.has_many_scores:
            problem = problem.last_queries(JUDGED)
            outputs = {name: array[..., -JUDGED:, :] for name, array in outputs.items()}
        return HeldCase.begin(problem, outputs, self.step, settled)

    def say(self, detail: str) -> str:
        return ": ".join(spoken(self.mistake, detail))


def read_weights(suite: Suite, case: Case) -> Array | None:
    """Read the weights of a target off its output for unit vectors as values, if it takes that many."""
    problem = suite.problem(replace(case, memory="plain", d_v=case.keys))
    shape = problem.arrays["V"].shape
    problem.arrays["V"] = np.broadcast_to(np.eye(*shape[2:]), shape)
    output = read_output(problem, suite.call(problem))
    if output is None or output.shape[-1] < case.keys:  # a kernel may have head sizes of its own
        return None
    return output[..., : case.keys]


def plant_cause(suite: Suite, mistake: Mistake, step: str = HEAD_OUTPUTS) -> Cause:
    programs = Programs(suite, step, mistake)
    return Cause(
        mistake.name,
        programs.say,
        programs.explains,
        contradicts=programs.contradicts,
        explains_with=programs.explains_with,
    )


Values = Mapping[str, Array]


class CarriedOut(NamedTuple):
    """A program of known lines, and the values that they have in a case."""

    derivation: Derivation
    values: Values


def compute_steps(
    derivation: Derivation, before: Values, known: Mapping[str, Step] | None = None
) -> Values:
    """Carry it out in float64 from its inputs, or from the values that known steps had before."""
    known = known or {}
    values: dict[str, Array] = {}
    for step in derivation:
        # Only what is known has values from before, so the line is asked for first.
        is_same = known.get(step.name) is step and all(values[name] is before[name] for name in step.inputs)
        if isinstance(step.op, Given) or is_same:
            values[step.name] = before[step.name]
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
        outputs = {output: right[output] for output in problem.outputs} if found is None else found

        if name == CONCAT and HEAD_OUTPUTS in outputs:
            token_by_token = outputs[HEAD_OUTPUTS].swapaxes(1, 2)
            outputs = {CONCAT: token_by_token.reshape(*token_by_token.shape[:2], -1)}

        settled_outputs = outputs if found is None else settled
        return cls(problem, derivation, right, found=outputs, settled=frozenset(settled_outputs))

    @property
    def wrong(self) -> list[str]:
        """The outputs that are wrong."""
        return [name for name in self.found if name not in self.settled]

    def find(self, mistake: Mistake, like: Plant | None = None) -> Plant | None:
        for plant, program in self.programs(mistake, like):
            if self.gives(program):
                return plant
        return None

    def programs(self, mistake: Mistake, like: Plant | None) -> Iterator[tuple[Plant, CarriedOut]]:
        """The programs that make a mistake: as it may fit, or like it was planted in another case."""
        for plant in mistake.at(self.step(like)):
            try:
                values = compute_steps(plant.case.derivation, self.right, self.derivation.by_name)
            except (AttnError, ValueError, IndexError, TypeError, KeyError):  # what only the right op takes
                continue
            yield plant, CarriedOut(plant.case.derivation, values)

    def step(self, like: Plant | None) -> WrongStep:
        """The first output that is wrong, or the last, for mistakes to be planted at."""
        case = self.problem.case
        name = self.wrong[0] if self.wrong else list(self.found)[-1]
        found = self.found[name]
        expected = exactly(self.right[name])

        given = {given: self.right[given] for given in self.derivation.given}
        steps = {step: self.derivation[step] for step in (*given, *self.found)}
        plan = DumpPlan(self.derivation, {**case.sizes, "new": case.keys - case.past})
        record = Record(Trace(steps, {**given, **self.found}, {}), plan)
        known: dict[str, Known | None] = {step: exactly(value) for step, value in self.right.items()}

        least = UNITS * precision_in(case.dtype).unit * np.abs(expected.value).max(initial=0.0)
        return WrongStep(
            self.derivation,
            record,
            name,
            found=found,
            expected=expected,
            differs=np.abs(found - expected.value) > least,
            walk=Walk(record, self.derivation, {}, known),
            like=like,
        )

    def off_by(self, name: str, values: Values) -> float:
        """The largest difference from what was found, as a part of what is taken for right."""
        found = self.found[name]
        value = values.get(name)
        if value is None or value.shape != found.shape:
            return np.inf

        precision = precision_in(self.problem.case.dtype)
        # Where a number is beyond the type, what came back is ∞, or NaN that was made of it.
        overflows = ~np.isfinite(found) & ~(np.abs(value) <= precision.largest)
        is_same = (found == value) | overflows | ~self.told(name, values)

        of_row = np.abs(found).max(axis=-1, keepdims=True, initial=0.0)
        least = UNITS * precision.unit * of_row + precision.smallest
        off = np.where(is_same, 0.0, np.abs(found - value) / least)
        return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))

    def told(self, name: str, values: Values) -> Array:
        """Which rows of an output are judged: of what is no gradient those of queries that see a key.

        A program that hides every key of one may have NaN there, which softmax makes of −∞ alone.
        """
        if name in GRADIENTS:
            return np.array(True)

        seen: Array = np.asarray(self.right[WEIGHTS].any(axis=-1))
        if name == CONCAT:
            seen = np.asarray(seen.all(axis=1))

        scores = values.get(MASKED)
        lost = ~np.isfinite(self.found[name]).any(axis=-1)
        if name == HEAD_OUTPUTS and scores is not None and scores.shape[:-1] == lost.shape == seen.shape:
            hides_every_key = np.isneginf(scores).all(axis=-1)
            seen = seen & ~(lost & hides_every_key)
        return seen[..., None]

    def gives(self, program: CarriedOut) -> bool:
        """Whether a program gives what was found, and changes something of what is wrong in it."""
        wrong = self.wrong
        values = program.values
        if wrong and all(values.get(name) is self.right[name] for name in wrong):
            return False
        # These two are quick; a closer look computes how the program's numbers scatter.
        if not all(self.is_near(name, values) for name in wrong):
            return False
        far = [name for name in self.found if self.off_by(name, values) > 1]

        problem = replace(self.problem, outputs=tuple(far))
        expected = expect(problem, program.derivation).outputs
        for name in far:
            rows = np.broadcast_to(self.told(name, values), self.found[name].shape)[..., 0]
            if not compare_output(replace(expected[name], rows=rows), self.found[name]).right:
                return False
        return True

    def is_near(self, name: str, values: Values) -> bool:
        """Whether a program leaves little of what is wrong of an output, or nothing was to be changed."""
        found = self.found[name]
        right = self.right[name]
        value = values.get(name)
        if value is right:
            return True
        if value is None or value.shape != found.shape:
            return False

        judged = np.broadcast_to(self.told(name, values), found.shape) & np.isfinite(found)
        gap = np.square(np.where(judged, right - found, 0.0)).sum()
        gap_left = np.square(np.where(judged, value - found, 0.0)).sum()
        return bool(gap_left <= NEAR**2 * gap)
