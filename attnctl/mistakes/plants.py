"""The words in which the plants of the catalogue are said, and the fitting of a plant's number.

`at(WEIGHTS, Softmax).by(np.exp)` is a program with exp where softmax should be, `at("X", Add).without()`
one that leaves a step out, `at("concat", Merge).where(several).by(…)` one with something else, on a
condition; `.fitted(…)` and `.best(…)` are those with the number, or the choice, that best gives what was
recorded, and `rule_instead(…)` those with another rule. What needs more words is a function that yields
each `Plant`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from math import inf, isfinite, nan, sqrt
from typing import Any, TypeVar

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import FLOAT64
from attnctl.math import Array
from attnctl.math.names import MASKED, OUTPUT
from attnctl.math.ops import Copy, Hide, Op
from attnctl.math.rules import VisibilityRule
from attnctl.mistakes.mistake import Plant, Plants, WrongStep
from attnctl.mistakes.wrong import By

T = TypeVar("T")
R = TypeVar("R", bound=VisibilityRule)

Function = Callable[..., Array]
Condition = Callable[[WrongStep], bool]
Say = Callable[[Sequence[str]], str]
"""What the detail of a plant says of the steps that go wrong."""

Groups = Callable[..., Iterable[tuple[str, ...]]]
Way = Op | Mapping[str, Op] | Callable[[Any], "Op | Mapping[str, Op]"]
"""Another op, several by the detail that tells them apart, or either as it is made of the right op."""


def all_or_one(*names: str) -> Iterator[tuple[str, ...]]:
    """The ways to make a mistake at several steps: at all, at those before the output, at one, at two.

    Where each step is recorded, one explains itself; two are needed where it is not.
    """
    before_output = tuple(name for name in names if name != OUTPUT)
    several = [group for group in (names, before_output) if len(group) > 1]
    single = [(name,) for name in names]
    pairs = combinations(names, 2)

    # Some groups are the same, as all of two names and their one pair: each is tried once.
    groups = [*several, *single, *pairs]
    yield from dict.fromkeys(groups)


def square(case: WrongStep) -> bool:
    return case.size("query") == case.size("key")


def all_at_once(*names: str) -> list[tuple[str, ...]]:
    """The one way to make a mistake at several steps that is made at all of them."""
    return [names] if names else []


def anywhere(case: WrongStep) -> bool:
    """The condition of a mistake that needs no other one than its steps."""
    return True


@dataclass(frozen=True)
class At:
    """Steps at which a mistake may be made: those of them that have an op of the right kind."""

    names: tuple[str, ...]
    kind: type[Op] | tuple[type[Op], ...]
    condition: Condition = field(default=anywhere)
    groups: Groups = all_or_one
    """Which of the steps go wrong together."""

    def where(self, condition: Condition) -> At:
        """The same steps under one condition more."""

        def both(case: WrongStep) -> bool:
            return self.condition(case) and condition(case)

        return replace(self, condition=both)

    def together(self, groups: Groups = all_at_once) -> At:
        return replace(self, groups=groups)

    def right(self, case: WrongStep) -> dict[str, Any]:
        """The right ops, by step; none where the mistake cannot be made."""
        of_kind: dict[str, Any] = {}
        for name in self.names:
            op = case.op(name)
            if isinstance(op, self.kind):
                of_kind[name] = op

        # A condition may take for granted that there is such a step: it is asked last.
        if not of_kind or not self.condition(case):
            return {}
        return of_kind

    def instead(self, *ways: Way, reads: int | None = None, say: Say | None = None) -> Plants:
        """Plants other ops, which read so many of the inputs; the detail says the way, or the steps."""

        def plants(case: WrongStep) -> Iterator[Plant]:
            right = self.right(case)
            for way in ways:
                wrong_by_step = alternatives_by_step(way, right)
                for names in self.groups(*wrong_by_step):
                    inputs = {name: case.derivation[name].inputs[:reads] for name in names}
                    words = say(names) if say else ""

                    first = names[0]
                    for detail in wrong_by_step[first]:
                        ops = {name: wrong_by_step[name][detail] for name in names}
                        yield Plant(case.put_all(ops, inputs), detail or words)

        return plants

    def by(self, *functions: Function | Mapping[str, Function]) -> Plants:
        """Plants functions, several by the detail that tells them apart."""
        ways = []
        for way in functions:
            named = way if isinstance(way, Mapping) else {"": way}
            ways.append({detail: By(function) for detail, function in named.items()})
        return self.instead(*ways)

    def without(self, detail: str = "") -> Plants:
        """Plants the first input in place of what is made of it."""
        return self.instead({detail: Copy()}, reads=1)

    def fitted(
        self,
        make: Callable[[Any, float], Op],
        starts: Sequence[float] | Callable[[Any], Sequence[float]],
        say: Callable[[float], str | None] = str,
    ) -> Plants:
        """Plants ops with the number that fits best; none where `say` has no words for it."""

        def plants(case: WrongStep) -> Iterator[Plant]:
            right = self.right(case)
            if not right:
                return

            def program(value: float) -> WrongStep:
                ops = {name: make(op, value) for name, op in right.items()}
                return case.put_all(ops)

            first_op = next(iter(right.values()))
            numbers = starts(first_op) if callable(starts) else starts
            yield from planted_fit(case, program, numbers, say)

        return plants

    def best(
        self,
        make: Callable[[Any, T], Op],
        candidates: Callable[[WrongStep], Iterable[T]],
        say: Callable[[T], str] = str,
    ) -> Plants:
        """Plants ops with the candidate that fits best, if one does better than what is right."""

        def tried(case: WrongStep) -> Iterator[tuple[str, WrongStep]]:
            right = self.right(case)
            if not right:
                return
            for candidate in candidates(case):
                ops = {name: make(op, candidate) for name, op in right.items()}
                yield say(candidate), case.put_all(ops)

        def plants(case: WrongStep) -> Iterator[Plant]:
            yield from planted_best(case, tried(case))

        return plants


def at(*steps_and_kinds: str | type[Op]) -> At:
    """Steps by name, and the kinds of op that they may have: any where none is said."""
    names: list[str] = []
    kinds: list[type[Op]] = []
    for one in steps_and_kinds:
        if isinstance(one, str):
            names.append(one)
        else:
            kinds.append(one)
    return At(tuple(names), tuple(kinds) or (Op,))


def alternatives(way: Way, right: Op) -> Mapping[str, Op]:
    made = way if isinstance(way, (Op, Mapping)) else way(right)
    return {"": made} if isinstance(made, Op) else made


# --- rules ---


def alternatives_by_step(way: Way, right: Mapping[str, Op]) -> dict[str, Mapping[str, Op]]:
    """The wrong ops of each step, without the steps that have none."""
    by_step = {name: alternatives(way, op) for name, op in right.items()}
    return {name: ops for name, ops in by_step.items() if ops}


def find_mask(case: WrongStep) -> Hide | None:
    op = case.op(MASKED)
    return op if isinstance(op, Hide) else None


def rules_of_kind(case: WrongStep, kind: type[R]) -> list[R]:
    hide = find_mask(case)
    if hide is None:
        return []
    return [rule for rule in hide.rules if isinstance(rule, kind)]


def swap_rule(case: WrongStep, rule: VisibilityRule, *others: VisibilityRule) -> WrongStep:
    """Other rules (or none) in the place of one."""
    hide = find_mask(case)
    assert hide is not None  # it has this rule
    rules: list[VisibilityRule] = []
    for old in hide.rules:
        # Two rules may be equal: only the one that is asked for is swapped.
        rules += others if old is rule else (old,)
    return case.put(MASKED, replace(hide, rules=tuple(rules)))


def rule_instead(kind: type[R], make: Callable[[R], Iterable[tuple[str, list[VisibilityRule]]]]) -> Plants:
    """Plants other rules for each of a kind, as they are made of it, with what is said of them."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        for rule in rules_of_kind(case, kind):
            for detail, others in make(rule):
                yield Plant(swap_rule(case, rule, *others), detail)

    return plants


