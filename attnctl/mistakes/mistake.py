"""A known mistake: the derivation of a program that makes it, and what to tell the one who wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.judge import vanishes
from attnctl.evidence.recompute import Probe
from attnctl.evidence.record import Record
from attnctl.evidence.rounding import Known, boundless
from attnctl.evidence.walk import Walk
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.names import MASKED
from attnctl.math.ops import Copy, Hide, Op


@dataclass
class Effort:
    """The numbers that a search may compute, and those it has computed."""

    most: float = inf
    numbers: int = 0
    exceeded: bool = False
    """Whether there was more to try."""

    def allow(self, most: float) -> None:
        self.most = most
        self.numbers = 0

    def spent(self) -> bool:
        self.exceeded |= self.numbers > self.most
        return self.numbers > self.most


LEAST_EFFORT = 15_000
"""Numbers that could be computed in the time that it takes to try a plant on next to none."""


@dataclass(frozen=True)
class WrongStep:
    """A step that disagrees: what was found, what was expected, and the derivation that says so."""

    derivation: Derivation
    record: Record
    first: str
    found: Array
    expected: Known
    differs: Array
    """Which numbers of it rounding does not explain."""
    walk: Walk
    """What every step should be, as far as what is recorded tells."""
    begin: int = 0
    """The query that its first row is: more than 0 in a part of a large step."""
    effort: Effort = field(default_factory=Effort)
    like: Plant | None = None
    """The plant of another case, whose detail and number are to be planted here, and no others."""

    def value(self, *, anyway: bool = False) -> Array | None:
        """Return this program's value of the step; None where it cannot be told, or is the same.

        None, too, where the search has computed as much as it may, unless it is wanted `anyway`.
        """
        if self.effort.spent() and not anyway:
            return None
        probe = Probe(self.walk, self.derivation)
        if not probe.is_changed(self.first):
            return None
        try:
            value = probe.compute(self.first)
        except (AttnError, ValueError, IndexError, TypeError):  # what only the right op takes
            return None
        finally:
            self.effort.numbers += max(probe.numbers, LEAST_EFFORT)
        return value if value is not None and value.shape == self.found.shape else None

    def array_of(self, name: str) -> Array | None:
        """A step as it is recorded, or else as it should be."""
        if name in self.record:
            return self.record.value(name)
        known = self.walk.values.get(name)
        return known.value if known else None

    def misfit(self, value: Array | None) -> float:
        """Return the root mean square of the differences from what was found, ∞ where there is no value.

        A number that is finite in one of them only counts as far off as the largest there is.
        """
        if value is None:
            return np.inf
        is_told = ~np.isnan(self.found) & ~boundless(self.expected.error) & ~self.record.blank(self.first)
        if self.first.endswith("scores") and np.isneginf(value).any():
            is_told = is_told & ~self.vanishing(value)

        found = self.found[is_told]
        made = value[is_told]
        left = np.where(found == made, 0.0, np.abs(found - made))
        is_beyond = ~np.isfinite(left)
        if is_beyond.any():
            largest = np.abs(found[np.isfinite(found)]).max(initial=1.0)
            left = np.where(is_beyond, largest, left)
        with np.errstate(over="ignore"):
            return float(np.sqrt(np.mean(np.square(left)))) if left.size else np.inf

    def vanishing(self, value: Array) -> Array:
        """Mark numbers in place of the −∞ of a value: softmax makes 0 of them, or the row sees nothing."""
        is_hidden = np.isneginf(value)
        limit = self.record.precision(self.first).vanishing
        sees_nothing = is_hidden.all(axis=-1, keepdims=True) & (self.found < limit)
        return is_hidden & (sees_nothing | vanishes(self.found, is_hidden, limit))

    def op(self, name: str) -> Op | None:
        return self.derivation[name].op if name in self.derivation else None

    def source(self, name: str) -> str:
        """The step of which this one has but some rows; itself, where it has all of its own."""
        return self.derivation[name].inputs[0] if getattr(self.op(name), "exact", False) else name

    def size(self, axis: str) -> int | None:
        return self.record.plan.sizes.get(axis)

    # --- the same with another derivation ---

    def put(self, name: str, op: Op, inputs: Sequence[str] | None = None) -> WrongStep:
        return self.put_all({name: op}, {} if inputs is None else {name: inputs})

    def put_all(self, ops: Mapping[str, Op], read: Mapping[str, Sequence[str]] | None = None) -> WrongStep:
        steps = {step.name: step for step in self.derivation}
        for name, op in ops.items():
            if name in steps:
                inputs = (read or {}).get(name, steps[name].inputs)
                steps[name] = replace(steps[name], op=op, inputs=tuple(inputs))
        return replace(self, derivation=Derivation(tuple(steps.values())))

    def rewired(self, inputs: Mapping[str, Sequence[str]]) -> WrongStep:
        return self.put_all({name: self.derivation[name].op for name in inputs}, inputs)

    def through(self, name: str, read: str, new: Step) -> WrongStep:
        """A step reads a new one instead of what it read."""
        step = self.derivation[name]
        inputs = tuple(new.name if input_ == read else input_ for input_ in step.inputs)
        return self.beside(name, [new], replace(step, inputs=inputs))

    def reading(self, name: str, read: str, op: Op) -> WrongStep:
        return self.through(name, read, self.bare(f"{read} for {name}", op, (read,), read))

    def then(self, name: str, op: Op, *more: str) -> WrongStep:
        """Another op on what a step was, which reads more steps too if given."""
        step = self.derivation[name]
        first = replace(step, name=self.fresh(f"{name} at first"))
        return self.beside(name, [first], replace(step, op=op, inputs=(first.name, *more)))

    def beside(self, name: str, new: Sequence[Step], step: Step) -> WrongStep:
        """New steps before another one, which becomes this one."""
        steps: list[Step] = []
        for old in self.derivation:
            steps += (*new, step) if old.name == name else (old,)
        return replace(self, derivation=Derivation(tuple(steps)))

    def bare(self, name: str, op: Op, inputs: tuple[str, ...], like: str) -> Step:
        """A new step, of a name near this one, with the axes of another."""
        axes = self.derivation[like].axes
        return Step(self.fresh(name), op, inputs, axes=axes, formula="", symbol="")

    def mask_alike(self) -> WrongStep | None:
        """The program that goes back through the mask that it has: what that hides has no weight."""
        for step in self.derivation:
            if isinstance(step.op, Hide) and step.name.startswith("d_"):
                return self.put(step.name, Copy(), step.inputs[:1])
        return None

    def fresh(self, name: str) -> str:
        """A name that no step has yet: two mistakes may both need a new step at one place."""
        while name in self.derivation:
            name += "′"
        return name


@dataclass(frozen=True)
class Plant:
    case: WrongStep
    detail: str = ""
    number: float | None = None
    """The number that was fitted, which the detail says."""
    fix: str = ""
    """What to write instead, where it is not what the entry of the catalogue says."""

    def is_like(self, other: Plant) -> bool:
        """Whether it has the detail of another one, or the same number in the same words."""
        if self.number != other.number:
            return False
        if self.number is None:
            return self.detail == other.detail
        return NUMBERS.sub("", self.detail) == NUMBERS.sub("", other.detail)


NUMBERS = re.compile(r"−?\d[\d.e+-]*( \(−?√\d+\))?")
"""Numbers in words: how many digits they have goes by the number that they are told from."""

Plants = Callable[[WrongStep], Iterable[Plant]]
"""The programs that make a mistake, as many as there are ways to make it."""


@dataclass(frozen=True)
class Mistake:
    """An entry of the catalogue.

    `words` completes "It is what you get when …", `fix` says what to write instead; both may have
    a {} for the detail of a plant, a fix also {scale} and other names that the plan at hand says a number
    for (`mistakes/fixes.py`). `plants` gives none where the mistake cannot be made.
    """

    name: str
    steps: tuple[str, ...]
    """The steps where it is made: it shows there, or at the next step that is recorded."""
    words: str
    fix: str
    plants: Plants
    exact: bool = True
    """Whether the mistake gives certain numbers, or only says how far off they may be."""
    fitted: bool = False
    """A number of it is fitted: what explains as much without is preferred."""
    across: bool = False
    """True where the first queries do not show what it is: it mixes them up, or has a number for each."""
    explains_nan: bool = False
    """Whether NaN of the result is told by it where what it is computed from holds NaN, too."""
    subject: str = ""
    """Of mistakes about one subject only one is made: scores are not both unscaled and scaled twice."""
    why: str = ""
    seen: str = ""
    """Public threads in which people had it: ``owner/name#12, #13; other/name#7``."""
    example: str = ""
    """Lines of NumPy that make it: they give steps by name (`mistakes.examples`)."""
    slight: str = ""
    """Other lines that make it, by so little that a loose test lets them pass."""
    meant: str = "plain"
    """The kind of attention that the lines should have been, of `mistakes.examples.KINDS`."""
    equivalent: str = ""
    """Why no output of Q, K and V shows what the example does."""

    def contradicts(self, other: Mistake) -> bool:
        return self.name == other.name or (self.subject != "" and self.subject == other.subject)

    def at(self, case: WrongStep) -> Iterator[Plant]:
        """The programs that make it at a wrong step; like the plant that is asked for, where one is."""
        if not any(name in case.derivation for name in self.steps):
            return
        is_about_masks = any(name.endswith(MASKED) for name in self.steps)
        for plant in self.plants(case):
            if case.like is not None and not plant.is_like(case.like):
                continue
            yield plant
            masked_alike = plant.case.mask_alike() if is_about_masks else None
            if masked_alike:
                yield replace(plant, case=masked_alike)


def either(*several: Plants) -> Plants:
    def plants_of_all(case: WrongStep) -> Iterator[Plant]:
        for plants in several:
            yield from plants(case)

    return plants_of_all


def about(*steps: str, **shared: Any) -> Callable[..., Mistake]:
    """What makes entries: of the steps where they show, and of what else several have in common."""

    def entry(name: str, words: str, fix: str, *several: Plants, **own: Any) -> Mistake:
        return Mistake(name, steps, words, fix, either(*several), **{**shared, **own})

    return entry
