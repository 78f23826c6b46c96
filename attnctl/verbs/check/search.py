"""The search for what explains a wrong step: which known mistake reproduces the recorded numbers.

A mistake is first tried on values alone, which is quick; what comes near is then held to the
rounding that its own arithmetic allows, and walked to the end of the derivation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnctl.array import Array
from attnctl.derivation import Derivation
from attnctl.ops import Given, Unstated
from attnctl.verbs.check.catalogue import CATALOGUE
from attnctl.verbs.check.mistake import Case, Mistake, Plant
from attnctl.verbs.check.record import Record
from attnctl.verbs.check.rounding import free
from attnctl.verbs.check.walk import Walk, Walker, differing

Detailed = tuple[Mistake, str]

MOST_TRIED = 200_000_000
"""Numbers that trying pairs of mistakes may compute."""

NEAR = 0.5
"""A mistake comes near when it leaves less than this of the differences."""


@dataclass(frozen=True)
class Fit:
    """A mistake (or two at once) that reproduces a step, and the walk of the derivation that makes it."""

    mistakes: tuple[Detailed, ...]
    """Each with the detail that was found."""
    walk: Walk
    certain: bool
    """Whether numbers show it, not only NaN or rows that could hold anything; and show it exactly."""

    @property
    def rank(self) -> tuple[int, int, bool]:
        """What makes a fit a good one: few steps left unexplained, few mistakes, numbers that show it."""
        return len(self.walk.wrong), len(self.mistakes), not self.certain


@dataclass(frozen=True)
class Search:
    """Looks for the mistakes that explain the first wrong step of a walk."""

    record: Record
    walker: Walker
    walk: Walk
    case: Case

    @classmethod
    def begin(cls, record: Record, walk: Walk, first: str) -> Search:
        """A search that overlooks rows that see nothing, unless it is only they that are wrong."""
        walker = Walker(record, lenient=True)
        loosely = walker.walk(walk.derivation)
        if first not in loosely.wrong:
            walker, loosely = Walker(record), walk
        expected = walker.expected(walk.derivation[first], loosely.values)
        assert expected is not None  # or the step could not be wrong
        differs = differing(record, first, expected)[1] & ~record.blank(first)
        case = Case(walk.derivation, record, first, record.value(first), expected, differs)
        return cls(record, walker, loosely, case)

    def fits(self) -> list[Fit]:
        """Every known mistake that reproduces the step, the best first; pairs where no single one does."""
        tried = [(mistake, plant, self.value(plant)) for mistake, plant in plants(self.case)]
        found: dict[str, Fit] = {}
        for mistake, plant, value in tried:
            fit = self.held(plant, ((mistake, plant.detail),), value)
            if fit and (mistake.name not in found or fit.rank < found[mistake.name].rank):
                found[mistake.name] = fit
        fits = list(found.values()) or self.pairs(
            {mistake: plant for mistake, plant, value in reversed(tried) if self.may_be_half(value)}
        )
        return sorted(fits, key=lambda fit: fit.rank)

    def pairs(self, halves: Mapping[Mistake, Plant]) -> list[Fit]:
        """Two mistakes between the same two recorded steps, each made the likeliest way."""
        found: list[Fit] = []
        sizes = [known.value.size for known in self.walk.values.values() if known is not None]
        if max(self.case.found.size, *sizes, 0) * len(halves) ** 2 > MOST_TRIED:
            return found
        for one, first in halves.items():
            planted = self.case.planted(first.derivation)
            later = CATALOGUE[CATALOGUE.index(one) + 1 :]
            for other in later:
                second = next(iter(other.at(planted)), None) if other in halves and other.exact else None
                if second and other.name != one.name:
                    both = self.in_order((one, first.detail), (other, second.detail))
                    fit = self.held(second, both, self.value(second))
                    found += [fit] if fit else []
        return found

    def in_order(self, *mistakes: Detailed) -> tuple[Detailed, ...]:
        """Mistakes in the order of the steps where they are made."""
        order = {step.name: at for at, step in enumerate(self.walk.derivation)}
        return tuple(
            sorted(mistakes, key=lambda each: min(order.get(name, len(order)) for name in each[0].steps))
        )

    def value(self, plant: Plant) -> Array | None:
        """What a plant makes of the step; None where it is the same derivation up to there."""
        probe = Probe(self.record, self.walk, plant.derivation)
        try:
            value = probe.computed(self.case.first)
        except (ValueError, IndexError):  # shapes that only the right derivation brings together
            return None
        same = not probe.anew or value is None or value.shape != self.case.found.shape
        return None if same else value

    def may_be_half(self, value: Array | None) -> bool:
        """Whether a plant may be one of two mistakes: it leaves alone most of what is right."""
        if value is None:
            return False
        untouched = ~self.case.differs & ~free(self.case.expected.error)
        moved = np.abs(value - self.case.expected.value) > 4 * self.case.expected.error
        return bool((moved & untouched).sum() <= self.case.differs.sum() / 4)

    def held(self, plant: Plant, mistakes: tuple[Detailed, ...], value: Array | None) -> Fit | None:
        """The fit of a plant, if it reproduces the step within rounding and upsets none before it."""
        exact = all(mistake.exact for mistake, _ in mistakes)
        if value is None or (exact and not self.near(value)):
            return None
        first, differs = self.case.first, self.case.differs
        walk = self.walker.walk(plant.derivation, self.walk, until=first)
        if not set(walk.wrong) <= set(self.walk.wrong) - {first}:
            return None
        expected = self.walker.expected(plant.derivation[first], walk.values)
        assert expected is not None  # it has a value
        reproduced = bool((differs & ~free(expected.error)).any())
        if not reproduced and not np.isnan(self.case.found[differs]).all():
            return None
        return Fit(mistakes, self.walker.walk(plant.derivation, self.walk), reproduced and exact)

    def near(self, value: Array) -> bool:
        """Whether a value explains most of the differences that can be told in numbers."""
        found, right = self.case.found, self.case.expected.value
        told = self.case.differs & np.isfinite(found)
        left = np.abs(found - value)[told] > NEAR * np.abs(found - right)[told]
        return not told.any() or bool(left.mean() <= NEAR)


def plants(case: Case) -> Iterator[tuple[Mistake, Plant]]:
    """Every way to make every mistake."""
    for mistake in CATALOGUE:
        for plant in mistake.at(case):
            yield mistake, plant


@dataclass
class Probe:
    """Computes one step of a derivation from what is recorded, as values alone."""

    record: Record
    before: Walk
    derivation: Derivation
    anew: bool = False
    """Whether anything had to be computed that another walk has not."""

    def __post_init__(self) -> None:
        self.old = {step.name: step for step in self.before.derivation}
        self.new = {step.name: step for step in self.derivation}
        self.values: dict[str, Array | None] = {}

    def computed(self, name: str) -> Array | None:
        """The step's value by its inputs; None where they do not tell."""
        step = self.new[name]
        if isinstance(step.op, (Given, Unstated)):
            return None
        inputs = [self.input(each) for each in step.inputs]
        told = [each for each in inputs if each is not None]
        if len(told) < len(inputs):
            return None
        self.anew |= step is not self.old.get(name)
        return step.op.apply(*told)

    def input(self, name: str) -> Array | None:
        """The value of a step above: recorded, known from before, or computed."""
        if name in self.record and name not in self.record.blanks:
            return self.record.value(name)
        if name not in self.values:
            self.values[name] = self.unrecorded(name)
        return self.values[name]

    def unrecorded(self, name: str) -> Array | None:
        """The value of a step that is not recorded, computed anew only where its like was not before."""
        if self.new[name] is self.old.get(name) and all(map(self.unchanged, self.new[name].inputs)):
            known = self.before.values[name]
            return None if known is None else known.value
        return self.computed(name)

    def unchanged(self, name: str) -> bool:
        """Whether a step is what it was before, and so is all it is computed from."""
        if name in self.record and name not in self.record.blanks:
            return True
        step = self.new[name]
        return step is self.old.get(name) and all(map(self.unchanged, step.inputs))


def best(fits: Sequence[Fit]) -> tuple[Fit | None, list[Fit]]:
    """The fit to name, and the others that explain as much."""
    if not fits:
        return None, []
    return fits[0], [fit for fit in fits[1:] if fit.rank == fits[0].rank]