# --- numbers that are fitted ---

AS_WELL = 1.02
"""A shorter number fits as well when it leaves at most so many times what the best one leaves."""

BY_CHANCE = 1 / 64
"""The part of what rounding one number does by which programs differ that are equal on paper."""

LOST_DIGITS = 64
"""Units of float64 that sums of a step may be off by, though each of its ops is right."""

MOST_REFINED = 2
"""Starts that are refined, those that come nearest."""

MOST_STEPS = 12
"""Steps of Gauss and Newton: from a start that is near, five are enough."""

SETTLED = 1e-12
"""A value has settled when it moves by no more than this part of it."""

OF_SLOPE = 1e-6
"""The part by which a value is moved to see the slope: small, and far above what float64 tells apart."""

Program = Callable[[float], WrongStep]


def fit_value(case: WrongStep, make: Program, starts: Sequence[float]) -> float | None:
    """The value with which a program best reproduces the step that disagrees; None where none does."""
    misfit_of_right = case.misfit(case.expected.value)
    by_misfit: list[tuple[float, float]] = []
    for start in starts:
        misfit = case.misfit(make(start).value())
        by_misfit.append((misfit, start))
    nearest = sorted(by_misfit)[:MOST_REFINED]

    for misfit, start in nearest:
        if not isfinite(misfit):
            continue
        value = refine_value(case, make, start)
        if value and case.misfit(make(value).value()) < misfit_of_right:
            return value
    return None


