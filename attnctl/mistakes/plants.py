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
    yield from dict.fromkeys([*several, *single, *combinations(names, 2)])


def square(case: WrongStep) -> bool:
    return case.size("query") == case.size("key")


@dataclass(frozen=True)
class At:
    """Steps at which a mistake may be made: those of them that have an op of the right kind."""

    names: tuple[str, ...]
    kind: type[Op] | tuple[type[Op], ...]
    condition: Callable[[WrongStep], bool] = field(default=lambda _: True)
    groups: Groups = all_or_one
    """Which of the steps go wrong together."""

    def where(self, condition: Callable[[WrongStep], bool]) -> At:
        return replace(self, condition=lambda case: self.condition(case) and condition(case))

    def together(self, groups: Groups = lambda *names: [names] if names else []) -> At:
        return replace(self, groups=groups)

    def right(self, case: WrongStep) -> dict[str, Any]:
        """The right ops, by step; none where the mistake cannot be made."""
        ops = {name: case.op(name) for name in self.names}
        of_kind = {name: op for name, op in ops.items() if isinstance(op, self.kind)}
        return of_kind if of_kind and self.condition(case) else {}

    def instead(
        self, *ways: Way, reads: int | None = None, say: Callable[[Sequence[str]], str] | None = None
    ) -> Plants:
        """Plants other ops, which read so many of the inputs; the detail says the way, or the steps."""

        def plants(case: WrongStep) -> Iterator[Plant]:
            right = self.right(case)
            for way in ways:
                by_step = {name: alternatives(way, op) for name, op in right.items()}
                by_step = {name: ops for name, ops in by_step.items() if ops}
                for names in self.groups(*by_step):
                    inputs = {name: case.derivation[name].inputs[:reads] for name in names}
                    for detail in by_step[names[0]]:
                        ops = {name: by_step[name][detail] for name in names}
                        words = detail or (say(names) if say else "")
                        yield Plant(case.put_all(ops, inputs), words)

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
                return case.put_all({name: make(op, value) for name, op in right.items()})

            first_op = next(iter(right.values()))
            yield from planted_fit(case, program, starts(first_op) if callable(starts) else starts, say)

        return plants

    def best(
        self,
        make: Callable[[Any, T], Op],
        candidates: Callable[[WrongStep], Iterable[T]],
        say: Callable[[T], str] = str,
    ) -> Plants:
        """Plants ops with the candidate that fits best, if one does better than what is right."""

        def tried(case: WrongStep, right: Mapping[str, Any]) -> Iterator[tuple[str, WrongStep]]:
            for candidate in candidates(case):
                ops = {name: make(op, candidate) for name, op in right.items()}
                yield say(candidate), case.put_all(ops)

        def plants(case: WrongStep) -> Iterator[Plant]:
            right = self.right(case)
            yield from planted_best(case, tried(case, right) if right else ())

        return plants


def at(*steps_and_kinds: str | type[Op]) -> At:
    names = [one for one in steps_and_kinds if isinstance(one, str)]
    kinds = [one for one in steps_and_kinds if not isinstance(one, str)]
    return At(tuple(names), tuple(kinds) or (Op,))


def alternatives(way: Way, right: Op) -> Mapping[str, Op]:
    made = way if isinstance(way, (Op, Mapping)) else way(right)
    return {"": made} if isinstance(made, Op) else made


# --- rules ---


def find_mask(case: WrongStep) -> Hide | None:
    op = case.op(MASKED)
    return op if isinstance(op, Hide) else None


def rules_of_kind(case: WrongStep, kind: type[R]) -> list[R]:
    hide = find_mask(case)
    return [rule for rule in (hide.rules if hide else ()) if isinstance(rule, kind)]


def swap_rule(case: WrongStep, rule: VisibilityRule, *others: VisibilityRule) -> WrongStep:
    """Other rules (or none) in the place of one."""
    hide = find_mask(case)
    assert hide is not None  # it has this rule
    rules = tuple(new for old in hide.rules for new in (others if old is rule else (old,)))
    return case.put(MASKED, replace(hide, rules=rules))


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

