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
from attnctl.evidence.rounding import boundless, exactly
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
        record, walk = part.record, leniently(part.walk)
        if first not in walk.wrong:
            walk = part.walk
        expected = walk.expect(first)
        assert expected is not None  # or the step could not be wrong
        found = record.value(first)
        if plainly:
            expected, gap = exactly(expected.value), np.abs(found - expected.value)
            differs = ~(np.where(found == expected.value, 0.0, gap) <= slight(expected.value))
            differs &= ~np.isnan(expected.value)
        else:
            differs = wrong_numbers(record, first, expected)
        by_rows = walk.steps[first].broken is not None and not differs.any()
        if by_rows:  # none by itself, all together
            differs = np.isfinite(expected.value)
        case = WrongStep(walk.derivation, record, first, found, expected, differs, walk, part.begin)
        earlier = tuple(mistake for mistake in CATALOGUE if mistake.name in named)
        return cls(case, part, earlier, patience, by_rows=by_rows)

    def fits(self, *, fitted: bool = False, others: Sequence[Fit] = ()) -> list[Fit]:
        """What makes the step, best first, and others: mistakes with a number to fit, or those without.

        What may be one of two is remembered.
        """
        self.case.effort.allow(MOST_FITTED * self.patience if fitted else inf)
        found = {fit.mistakes[0][0].name: fit for fit in others}
        for mistake, plant in self.plants(self.case, [one for one in CATALOGUE if one.fitted is fitted]):
            value = plant.case.value(anyway=True)
            fit, other = self.held(plant, ((mistake, plant),), value), found.get(mistake.name)
            if fit and (other is None or self.is_better(fit, other)):
                found[mistake.name] = fit
            if value is not None and self.may_be_half(value):
                self.halves.append((self.case.misfit(value), mistake, plant))
        return rank_fits(list(found.values()), self.floor)

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
        others = []
        before = frozenset(self.screened)
        for mistake, plant in self.plants_to_screen():
            value = None if mistake.name in before else value_of(plant.case)
            if value is None:
                continue
            self.screened.add(mistake.name)
            if not self.near(value, EXPLAINED):
                continue
            made, misfit = Walk(self.case.walk.record, plant.case.derivation), self.case.misfit(value)
            fit = Fit(((mistake, plant),), made, certain=True, misfit=misfit)
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
        precise = self.precision.bits >= FLOAT32.bits
        return precise and fit.misfit <= max(ROUNDING * self.floor, 0.0 if fit.walk.wrong else fit.rounding)

    @property
    def precision(self) -> Precision:
        return self.case.record.precision(self.case.first)

    @property
    def floor(self) -> float:
        return rounding_floor(self.case)

    def plants(self, case: WrongStep, mistakes: Iterable[Mistake]) -> Iterator[tuple[Mistake, Plant]]:
        earlier = [name for name in self.named if name.subject]
        for mistake in mistakes:
            if not any(mistake.contradicts(fit) and mistake.name != fit.name for fit in earlier):
                yield from ((mistake, plant) for plant in mistake.at(case))

    def pairs(self) -> list[Fit]:
        """Two mistakes between the same two recorded steps: first those of which nothing is fitted."""
        share = IN_A_PART if self.part.words else 1.0
        self.case.effort.allow(MOST_TRIED * share * self.patience)
        halves = [(mistake, plant) for _, mistake, plant in sorted(self.halves, key=lambda half: half[0])]
        known = [half for half in halves if not half[0].fitted]
        found = list(self.beside(known, fitted=False)) or list(self.beside(halves, fitted=True))
        return rank_fits(found, self.floor)

    def beside(self, halves: Sequence[tuple[Mistake, Plant]], *, fitted: bool) -> Iterator[Fit]:
        for mistake, plant in halves:
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
        found, error, differs = self.case.found, self.case.expected.error, self.case.differs
        values = (plant.case.value(anyway=True) for plant in mistake.at(self.case))
        gaps = (np.abs(found - value)[differs] for value in values if value is not None)
        return any((gap <= error[differs]).mean() > NEAR for gap in gaps if gap.size)

    def in_order(self, *mistakes: Planted) -> tuple[Planted, ...]:
        at = {step.name: place for place, step in enumerate(self.case.derivation)}
        return tuple(sorted(mistakes, key=lambda one: min(at.get(name, len(at)) for name in one[0].steps)))

    def may_be_half(self, value: Array) -> bool:
        """True for a plant that may be one of two mistakes: it leaves alone most of what is right."""
        untouched = ~self.case.differs & ~boundless(self.case.expected.error)
        moved = np.abs(value - self.case.expected.value) > 4 * self.case.expected.error
        return bool((moved & untouched).sum() <= self.case.differs.sum() / 4)

    def held(self, plant: Plant, mistakes: tuple[Planted, ...], value: Array | None) -> Fit | None:
        """The fit of a plant, if it reproduces the step within rounding and upsets none before it."""
        exact = all(mistake.exact for mistake, _ in mistakes)
        if value is None or (exact and not self.near(value, EXPLAINED / len(mistakes) ** 2)):
            return None
        if exact and self.upsets(value):
            return None
        first, differs = self.case.first, self.case.differs
        if self.is_only_nan and not self.explains_nan(mistakes, value):
            return None
        try:
            before, excused = self.case.walk, frozenset(self.case.walk.wrong) - {first}
            walk = Walk.over(before.record, plant.case.derivation, before, first, excused=excused)
            if next(reversed(walk.steps)) == first and not excused.issuperset(walk.wrong):
                return None
            expected = walk.expect(first)
        except AttnError:  # shapes that only the right derivation brings together
            return None
        assert expected is not None  # it has a value
        squares = expected.squares_in(expected.enough_runs)
        certain = np.isfinite(squares)
        misfit = self.case.misfit(value)
        reproduced = bool((differs & certain).any())
        if not certain.any():  # one row that sees nothing is in every sum: it comes to 0 here
            reproduced = misfit <= ROUNDING * self.floor
        if not (self.gives_nan(value) if self.shows_only_nan else reproduced):
            return None
        rounding = float(np.sqrt(squares[certain].mean())) if certain.any() else 0.0
        return Fit(mistakes, walk, reproduced and exact, misfit, rounding)

    def upsets(self, value: Array) -> bool:
        """True for a value by which scores or weights that are right would be far off, however rounded.

        A row in which nothing is seen says nothing: programs differ there.
        """
        if self.case.derivation[self.case.first].axes[-1] != "key" or self.by_rows:
            return False
        right = self.case.expected.value
        finite = np.isfinite(right)
        seen = (np.isfinite(value) & (value != 0)).any(axis=-1, keepdims=True)
        hidden = np.isneginf(right)
        told = finite | (hidden & ~vanishes(value, hidden, self.precision.vanishing))
        told = told & seen & ~self.case.differs & ~boundless(self.case.expected.error)
        moved = ~(np.abs(value - right) <= FAR * self.case.expected.error) & (value != right)
        return bool((told & moved & ~np.isnan(value)).any())

    @cached_property
    def is_only_nan(self) -> bool:
        """True where all that is wrong is NaN, and so is some of what it is computed from.

        Whatever is done to NaN gives NaN: it tells no mistake from another.
        """
        if not self.shows_only_nan:
            return False
        inputs = stretch(self.case.derivation, self.case.record, self.case.first)
        read = {name for step in inputs for name in step.inputs if name in self.case.record}
        floats = [array for name in read if (array := self.case.record.value(name)).dtype != bool]
        return any(np.isnan(array).any() for array in floats)

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
        known = len(mistakes) == 1 and mistakes[0][0].explains_nan
        return known and np.array_equal(np.isnan(self.case.found), np.isnan(value))

    def near(self, value: Array, part: float) -> bool:
        """True for a value that explains all but a part of the differences that can be told in numbers."""
        if self.by_rows:
            return like(self.case.derivation[self.case.first].op, self.case.found, value, self.precision)
        found, right = self.case.found, self.case.expected.value
        told = self.case.differs & np.isfinite(found)
        if not told.any():
            return True
        gap, right_gap = np.abs(found - value)[told], np.abs(found - right)[told]
        left = ~(gap <= NEAR * right_gap) | np.isinf(gap)
        if np.isnan(found[self.case.differs]).mean() > NEAR:
            return bool(left.mean() <= NEAR)
        return left.mean() <= NEAR and bool(np.square(gap).sum() <= part**2 * np.square(right_gap).sum())


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


def rank_fits(fits: Sequence[Fit], floor: float) -> list[Fit]:
    """The best first; of those of one tier only the ones that leave little more than the best of them."""
    tier = min((fit.tier for fit in fits), default=None)
    first = [fit for fit in fits if fit.tier == tier]
    most = AS_GOOD * min((fit.misfit for fit in first), default=0.0) + floor
    kept = [fit for fit in fits if fit.tier != tier or fit.misfit <= most or not fit.certain]
    return sorted(kept, key=lambda fit: fit.rank)
