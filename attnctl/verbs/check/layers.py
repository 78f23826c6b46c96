"""The first wrong layer of a port: what came into each, beside what the model makes of what came before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import allowed_error, root_mean_square, times_scatter, typical
from attnctl.evidence.precision import FLOAT32, FLOAT64, of_run, to_float64
from attnctl.evidence.rounding import LEAST_RUNS, ULPS
from attnctl.math import Array
from attnctl.models.layer import Model
from attnctl.models.source import open_model
from attnctl.verbs.check.rounded_layer import RoundedCheckpoint, RoundedLayer

NUMBERED = re.compile(r"(?:hidden|hidden_states|layer|resid)[_.\-]?(\d{1,5})")


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


def read_states(arrays: Mapping[str, Array], width: int, last: int | None = None) -> list[Array]:
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
    shapes = [{(len(rows[0]), width)} for _ in rows]
    shapes[-1].add((len(rows[0]), last or width))
    wrong = [index for index, row in enumerate(rows) if row.shape not in shapes[index]]
    if wrong:
        shape = rows[wrong[0]].shape
        raise AttnError(f"hidden_{wrong[0]}: {shape}, expected (token, {width}) as config.json says")
    return rows


def check_port(name: str, trace: Mapping[str, Array]) -> list[LayerCheck]:
    """Each layer of a model on what came into it, as a dump of a port has that."""
    model = open_model(name, dtype="float64")
    d = model.description
    return list(check_layers(model, read_states(dict(trace), d["width"], d["embed_width"])))


def check_layers(model: Model, states: list[Array]) -> Iterator[LayerCheck]:
    """Each layer run in float64 on what came into it, beside what came into the next.

    What rounding explains is found by running it as a program would in the type that the states show,
    whose weights are of that type, too. The last state may be what left the last layer, or that through
    the final norm.
    """
    count = len(model.description.layers)
    if len(states) > count + 1:
        raise AttnError(f"hidden_{count + 1}: the model has {count} layers")
    precision = of_run((), states)
    model = replace(model, checkpoint=RoundedCheckpoint(model.checkpoint, precision))
    unit = max(precision.unit, FLOAT32.unit)  # rotary angles and softmax are in float32 in a run in float64
    for index, (before, after) in enumerate(pairwise(map(to_float64, states))):
        layer = RoundedLayer(model, index, unit, before)
        if index == count - 1:
            ends = [end for end in (layer, replace(layer, end=True)) if end.right.shape == after.shape]
            layer = min(ends, key=lambda end: float(np.abs(end.right - after).max()))
        yield check_layer(layer, after)


def check_layer(layer: RoundedLayer, after: Array) -> LayerCheck:
    """Compare what a layer makes with what was recorded: a few runs tell all but a few numbers."""
    known = layer.known
    right, few_runs = known.value, known.scatter_in(LEAST_RUNS)
    found = compare(layer.index, right, after, few_runs)
    if not found.agrees and layer.tensors.this_layer.experts:
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
