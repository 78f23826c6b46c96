"""The backward pass of a model's layer: from the slope by what leaves it to those by what comes into it.

Attention goes back by its own lines (`attnctl.math.derivation`), the rest by the rules below, each beside
the line of `forward.finish` that it turns round. A slope is the gradient of one number by an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import with_gradients
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, HIDDEN, OUTPUT, RESIDUAL, X, gradient_of
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.attention import norm_before, prepare_attention
from attnctl.models.description import Description
from attnctl.models.forward import read_by_network
from attnctl.models.layer import LayerTensors, norm_op
from attnctl.models.network import feed_forward

BACKWARD = Settings(dtype="float32", backward=True)
STEP = 1e-4
"""How far a function is moved to either side for its slope, which is then right to some 1e-8."""


class LayerSlopes(NamedTuple):
    """The slopes by a layer's parts, (token, column), and by its heads' outputs, (head, token, column)."""

    hidden: Array
    heads: Array
    output: Array
    """By what attention adds, where the network reads it."""
    output_alone: Array
    """The same where the network stays as it is."""
    network: Array


class PartsMade(NamedTuple):
    """What a layer's parts make of its rows."""

    heads: Array
    output: Array
    network: Array


class WayBack(NamedTuple):
    parts: PartsMade
    slopes: LayerSlopes


def refuse_backward(d: Description) -> None:
    """Refuse models whose layers have what is not turned round here."""
    applies = {
        "experts, of which a row goes to some": any(layer.has_experts for layer in d.layers),
        "layers that carry a state": any(layer.is_linear for layer in d.layers),
        "streams that predict and correct each other": "altup_router" in d.inner,
        "K and V of earlier layers": bool(d.sources),
        "inputs of each layer": bool(d["inputs"]),
        "a low-rank residual": bool(d["laurel"]),
        "a stream that goes on from a norm": bool(d["from_norm"]),
        "a factor of each layer": "layer_scale" in d.inner,
        "a cut-off in its network": d["cutoff"] is not None,
        "an activation with numbers of its own in each layer": d["act"] == "xielu",
        "a norm in its network": "inner_norm" in d.inner,
        "an encoder beside it": d.crosses,
    }
    for what, holds in applies.items():
        if holds:
            raise AttnError(
                f"--attribution: {d.family} has {what}; leave it out, patching needs no gradient"
            )


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def turn_layer(tensors: LayerTensors, hidden: Array, slope: Array) -> WayBack:
    """Back through a layer, from the slope by the rows that leave it."""
    d = tensors.d
    plan = prepare_attention(tensors, hidden)
    names = [X, OUTPUT, HEAD_OUTPUTS, RESIDUAL]
    attended = plan.run(names)

    # Forward, as `forward.finish` has it.
    factor = d["residual"]
    after = tensors.norm("attention_sum_norm", attended[RESIDUAL])
    read = read_by_network(tensors, hidden, attended[X], after)
    raw = feed_forward(tensors, read, after)
    normed = tensors.norm("mlp_out_norm", raw)
    scale = tensors.read("mlp_scale", "", (d["width"],)) if tensors.has("mlp_scale") else None
    made = normed if scale is None else normed * scale

    # Backward, line by line.
    at_sum = turn_norm(tensors, "mlp_sum_norm", after + made * factor, slope)
    at_made = at_sum * factor
    at_normed = at_made if scale is None else at_made * scale
    at_raw = turn_norm(tensors, "mlp_out_norm", raw, at_normed)
    at_read = turn_network(tensors, read, at_raw)

    at_hidden = np.zeros_like(slope)
    at_after = at_sum
    if not d["parallel"]:
        at_after = at_sum + turn_norm(tensors, "mlp_norm", after, at_read)
    elif tensors.has("mlp_norm"):
        at_hidden = turn_norm(tensors, "mlp_norm", hidden, at_read)
    elif use := norm_before(tensors, cross=False):
        at_hidden = turn_norm(tensors, use, hidden, at_read)
    else:
        at_hidden = at_read

    at_residual = turn_norm(tensors, "attention_sum_norm", attended[RESIDUAL], at_after)
    alone = turn_norm(tensors, "attention_sum_norm", attended[RESIDUAL], at_sum)
    at_output = turn_output(tensors, attended[OUTPUT], at_residual * factor)

    back = with_gradients(plan, BACKWARD, at_output.astype(plan.dtype))
    gradients = back.run([gradient_of(HIDDEN), gradient_of(HEAD_OUTPUTS)])
    return WayBack(
        PartsMade(attended[HEAD_OUTPUTS], attended[OUTPUT], made),
        LayerSlopes(
            hidden=at_hidden + at_residual + gradients[gradient_of(HIDDEN)],
            heads=gradients[gradient_of(HEAD_OUTPUTS)],
            output=at_output,
            output_alone=turn_output(tensors, attended[OUTPUT], alone * factor),
            network=at_made,
        ),
    )


