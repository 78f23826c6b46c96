"""Recorded steps of which nobody can tell whether they are right, and what to record for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.record import Record
from attnctl.evidence.rows import stretch
from attnctl.evidence.walk import Checked, Verdict, Walk
from attnctl.math.ops import Given, Unstated
from attnctl.verbs.check.readings import Reading


@dataclass(frozen=True)
class Unjudged:
    """A recorded step that could not be judged: why, and which steps to record too."""

    step: str
    words: str
    record: tuple[str, ...]
    otherwise: str = ""
    """What would help where no other step does."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "step": self.step,
            "words": self.words,
            "record": list(self.record),
            "otherwise": self.otherwise or None,
        }


def find_unjudged(
    record: Record, walk: Walk, steps: Mapping[str, Checked], reading: Reading
) -> Iterator[Unjudged]:
    """Every recorded step that could not be judged."""
    for name, checked in steps.items():
        given = name not in walk.derivation or isinstance(walk.derivation[name].op, Given)
        if given or name in reading.taken:
            continue
        if name in reading.shown:
            why = "nothing says which keys it should hide; the others were judged"
            yield Unjudged(name, why, (), "Give the mask, or say --causal or --window")
        elif checked.verdict is Verdict.CANNOT_TELL:
            yield why_blurred(record, walk, name, checked)
        elif checked.verdict is Verdict.NOT_CHECKABLE:
            yield why_unfounded(record, walk, name)


def why_blurred(record: Record, walk: Walk, name: str, checked: Checked) -> Unjudged:
    """A step that rounding may put too far off; unrecorded steps next to recorded ones would help."""
    if np.isinf(checked.blurred):
        why = "what it is computed from is NaN or has overflowed, so its numbers could be anything"
        return Unjudged(name, why, (), "Record it from inputs whose numbers are finite")
    steps = stretch(walk.derivation, record, name)[:-1]
    unrecorded = {step.name for step in steps}
    first = tuple(step.name for step in steps if unrecorded.isdisjoint(step.inputs))
    kind = str(record.strictness)
    if record.strictness.decimals is None:
        kind += f" in {(record.unrecorded if steps else record.precision(name)).name}"
    why = f"{kind} may put it off by {checked.blurred:.0%} of how far its numbers vary"
    return Unjudged(name, why, first, "Record it and what it is computed from in more digits")


def why_unfounded(record: Record, walk: Walk, name: str) -> Unjudged:
    """A step that nothing recorded leads to."""
    step = walk.derivation[name]
    if isinstance(step.op, Unstated):
        why = "nothing says how it came about"
        option = f"; {step.op.option} would, and was not given" if step.op.option else ""
        return Unjudged(name, why + option, (), "Say so by the options, or leave it out")
    missing = tuple(each for each in step.inputs if each not in record and walk.values.get(each) is None)
    return Unjudged(name, "what it is computed from is not recorded", missing)
