"""What each head does, measured by workers: a layer each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.base.workers import Engine, call_each
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Progress
from attnctl.models.forward import attend_plainly, through
from attnctl.models.next import Pass, begin_pass
from attnctl.models.run import ModelInput
from attnctl.verbs.effect import (
    Effects,
    begin_effects,
    difference_at,
    effects_of_layer,
    likeliest_pair,
    read_pair,
)
from attnctl.verbs.effect.metrics import DIFFERENCE, METRICS
from attnctl.verbs.effect.parts import BY, MEAN, PATCH, ZERO

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


class EffectQuestion(NamedTuple):
    """A prompt by its name and on its way through the model, and the same of one to patch from."""

    asked: Prompt
    own: Pass
    patched: Prompt | None
    other: Pass | None

    def begin(
        self, between: Sequence[str | int] | None, *, mean: bool, by: str, at: int | None, metric: str
    ) -> Effects:
        """The question, nothing measured yet. Raises AttnError for what it cannot be."""
        refuse_unknown(by, metric)
        if between is None and metric == DIFFERENCE:
            raise AttnError("between: missing; give the two tokens whose logits are compared")
        pair = likeliest_pair(self.own, at) if between is None else read_pair(self.own, between)
        how = MEAN if mean else ZERO
        if self.other is not None:
            how = PATCH
        return begin_effects(self.own, pair, how, self.other, by=by, metric=metric, at=at)


def refuse_unknown(by: str, metric: str) -> None:
    """Refuse words that name no part and no metric."""
    for name, value, known in (("by", by, BY), ("metric", metric, tuple(METRICS))):
        if value not in known:
            raise AttnError(f"{name}: {quote(str(value))} is not one of {', '.join(known)}")


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
