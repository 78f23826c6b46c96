"""A run as an exercise: some of its steps blank, and nothing in it that gives them away."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.sentence import prepare
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.engine.execute import Edit, carry_out
from attnctl.math.ops import Given
from attnctl.record.trace import Trace, require_steps

SEEDS = 2**31
"""How many seeds there are to be drawn from names."""

DECIMALS = 4


@dataclass(frozen=True)
class Exercise:
    """A run without the steps that follow from the blank ones, and NaN in the blank ones."""

    trace: Trace
    blank: tuple[str, ...]
    decimals: int
    steps: tuple[Step, ...]
    """Every step of the run, in order."""
    student: str | None = None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Steps that would give the blank ones away."""
        return tuple(step.name for step in self.steps if step.name not in self.trace)


def seed_from(name: str) -> int:
    """The seed of a student: the same on every machine; spaces around a name and its case do not matter."""
    word = " ".join(name.split()).casefold()
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % SEEDS


def make(
    settings: Settings, blank: Sequence[str], student: str | None = None, decimals: int = DECIMALS
) -> Exercise:
    """The exercise of a run with these steps blank; a `student` has numbers of their own.

    Raises AttnError for a step that is not there or not computed, and for a student whose numbers
    would be those of everybody.
    """
    if student is not None:
        settings = settings.with_(seed=seed_from(student))
    trace = prepare(settings).run()
    require_steps(blank, list(trace))
    raise_all(
        ["--blank: no step in it; name steps that are computed, like scores"] * (not blank)
        + [
            f"--blank {name}: it is given, not computed; blank a step that follows from it"
            for name in blank
            if isinstance(trace.steps[name].op, Given)
        ]
    )
    if student is not None and same_for_all(settings, trace):
        raise AttnError(
            "--seed-from: nothing in this config is drawn from the seed, so all students would have the "
            "same numbers; leave out embeddings or weights, or a seed beside them"
        )
    names = [name for name in trace if name in set(blank)]
    after = following(trace, names)
    numbers = round_given(trace, names, decimals)
    numbers |= {name: np.full_like(trace[name], np.nan) for name in names}
    told: dict[str, Any] = {
        "exercise": f"Fill in every null, to {decimals} decimals; the last may be off by one.",
        "decimals": decimals,
        "rounded": decimals,
        **({} if student is None else {"student": student}),
        "blank": names,
    }
    kept = {name: step for name, step in trace.steps.items() if name not in after}
    handed_out = Trace(kept, {name: numbers[name] for name in kept}, {**trace.header, **told})
    return Exercise(handed_out, tuple(names), decimals, tuple(trace.steps.values()), student)


def round_given(trace: Trace, blank: Sequence[str], decimals: int) -> dict[str, Array]:
    """The numbers of a run in which each that is handed out is rounded before the next step reads it."""
    unseen = {*blank, *following(trace, blank)}
    edited = {each["step"] for each in trace.header.get("edits", ())}

    def round_in(name: str) -> Edit:
        return lambda value: round_to(trace[name] if name in edited else value, decimals)

    edits = {name: round_in(name) for name in trace if name not in unseen}
    return carry_out(trace.derivation, trace, trace.config.get("dtype", "float64"), edits=edits).values


def round_to(array: Array, decimals: int) -> Array:
    return np.round(array, decimals) + array.dtype.type(0) if array.dtype.kind == "f" else array


def same_for_all(settings: Settings, trace: Trace) -> bool:
    other = prepare(settings.with_(seed=(settings.seed + 1) % SEEDS)).run()
    return all(np.array_equal(trace[name], other[name], equal_nan=True) for name in trace)


def following(trace: Trace, blank: Sequence[str]) -> list[str]:
    """The steps that are computed from blank ones and are not blank themselves."""
    found: list[str] = []
    for name, step in trace.steps.items():
        if name not in blank and any(each in blank or each in found for each in step.inputs):
            found.append(name)
    return found
