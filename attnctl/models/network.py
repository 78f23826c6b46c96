"""The feed-forward network of a layer: two matrices, a gate, or experts and their router."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import RMSNorm
from attnctl.models.activations import ACTIVATIONS, activate, sigmoid, xielu
from attnctl.models.layer import LayerTensors

OF_AN_EXPERT = "expert_"
"""What the matrices of an expert are called before what they are; they have no bias in any family."""


def feed_forward(tensors: LayerTensors, x: Array, after: Array) -> Array:
    """What the network makes of its rows; experts beside it read those `after` attention (Gemma 4)."""
    size = tensors.d["intermediate"]
    if not tensors.this_layer.has_experts:
        return network(tensors, x, "", size)
    if not tensors.has("experts_norm"):
        rows = x.reshape(-1, x.shape[-1])
        return experts(tensors, rows, rows).reshape(x.shape)

    dense = tensors.norm("mlp_own_norm", network(tensors, x, "", size))
    rows = after.reshape(-1, x.shape[-1])
    beside = experts(tensors, tensors.norm("experts_norm", rows), rows).reshape(x.shape)
    return dense + tensors.norm("experts_out_norm", beside)


def experts(tensors: LayerTensors, x: Array, routed: Array) -> Array:
    """The experts that each row is sent to, by what is `routed`: rows (token, width) -> rows."""
    weights, chosen = route(tensors, routed)
    weighs_inputs = tensors.d["router"] == "inputs"
    read = into_latent(tensors, x)
    out = np.zeros_like(read)
    for expert in np.unique(chosen).tolist():
        row, place = np.nonzero(chosen == expert)
        share = weights[row, place, None]
        if weighs_inputs:
            out[row] += expert_output(tensors, read[row] * share, expert)
        else:
            out[row] += share * expert_output(tensors, read[row], expert)

    out = out_of_latent(tensors, out)
    if tensors.has("shared_down"):
        out += shared_expert(tensors, x)
    return out


def into_latent(tensors: LayerTensors, x: Array) -> Array:
    """The narrower rows that experts read; the rows themselves where there are none (Nemotron 3 Super)."""
    if not tensors.has("experts_into"):
        return x
    d = tensors.d
    return linear(tensors, "experts_into", x, d["expert_width"], has_bias=d["mlp_bias"])


def out_of_latent(tensors: LayerTensors, x: Array) -> Array:
    if not tensors.has("experts_out_of"):
        return x
    d = tensors.d
    return linear(tensors, "experts_out_of", x, d["width"], has_bias=d["mlp_bias"])


def shared_expert(tensors: LayerTensors, x: Array) -> Array:
    """The expert that every row goes to; some models say how much of it a row takes."""
    out = network(tensors, x, "shared_", tensors.d["shared_size"])
    if not tensors.has("shared_switch"):
        return out
    switch = tensors.matrix("shared_switch", x.shape[-1], 1)
    return out * sigmoid(x @ switch)


def network(tensors: LayerTensors, x: Array, role: str, size: int, **numbers: int) -> Array:
    """act(x W_up) W_down, or act(x W_gate) · (x W_up) through W_down, normed before that in BitNet."""
    d = tensors.d
    act = partial(activate, function_of(tensors))
    of_expert = role == OF_AN_EXPERT
    width = d["expert_width"] if of_expert else d["width"]
    has_bias = bool(d["mlp_bias"]) and not of_expert

    def times(use: str, rows: Array, columns: int) -> Array:
        return linear(tensors, use, rows, columns, has_bias=has_bias, **numbers)

    if tensors.has(f"{role}gate_up"):
        gate, up = np.split(times(f"{role}gate_up", x, 2 * size), 2, axis=-1)
        inner = act(gate) * up
    elif d["gated"]:
        gate = times(f"{role}gate", x, size)
        if d["cutoff"] is not None:
            gate = cut_off(gate, d["cutoff"])
        inner = act(gate) * times(f"{role}up", x, size)
    else:
        inner = act(times(f"{role}up", x, size))

    return times(f"{role}down", tensors.norm(f"{role}inner_norm", inner), width)


def linear(
    tensors: LayerTensors, use: str, rows: Array, columns: int, *, has_bias: bool, **numbers: int
) -> Array:
    """Rows through a matrix, plus its bias if it has one."""
    out = tensors.multiply(use, rows, columns, **numbers)
    if has_bias:
        out += tensors.read(use, ".bias", (columns,), **numbers)
    return out


def function_of(tensors: LayerTensors) -> Callable[[Array], Array]:
    """The function of a layer's network; the curve of xIELU is as the layer has learned it."""
    if not tensors.has("act_above"):
        return ACTIVATIONS[tensors.d["act"]]

    above = softplus(tensors.read("act_above", "", (1,))[0])
    below = softplus(tensors.read("act_below", "", (1,))[0])
    slope = float(tensors.read("act_slope", "", ()))
    most = float(tensors.read("act_most", "", ()))
    return partial(xielu, above=above, below=slope + below, slope=slope, most=most)


def softplus(x: float) -> float:
    """ln(1 + exp(x)), without overflow."""
    return float(np.logaddexp(0, x))


def cut_off(gate: Array, deviations: float) -> Array:
    """What of each row is above its mean by more than so many standard deviations (Gemma 3n)."""
    mean = gate.mean(axis=-1, keepdims=True)
    least = mean + gate.std(axis=-1, keepdims=True) * deviations
    return np.maximum(gate - least, 0)


