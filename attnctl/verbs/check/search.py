"""The search for what explains a wrong step: which known mistake reproduces the recorded numbers.

A mistake is first tried on values alone, which is quick; what comes near is then held to the
rounding that its own arithmetic allows, and walked to the end of the derivation. All that is done in a part
of a large record; what is found there is verified in all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import spread
from attnctl.evidence.blocks import stretch
from attnctl.evidence.judge import like, vanishes, wrong_numbers
from attnctl.evidence.precision import FLOAT32, Precision
from attnctl.evidence.recompute import Probe
from attnctl.evidence.record import may_have_unseen
from attnctl.evidence.rounding import Known, boundless, exactly
from attnctl.evidence.walk import Walk
from attnctl.math import Array
from attnctl.math.ops import Softmax
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep
from attnctl.mistakes.plants import BY_CHANCE, rounding_floor
from attnctl.verbs.check.parts import Part

Planted = tuple[Mistake, Plant]

MOST_FITTED = 300_000_000
"""Numbers that fitting mistakes may compute: some ten seconds."""

MOST_TRIED = 80_000_000
"""Numbers that trying pairs of mistakes may compute."""

IN_A_PART = 0.25
"""The part of them in some rows of a large step: all of its keys and values lead to the fewest rows."""

NEAR = 0.5
"""A mistake comes near when it leaves less than this of most differences."""

EXPLAINED = 0.25
"""A mistake explains a step when it leaves less than this of the differences, root mean square.

Of two mistakes at once, which can be chosen in many ways, a quarter of it is asked.
"""

FAR = 1e4
"""The multiple of what rounding may do that a number is moved by when no program's rounding explains it."""

SLIGHT = 1e-3
"""The part of their spread up to which numbers may be off by rounding."""

AS_GOOD = 1.5
"""Of two mistakes one explains as much as the other if it leaves at most so many times what that leaves."""

ROUNDING = 16.0
"""What leaves at most so many times what rounding one number does needs no better explanation."""


ValueOf = Callable[[WrongStep], Array | None]
"""What computes the step that a program makes; None where it cannot be told."""


def plain_value(case: WrongStep) -> Array | None:
    return case.value(anyway=True)


@dataclass(frozen=True)
class Fit:
    """A mistake (or two at once) that reproduces a step, and the walk of the derivation that makes it."""

    mistakes: tuple[Planted, ...]
    """Each as it was planted, with the detail that was found."""
    walk: Walk
    certain: bool
    """Whether numbers show it, not only NaN or rows that could hold anything; and show it exactly."""
    misfit: float
    """What is left of the differences, root mean square."""
    rounding: float = 0.0
    """How far off programs are that make it, root mean square."""

    @property
    def tier(self) -> tuple[int, int, bool]:
        """The rank of a fit by few steps left unexplained, few mistakes, and numbers that show it."""
        return len(self.walk.wrong), len(self.mistakes), not self.certain

    @property
    def rank(self) -> tuple[int, int, bool, bool]:
        """Of those of one tier, nothing fitted."""
        return (*self.tier, any(mistake.fitted for mistake, _ in self.mistakes))


