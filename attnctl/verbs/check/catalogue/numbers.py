"""Mistakes of arithmetic: too few digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.array import Array
from attnctl.ops import Given, Unstated
from attnctl.verbs.check import wrong
from attnctl.verbs.check.mistake import Case, Mistake, Plant
from attnctl.verbs.check.precision import BFLOAT16, FLOAT16, FLOAT32, Precision, on_grid
from attnctl.verbs.check.precision import rounded as nearest

WITHIN = 16
"""How far the size of errors may be from that of a simulation: programs round in different places."""


def stretch(case: Case) -> set[str]:
    """The step that disagrees and the unrecorded ones it was computed from."""
    wanted, found = [case.first], set()
    while wanted:
        step = case.derivation[wanted.pop()]
        if isinstance(step.op, (Given, Unstated)) or step.name in found:
            continue
        found.add(step.name)
        wanted += [name for name in step.inputs if name not in case.record]
    return found


def simulated(case: Case, steps: set[str], precision: Precision) -> Array | None:
    """The step that disagrees, every input and result on the way rounded; None where it cannot be told."""
    values: dict[str, Array] = {}
    for step in case.derivation:
        if step.name not in steps:
            continue
        if any(
            name not in values and (name not in case.record or name in case.record.blanks)
            for name in step.inputs
        ):
            return None
        inputs = [values[name] if name in values else case.record.value(name) for name in step.inputs]
        result = step.op.apply(*(x if x.dtype == bool else nearest(x, precision) for x in inputs))
        values[step.name] = nearest(result, precision)
    return values[case.first]


def looks_rounded(case: Case, rounded: Array, precision: Precision) -> bool:
    """Whether the numbers are off as far as rounding puts them off, neither much more nor much less."""
    found, right = case.found, case.expected.value
    if not (np.isfinite(found) | ~np.isfinite(rounded)).all():
        return False
    told = np.isfinite(found) & np.isfinite(rounded) & np.isfinite(right)
    if not told.any():
        return True
    off = np.abs(found[told] - right[told])
    parts = off[right[told] != 0] / np.abs(right[told])[right[told] != 0]
    if parts.size and np.median(parts) < precision.unit / 64 and not on_grid(found[told], precision.bits):
        return False  # rounding spares few
    typical, size = (float(np.sqrt(np.square(x[told] - right[told]).mean())) for x in (found, rounded))
    most = float(np.abs(rounded[told] - right[told]).max())
    return size / WITHIN <= typical <= 4 * size and float(off.max()) <= 4 * most


def rounded(case: Case) -> Iterator[Plant]:
    """Every unrecorded step on the way in fewer digits."""
    steps = stretch(case)
    for precision in (FLOAT32, FLOAT16, BFLOAT16):
        if precision.bits >= case.record.precision(case.first).bits:
            continue
        value = simulated(case, steps, precision)
        if value is not None and looks_rounded(case, value, precision):
            ops = {
                name: wrong.Coarse(case.derivation[name].op, precision.unit, precision.largest)
                for name in steps
            }
            yield Plant(case.put_all(ops), precision.name)


NUMBERS = (
    Mistake(
        "low-precision",
        ("Q", "K", "V", "scores", "attention_weights", "head_outputs", "output"),
        "it is computed in {}",
        "compute it in the type of the other steps, and round at the end",
        rounded,
        exact=False,
    ),
)