def refine_value(case: WrongStep, make: Program, start: float) -> float:
    """The value near this one at which the squares of what is left are least; 0 where none is near."""
    value = start
    largest_step = inf
    for _ in range(MOST_STEPS):
        step = newton(case, make, value)
        diverges = abs(step) > 2 * largest_step
        if not isfinite(step) or diverges:
            return 0.0
        largest_step = max(abs(step), abs(value))

        # The sign stays: numbers of the other sign have starts of their own.
        least = -abs(value) / 2
        most = abs(value)
        value += float(np.clip(step, least, most))
        if abs(step) <= SETTLED * abs(value):
            break
    return value


def newton(case: WrongStep, make: Program, value: float) -> float:
    """The step of Gauss and Newton: ⟨slope, what is left⟩ / ⟨slope, slope⟩."""
    width = OF_SLOPE * abs(value)
    here = make(value).value()
    beside = make(value + width).value()
    if here is None or beside is None:
        return nan

    slope = (beside - here) / width
    is_told = np.isfinite(case.found) & np.isfinite(slope) & np.isfinite(here)
    slope = slope[is_told]
    if not slope.any():
        return nan

    left = (case.found - here)[is_told]
    along = (slope * left).sum()
    squares = (slope * slope).sum()
    return float(along / squares)


def closest(case: WrongStep, tried: Iterable[tuple[T, WrongStep | None]]) -> tuple[T, WrongStep] | None:
    """Of programs the one that best gives the step that disagrees, if one is better than the right one."""
    by_chance = BY_CHANCE * rounding_floor(case)
    least = case.misfit(case.expected.value)
    best = None
    for detail, program in tried:
        if program is None:
            continue
        misfit = case.misfit(program.value())
        if least - misfit > by_chance:
            least = misfit
            best = (detail, program)
    return best


def planted_best(case: WrongStep, tried: Iterable[tuple[str, WrongStep | None]]) -> Iterator[Plant]:
    """The plant that fits best, of programs with what is said of each, if any; or the one asked for."""
    if case.like:
        for detail, program in tried:
            if program and detail == case.like.detail:
                yield Plant(program, detail)
        return

    best = closest(case, tried)
    if best:
        detail, program = best
        yield Plant(program, detail)


def planted_fit(
    case: WrongStep, make: Program, starts: Sequence[float], say: Callable[[float], str | None]
) -> Iterator[Plant]:
    """The plant of the value that fits best, or of a number that people write if that fits as well.

    None where there are no words for it: another mistake has that number.
    """
    if case.like:
        number = case.like.number
    else:
        fit = fit_value(case, make, starts)
        number = as_written(case, make, fit) if fit else None
    if number is None:
        return

    detail = say(number)
    if detail is not None:
        yield Plant(make(number), detail, number)


