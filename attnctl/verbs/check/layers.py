"""The first wrong layer of a port: what came into each, beside what the model makes of what came before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import FACTOR, allowed_error, root_mean_square, times_scatter, typical
from attnctl.evidence.blocks import begin_at, change_ops, cut
from attnctl.evidence.precision import FLOAT32, FLOAT64, Precision, of_run, round_to, to_float64
from attnctl.evidence.rounding import LEAST_RUNS, ULPS, Known, noise, round_at_random, run_rounded
from attnctl.math import Array, Shape
from attnctl.math.engine import steps_needed, stretch_of
from attnctl.math.names import RESIDUAL, X
from attnctl.math.ops import Given, Slope
from attnctl.math.steps import Derivation, Step
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import attend_plainly, final_norm, finish
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.source import open_model
from attnctl.models.tensors import Checkpoint

NUMBERED = re.compile(r"(?:hidden|hidden_states|layer|resid)[_.\-]?(\d{1,5})")

ROUTINGS = 32
"""Runs that say to which experts else a row may go."""

BLOCK = 2**20
"""Numbers of scores in a block of queries."""


@dataclass(frozen=True)
class LayerCheck:
    """A layer's rows, beside those it should have made of what came into it."""

    layer: int
    largest: float
    allowed: float
    at: tuple[int, ...]
    beyond: float
    """How many times what they may be all numbers are off, as a root mean square."""

    @property
    def agrees(self) -> bool:
        return self.largest <= self.allowed and self.beyond <= 1


def read_states(arrays: Mapping[str, Array], width: int, last: int | None) -> list[Array]:
    """The rows that came into each layer: hidden_0, hidden_1, …, or one array (layer, token, width).

    What leaves the model may have another width, `last`.
    """
    matched = ((NUMBERED.fullmatch(name.lower()), array) for name, array in arrays.items())
    numbered = {int(found[1]): array for found, array in matched if found}
    whole = next((arrays[name] for name in ("hidden", "hidden_states") if name in arrays), None)
    if whole is not None and whole.ndim >= 3 and not numbered:
        numbered = dict(enumerate(whole))
    if len(numbered) < 2 or sorted(numbered) != list(range(len(numbered))):
        raise AttnError(
            "without --layer, check wants what came into each layer: hidden_0, hidden_1, …, or `hidden` "
            "as (layer, token, width); with --layer N the arrays of that layer"
        )
    states = [numbered[index] for index in sorted(numbered)]
    rows = [state[0] if state.ndim == 3 and len(state) == 1 else state for state in states]
    for index, row in enumerate(rows):
        widths = (width, last or width) if index == len(rows) - 1 else (width,)
        if row.shape not in {(len(rows[0]), own) for own in widths}:
            raise AttnError(f"hidden_{index}: {row.shape}, expected (token, {width}) as config.json says")
    return rows


def check_port(name: str, trace: Mapping[str, Array]) -> list[LayerCheck]:
    """Each layer of a model run in float64 on what came into it, beside what came into the next, as dumped.

    What rounding explains is found by running it as a program would in the type that the states show,
    whose weights are of that type, too. The last state may be what left the last layer, or that through
    the final norm.
    """
    model = open_model(name, dtype="float64")
    d = model.description
    count = len(model.description.layers)
    states = read_states(dict(trace), d["width"], d["embed_width"])
    if len(states) > count + 1:
        raise AttnError(f"hidden_{count + 1}: the model has {count} layers")
    precision = of_run((), states)
    model = replace(model, checkpoint=RoundedCheckpoint(model.checkpoint, precision))
    unit = max(precision.unit, FLOAT32.unit)  # rotary angles and softmax are in float32 in a run in float64
    found = []
    for index, (before, after) in enumerate(pairwise(map(to_float64, states))):
        layer = RoundedLayer(model, index, unit, before)
        if index == count - 1:
            ends = [end for end in (layer, replace(layer, end=True)) if end.right.shape == after.shape]
            layer = min(ends, key=lambda end: float(np.abs(end.right - after).max()))
        found.append(check_layer(layer, after))
    return found


