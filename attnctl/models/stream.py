"""What flows from layer to layer beside the rows: other streams, inputs of each layer, shared K and V.

They are columns behind those of the rows, so that whatever takes rows through layers, one prompt or several
side by side, takes them along (Gemma 3n and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.ops.products import times
from attnctl.models.activations import ACTIVATIONS, activate
from attnctl.models.description import Description
from attnctl.models.layer import LayerTensors, Model

SHARED = {"K": "K_rotated", "V": "V_normed"}
"""The steps of a layer that later layers read as their K and V."""


def columns(d: Description) -> dict[tuple[str, int], slice]:
    """Where each part stands, by what it is and the layer that it is of; the rows are the first stream."""
    sizes = {("streams", 0): d["streams"] * d["width"]}
    sizes |= {("inputs", index): d["inputs"] for index in range(len(d.layers)) if d["inputs"]}
    for index in d.sources:
        own = d.of_layer(index)
        sizes |= {(symbol, index): own["kv_heads"] * own["d_k"] for symbol in SHARED}
    ends = pairwise(accumulate(sizes.values(), initial=0))
    return {part: slice(*end) for part, end in zip(sizes, ends, strict=True)}


def stream_width(d: Description) -> int:
    return max(place.stop for place in columns(d).values())


def read_beside(tensors: LayerTensors, hidden: Array, part: str, index: int) -> Array:
    """A part of what came into a layer. Raises AttnError where only the rows did."""
    place = columns(tensors.model.description)[part, index]
    if hidden.shape[-1] < place.stop:
        what = f"K and V of layer {index}" if part in SHARED else f"{part} of its own"
        name = f"layer {tensors.index} of {tensors.d.family}"
        raise AttnError(f"{name} reads {what} beside its rows; run a sentence or --ids, check one --layer")
    return hidden[..., place]


def own_inputs(tensors: LayerTensors, hidden: Array, x: Array) -> Array:
    """What a layer adds of the inputs that are its own, as its rows gate them."""
    d, own = tensors.d, read_beside(tensors, hidden, "inputs", tensors.index)
    gated = activate(ACTIVATIONS[d["act"]], tensors.multiply("inputs_gate", x, d["inputs"])) * own
    return tensors.norm("inputs_out_norm", tensors.multiply("inputs_up", gated, d["width"]))


def steps_to_keep(tensors: LayerTensors, *steps: str) -> list[str]:
    """The steps of a layer's attention that the pass goes on with: these, and what later layers share."""
    return [*steps, *(SHARED.values() if tensors.index in tensors.d.sources else ())]


def carry(tensors: LayerTensors, hidden: Array, out: Array, attended: Mapping[str, Array]) -> Array:
    """The rows that leave a layer, and what flows beside them."""
    d, rest = tensors.model.description, hidden[..., out.shape[-1] :]
    if not rest.shape[-1]:
        return out
    whole = np.concatenate([out, np.broadcast_to(rest, (*out.shape[:-1], rest.shape[-1]))], axis=-1)
    for symbol, step in SHARED.items() if tensors.index in d.sources else ():
        rows = rearrange(attended[step], "... head token d -> ... token (head d)")
        whole[..., columns(d)[symbol, tensors.index]] = rows
    return whole


# --- AltUp (Gemma 3n): of several streams of rows layers work on one, predict and correct the others ---
#
# What comes into a layer are its predictions; its attention reads the first of them.


def start_streams(model: Model, x: Array) -> Array:
    """The streams that come into layer 0, side by side."""
    others = [project(model, "altup_project", at, x, x) for at in range(model.description["streams"] - 1)]
    return predict(model.layer(0), np.stack([x, *others], axis=-2))


def advance(tensors: LayerTensors, hidden: Array, out: Array) -> Array:
    """The streams that come into the next layer, of what a layer made; after the last, their mean."""
    rows, count = read_beside(tensors, hidden, "streams", 0), tensors.d["streams"]
    predicted = rows.reshape(*rows.shape[:-1], count, -1)
    shares = tensors.multiply("altup_correct", route_streams(tensors, out), count) + 1
    streams = predicted + (out[..., None, :] - predicted[..., :1, :]) * shares[..., None]
    scale = tensors.read("altup_scale", "", out.shape[-1:]) if tensors.has("altup_scale") else 1
    streams[..., 1:, :] += own_inputs(tensors, hidden, streams[..., 0, :] * scale)[..., None, :]
    if (after := tensors.index + 1) < len(tensors.d.layers):
        return predict(tensors.model.layer(after), streams)
    first, *others = np.moveaxis(streams, -2, 0)
    ends = (project(tensors.model, "altup_unembed", at, x, first) for at, x in enumerate(others))
    return np.mean([first, *ends], axis=0)


def predict(tensors: LayerTensors, streams: Array) -> Array:
    *lead, count, width = streams.shape
    shares = tensors.multiply("altup_predict", route_streams(tensors, streams[..., 0, :]), count * count)
    return (streams + shares.reshape(*lead, count, count) @ streams).reshape(*lead, count * width)


def route_streams(tensors: LayerTensors, x: Array) -> Array:
    normed = tensors.norm("altup_norm", x) / x.shape[-1]
    return np.tanh(tensors.multiply("altup_router", normed, tensors.d["streams"]))


def project(model: Model, use: str, at: int, x: Array, like: Array) -> Array:
    """A stream through a matrix of its own, its rows as large as those of another."""
    out = times(x, model.outer(use, f".{at}.weight", (x.shape[-1], x.shape[-1])).T)
    size, own = (np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True)) for rows in (like, out))
    return out * size / np.maximum(own, 1e-5**0.5)
