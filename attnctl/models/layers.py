"""The first wrong layer of a port, from what came into each of its layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from attnctl.array import Array
from attnctl.errors import AttnError
from attnctl.models.forward import attend_plainly, ended, through
from attnctl.models.layer import Model

NUMBERED = re.compile(r"(?:hidden|hidden_states|layer|resid)[_.\-]?(\d{1,5})")

RUNS = 4
"""How often a layer is run on hidden states that are rounded another way."""

TIMES = 16.0
"""How many times what these runs scatter a decent program may be off."""


@dataclass(frozen=True)
class LayerCheck:
    """What a layer made, beside what it should have made of what came into it."""

    layer: int
    largest: float
    allowed: float
    at: tuple[int, ...]

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference."""
        return self.largest <= self.allowed


def recorded_states(arrays: Mapping[str, Array], width: int) -> list[Array]:
    """What came into each layer, in order: hidden_0, hidden_1, …, or one array (layer, token, width)."""
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
    rows = [each[0] if each.ndim == 3 and len(each) == 1 else each for each in states]
    wrong = [
        index for index, each in enumerate(rows) if each.ndim != 2 or each.shape != (len(rows[0]), width)
    ]
    if wrong:
        raise AttnError(
            f"hidden_{wrong[0]}: {rows[wrong[0]].shape}, expected (token, {width}) as config.json says"
        )
    return [each.astype(np.float64) for each in rows]


def check_layers(model: Model, states: list[Array], unit: float) -> Iterator[LayerCheck]:
    """Each layer run in float64 on what came into it, beside what came into the next.

    What rounding explains is found by running it on states that are rounded otherwise, by `unit`.
    The last state may be what left the last layer, or that through the final norm.
    """
    count = len(model.description.layers)
    noise = np.random.RandomState(0)
    for index, (before, after) in enumerate(zip(states, states[1:], strict=False)):
        if index >= count:
            raise AttnError(f"hidden_{index + 1}: the model has {count} layers")
        tensors = model.layer(index)

        def made(hidden: Array, last: bool) -> Array:
            out = through(tensors, hidden, None, attend_plainly)
            return ended(model, out) if last else out

        ways = [made(before, False)]
        last = index == count - 1
        if last:
            ways.append(made(before, True))
        gaps = [np.abs(way - after) for way in ways]
        best = int(np.argmin([gap.max() for gap in gaps]))
        scatter = np.zeros(after.shape)
        for _ in range(RUNS):
            moved = before * (1 + unit * noise.uniform(-1, 1, before.shape))
            scatter += np.square(made(moved, best == 1) - ways[best])
        row = np.sqrt(scatter.mean(axis=-1, keepdims=True) / RUNS)
        size = np.sqrt(np.square(ways[best]).mean(axis=-1, keepdims=True))
        allowed = TIMES * (row + unit * size) * np.ones(after.shape) + 2 * unit * np.abs(after)
        worst = np.unravel_index(int(np.argmax(gaps[best] / allowed)), after.shape)
        at = tuple(int(each) for each in worst)
        yield LayerCheck(index, float(gaps[best][at]), float(allowed[at]), at)
