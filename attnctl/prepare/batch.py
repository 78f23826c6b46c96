"""Several sentences as one batch: padded with [PAD], padding hidden, each trace cut back to its length."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.config.settings import Settings
from attnctl.derivation import Step, derive
from attnctl.execute import carry_out
from attnctl.prepare import embed
from attnctl.prepare.prepared import Prepared
from attnctl.prepare.sentence import prepare
from attnctl.rules import Padding
from attnctl.trace import Trace

Array = NDArray[Any]


def run_batch(settings: Settings, sentences: Sequence[str]) -> list[Trace]:
    """Run every sentence in one pass; each trace equals the one its sentence gives alone.

    Raises AttnError with every problem of the first sentence that has one.
    """
    shared = sharing_vocabulary(settings, sentences)
    alone = [prepare(shared, sentence) for sentence in sentences]
    lengths = tuple(len(each.header["tokens"]) for each in alone)
    arrays = padded_pass(alone, lengths)
    padded = {"token", "query"} if "memory" in arrays else {"token", "query", "key"}
    return [
        each.record(
            {step.name: cut(arrays[step.name], step, member, length, padded) for step in each.derivation}
        )
        for member, (each, length) in enumerate(zip(alone, lengths, strict=True))
    ]


def sharing_vocabulary(settings: Settings, sentences: Sequence[str]) -> Settings:
    """The settings with one vocabulary for all: the given one, or what all the sentences grow."""
    tokens = [embed.tokens_of(settings, sentence) for sentence in sentences]
    if settings.context is not None:
        tokens.append(embed.tokens_of(settings, settings.context, "context"))
    return settings.with_(vocab=embed.vocabulary(settings, tokens).tokens)


def padded_pass(alone: Sequence[Prepared], lengths: tuple[int, ...]) -> dict[str, Array]:
    """Carry out the longest sentence's derivation for the whole batch, padding hidden."""
    longest = max(range(len(alone)), key=lengths.__getitem__)
    model = alone[longest]
    own_keys = "memory" not in model.given
    rules = (*model.variant.rules, Padding(lengths)) if own_keys else model.variant.rules
    rows = np.stack([fill(each.given["embeddings"], lengths[longest]) for each in alone])
    given = {**model.given, "embeddings": rows}
    return carry_out(derive(replace(model.variant, rules=rules, batch=True)), given, model.dtype)


def fill(rows: Array, length: int) -> Array:
    """Rows of zeros for the padding, which nobody sees."""
    return np.pad(rows, ((0, length - len(rows)), (0, 0)))


def cut(array: Array, step: Step, member: int, length: int, padded: Collection[str]) -> Array:
    """One member of the batch, without its padding."""
    own = array[member] if array.ndim > len(step.axes) else array
    return own[tuple(slice(length) if axis in padded else slice(None) for axis in step.axes)]