@dataclass(frozen=True)
class Search:
    case: WrongStep
    part: Part
    named: tuple[Mistake, ...] = ()
    """What was named at earlier steps: what contradicts it is not looked for."""
    patience: float = 1.0
    """The part of the most numbers that it may compute for what is fitted, or chosen in many ways."""
    halves: list[tuple[float, Mistake, Plant]] = field(default_factory=list)
    """What was tried and may be one of two mistakes, with its misfit."""
    by_rows: bool = False
    """Whether rows together are wrong, and no number by itself."""
    screened: set[str] = field(default_factory=set)
    """Mistakes that mix up queries and were screened, here or in another part."""

    @classmethod
    def begin(cls, part: Part, first: str, named: list[str], patience: float, *, plainly: bool) -> Search:
        """A search that overlooks rows that see nothing, unless it is only they that are wrong.

        With `plainly` nothing is drawn of how programs round: what is off by little counts as right.
        """
        record = part.record
        walk = leniently(part.walk)
        if first not in walk.wrong:
            walk = part.walk
        expected = walk.expect(first)
        assert expected is not None  # or the step could not be wrong

        found = record.value(first)
        if plainly:
            expected = exactly(expected.value)
            differs = differs_plainly(found, expected.value)
        else:
            differs = wrong_numbers(record, first, expected)
        by_rows = walk.steps[first].broken is not None and not differs.any()
        if by_rows:  # none by itself, all together
            differs = np.isfinite(expected.value)

        case = WrongStep(
            walk.derivation,
            record,
            first,
            found=found,
            expected=expected,
            differs=differs,
            walk=walk,
            begin=part.begin,
        )
        named_before = tuple(mistake for mistake in CATALOGUE if mistake.name in named)
        return cls(case, part, named_before, patience, by_rows=by_rows)

    def fits(self, *, fitted: bool = False, others: Sequence[Fit] = ()) -> list[Fit]:
        """What makes the step, best first, and others: mistakes with a number to fit, or those without.

        What may be one of two is remembered.
        """
        self.case.effort.allow(MOST_FITTED * self.patience if fitted else inf)
        by_mistake = {fit.mistakes[0][0].name: fit for fit in others}
        for mistake, plant in self.plants(self.case, [one for one in CATALOGUE if one.fitted is fitted]):
            value = plant.case.value(anyway=True)
            fit = self.held(plant, ((mistake, plant),), value)
            earlier = by_mistake.get(mistake.name)
            if fit and (earlier is None or self.is_better(fit, earlier)):
                by_mistake[mistake.name] = fit
            if value is not None and self.may_be_half(value):
                self.halves.append((self.case.misfit(value), mistake, plant))
        return rank_fits(list(by_mistake.values()), self.floor)

    def is_better(self, fit: Fit, earlier: Fit) -> bool:
        """True for a way to make a mistake that leaves less than an earlier one, by more than chance."""
        if fit.rank != earlier.rank:
            return fit.rank < earlier.rank
        return earlier.misfit - fit.misfit > BY_CHANCE * self.floor

    def screen(self, value_of: ValueOf = plain_value) -> Iterator[Fit]:
        """Mistakes that mix up queries and come near by plain arithmetic, yet to be walked.

        One that leaves next to nothing comes at once, the others at last, best first. What was `screened`
        in another part comes no nearer here.
        """
        self.case.effort.allow(MOST_FITTED * self.patience)
        screened_before = frozenset(self.screened)
        others = []
        for mistake, plant in self.plants_to_screen():
            value = None if mistake.name in screened_before else value_of(plant.case)
            if value is None:
                continue
            self.screened.add(mistake.name)
            if not self.near(value, EXPLAINED):
                continue

            fit = Fit(
                ((mistake, plant),),
                Walk(self.case.walk.record, plant.case.derivation),
                certain=True,
                misfit=self.case.misfit(value),
            )
            if self.exactly(fit):
                yield fit
            else:
                others.append(fit)
        yield from sorted(others, key=lambda fit: fit.misfit)

    def plants_to_screen(self) -> Iterator[tuple[Mistake, Plant]]:
        across = [mistake for mistake in CATALOGUE if mistake.across]
        for mistake, plant in self.plants(self.case, across):
            if Probe(self.case.walk, plant.case.derivation).is_changed(self.case.first):
                yield mistake, plant

    def exactly(self, fit: Fit) -> bool:
        """True for a fit that leaves so little that no fitted number could leave less."""
        if self.precision.bits < FLOAT32.bits:
            return False
        by_rounding = 0.0 if fit.walk.wrong else fit.rounding
        return fit.misfit <= max(ROUNDING * self.floor, by_rounding)

    @property
    def precision(self) -> Precision:
        return self.case.record.precision(self.case.first)

    @property
    def floor(self) -> float:
        return rounding_floor(self.case)

    def plants(self, case: WrongStep, mistakes: Iterable[Mistake]) -> Iterator[tuple[Mistake, Plant]]:
        """The programs that make these mistakes, but for those that contradict what was named before."""
        about_the_same = [earlier for earlier in self.named if earlier.subject]
        for mistake in mistakes:
            others = [earlier for earlier in about_the_same if earlier.name != mistake.name]
            if any(mistake.contradicts(earlier) for earlier in others):
                continue
            for plant in mistake.at(case):
                yield mistake, plant

    def pairs(self) -> list[Fit]:
        """Two mistakes between the same two recorded steps: first those of which nothing is fitted."""
        share = IN_A_PART if self.part.words else 1.0
        self.case.effort.allow(MOST_TRIED * share * self.patience)

        by_misfit = sorted(self.halves, key=lambda half: half[0])
        halves = [(mistake, plant) for _, mistake, plant in by_misfit]
        without_number = [half for half in halves if not half[0].fitted]
        pairs = list(self.beside(without_number, fitted=False)) or list(self.beside(halves, fitted=True))
        return rank_fits(pairs, self.floor)

    def beside(self, halves: Sequence[tuple[Mistake, Plant]], *, fitted: bool) -> Iterator[Fit]:
        """Pairs of one of these and another mistake, made in the program of the first."""
        for mistake, plant in halves:
            # Of two that are both without a number each pair is tried once.
            start = 0 if fitted else CATALOGUE.index(mistake) + 1
            others = [other for other in CATALOGUE[start:] if other.exact and other.fitted is fitted]
            others = [other for other in others if not other.contradicts(mistake)]
            for other, second in self.plants(plant.case, others):
                if self.case.effort.spent():
                    return
                both = self.in_order((mistake, plant), (other, second))
                fit = self.held(second, both, second.case.value())
                if fit and not self.explains_half(mistake) and not self.explains_half(other):
                    yield fit
                    if fitted and self.exactly(fit):
                        return

    def explains_half(self, mistake: Mistake) -> bool:
        """True for a mistake that, made alone, gives half of the numbers that are wrong."""
        differs = self.case.differs
        error = self.case.expected.error
        for plant in mistake.at(self.case):
            value = plant.case.value(anyway=True)
            if value is None:
                continue
            gap = np.abs(self.case.found - value)[differs]
            if gap.size and (gap <= error[differs]).mean() > NEAR:
                return True
        return False

    def in_order(self, *mistakes: Planted) -> tuple[Planted, ...]:
        """Mistakes in the order of the steps where they are made."""
        number_of = {step.name: number for number, step in enumerate(self.case.derivation)}
        last = len(number_of)

        def first_step(planted: Planted) -> int:
            return min(number_of.get(name, last) for name in planted[0].steps)

        return tuple(sorted(mistakes, key=first_step))

    def may_be_half(self, value: Array) -> bool:
        """True for a plant that may be one of two mistakes: it leaves alone most of what is right."""
        is_right = ~self.case.differs & ~boundless(self.case.expected.error)
        is_moved = np.abs(value - self.case.expected.value) > 4 * self.case.expected.error
        return bool((is_moved & is_right).sum() <= self.case.differs.sum() / 4)

    def held(self, plant: Plant, mistakes: tuple[Planted, ...], value: Array | None) -> Fit | None:
        """The fit of a plant, if it reproduces the step within rounding and upsets none before it."""
        if value is None:
            return None
        # What is quick to tell comes before the walk. Of two mistakes each may hide some of the other.
        is_exact = all(mistake.exact for mistake, _ in mistakes)
        if is_exact and not self.near(value, EXPLAINED / len(mistakes) ** 2):
            return None
        if is_exact and self.upsets(value):
            return None
        if self.is_only_nan and not self.explains_nan(mistakes, value):
            return None

        walked = self.walk_to_first(plant)
        if walked is None:
            return None
        walk, expected = walked

        squares = expected.squares_in(expected.enough_runs)
        is_certain = np.isfinite(squares)
        misfit = self.case.misfit(value)
        is_reproduced = bool((self.case.differs & is_certain).any())
        if not is_certain.any():  # one row that sees nothing is in every sum: it comes to 0 here
            is_reproduced = misfit <= ROUNDING * self.floor
        explains = self.gives_nan(value) if self.shows_only_nan else is_reproduced
        if not explains:
            return None

        rounding = float(np.sqrt(squares[is_certain].mean())) if is_certain.any() else 0.0
        return Fit(
            mistakes,
            replace(walk, values={}),  # many fits are compared, and what each walk read is large
            certain=is_reproduced and is_exact,
            misfit=misfit,
            rounding=rounding,
        )

    def walk_to_first(self, plant: Plant) -> tuple[Walk, Known] | None:
        """The walk of a program as far as the step, and its value; None where steps before it get wrong."""
        first = self.case.first
        before = self.case.walk
        excused = frozenset(before.wrong) - {first}
        try:
            walk = Walk.over(
                before.record, plant.case.derivation, before=before, until=first, excused=excused
            )
            ends_at_first = next(reversed(walk.steps)) == first
            if ends_at_first and not excused.issuperset(walk.wrong):
                return None
            expected = walk.expect(first)
        except AttnError:  # shapes that only the right derivation brings together
            return None
        assert expected is not None  # it has a value
        return walk, expected

    def upsets(self, value: Array) -> bool:
        """True for a value by which scores or weights that are right would be far off, however rounded.

        A row in which nothing is seen says nothing: programs differ there.
        """
        is_by_key = self.case.derivation[self.case.first].axes[-1] == "key"
        if not is_by_key or self.by_rows:
            return False

        right = self.case.expected.value
        error = self.case.expected.error
        sees_a_key = (np.isfinite(value) & (value != 0)).any(axis=-1, keepdims=True)
        is_hidden = np.isneginf(right)
        is_told = np.isfinite(right) | (is_hidden & ~vanishes(value, is_hidden, self.precision.vanishing))
        is_told = is_told & sees_a_key & ~self.case.differs & ~boundless(error)
        is_moved = ~(np.abs(value - right) <= FAR * error) & (value != right)
        return bool((is_told & is_moved & ~np.isnan(value)).any())

    @cached_property
    def is_only_nan(self) -> bool:
        """True where all that is wrong is NaN, and so is some of what it is computed from.

        Whatever is done to NaN gives NaN: it tells no mistake from another.
        """
        if not self.shows_only_nan:
            return False
        case = self.case
        steps = stretch(case.derivation, case.record, case.first)
        read = {name for step in steps for name in step.inputs if name in case.record}
        arrays = [case.record.value(name) for name in read]
        return any(np.isnan(array).any() for array in arrays if array.dtype != bool)

    @property
    def shows_only_nan(self) -> bool:
        return bool(np.isnan(self.case.found[self.case.differs]).all())

    def gives_nan(self, value: Array) -> bool:
        """True for a program that gives NaN wherever something is wrong.

        What is computed from rows that see nothing, or overflows, may be anything: NaN must be its own.
        """
        return bool(np.isnan(value[self.case.differs]).all())

    def explains_nan(self, mistakes: Sequence[Planted], value: Array) -> bool:
        """True for one mistake about NaN that gives it just where it was found."""
        if len(mistakes) != 1 or not mistakes[0][0].explains_nan:
            return False
        return np.array_equal(np.isnan(self.case.found), np.isnan(value))

    def near(self, value: Array, part: float) -> bool:
        """True for a value that explains all but a part of the differences that can be told in numbers."""
        found = self.case.found
        right = self.case.expected.value
        if self.by_rows:
            return like(self.case.derivation[self.case.first].op, found, value, self.precision)

        is_told = self.case.differs & np.isfinite(found)
        if not is_told.any():
            return True
        gap = np.abs(found - value)[is_told]
        right_gap = np.abs(found - right)[is_told]
        is_left = ~(gap <= NEAR * right_gap) | np.isinf(gap)
        if is_left.mean() > NEAR:
            return False
        # Where most of it is NaN, the few numbers tell little of how far off it is.
        if np.isnan(found[self.case.differs]).mean() > NEAR:
            return True
        return bool(np.square(gap).sum() <= part**2 * np.square(right_gap).sum())


