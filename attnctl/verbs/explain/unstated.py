"""Explain the lines that a foreign dump does not state, from what they were meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import derive_intent
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import leaves
from attnctl.math.ops import Given, Unstated
from attnctl.record.trace import Trace


class Filled(Mapping[str, Array]):
    """The arrays of a dump, kept once read; steps that it leaves out are computed when asked for."""

    def __init__(self, recorded: Mapping[str, Array], steps: Mapping[str, Step]) -> None:
        self.recorded, self.steps = recorded, steps
        self.known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self.known:
            self.known[name] = self.recorded[name] if name in self.recorded else self.compute(name)
        return self.known[name]

    def compute(self, name: str) -> Array:
        """A step that is not recorded."""
        step = self.steps[name]
        with np.errstate(all="ignore"):
            return step.op.apply(*(self[each] for each in step.inputs))

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)


def restate(trace: Trace, settings: Settings | None) -> Trace:
    """The trace with a line for each step whose line is not recorded, as far as that can be told.

    Its arrays are in our layout, and steps between that were left out are computed where they are
    asked for. `settings` say what kind of attention it is meant to be. Raises AttnError where they
    are given but nothing is left for them to say.
    """
    if not any(isinstance(step.op, Unstated) for step in trace.steps.values()):
        if settings is not None:
            raise AttnError(
                "this dump says itself how each number came about; leave out the options for attention "
                "(they say what the arrays of other programs were meant to be)"
            )
        return replace(trace, arrays=Filled(trace, trace.steps))
    intent = derive_intent(trace, settings or Settings())
    arrays = {**trace, **intent.trace}
    lines = {step.name: step for step in available(intent.derivation, arrays)}
    others = {
        name: step for name, step in {**trace.steps, **intent.trace.steps}.items() if name not in lines
    }
    steps = {name: describe_step(step, arrays) for name, step in {**lines, **others}.items()}
    return replace(trace, steps=steps, arrays=Filled(arrays, steps))


def describe_step(step: Step, arrays: Mapping[str, Array]) -> Step:
    """The step with as many axes as its numbers have; one that can only have been handed in says so."""
    axes = step.axes
    if step.name in arrays and len(axes) != arrays[step.name].ndim:
        axes = tuple(f"axis {at}" for at in range(arrays[step.name].ndim))
    if isinstance(step.op, Unstated) and step.name in leaves():
        return Step(step.name, Given(), (), axes, "given", step.symbol)
    return Step(step.name, step.op, step.inputs, axes, step.formula, step.symbol)


def available(lines: Iterable[Step], arrays: Mapping[str, Array]) -> Iterator[Step]:
    """The lines whose numbers are recorded, or can be computed from those that are."""
    there = set(arrays)
    for step in lines:
        computable = not isinstance(step.op, Given | Unstated) and all(
            name in there for name in step.inputs
        )
        if step.name in arrays or computable:
            there.add(step.name)
            yield step
