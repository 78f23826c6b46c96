"""The forward pass to a layer, written once: embeddings, norms, attention, networks, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.names import RESIDUAL, X
from attnctl.models.attention import prepare_attention
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.network import feed_forward
from attnctl.record.trace import Trace

Run = Callable[[LayerTensors, Array, Array | None, bool], Trace]
"""Carries out the attention of a layer: its tensors, hidden, memory, and whether it is to memory."""


def attend_plainly(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
    """Only what the pass goes on with."""
    passing = replace(tensors, passing=True)
    return prepare_attention(passing, hidden, None, memory, cross=cross).run([X, RESIDUAL])


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def embed_ids(model: Model, ids: Sequence[int], segments: Sequence[int] | None = None) -> Array:
    """The rows that come into layer 0: tokens, positions, segments, their norm and projection.

    Raises AttnError where the model takes no tokens, for ids it does not have, and for too many.
    """
    d = model.description
    width = d["embed_width"]
    x = rows(model, "embed", "token", ids, width) * np.dtype(model.dtype).type(d["embed_scale"])
    if d["project"] and d["project_first"]:
        x, width = project_embeddings(model, x), d["width"]
    if d["positions"]:
        x = x + rows(model, "position", "position", position_ids(model, ids), width)
    if "segment" in d.shared:
        x = x + rows(model, "segment", "segment", segments or [0] * len(ids), width)
    if "embed_norm" in d.shared:
        x = model.norm("embed_norm", x)
    return project_embeddings(model, x) if d["project"] and not d["project_first"] else x


def rows(model: Model, use: str, noun: str, numbers: Sequence[int], width: int) -> Array:
    """These rows of a table outside of layers. Raises AttnError for those it does not have."""
    count = model.rows(use)
    wrong = sorted({number for number in numbers if not 0 <= number < count}) if count else []
    if wrong:
        raise AttnError(f"{model.name}: no {noun} {wrong[0]}; there are {count}, from 0")
    return model.outer(use, ".weight", (count, width), np.asarray(numbers, int))


def position_ids(model: Model, ids: Sequence[int]) -> list[int]:
    d = model.description
    if d["positions"] == "plain":
        return [index + d["position_start"] for index in range(len(ids))]
    padding = d["position_start"] - 1
    seen = np.cumsum([each != padding for each in ids]).tolist()
    return [padding + (count if each != padding else 0) for each, count in zip(ids, seen, strict=True)]


def project_embeddings(model: Model, x: Array) -> Array:
    """Embeddings of another width than the layers', brought to it."""
    width = model.description["width"]
    out = x @ model.outer("embed_project", ".weight", (width, x.shape[-1])).T
    return (
        out + model.outer("embed_project", ".bias", (width,)) if model.description["project_bias"] else out
    )


def states(
    model: Model,
    hidden: Array,
    memory: Array | None = None,
    run: Run = attend_plainly,
) -> Iterator[tuple[int, Array]]:
    """The rows that come into each layer from 0 on, and into the end: (layer, hidden).

    `run` carries out the attention of a layer; what it changes flows on.
    """
    for index in range(len(model.description.layers)):
        yield index, hidden
        hidden = through(model.layer(index), hidden, memory, run)
    yield len(model.description.layers), hidden


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def through(tensors: LayerTensors, hidden: Array, memory: Array | None, run: Run) -> Array:
    """The rows that come out of a layer."""
    d = tensors.d
    trace = run(tensors, hidden, memory, False)
    x, after = trace[X], trace[RESIDUAL]
    if d.crosses:
        if memory is None:
            raise AttnError(
                f"{tensors.model.name}: a decoder's layers read what the encoder made; give it too"
            )
        after = run(tensors, after, memory, True)[RESIDUAL]
    after = tensors.norm("attention_sum_norm", after)
    source = hidden if d["parallel"] else after
    read = x if d["parallel"] and not tensors.has("mlp_norm") else tensors.norm("mlp_norm", source)
    made = tensors.norm("mlp_out_norm", feed_forward(tensors, read))
    start = read if d["from_norm"] else after
    out = tensors.norm("mlp_sum_norm", start + made * made.dtype.type(d["residual"]))
    tensors.refuse_unread()
    return out


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def final_norm(model: Model, hidden: Array) -> Array:
    """The rows of the last layer through the final norm, where there is one."""
    return model.norm("final_norm", hidden) if model.description["final_norm"] else hidden
