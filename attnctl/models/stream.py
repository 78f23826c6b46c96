"""What flows from layer to layer beside the rows: other streams, inputs of each layer, shared K and V.

They are columns behind those of the rows, so that whatever takes rows through layers, one prompt or several
side by side, takes them along (Gemma 3n and 4).
"""

from __future__ import annotations

from collections.abc import Mapping

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
    if d["inputs"]:
        for index in range(len(d.layers)):
            sizes["inputs", index] = d["inputs"]
    for index in d.sources:
        source = d.of_layer(index)
        for symbol in SHARED:
            sizes[symbol, index] = source["kv_heads"] * source["d_k"]

    places = {}
    start = 0
    for part, size in sizes.items():
        places[part] = slice(start, start + size)
        start += size
    return places


def stream_width(d: Description) -> int:
    return max(place.stop for place in columns(d).values())


def read_beside(tensors: LayerTensors, hidden: Array, part: str, index: int) -> Array:
    """A part of what came into a layer. Raises AttnError where only the rows did."""
    place = columns(tensors.model.description)[part, index]
    if place.stop <= hidden.shape[-1]:
        return hidden[..., place]

    what = f"K and V of layer {index}" if part in SHARED else f"{part} of its own"
    name = f"layer {tensors.index} of {tensors.d.family}"
    raise AttnError(f"{name} reads {what} beside its rows; run a sentence or --ids, check one --layer")


def own_inputs(tensors: LayerTensors, hidden: Array, x: Array) -> Array:
    """What a layer adds of the inputs that are its own, as its rows gate them."""
    d = tensors.d
    inputs = read_beside(tensors, hidden, "inputs", tensors.index)
    gate = tensors.multiply("inputs_gate", x, d["inputs"])
    gated = activate(ACTIVATIONS[d["act"]], gate) * inputs
    return tensors.norm("inputs_out_norm", tensors.multiply("inputs_up", gated, d["width"]))


def steps_to_keep(tensors: LayerTensors, *steps: str) -> list[str]:
    """The steps of a layer's attention that the pass goes on with: these, and what later layers share."""
    if tensors.index in tensors.d.sources:
        return [*steps, *SHARED.values()]
    return [*steps]


def carry(tensors: LayerTensors, hidden: Array, out: Array, attended: Mapping[str, Array]) -> Array:
    """The rows that leave a layer, and what flows beside them."""
    d = tensors.model.description
    beside = hidden[..., out.shape[-1] :]
    if not beside.shape[-1]:
        return out

    # An edit may have made a batch of the rows, each of which goes on with the same beside it.
    repeated = np.broadcast_to(beside, (*out.shape[:-1], beside.shape[-1]))
    whole = np.concatenate([out, repeated], axis=-1)
    if tensors.index in d.sources:
        places = columns(d)
        for symbol, step in SHARED.items():
            rows = rearrange(attended[step], "... head token d -> ... token (head d)")
            whole[..., places[symbol, tensors.index]] = rows
    return whole


# --- AltUp (Gemma 3n): of several streams of rows layers work on one, predict and correct the others ---
#
# What comes into a layer are its predictions; its attention reads the first of them.


def start_streams(model: Model, x: Array) -> Array:
    """The streams that come into layer 0, side by side."""
    count = model.description["streams"]
    others = [project(model, "altup_project", number, x, x) for number in range(count - 1)]
    return predict(model.layer(0), np.stack([x, *others], axis=-2))


def advance(tensors: LayerTensors, hidden: Array, out: Array) -> Array:
    """The streams that come into the next layer, of what a layer made; after the last, their mean."""
    count = tensors.d["streams"]
    rows = read_beside(tensors, hidden, "streams", 0)
    predicted = rows.reshape(*rows.shape[:-1], count, -1)

    # Every stream is corrected by its share of how far off the first one was predicted.
    error = out[..., None, :] - predicted[..., :1, :]
    routed = route_streams(tensors, out)
    shares = tensors.multiply("altup_correct", routed, count) + 1
    streams = predicted + error * shares[..., None]

    # The others take the inputs that are the layer's own, as the first one gates them.
    first = streams[..., 0, :]
    if tensors.has("altup_scale"):
        first = first * tensors.read("altup_scale", "", out.shape[-1:])
    inputs = own_inputs(tensors, hidden, first)
    streams[..., 1:, :] += inputs[..., None, :]

    following = tensors.index + 1
    if following < len(tensors.d.layers):
        return predict(tensors.model.layer(following), streams)
    return mean_of_streams(tensors.model, streams)


def mean_of_streams(model: Model, streams: Array) -> Array:
    first, *others = np.moveaxis(streams, -2, 0)
    ends = [first]
    for number, stream in enumerate(others):
        ends.append(project(model, "altup_unembed", number, stream, first))
    return np.mean(ends, axis=0)


def predict(tensors: LayerTensors, streams: Array) -> Array:
    """The streams as the next layer is likely to leave them, side by side."""
    *lead, count, width = streams.shape
    routed = route_streams(tensors, streams[..., 0, :])
    shares = tensors.multiply("altup_predict", routed, count * count).reshape(*lead, count, count)
    predicted = streams + shares @ streams
    return predicted.reshape(*lead, count * width)


def route_streams(tensors: LayerTensors, x: Array) -> Array:
    """How much of each stream a row has, from −1 to 1."""
    normed = tensors.norm("altup_norm", x) / x.shape[-1]
    routed = tensors.multiply("altup_router", normed, tensors.d["streams"])
    return np.tanh(routed)


def project(model: Model, use: str, number: int, x: Array, like: Array) -> Array:
    """A stream through a matrix of its own, its rows as large as those of another."""
    width = x.shape[-1]
    matrix = model.outer(use, f".{number}.weight", (width, width))
    out = times(x, matrix.T)
    return out * row_sizes(like) / np.maximum(row_sizes(out), 1e-5**0.5)


def row_sizes(rows: Array) -> Array:
    """The root of the mean square of each row, (…, 1)."""
    return np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True))
