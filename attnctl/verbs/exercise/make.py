"""A run as an exercise: some of its steps blank, and nothing in it that gives them away."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.trace import Trace, require_steps
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.sentence import prepare
from attnctl.math.ops import Given
from attnctl.store.digits import pieces
from attnctl.store.header import entry, heading
from attnctl.store.strict_json import encode_json, json_text

SEEDS = 2**31
"""How many seeds there are to be drawn from names."""

DECIMALS = 4


@dataclass(frozen=True)
class Exercise:
    """What is handed out: the run without the steps that follow from the blank ones, and those blank."""

    trace: Trace
    blank: tuple[str, ...]
    left_out: tuple[str, ...]
    """Steps that would give the blank ones away."""


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
    kept = trace.select([name for name in trace if name not in after])
    told: dict[str, Any] = {
        "exercise": f"Fill in every null, to {decimals} decimals; the last may be off by one.",
        "decimals": decimals,
        **({} if student is None else {"student": student}),
        "blank": names,
    }
    return Exercise(Trace(kept.steps, kept.arrays, {**kept.header, **told}), tuple(names), tuple(after))


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


def sheet_text(exercise: Exercise) -> str:
    """The exercise as a dump, null in its blanks, a row of a matrix to a line."""
    trace = exercise.trace
    lines = [f"{json_text(key)}: {json_text(value)}" for key, value in heading(trace).items()]
    steps = [step_text(trace, name, blank=name in exercise.blank) for name in trace]
    text = "{\n" + ",\n".join([*lines, '"steps": {\n' + ",\n".join(steps) + "}"]) + "}\n"
    return encode_json(text).decode()


def step_text(trace: Trace, name: str, *, blank: bool) -> str:
    """A step as its line of JSON, its numbers below it."""
    array = np.full_like(trace[name], np.nan) if blank else trace[name]
    data = b"".join(pieces(array)).decode()
    if blank:
        data = data.replace('"NaN"', "null")
    about = json_text(entry(trace.steps[name], array))
    return f'{json_text(name)}: {about[:-1]}, "data":\n{data}}}'
