"""Mistakes of arithmetic: too few digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.evidence.precision import BFLOAT16, FLOAT16, FLOAT32, Precision
from attnctl.evidence.precision import round_to as nearest
from attnctl.evidence.recompute import Rounding, keep_digits, on_its_grid, recompute, same_errors
from attnctl.evidence.rows import stretch
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep

FAR_BEYOND = 10.0
"""How many times the most that fewer digits change half of the numbers may not be off by them."""


def plant_fewer_digits(case: WrongStep) -> Iterator[Plant]:
    """Every unrecorded step on the way in fewer digits, or one of them, where the numbers show it."""
    steps = stretch(case.derivation, case.record, case.first)
    every = [{step.name for step in steps}, *({step.name} for step in steps if len(steps) > 1)]
    for precision in (FLOAT32, FLOAT16, BFLOAT16):
        if precision.bits >= case.record.precision(case.first).bits:
            continue
        for names in every:
            value = simulate_precision(case, steps, names, precision)
            if shown(case, value, precision):
                ops = {
                    name: wrong.Coarse(case.derivation[name].op, precision.unit, precision.largest)
                    for name in names
                }
                yield Plant(case.put_all(ops), precision.name)
            elif names == every[0] and too_far(case, value):
                break


def simulate_precision(
    case: WrongStep, steps: list[Step], names: set[str], precision: Precision
) -> Array | None:
    """The step that disagrees, inputs and results of these steps rounded."""

    def short(step: Step) -> Rounding:
        return (lambda x: nearest(x, precision)) if step.name in names else keep_digits

    return recompute(case.record, steps, lambda step, _: short(step), short)


def too_far(case: WrongStep, value: Array | None) -> bool:
    """True where all is off by far more than with every step in fewer digits: one of them gives less."""
    if value is None:
        return False
    told = np.isfinite(case.found) & np.isfinite(case.expected.value)
    off, by_rounding = (np.abs(each - case.expected.value)[told] for each in (case.found, value))
    return bool(
        off.size and np.isfinite(by_rounding).all() and np.median(off) > FAR_BEYOND * by_rounding.max()
    )


def shown(case: WrongStep, value: Array | None, precision: Precision) -> bool:
    found, right = case.found, case.expected.value
    if value is None:
        return False
    least = case.record.precision(case.first).smallest
    return same_errors(found, right, value, least) or on_its_grid(found, right, value, precision)


NUMBERS = (
    Mistake(
        "low-precision",
        ("Q", "K", "V", "scores", "attention_weights", "head_outputs", "output"),
        "it is computed in {}",
        "compute it in the type of the other steps, and round at the end",
        plant_fewer_digits,
        exact=False,
        why="An autocast region, or a kernel that multiplies in TF32 or half precision.",
        example="scores = (np.float16(Q) @ np.float16(K).swapaxes(-1, -2)).astype(float)",
    ),
)