def leniently(strict: Walk) -> Walk:
    """The same walk, rows excused that are meant to see nothing."""
    lenient = replace(strict.record, lenient=True)
    if not may_have_unseen(strict.record):
        return replace(strict, record=lenient)
    softmax = [step.name for step in strict.derivation if isinstance(step.op, Softmax)]
    return Walk.over(lenient, strict.derivation, strict, anew=softmax)


def slight(right: Array) -> float:
    """What any number may be off by rounding."""
    return SLIGHT * spread(right[np.isfinite(right)])


def differs_plainly(found: Array, right: Array) -> Array:
    """The numbers that are off by more than any rounding; none where the right one is NaN."""
    gap = np.where(found == right, 0.0, np.abs(found - right))  # two infinities are the same
    return ~(gap <= slight(right)) & ~np.isnan(right)


def rank_fits(fits: Sequence[Fit], floor: float) -> list[Fit]:
    """The best first; of those of one tier only the ones that leave little more than the best of them."""
    best_tier = min((fit.tier for fit in fits), default=None)
    least = min((fit.misfit for fit in fits if fit.tier == best_tier), default=0.0)
    most = AS_GOOD * least + floor

    kept = [fit for fit in fits if fit.tier != best_tier or fit.misfit <= most or not fit.certain]
    return sorted(kept, key=lambda fit: fit.rank)
