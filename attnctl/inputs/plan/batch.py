"""Several sentences as one batch: padded with [PAD], padding hidden, each trace cut back to its length."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.embed import PAD, tokens_of
from attnctl.inputs.plan.plan import Plan, asks_for_padding
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.engine.cost import peak, require
from attnctl.math.engine.execute import Outcome, carry_out
from attnctl.math.engine.tiles import SCRATCH_BYTES, Progress
from attnctl.math.names import EMBEDDINGS, MEMORY
from attnctl.math.rules import Padding
from attnctl.record.trace import Trace, require_steps


def carry_out_batch(
    alone: Sequence[Plan],
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
) -> list[Trace]:
    """Run every sentence, several in one pass; each trace equals the one its sentence gives alone.

    Sentences that are edited, whose own rules hide padding, whose keys are cut into chunks, or that go
    back to gradients by weights they share, are carried out one by one.
    """
    if len(alone) == 1:
        return [alone[0].run(keep, progress)]
    if any(stays_alone(each) for each in alone):
        return [each.run(keep) for each in alone]
    lengths = tuple(len(each.header["tokens"]) for each in alone)
    require_steps(keep or (), [step.name for step in alone[0].derivation])
    outcome = run_padded(alone, lengths, keep, progress)
    if outcome.overflow:  # whose it is, each says for itself
        return [each.run(keep) for each in alone]
    return [
        each.record(member_of(outcome, each, member, length))
        for member, (each, length) in enumerate(zip(alone, lengths, strict=True))
    ]


def stays_alone(run: Plan) -> bool:
    kind = run.variant
    return bool(run.what_if) or kind.backward or kind.chunks is not None or asks_for_padding(kind.rules)


def pad_batch(settings: Settings, sentences: Sequence[str]) -> tuple[Settings, list[str]]:
    """Fill sentences up with [PAD], with padding among the rules, to show a batch as it is computed."""
    counts = [len(tokens_of(settings, sentence)) for sentence in sentences]
    between = "" if settings.tokenizer.split == "characters" else " "
    filled = [
        between.join([sentence, *[PAD] * (max(counts) - count)])
        for sentence, count in zip(sentences, counts, strict=True)
    ]
    own = () if asks_for_padding(settings.rules) else (Padding(),)
    return settings.with_(rules=(*settings.rules, *own)), filled


def run_padded(
    alone: Sequence[Plan],
    lengths: tuple[int, ...],
    keep: Collection[str] | None,
    progress: Progress | None,
) -> Outcome:
    """Carry out the longest sentence's derivation for the whole batch, padding hidden."""
    longest = max(range(len(alone)), key=lengths.__getitem__)
    model = alone[longest]
    own_keys = MEMORY not in model.given
    rules = (*model.variant.rules, Padding(lengths)) if own_keys else model.variant.rules
    rows = np.stack([fill(each.given[EMBEDDINGS], lengths[longest]) for each in alone])
    given = {**model.given, EMBEDDINGS: rows}
    whole = replace(model, variant=replace(model.variant, rules=rules, batch=True), given=given)
    require(peak(whole.costs(keep), SCRATCH_BYTES), "this batch", model.max_memory)
    return carry_out(whole.derivation, given, model.dtype, keep=keep, progress=progress)


def fill(rows: Array, length: int) -> Array:
    """Rows of zeros for the padding, which nobody sees."""
    return np.pad(rows, ((0, length - len(rows)), (0, 0)))


def member_of(outcome: Outcome, alone: Plan, member: int, length: int) -> Outcome:
    """The steps of one member, without its padding, as they would have come out alone."""
    padded = {"token", "query"} if MEMORY in alone.given else {"token", "query", "key"}
    values = {
        step.name: cut(outcome.values[step.name], step, member, length, padded)
        for step in alone.derivation
        if step.name in outcome.values
    }
    empty = [row[1:] for row in outcome.empty_rows if row[0] == member and row[-1] < length]
    return Outcome(values, empty, compiled=outcome.compiled)


def cut(array: Array, step: Step, member: int, length: int, padded: Collection[str]) -> Array:
    own = array[member] if array.ndim > len(step.axes) else array
    return own[tuple(slice(length) if axis in padded else slice(None) for axis in step.axes)]
