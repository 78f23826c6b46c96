"""The feed-forward network of a layer: two matrices, a gate, or experts and their router."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnctl.math import Array
from attnctl.models.activations import ACTIVATIONS, activate, sigmoid
from attnctl.models.layer import LayerTensors


def feed_forward(tensors: LayerTensors, x: Array) -> Array:
    if not tensors.own.experts:
        return network(tensors, x, "", tensors.d["intermediate"])
    return experts(tensors, x.reshape(-1, x.shape[-1])).reshape(x.shape)


def experts(tensors: LayerTensors, x: Array) -> Array:
    """The experts that each row is sent to: rows (token, width) -> rows."""
    weights, chosen = route(tensors, x)
    out = np.zeros_like(x)
    for expert in np.unique(chosen).tolist():
        row, place = np.nonzero(chosen == expert)
        out[row] += weights[row, place, None] * expert_output(tensors, x[row], expert)
    if tensors.has("shared_up"):
        out += network(tensors, x, "shared_", tensors.d["shared_size"])
    return out


def network(tensors: LayerTensors, x: Array, role: str, size: int, **numbers: int) -> Array:
    """act(x W_up) W_down, or act(x W_gate) · (x W_up) through W_down."""
    d = tensors.d
    act, width, biased = partial(activate, ACTIVATIONS[d["act"]]), d["width"], d["mlp_bias"]

    def linear(use: str, rows: Array, columns: int) -> Array:
        out = tensors.multiply(use, rows, columns, **numbers)
        if biased:
            out += tensors.read(use, ".bias", (columns,), **numbers)
        return out

    if tensors.has(f"{role}gate_up"):
        gate, up = np.split(linear(f"{role}gate_up", x, 2 * size), 2, axis=-1)
        inner = act(gate) * up
    elif d["gated"]:
        inner = act(linear(f"{role}gate", x, size)) * linear(f"{role}up", x, size)
    else:
        inner = act(linear(f"{role}up", x, size))
    return linear(f"{role}down", inner, width)


def expert_output(tensors: LayerTensors, x: Array, expert: int) -> Array:
    d = tensors.d
    size, width, count = d["expert_size"], d["width"], d["experts"]
    if not tensors.has("experts_gate_up"):
        return network(tensors, x, "expert_", size, e=expert)
    both = x @ tensors.read("experts_gate_up", "", (count, width, 2 * size), expert)
    both = both + tensors.read("experts_gate_up_bias", "", (count, 2 * size), expert)
    alpha, limit = d["clamp"]
    gate = np.minimum(both[:, ::2], limit)
    up = np.clip(both[:, 1::2], -limit, limit)
    inner = (up + 1) * gate * sigmoid(gate * x.dtype.type(alpha))
    down = inner @ tensors.read("experts_down", "", (count, size, width), expert)
    return down + tensors.read("experts_down_bias", "", (count, width), expert)


def route(tensors: LayerTensors, x: Array) -> tuple[Array, Array]:
    """The weight and the number of each expert that a row is sent to, (token, chosen)."""
    d = tensors.d
    count, chosen = d["experts"], d["chosen"]
    logits = x @ tensors.matrix("router", d["width"], count)
    if d["router_bias"]:
        logits = logits + tensors.read("router", ".bias", (count,))
    if d["router"] == "sigmoid":
        scores = sigmoid(logits)
        best = top(in_groups(tensors, scores), chosen)
    elif d["router"] == "chosen":
        best = top(logits, chosen)
        return softmax(np.take_along_axis(logits, best, -1)), best
    else:
        scores = softmax(logits)
        best = top(scores, chosen)
    weights = np.take_along_axis(scores, best, -1)
    if d["router_normalized"]:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + x.dtype.type(1e-20))
    return weights * x.dtype.type(d["router_scale"]), best


def in_groups(tensors: LayerTensors, scores: Array) -> Array:
    """The corrected scores, −∞ outside of the groups whose two best experts have the largest sums."""
    d = tensors.d
    corrected = scores + tensors.read("router_correction", "", (d["experts"],))
    grouped = corrected.reshape(len(scores), d["groups"], -1)
    sums = np.sort(grouped, axis=-1)[..., -2:].sum(axis=-1)
    kept = np.zeros(sums.shape, bool)
    np.put_along_axis(kept, top(sums, d["chosen_groups"]), True, -1)
    return np.where(kept[..., None], grouped, -np.inf).reshape(scores.shape)


def top(scores: Array, count: int) -> Array:
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
