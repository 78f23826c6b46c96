"""Parts of a step, pushed through the lines that follow it.

What lines make of a sum is the sum of what they make of its parts wherever each is linear in what it reads
of them (`Op.linear`); what they read beside stays as it is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.derivation import Latest, Step, Variant, merging
from attnctl.math.names import HEAD_OUTPUTS, TABLE
from attnctl.math.ops import Given, MatMul, Unstated
from attnctl.record import Trace


class ApartError(Exception):
    """Numbers cannot be followed through these lines, or laid side by side; the message says why."""


@dataclass(frozen=True)
class Course:
    """The lines of a trace that lead on from its step `start`, in order, and float64 values of all."""

    trace: Trace
    start: str
    lines: dict[str, Step]
    known: Mapping[str, Step]
    """Every line of the trace: some make what these read beside, where that is not recorded."""
    values: dict[str, Array] = field(default_factory=dict)

    @property
    def stated(self) -> bool:
        """True if the trace itself says these lines."""
        return all(self.trace.steps.get(name) == line for name, line in self.lines.items())

    def follows(self, name: str) -> bool:
        return name == self.start or name in self.lines

    def value(self, name: str) -> Array:
        """A step on the course as its lines make it of the value of `start`; any other as recorded."""
        if name not in self.values:
            if name in self.trace and name not in self.lines:
                self.values[name] = self.trace[name].astype(np.float64)
            elif name in self.known:
                self.values[name] = self.carry_out(self.known[name], {})
            else:
                raise ApartError(f"{name} is not recorded")
        return self.values[name]

    def carry_out(self, line: Step, read: Mapping[str, Array]) -> Array:
        """What a line makes of these inputs, the others as they are."""
        inputs = [read[name] if name in read else self.value(name) for name in line.inputs]
        if isinstance(line.op, MatMul) and inputs[0].ndim and inputs[1].ndim > 1:
            inputs[:2] = without_zeros(*inputs[:2])  # a part of a step is mostly zeros

        try:
            return line.op.apply(*inputs)
        except (ValueError, IndexError) as error:
            named = zip(line.inputs, inputs, strict=True)
            shapes = ", ".join(f"{name} {array.shape}" for name, array in named)
            raise ApartError(f"{line.name} cannot be made of {shapes}") from error

    def push(self, step: str, part: Array) -> Array:
        """What a part of a step comes to in the end. Raises ApartError at a line not linear in it."""
        parts = {step: part}
        for line in self.lines.values():
            if parts.keys().isdisjoint(line.inputs):
                continue
            # What a line is linear in, and the part does not reach, adds nothing.
            zeros = {
                name: np.zeros_like(self.value(name)) for name in self.linear_in(line) if name not in parts
            }
            parts[line.name] = self.carry_out(line, parts | zeros)

        last = next(reversed(self.lines), self.start)
        return parts[last]

    def linear_in(self, line: Step) -> list[str]:
        """The inputs of a line that it is linear in together, those on the course among them."""
        followed = {number for number, name in enumerate(line.inputs) if self.follows(name)}
        for together in line.op.linear:
            if followed <= {*together}:
                return [line.inputs[number] for number in together if number < len(line.inputs)]

        read = " and ".join(line.inputs[number] for number in sorted(followed))
        raise ApartError(f"{line.name} is not linear in {read}")


def course(trace: Trace, start: str, end: str, value: Array | None = None) -> Course | None:
    """The lines from one step to another, if any; `value` replaces what is recorded of the first."""
    known = lines_of(trace)
    lines: dict[str, Step] = {}

    @cache
    def follows(name: str) -> bool:
        if name == start:
            return True
        if name not in known:
            return False
        inputs_followed = [follows(read) for read in known[name].inputs]
        if any(inputs_followed):  # all were asked: their lines stand before this one
            lines[name] = known[name]
        return name in lines

    if not follows(end):
        return None
    values = {} if value is None else {start: value}
    return Course(trace, start, lines, known, values=values)


def lines_of(trace: Trace) -> dict[str, Step]:
    """The lines that steps say they came about by; the usual ones after the heads where they do not say."""
    lines: dict[str, Step] = {}
    latest = Latest({TABLE[HEAD_OUTPUTS].symbol: HEAD_OUTPUTS})
    for step in merging(Variant(dict.fromkeys(trace, ""), d_k=1), latest):
        latest[step.symbol] = step.name  # what the next line reads under this symbol
        lines[step.name] = step

    lines |= {name: step for name, step in trace.steps.items() if not isinstance(step.op, Unstated)}
    return {name: step for name, step in lines.items() if not isinstance(step.op, Given)}


def without_zeros(a: Array, b: Array) -> tuple[Array, Array]:
    """Two factors without the columns of the first that are all 0, which add nothing to their product."""
    rows = tuple(range(a.ndim - 1))
    has_numbers: Array = np.asarray(a.any(axis=rows))
    if has_numbers.all() or len(has_numbers) != b.shape[-2]:
        return a, b
    return a[..., has_numbers], b[..., has_numbers, :]
