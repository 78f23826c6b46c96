"""A layer of a model as a decent program in some type of number has it, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.allowed import FACTOR
from attnctl.evidence.precision import FLOAT32, Precision, round_to
from attnctl.evidence.rounded import carry_out_rounded
from attnctl.evidence.rounding import Known, round_at_random
from attnctl.math import Array, Shape
from attnctl.math.names import RESIDUAL, X
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import attend_plainly, final_norm, finish
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.tensors import Checkpoint

ROUTINGS = 32
"""Runs that say to which experts else a row may go."""


class RoundedCheckpoint(Checkpoint):
    """A checkpoint whose numbers are those that a model of this precision has."""

    def __init__(self, of: Checkpoint, precision: Precision) -> None:
        super().__init__(of.folder, of.block)
        self.precision = precision

    def read(
        self, name: str, shape: Shape, dtype: str, part: Any = ..., room: Array | None = None
    ) -> Array:
        return round_to(super().read(name, shape, dtype, part, room), self.precision)


@dataclass
class RoundedTensors(LayerTensors):
    """A layer whose norms and products are rounded at random to this unit, in run `number`."""

    unit: float = 0.0
    number: int = 0
    routing: float = FACTOR
    """Routers are rounded to so many units: what is chosen jumps, and the runs have to show how far."""

    def read(self, use: str, suffix: str, shape: Shape, part: Any = ..., **numbers: int) -> Array:
        unit = self.unit * (self.routing if use == "router" else 1.0)
        array = super().read(use, suffix, shape, part, **numbers)
        return round_at_random(array, unit, f"{use}{suffix} {numbers}", self.number)

    def multiply(self, use: str, x: Array, columns: int, **numbers: int) -> Array:
        of_sums = min(self.unit, FLOAT32.unit) * sqrt(x.shape[-1])
        out = super().multiply(use, self.round(x, f"{use} of {numbers}"), columns, **numbers)
        return round_at_random(out, self.unit + of_sums, f"{use} {numbers}", self.number)

    def norm(self, use: str, x: Array) -> Array:
        return self.round(super().norm(use, x), f"{use} made") if self.has(use) else x

    def round(self, x: Array, name: str) -> Array:
        return round_at_random(x, self.unit, name, self.number)


@dataclass(frozen=True)
class RoundedLayer:
    """A layer run on what came into it: exactly, and as programs that round to this unit have it."""

    model: Model
    index: int
    unit: float
    hidden: Array
    end: bool = False
    """Whether its rows go through the final norm."""

    @cached_property
    def tensors(self) -> LayerTensors:
        return self.model.layer(self.index)

    @cached_property
    def attended(self) -> Mapping[str, Array]:
        return attend_plainly(self.tensors, self.hidden, None, cross=False)

    @cached_property
    def right(self) -> Array:
        return self.finish(self.tensors, self.attended, slice(None))

    def finish(self, tensors: LayerTensors, attended: Mapping[str, Array], rows: Any) -> Array:
        out = finish(tensors, self.hidden[rows], attended[X][rows], attended[RESIDUAL][rows])
        return final_norm(self.model, out) if self.end else out

    def run(self, number: int) -> Array:
        plan = prepare_attention(self.tensors, self.hidden)
        attended = carry_out_rounded(plan.derivation, plan.given, (X, RESIDUAL), self.unit, number)
        tensors = RoundedTensors(self.model, self.index, unit=self.unit, number=number)
        out = self.finish(tensors, attended, slice(None))
        return round_at_random(out, self.unit, "made", number)

    @property
    def known(self) -> Known:
        return Known(self.right, self.run)

    def with_routings(self, after: Array, rows: Array) -> Array:
        """What is right, some rows with those experts of the ones they may go to that come nearest."""
        right = self.right.copy()
        for number in range(ROUTINGS):
            tensors = RoundedTensors(self.model, self.index, unit=self.unit, number=number)
            other, best = self.finish(tensors, self.attended, rows), right[rows]
            nearer = np.abs(other - after[rows]).max(-1) < np.abs(best - after[rows]).max(-1)
            right[rows] = np.where(nearer[:, None], other, best)
        return right
