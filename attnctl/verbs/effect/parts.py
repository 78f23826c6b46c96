"""The parts of a layer whose effect is measured, and what takes the place of each.

Members of a batch go through a layer side by side, another part changed in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.engine import carry_out
from attnctl.math.names import HEAD_OUTPUTS, OUTPUT, RESIDUAL, X
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import Change, Run, attend_plainly, through
from attnctl.models.layer import LayerTensors
from attnctl.models.stream import columns, steps_to_keep
from attnctl.record import Trace

ZERO = "zero"
MEAN = "mean"
PATCH = "patch"

HEAD, LAYER, NETWORK, POSITION = BY = ("head", "layer", "network", "position")
"""What is changed at a time: a head's output, all that a layer adds, what its network adds, the row of a
position that comes into a layer."""


@dataclass(frozen=True)
class OtherLayer:
    """What the other prompt has at a layer; empty where it is not what a patch takes."""

    hidden: Array | None = None
    heads: Array | None = None
    output: Array | None = None
    network: Array | None = None


def read_other(tensors: LayerTensors, hidden: Array, by: str) -> OtherLayer:
    """What a patch of these parts takes from a prompt whose rows `hidden` come into a layer."""
    if by == POSITION:
        return OtherLayer(hidden)
    if by == HEAD:
        heads = prepare_attention(tensors, hidden).run([HEAD_OUTPUTS])[HEAD_OUTPUTS]
        return OtherLayer(hidden, heads=heads)

    outputs: list[Array] = []
    networks: list[Array] = []
    through(tensors, hidden, None, edit_step(OUTPUT, noting(outputs)), noting(networks))
    return OtherLayer(hidden, output=outputs[0], network=networks[0])


def noting(seen: list[Array]) -> Change:
    """The change of nothing, which notes what it was given."""

    def change(array: Array) -> Array:
        seen.append(array)
        return array

    return change


@dataclass(frozen=True)
class Replacement:
    """What takes the place of parts of a layer, and of which kind they are."""

    by: str
    how: str
    other: OtherLayer = OtherLayer()

    def through(self, tensors: LayerTensors, hidden: Array, members: range) -> Array:
        """What leaves a layer, (member, token, column), with another of its parts changed in each."""
        if self.by == HEAD:
            return through(tensors, hidden, None, edit_step(HEAD_OUTPUTS, self.heads(members)))
        if self.by == POSITION:
            rows = columns(tensors.model.description)["streams", 0]
            changed = self.positions(hidden, members, rows)
            return through(tensors, changed, None, attend_plainly)

        network = self.whole(self.other.network)
        run: Run = attend_plainly
        if self.by == LAYER:
            run = edit_step(OUTPUT, self.whole(self.other.output))
        return through(tensors, hidden, None, run, network)[None]

    def heads(self, members: range) -> Change:
        """From the outputs of a layer's heads to a batch, in each member another one changed."""

        def change(outputs: Array) -> Array:
            new = self.instead(outputs, self.other.heads)
            batch = np.repeat(outputs[None], len(members), axis=0)
            for member, head in enumerate(members):
                batch[member, head] = new[head]
            return batch

        return change

    def positions(self, hidden: Array, members: range, rows: slice) -> Array:
        """A batch of the rows that come into a layer, in each member that of another position changed.

        What flows beside the `rows`, of the tokens or for later layers, stays.
        """
        batch = np.repeat(hidden[None], len(members), axis=0)
        new = self.instead(hidden, self.other.hidden)
        for member, place in enumerate(members):
            batch[member, place, rows] = new[place, rows]
        return batch

    def whole(self, others: Array | None) -> Change:
        """From what a layer adds to what takes its place."""
        return lambda made: np.array(self.instead(made, others))

    def instead(self, made: Array, others: Array | None) -> Array:
        if others is not None:
            return others
        if self.how == MEAN:
            return np.broadcast_to(made.mean(axis=-2, keepdims=True), made.shape)
        return np.zeros_like(made)


def edit_step(step: str, change: Callable[[Array], Array]) -> Run:
    """Carries out attention with one of its steps changed before anything reads it."""

    def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        passing = replace(tensors, passing=True)
        plan = prepare_attention(passing, hidden, None, memory, cross=cross)
        values = carry_out(
            plan.derivation,
            plan.given,
            plan.dtype,
            edits={step: change},
            keep=steps_to_keep(tensors, X, RESIDUAL),
        )
        return plan.record(values)

    return run