Program = Callable[[float], WrongStep]


def fit_value(case: WrongStep, make: Program, starts: Sequence[float]) -> float | None:
    """The value with which a program best reproduces the step that disagrees; None where none does."""
    misfit_of_right = case.misfit(case.expected.value)
    nearest = sorted((case.misfit(make(start).value()), start) for start in starts)
    for misfit, start in nearest[:2]:
        value = refine_value(case, make, start) if isfinite(misfit) else 0.0
        if value and case.misfit(make(value).value()) < misfit_of_right:
            return value
    return None


def refine_value(case: WrongStep, make: Program, start: float) -> float:
    """The value near this one at which the squares of what is left are least; 0 where none is near."""
    value = start
    largest_step = inf
    for _ in range(12):  # from a start that is near, five are enough
        step = newton(case, make, value)
        if not isfinite(step) or abs(step) > 2 * largest_step:
            return 0.0
        largest_step = max(abs(step), abs(value))
        value += float(np.clip(step, -abs(value) / 2, abs(value)))
        if abs(step) <= 1e-12 * abs(value):
            break
    return value


def newton(case: WrongStep, make: Program, value: float) -> float:
    """The step of Gauss and Newton: ⟨slope, what is left⟩ / ⟨slope, slope⟩."""
    width = 1e-6 * abs(value)
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
    return float((slope * left).sum() / (slope * slope).sum())


def closest(case: WrongStep, tried: Iterable[tuple[T, WrongStep | None]]) -> tuple[T, WrongStep] | None:
    """Of programs the one that best gives the step that disagrees, if one is better than the right one."""
    by_chance = BY_CHANCE * rounding_floor(case)
    least = case.misfit(case.expected.value)
    best = None
    for detail, program in tried:
        misfit = inf if program is None else case.misfit(program.value())
        if program and least - misfit > by_chance:
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
        detail = None if number is None else say(number)
        if number is not None and detail is not None:
            yield Plant(make(number), detail, number)
        return

    value = fit_value(case, make, starts)
    if not value:
        return
    by_rounding = 64 * FLOAT64.unit * size_of(case.found)
    most = AS_WELL * case.misfit(make(value).value()) + by_rounding
    for short in people_write(value):
        is_near = abs(short - value) <= abs(value) / 4
        if is_near and case.misfit(make(short).value()) <= most:
            value = short
            break

    detail = say(value)
    if detail is not None:
        yield Plant(make(value), detail, value)


def people_write(value: float) -> Iterator[float]:
    """Numbers near this one: one or two digits, roots of whole numbers and one over them, three digits."""
    sign = 1.0 if value > 0 else -1.0
    for digits in (1, 2):
        yield float(f"{value:.{digits}g}")
    for power in (2, -2):
        whole = round(abs(value) ** power) if 1e-9 < abs(value) < 1e9 else 0
        if 0 < whole < 100_000:  # above this every number is near the root of a whole one
            yield float(sign * whole ** (1 / power))
    yield float(f"{value:.3g}")


def rounding_floor(case: WrongStep) -> float:
    """What rounding one number of a step does, root mean square."""
    unit = case.record.precision(case.first).unit
    return max(unit, 64 * FLOAT64.unit) * size_of(case.found)


def size_of(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


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
    far = {2**power + by for power in range(6, size.bit_length() + 1) for by in (-1, 0, 1)}
    return [at for at in range(size) if at <= 64 or at in far or size - at <= 32]


def shifts(most: int) -> list[int]:
    """Distances to try both ways, up to this one, and 64 at most."""
    return [by for by in range(-min(most, 64), min(most, 64) + 1) if by]


def blocks_of_keys(case: WrongStep) -> list[int]:
    """Sizes of blocks that keys may be cut into; larger ones, too, where another case has one."""
    size = 2**11 + 1 if case.like else case.size("key") or 0
    usual = {2**power for power in range(1, 12)} | {3, 5, 6, 10, 12, 20, 24, 40, 48, 80, 96, 100, 160, 192}
    return sorted(block for block in usual if block < size)
