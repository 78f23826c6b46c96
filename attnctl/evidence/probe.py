"""One step of a program that makes a mistake, computed as values alone: quick enough to try hundreds."""

from __future__ import annotations

from attnctl.base.dataclass import dataclass
from attnctl.evidence.record import Record
from attnctl.evidence.results import apply_op
from attnctl.evidence.walk import Walk
from attnctl.math import Array
from attnctl.math.derivation import Derivation
from attnctl.math.ops import Given, Unstated


@dataclass
class Probe:
    """Computes one step of a derivation from what is recorded, as values alone."""

    record: Record
    before: Walk
    derivation: Derivation
    numbers: int = 0
    """How many were computed."""

    def __post_init__(self) -> None:
        self.old = {step.name: step for step in self.before.derivation}
        self.new = {step.name: step for step in self.derivation}
        self.values: dict[str, Array | None] = {}
        self.changed: dict[str, bool] = {}

    def compute(self, name: str) -> Array | None:
        """The step's value by its inputs; None where they do not tell."""
        step = self.new[name]
        if isinstance(step.op, (Given, Unstated)):
            return None
        inputs = [self.input(each) for each in step.inputs]
        told = [each for each in inputs if each is not None]
        if len(told) < len(inputs):
            return None
        value = apply_op(step.op, *told)
        self.numbers += value.size
        return value

    def input(self, name: str) -> Array | None:
        """The value of a step above: recorded, known from before, or computed."""
        if self.record.tells(name):
            return self.record.value(name)
        if name not in self.values:
            self.values[name] = self.recompute(name)
        return self.values[name]

    def recompute(self, name: str) -> Array | None:
        """The value of a step that is not recorded, computed anew only where its like was not before."""
        if not self.is_changed(name):
            known = self.before.values[name]
            return None if known is None else known.value
        return self.compute(name)

    def is_changed(self, name: str) -> bool:
        """True for a step that is another one than before, or is computed from such as is not recorded."""
        if name not in self.changed:
            step = self.new[name]
            computed = (each for each in step.inputs if not self.record.tells(each))
            self.changed[name] = step is not self.old.get(name) or any(map(self.is_changed, computed))
        return self.changed[name]
