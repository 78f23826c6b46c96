"""Recorded steps of which nobody can tell whether they are right, and what to record for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attnctl.ops import Given, Unstated
from attnctl.verbs.check.evidence import stretch
from attnctl.verbs.check.record import Record
from attnctl.verbs.check.walk import Checked, Verdict, Walk


@dataclass(frozen=True)
class Untold:
    """A recorded step that could not be judged: why, and which steps to record too."""

    step: str
    words: str
    record: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"step": self.step, "words": self.words, "record": list(self.record)}


def untold(record: Record, walk: Walk, steps: Mapping[str, Checked]) -> Iterator[Untold]:
    """Every recorded step that could not be judged."""
    for name, checked in steps.items():
        if name not in walk.derivation or isinstance(walk.derivation[name].op, Given):
            continue
        if checked.verdict is Verdict.CANNOT_TELL:
            yield blurred(record, walk, name, checked)
        elif checked.verdict is Verdict.NOT_CHECKABLE:
            yield unfounded(record, walk, name)


def blurred(record: Record, walk: Walk, name: str, checked: Checked) -> Untold:
    """A step that rounding may put too far off: the unrecorded steps next to what is recorded would help."""
    steps = stretch(walk.derivation, record, name)[:-1]
    unrecorded = {step.name for step in steps}
    first = tuple(step.name for step in steps if unrecorded.isdisjoint(step.inputs))
    precision = record.unrecorded.name if steps else record.precision(name).name
    why = f"rounding in {precision} may put it off by {checked.blurred:.0%} of what tells its numbers apart"
    return Untold(name, why, first)


def unfounded(record: Record, walk: Walk, name: str) -> Untold:
    """A step that nothing recorded leads to."""
    step = walk.derivation[name]
    if isinstance(step.op, Unstated):
        return Untold(name, "nothing says how it came about", ())
    missing = tuple(
        each for each in step.inputs if each not in record and walk.values.get(each) is None
    )
    return Untold(name, "what it is computed from is not recorded", missing)