def expert_output(tensors: LayerTensors, x: Array, expert: int) -> Array:
    """Rows through one expert, whichever tensors it is in."""
    d = tensors.d
    size = d["expert_size"]
    if not tensors.has("experts_gate_up") or tensors.is_there("expert_up", expert):
        return network(tensors, x, OF_AN_EXPERT, size, e=expert)
    if d["clamp"] is not None:
        return clamped_expert(tensors, x, expert)

    width = d["width"]
    act = ACTIVATIONS[d["act"]]
    gate_up = fused_expert(tensors, "experts_gate_up", width, 2 * size, expert)
    down = fused_expert(tensors, "experts_down", size, width, expert)
    gate, up = np.split(x @ gate_up, 2, axis=-1)
    inner = activate(act, gate) * up
    return inner @ down


def clamped_expert(tensors: LayerTensors, x: Array, expert: int) -> Array:
    """The experts of gpt-oss: gate and up take turns in the columns, and both are held to a limit."""
    d = tensors.d
    alpha, limit = d["clamp"]
    count = d["experts"]
    size = d["expert_size"]
    width = d["width"]

    both = x @ tensors.read("experts_gate_up", "", (count, width, 2 * size), expert)
    both = both + tensors.read("experts_gate_up_bias", "", (count, 2 * size), expert)
    gate = np.minimum(both[:, ::2], limit)
    up = np.clip(both[:, 1::2], -limit, limit)
    inner = (up + 1) * gate * sigmoid(gate * x.dtype.type(alpha))

    down = inner @ tensors.read("experts_down", "", (count, size, width), expert)
    return down + tensors.read("experts_down_bias", "", (count, width), expert)


def fused_expert(tensors: LayerTensors, use: str, rows: int, columns: int, expert: int) -> Array:
    """The matrix (in, out) of one expert, of a tensor that has those of all."""
    count = tensors.d["experts"]
    is_transposed = tensors.d["experts_transposed"]
    if is_transposed == "by shape":
        stored = tensors.model.checkpoint.tensors.get(tensors.name_of(use, ""))
        is_transposed = stored is not None and stored.shape != (count, columns, rows)

    if is_transposed:
        return tensors.read(use, "", (count, rows, columns), expert)
    return tensors.read(use, "", (count, columns, rows), expert).T


def route(tensors: LayerTensors, x: Array) -> tuple[Array, Array]:
    """The weight and the number of each expert that a row is sent to, (token, chosen)."""
    d = tensors.d
    logits = router_logits(tensors, x)
    # These two give weights as they are: neither is made to sum to 1 or scaled any further.
    if d["router"] == "rivals":
        return among_rivals(logits, d["rivals"])
    if d["router"] in {"chosen", "inputs"}:
        weigh = softmax if d["router"] == "chosen" else sigmoid
        best = top(logits, d["chosen"])
        return weigh(np.take_along_axis(logits, best, -1)), best

    if d["router"] == "sigmoid":
        scores = sigmoid(logits)
        ranked = scores + tensors.read("router_correction", "", (d["experts"],))
        best_of_group = 2
    else:
        scores = softmax(logits)
        ranked = scores
        if tensors.has("router_correction"):
            ranked = scores + tensors.read("router_correction", "", (1, d["experts"]))
        best_of_group = d["best_of_group"]

    candidates = in_best_groups(ranked, d["groups"], d["chosen_groups"], best_of_group)
    best = top(candidates, d["chosen"])
    return weigh_chosen(tensors, scores, best), best


def router_logits(tensors: LayerTensors, x: Array) -> Array:
    d = tensors.d
    if tensors.has("router_input_scale"):
        factors = tensors.read("router_input_scale", "", x.shape[-1:])
        scale = factors * x.dtype.type(d["width"] ** -0.5)
        x = RMSNorm(float(d["eps"])).apply(x, scale)

    logits = x @ tensors.matrix("router", d["width"], d["experts"])
    if d["router_bias"]:
        logits = logits + tensors.read("router", ".bias", (d["experts"],))
    return logits


def weigh_chosen(tensors: LayerTensors, scores: Array, best: Array) -> Array:
    """The weights of the experts that each row is sent to, of the scores of all."""
    d = tensors.d
    number = scores.dtype.type
    weights = np.take_along_axis(scores, best, -1)
    if d["router_normalized"]:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + number(d["router_least"]))
    if tensors.has("expert_factors"):
        weights = weights * tensors.read("expert_factors", "", (d["experts"],))[best]
    return weights * number(d["router_scale"])


def in_best_groups(scores: Array, groups: int, chosen: int, best: int) -> Array:
    """The scores, −∞ outside of the groups whose so many best have the largest sums."""
    grouped = scores.reshape(len(scores), groups, -1)
    in_order = np.sort(grouped, axis=-1)
    sums = in_order[..., -best:].sum(axis=-1)

    is_kept = np.zeros(sums.shape, bool)
    np.put_along_axis(is_kept, top(sums, chosen), True, -1)
    return np.where(is_kept[..., None], grouped, -np.inf).reshape(scores.shape)


def among_rivals(logits: Array, jitter: float) -> tuple[Array, Array]:
    """The best expert, then the best of the others, each weighed against those that come near it."""
    left = logits.copy()
    weights: list[Array] = []
    chosen: list[Array] = []
    for _ in range(2):
        best = top(left, 1)
        largest = np.take_along_axis(left, best, -1)
        distance = (largest - logits) / np.maximum(np.abs(logits), largest)
        is_far = distance > 2 * jitter

        shares = softmax(np.where(is_far, -np.inf, left))
        weights.append(np.take_along_axis(shares, best, -1))
        chosen.append(best)
        np.put_along_axis(left, best, -np.inf, -1)

    return np.concatenate(weights, -1), np.concatenate(chosen, -1)


def top(scores: Array, count: int) -> Array:
    """The places of the largest scores of each row, the first of those that are equal first."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def softmax(x: Array) -> Array:
    """exp(x) / Σ exp(x) of each row, less its maximum so that nothing overflows."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
