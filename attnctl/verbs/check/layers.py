"""The first wrong layer of a port: what came into each, beside what the model makes of what came before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import allowed_error
from attnctl.evidence.precision import own
from attnctl.math import Array
from attnctl.models.forward import attend_plainly, final_norm, through
from attnctl.models.layer import Model
from attnctl.models.source import open_model

NUMBERED = re.compile(r"(?:hidden|hidden_states|layer|resid)[_.\-]?(\d{1,5})")

RUNS = 4
"""Runs of a layer, each on hidden states that are rounded another way."""

TIMES = 16.0
"""A decent program may be off by so many times what these runs scatter: few, and of inputs alone."""


@dataclass(frozen=True)
class LayerCheck:
    """A layer's rows, beside those it should have made of what came into it."""

    layer: int
    largest: float
    allowed: float
    at: tuple[int, ...]

    @property
    def agrees(self) -> bool:
        return self.largest <= self.allowed


def read_states(arrays: Mapping[str, Array], width: int) -> list[Array]:
    """The rows that came into each layer: hidden_0, hidden_1, …, or one array (layer, token, width)."""
    numbered = {
        int(found[1]): array
        for name, array in arrays.items()
        if (found := NUMBERED.fullmatch(name.lower()))
    }
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
    wrong = [index for index, row in enumerate(rows) if row.ndim != 2 or row.shape != (len(rows[0]), width)]
    if wrong:
        shape = rows[wrong[0]].shape
        raise AttnError(f"hidden_{wrong[0]}: {shape}, expected (token, {width}) as config.json says")
    return [row.astype(np.float64) for row in rows]


def check_port(name: str, trace: Mapping[str, Array]) -> list[LayerCheck]:
    """Each layer of a model on what came into it, as a dump of a port has that."""
    model = open_model(name, dtype="float64")
    states = read_states(dict(trace), model.description["width"])
    return list(check_layers(model, states, max(own(state).unit for state in states)))


def check_layers(model: Model, states: list[Array], unit: float) -> Iterator[LayerCheck]:
    """Each layer run in float64 on what came into it, beside what came into the next.

    What rounding explains is found by running it on states that are rounded otherwise, by `unit`.
    The last state may be what left the last layer, or that through the final norm.
    """
    count = len(model.description.layers)
    if len(states) > count + 1:
        raise AttnError(f"hidden_{count + 1}: the model has {count} layers")
    for index, (before, after) in enumerate(pairwise(states)):
        ends = (False, True) if index == count - 1 else (False,)
        found = [check_layer(model, index, before, after, unit, end=end) for end in ends]
        yield min(found, key=lambda each: each.largest)


def check_layer(
    model: Model, index: int, before: Array, after: Array, unit: float, *, end: bool
) -> LayerCheck:
    """Compare one layer (through the final norm where it is the `end`) with what was recorded."""

    def made(hidden: Array) -> Array:
        out = through(model.layer(index), hidden, None, attend_plainly)
        return final_norm(model, out) if end else out

    noise = np.random.RandomState(0)
    right = made(before)
    moved = [before * (1 + unit * noise.uniform(-1, 1, before.shape)) for _ in range(RUNS)]
    scatter = np.mean([np.square(made(state) - right) for state in moved], axis=0)
    row = np.sqrt(scatter.mean(axis=-1, keepdims=True))
    size = np.sqrt(np.square(right).mean(axis=-1, keepdims=True))
    allowed = allowed_error(after, row + unit * size, 2 * unit, factor=TIMES)
    gap = np.abs(right - after)
    worst = np.unravel_index(int(np.argmax(gap / allowed)), after.shape)
    at = tuple(int(layer) for layer in worst)
    return LayerCheck(index, float(gap[at]), float(allowed[at]), at)
