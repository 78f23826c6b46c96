"""What each head does, measured by workers: a layer each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.workers import Engine, call_each
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Progress
from attnctl.models.forward import attend_plainly, through
from attnctl.models.next import Pass, begin_pass
from attnctl.models.run import ModelInput
from attnctl.verbs.effect import Effects, difference_at, effects_of_layer

SAME = 1e-3
"""The part of a logit that other processors, which add in another order, may put a difference off."""

IN_FLOAT32 = Settings(dtype="float32")


class Prompt(NamedTuple):
    """A prompt by the name of its model: what a worker, perhaps of another machine, begins a pass from."""

    model: str
    text: str | None
    ids: tuple[int, ...] | None

    def begin(self) -> Pass:
        return begin_pass(self.model, ModelInput(self.text, self.ids), IN_FLOAT32)


class LayerTask(NamedTuple):
    prompt: Prompt
    other: Prompt | None
    begun: Effects
    layer: int


def fill_by_workers(
    engine: Engine, prompt: Prompt, begun: Effects, other: Prompt | None, moved: Progress | None = None
) -> Iterator[Effects]:
    """The effects after each layer that a worker has measured, until all are there."""
    effect = begun.effect.copy()
    left = [layer for layer, heads in enumerate(effect) if np.isnan(heads).any()]
    tasks = [LayerTask(prompt, other, begun, layer) for layer in left]
    for number, changes in call_each(engine, measure_layer, tasks):
        effect[left[number]] = changes
        if moved:
            moved(int(np.isfinite(effect).sum()), effect.size)
        yield replace(begun, effect=effect.copy())
    yield replace(begun, effect=effect)


def measure_layer(task: LayerTask) -> Array:
    """The effects of the heads of a layer, as a worker. Raises AttnError where its model is another."""
    prompt = pass_of(task.prompt)
    begun = task.begun
    ids = tuple(token.id for token in begun.between)
    logit = max(abs(token.logit) for token in begun.between)
    difference = difference_of(task.prompt, begun.prompt["at"], ids)
    # Written so that a difference of NaN counts as another model.
    if not abs(difference - begun.difference) <= SAME * logit:
        raise AttnError("a worker has another model than this machine; give them the same files")

    hidden = before_layer(prompt, task.layer)
    source = None if task.other is None else before_layer(pass_of(task.other), task.layer)
    effects = effects_of_layer(prompt, begun, task.layer, hidden, source=source)
    return np.concatenate([changes for _, changes in effects])


@lru_cache(maxsize=2)  # the prompt, and the one that a patch is taken from
def pass_of(prompt: Prompt) -> Pass:
    return prompt.begin()


@lru_cache(maxsize=1)
def difference_of(prompt: Prompt, place: int, ids: tuple[int, ...]) -> float:
    begun = pass_of(prompt)
    return float(difference_at(begun, begun.last(), place, ids))


def before_layer(prompt: Pass, layer: int) -> Array:
    """What comes into a layer."""
    hidden = prompt.runner.begin(prompt.tokens)
    for below in range(layer):
        hidden = through(prompt.runner.model.layer(below), hidden, None, attend_plainly)
    return hidden