def check_layer(layer: RoundedLayer, after: Array) -> LayerCheck:
    """Compare what a layer makes with what was recorded: a few runs tell all but a few numbers."""
    known = Known(layer.right, layer.run)
    right = known.value
    few_runs = known.scatter_in(LEAST_RUNS)
    found = compare(layer.index, right, after, few_runs)
    if not found.agrees and layer.tensors.this_layer.has_experts:
        rows = np.flatnonzero((np.abs(right - after) > known.error_by(few_runs)).any(axis=-1))
        right = layer.with_routings(after, rows)
        found = compare(layer.index, right, after, few_runs)
    if found.agrees or found.beyond > 1:
        return found
    return replace(compare(layer.index, right, after, known.own_scatter), beyond=found.beyond)


def compare(index: int, right: Array, after: Array, scatter: Array) -> LayerCheck:
    """What a layer should have made beside what was recorded, by how far decent programs are off."""
    allowed = allowed_error(right, scatter, ULPS * FLOAT64.unit)
    gap = np.abs(right - after)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap / allowed)), after.shape))
    beyond = root_mean_square(times_scatter(gap, scatter)) / typical(len(after))
    return LayerCheck(index, float(gap[at]), float(allowed[at]), at, beyond)


# --- a layer as a decent program in some type of number has it, run by run ---


class RoundedCheckpoint(Checkpoint):
    def __init__(self, of: Checkpoint, precision: Precision) -> None:
        super().__init__(of.folder, of.block, of.tensors)
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

    def read(self, use: str, suffix: str, shape: Shape, part: Any = ..., **numbers: int) -> Array:
        # what a router chooses jumps, and the runs have to show how far
        unit = self.unit * (FACTOR if use == "router" else 1.0)
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
        attended = carry_out_rounded(plan.derivation, plan.given, self.unit, number)
        tensors = RoundedTensors(self.model, self.index, unit=self.unit, number=number)
        out = self.finish(tensors, attended, slice(None))
        return round_at_random(out, self.unit, "made", number)

    def with_routings(self, after: Array, rows: Array) -> Array:
        """What is right, some rows with those experts of the ones they may go to that come nearest."""
        right = self.right.copy()
        for number in range(ROUTINGS):
            tensors = RoundedTensors(self.model, self.index, unit=self.unit, number=number)
            other = self.finish(tensors, self.attended, rows)
            best = right[rows]
            nearer = np.abs(other - after[rows]).max(-1) < np.abs(best - after[rows]).max(-1)
            right[rows] = np.where(nearer[:, None], other, best)
        return right


def carry_out_rounded(
    derivation: Derivation, given: Mapping[str, Array], unit: float, number: int
) -> dict[str, Array]:
    """Attention as a program has it that rounds each step to this unit, in run `number`.

    What is given is exact. No step with a number for each query and key is ever whole.
    """
    steps = steps_needed(derivation, (X, RESIDUAL))
    values = {step.name: given[step.name] for step in steps if isinstance(step.op, Given)}
    stretch = stretch_of(steps)
    for step in steps:
        if stretch and step is stretch[0]:
            values |= carry_out_in_blocks(derivation, stretch, values, unit, number)
        elif step.name not in values and step not in stretch:
            inputs = [values[name] for name in step.inputs]
            values[step.name] = run_rounded(step.op, inputs, unit, step.name, number)
    return values


def carry_out_in_blocks(
    derivation: Derivation,
    stretch: Sequence[Step],
    values: Mapping[str, Array],
    unit: float,
    number: int,
) -> dict[str, Array]:
    """What a stretch from scores on leaves behind: its steps without keys."""
    q, k = (values[name] for name in stretch[0].inputs)
    queries = q.shape[-2]
    size = max(1, BLOCK // (prod(q.shape[:-2]) * k.shape[-2]))
    left: dict[str, list[Array]] = {step.name: [] for step in stretch if step.axes[-1] != "key"}
    for start in range(0, queries, size):
        rows = {"query": slice(start, start + size)}
        block: dict[str, Array] = {}
        for step in stretch:
            inputs = [
                block[name] if name in block else cut(values[name], derivation[name].axes, rows)
                for name in step.inputs
            ]
            op = change_ops(step.op, begin_at(start))
            name = f"{step.name} {start}"
            block[step.name] = scores = run_rounded(op, inputs, unit, name, number)
            if isinstance(op, Slope):
                # softmax cannot tell slope · key, a product and a sum that are rounded
                added = op.slopes(scores.shape) * np.arange(scores.shape[-1])
                scores += 2 * unit * added * noise(f"{name} shifted", number, scores.shape)
        for name, blocks in left.items():
            blocks.append(block[name])
    return {name: np.concatenate(blocks, axis=-2) for name, blocks in left.items()}
