"""The feed-forward network of a layer: two matrices, a gate, or experts and their router."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import RMSNorm
from attnctl.models.activations import ACTIVATIONS, activate, sigmoid
from attnctl.models.layer import LayerTensors


def feed_forward(tensors: LayerTensors, x: Array, after: Array) -> Array:
    """What the network makes of its rows; experts beside it read those `after` attention (Gemma 4)."""
    if not tensors.this_layer.experts:
        return network(tensors, x, "", tensors.d["intermediate"])
    if not tensors.has("experts_norm"):
        rows = x.reshape(-1, x.shape[-1])
        return experts(tensors, rows, rows).reshape(x.shape)
    made = tensors.norm("mlp_own_norm", network(tensors, x, "", tensors.d["intermediate"]))
    rows = after.reshape(-1, x.shape[-1])
    other = experts(tensors, tensors.norm("experts_norm", rows), rows).reshape(x.shape)
    return made + tensors.norm("experts_out_norm", other)


def experts(tensors: LayerTensors, x: Array, routed: Array) -> Array:
    """The experts that each row is sent to, by what is `routed`: rows (token, width) -> rows."""
    weights, chosen = route(tensors, routed)
    out = np.zeros_like(x)
    for expert in np.unique(chosen).tolist():
        row, place = np.nonzero(chosen == expert)
        share = weights[row, place, None]
        if tensors.d["router"] == "inputs":
            out[row] += expert_output(tensors, x[row] * share, expert)
        else:
            out[row] += share * expert_output(tensors, x[row], expert)
    if tensors.has("shared_up"):
        shared = network(tensors, x, "shared_", tensors.d["shared_size"])
        if tensors.has("shared_switch"):
            shared = shared * sigmoid(x @ tensors.matrix("shared_switch", x.shape[-1], 1))
        out += shared
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
        gate = linear(f"{role}gate", x, size)
        if d["cutoff"] is not None:
            least = gate.mean(axis=-1, keepdims=True) + gate.std(axis=-1, keepdims=True) * d["cutoff"]
            gate = np.maximum(gate - least, 0)
        inner = act(gate) * linear(f"{role}up", x, size)
    else:
        inner = act(linear(f"{role}up", x, size))
    return linear(f"{role}down", inner, width)


def expert_output(tensors: LayerTensors, x: Array, expert: int) -> Array:
    d = tensors.d
    size, width, count = d["expert_size"], d["width"], d["experts"]
    if not tensors.has("experts_gate_up") or tensors.is_there("expert_up", expert):
        return network(tensors, x, "expert_", size, e=expert)
    if d["clamp"] is None:
        gate_up = fused_expert(tensors, "experts_gate_up", width, 2 * size, expert)
        gate, up = np.split(x @ gate_up, 2, axis=-1)
        inner = activate(ACTIVATIONS[d["act"]], gate) * up
        return inner @ fused_expert(tensors, "experts_down", size, width, expert)
    both = x @ tensors.read("experts_gate_up", "", (count, width, 2 * size), expert)
    both = both + tensors.read("experts_gate_up_bias", "", (count, 2 * size), expert)
    alpha, limit = d["clamp"]
    gate = np.minimum(both[:, ::2], limit)
    up = np.clip(both[:, 1::2], -limit, limit)
    inner = (up + 1) * gate * sigmoid(gate * x.dtype.type(alpha))
    down = inner @ tensors.read("experts_down", "", (count, size, width), expert)
    return down + tensors.read("experts_down_bias", "", (count, width), expert)


def fused_expert(tensors: LayerTensors, use: str, rows: int, columns: int, expert: int) -> Array:
    """The matrix (in, out) of one expert, of a tensor that has those of all."""
    if tensors.d["experts_transposed"]:
        return tensors.read(use, "", (tensors.d["experts"], rows, columns), expert)
    return tensors.read(use, "", (tensors.d["experts"], columns, rows), expert).T


def route(tensors: LayerTensors, x: Array) -> tuple[Array, Array]:
    """The weight and the number of each expert that a row is sent to, (token, chosen)."""
    d = tensors.d
    count, chosen = d["experts"], d["chosen"]
    if tensors.has("router_input_scale"):
        scale = tensors.read("router_input_scale", "", x.shape[-1:]) * x.dtype.type(d["width"] ** -0.5)
        x = RMSNorm(float(d["eps"])).apply(x, scale)
    logits = x @ tensors.matrix("router", d["width"], count)
    if d["router_bias"]:
        logits = logits + tensors.read("router", ".bias", (count,))
    if d["router"] == "sigmoid":
        scores = sigmoid(logits)
        corrected = scores + tensors.read("router_correction", "", (count,))
        best = top(in_best_groups(corrected, d["groups"], d["chosen_groups"], 2), chosen)
    elif d["router"] in {"chosen", "inputs"}:
        best, weigh = top(logits, chosen), softmax if d["router"] == "chosen" else sigmoid
        return weigh(np.take_along_axis(logits, best, -1)), best
    elif d["router"] == "rivals":
        return among_rivals(logits, d["rivals"])
    else:
        scores = softmax(logits)
        best = top(in_best_groups(scores, d["groups"], d["chosen_groups"], d["best_of_group"]), chosen)
    weights = np.take_along_axis(scores, best, -1)
    if d["router_normalized"]:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + x.dtype.type(1e-20))
    if tensors.has("expert_factors"):
        weights = weights * tensors.read("expert_factors", "", (count,))[best]
    return weights * x.dtype.type(d["router_scale"]), best


def in_best_groups(scores: Array, groups: int, chosen: int, best: int) -> Array:
    """The scores, −∞ outside of the groups whose so many best have the largest sums."""
    grouped = scores.reshape(len(scores), groups, -1)
    sums = np.sort(grouped, axis=-1)[..., -best:].sum(axis=-1)
    kept = np.zeros(sums.shape, bool)
    np.put_along_axis(kept, top(sums, chosen), True, -1)
    return np.where(kept[..., None], grouped, -np.inf).reshape(scores.shape)


def among_rivals(logits: Array, jitter: float) -> tuple[Array, Array]:
    """The best expert, then the best of the others, each weighed against those that come near it."""
    left, weights, chosen = logits.copy(), [], []
    for _ in range(2):
        best = top(left, 1)
        most = np.take_along_axis(left, best, -1)
        far = (most - logits) / np.maximum(np.abs(logits), most) > 2 * jitter
        weights.append(np.take_along_axis(softmax(np.where(far, -np.inf, left)), best, -1))
        chosen.append(best)
        np.put_along_axis(left, best, -np.inf, -1)
    return np.concatenate(weights, -1), np.concatenate(chosen, -1)


def top(scores: Array, count: int) -> Array:
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