def as_written(case: WrongStep, make: Program, value: float) -> float:
    """The first number that people write and that fits as well as this value; else the value."""
    by_rounding = LOST_DIGITS * FLOAT64.unit * size_of(case.found)
    most = AS_WELL * case.misfit(make(value).value()) + by_rounding
    for short in people_write(value):
        is_near = abs(short - value) <= abs(value) / 4
        if is_near and case.misfit(make(short).value()) <= most:
            return short
    return value


def people_write(value: float) -> Iterator[float]:
    """Numbers near this one: one or two digits, roots of whole numbers and one over them, three digits."""
    sign = 1.0 if value > 0 else -1.0
    for digits in (1, 2):
        yield float(f"{value:.{digits}g}")

    # Beyond these the square, or one over it, is no number that could be told from a whole one.
    has_square = 1e-9 < abs(value) < 1e9
    for power in (2, -2):
        whole = round(abs(value) ** power) if has_square else 0
        if 0 < whole < 100_000:  # above this every number is near the root of a whole one
            yield float(sign * whole ** (1 / power))

    yield float(f"{value:.3g}")


def rounding_floor(case: WrongStep) -> float:
    """What rounding one number of a step does, root mean square."""
    unit = case.record.precision(case.first).unit
    least_unit = LOST_DIGITS * FLOAT64.unit
    return max(unit, least_unit) * size_of(case.found)


def size_of(array: Array) -> float:
    """The root mean square of the numbers that are finite."""
    finite = array[np.isfinite(array)]
    if not finite.size:
        return 0.0
    return float(np.sqrt(np.mean(np.square(finite))))


def spoken(value: float, right: float = 1.0) -> str:
    """Four digits or so, and the root that the number is: "4.123 (√17)"."""
    sign = "−" if value < 0 else ""
    text = sign + in_digits(abs(value), right)

    square_of = value * value
    whole = round(square_of)
    is_root = square_of > 1.5 and abs(square_of - whole) < 1e-9 * whole
    is_whole = round(sqrt(whole)) ** 2 == whole
    return f"{text} ({sign}√{whole})" if is_root and not is_whole else text


def spoken_after(words: str) -> Callable[[float], str]:
    return lambda value: words + spoken(value)


def in_digits(value: float, right: float = 1.0, fewest: int = 4) -> str:
    """As few digits as tell a number from the `right` one: 1.000001, not 1."""
    for digits in range(fewest, 16):
        text = f"{value:.{digits}g}"
        if text != f"{right:.{digits}g}":
            return text
    return f"{value:.{fewest}g}"


def ends(size: int) -> list[int]:
    """Distances to try on an axis of this size: all near ones, then powers of two and those beside them."""
    far: set[int] = set()
    for power in range(6, size.bit_length() + 1):
        whole = 2**power
        far |= {whole - 1, whole, whole + 1}

    def is_tried(distance: int) -> bool:
        from_the_end = size - distance
        return distance <= 64 or from_the_end <= 32 or distance in far

    return [distance for distance in range(size) if is_tried(distance)]


def shifts(most: int) -> list[int]:
    """Distances to try both ways, up to this one, and 64 at most."""
    farthest = min(most, 64)
    return [by for by in range(-farthest, farthest + 1) if by]


LARGEST_BLOCK = 2**11
OTHER_BLOCKS = {3, 5, 6, 10, 12, 20, 24, 40, 48, 80, 96, 100, 160, 192}
"""Sizes of blocks that kernels and tests have beside powers of two."""


def blocks_of_keys(case: WrongStep) -> list[int]:
    """Sizes of blocks that keys may be cut into; larger ones, too, where another case has one."""
    keys = case.size("key") or 0
    size = LARGEST_BLOCK + 1 if case.like else keys
    powers = {2**power for power in range(1, 12)}
    return sorted(block for block in powers | OTHER_BLOCKS if block < size)