def turn_output(tensors: LayerTensors, output: Array, slope: Array) -> Array:
    """Back over what a layer does with attention's output before it is added."""
    if tensors.has("attention_scale"):
        return slope * tensors.read("attention_scale", "", (tensors.d["width"],))
    return turn_norm(tensors, "attention_out_norm", output, slope)


def turn_norm(tensors: LayerTensors, use: str, x: Array, slope: Array) -> Array:
    """Back through one of the layer's norms; as it is where the layer has no such norm."""
    if not tensors.has(use):
        return slope
    factors = [tensors.read(use, suffix, x.shape[-1:]) for suffix in tensors.d.norm_suffixes]
    return norm_slope(norm_op(tensors.d, tensors.d["eps"]), x, factors, slope)


def norm_slope(norm: object, x: Array, factors: list[Array], slope: Array) -> Array:
    """(g − n · mean(g n)) / root, of normed rows n and g = slope · weight; less its mean where centred."""
    from attnctl.math.ops import LayerNorm, RMSNorm

    assert isinstance(norm, LayerNorm | RMSNorm)
    rows = x.astype(np.float64)
    normed, root = norm.normalize(rows)
    weighed = slope * norm.factor(factors[0]) if factors else slope
    along = (weighed * normed).mean(axis=-1, keepdims=True)
    turned = weighed - normed * along
    if norm.centred:
        turned = turned - weighed.mean(axis=-1, keepdims=True)
    return np.asarray(turned / root)


# --- the network ---


def turn_network(tensors: LayerTensors, x: Array, slope: Array) -> Array:
    """Back through act(x W_gate) · (x W_up) W_down, or act(x W_up) W_down."""
    d = tensors.d
    size = d["intermediate"]
    width = d["width"]
    act = ACTIVATIONS[d["act"]]
    at_inner = slope @ tensors.matrix("down", size, width).T

    def linear(use: str, columns: int) -> Array:
        out = x @ tensors.matrix(use, width, columns)
        return out + tensors.read(use, ".bias", (columns,)) if d["mlp_bias"] else out

    if tensors.has("gate_up"):
        both = linear("gate_up", 2 * size)
        gate, up = np.split(both, 2, axis=-1)
        at_both = np.concatenate([at_inner * up * slope_of(act, gate), at_inner * act(gate)], axis=-1)
        return at_both @ tensors.matrix("gate_up", width, 2 * size).T
    if not d["gated"]:
        at_up = at_inner * slope_of(act, linear("up", size))
        return at_up @ tensors.matrix("up", width, size).T

    gate = linear("gate", size)
    up = linear("up", size)
    at_gate = at_inner * up * slope_of(act, gate)
    by_gate = at_gate @ tensors.matrix("gate", width, size).T
    return by_gate + (at_inner * act(gate)) @ tensors.matrix("up", width, size).T


def slope_of(act: Callable[[Array], Array], x: Array) -> Array:
    """The slope of a function at every number: what moves between two places beside it, over the way."""
    wide = x.astype(np.float64)
    return np.asarray((act(wide + STEP) - act(wide - STEP)) / (2 * STEP))
