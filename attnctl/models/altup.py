"""Streams of rows, of which layers work on one, and predict and correct the others: AltUp (Gemma 3n).

What comes into a layer are its predictions; its attention reads the first of them.
"""

from __future__ import annotations

import numpy as np

from attnctl.math import Array
from attnctl.math.ops.products import times
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.stream import own_inputs, read_beside


def start_streams(model: Model, x: Array) -> Array:
    """The streams that come into layer 0, side by side."""
    others = [project(model, "altup_project", at, x, x) for at in range(model.description["streams"] - 1)]
    return predict(model.layer(0), np.stack([x, *others], axis=-2))


def advance(tensors: LayerTensors, hidden: Array, out: Array) -> Array:
    """The streams that come into the next layer, of what a layer made; after the last, their mean."""
    rows, count = read_beside(tensors, hidden, "streams", 0), tensors.d["streams"]
    predicted = rows.reshape(*rows.shape[:-1], count, -1)
    shares = tensors.multiply("altup_correct", route(tensors, out), count) + 1
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
    shares = tensors.multiply("altup_predict", route(tensors, streams[..., 0, :]), count * count)
    return (streams + shares.reshape(*lead, count, count) @ streams).reshape(*lead, count * width)


def route(tensors: LayerTensors, x: Array) -> Array:
    normed = tensors.norm("altup_norm", x) / x.shape[-1]
    return np.tanh(tensors.multiply("altup_router", normed, tensors.d["streams"]))


def project(model: Model, use: str, at: int, x: Array, like: Array) -> Array:
    """A stream through a matrix of its own, its rows as large as those of another."""
    out = times(x, model.outer(use, f".{at}.weight", (x.shape[-1], x.shape[-1])).T)
    size, own = (np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True)) for rows in (like, out))
    return out * size / np.maximum(own, 1e-5**0.5)
