"""Layers that do not attend, in our layout: Mamba 2, the short convolution of LFM2, a network alone.

What such a layer reads is C, B and x where another has Q, K and V (see `attnctl.math.ops.states`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.inputs.plan.tensors import Named
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import LayerParts
from attnctl.math.names import CONVOLUTION, DELTA_MIXER, NETWORK, STATE_SPACE
from attnctl.math.ops import NormInGroups
from attnctl.models.description import Description
from attnctl.models.layer import LayerTensors, norm_op, split
from attnctl.models.parts import norm_factors, plan_on, read_projection


class StateSizes(NamedTuple):
    """The setting `state_space`: tokens convolved, heads, their columns, groups, numbers of a state.

    The heads of a group share B and C, which read and write their states.
    """

    kernel: int
    heads: int
    d_v: int
    groups: int
    d_k: int

    @property
    def values(self) -> int:
        return self.heads * self.d_v

    @property
    def shared(self) -> int:
        """The columns of B in all groups; those of C are as many."""
        return self.groups * self.d_k


class HeadSizes(NamedTuple):
    """The heads of a layer that does not attend, and their columns."""

    heads: int
    d_k: int
    d_v: int


def head_sizes(d: Description) -> HeadSizes:
    """Those of the layers that do not attend; a convolution has one head, which is all columns."""
    if d["state_space"]:
        sizes = StateSizes(*d["state_space"])
        return HeadSizes(sizes.heads, sizes.d_k, sizes.d_v)
    if d["delta"]:
        _, _, v_heads, d_k, d_v = d["delta"]
        return HeadSizes(v_heads, d_k, d_v)
    return HeadSizes(1, d["width"], d["width"])


def mixer_of(d: Description, index: int) -> str:
    """What a layer has that does not attend."""
    if d.layers[index].is_network:
        return NETWORK
    if d["delta"]:
        return DELTA_MIXER
    return STATE_SPACE if d["state_space"] else CONVOLUTION


def prepare_mixing(tensors: LayerTensors, hidden: Array, header: Mapping[str, Any] | None) -> Plan:
    """The lines of a layer with a state space, or with a convolution."""
    d = tensors.d
    named = read_rows(tensors, hidden)
    if d["state_space"]:
        gate_norm = read_state_space(tensors, named)
    else:
        gate_norm = None
        read_convolution(tensors, named)

    heads, d_k, d_v = head_sizes(d)
    tokens = hidden.shape[-2]
    axes = {"head": heads, "kv_head": heads, "d_k": d_k, "d_v": d_v}
    axes |= {"d_model": d["width"], "query": tokens, "key": tokens}
    parts = LayerParts(
        norm=norm_op(d, d["eps"]),
        residual=float(d["residual"]),
        mixer=mixer_of(d, tensors.index),
        gate_norm=gate_norm,
    )
    settings = Settings(positions=NONE, gate=True)
    return plan_on(tensors.model, variant(settings, axes, named, layer=parts), named, header)


def read_rows(tensors: LayerTensors, hidden: Array) -> Named:
    """What came into a layer, and the norm that it is read through."""
    width = tensors.d["width"]
    named: Named = {"hidden": (hidden[..., :width], "what came into the layer")}
    return named | norm_factors(tensors, "attention_norm", "norm", (width,))


def prepare_network(tensors: LayerTensors, hidden: Array, header: Mapping[str, Any] | None) -> Plan:
    """The lines of a layer that is a network alone: what it reads, and what it is added to."""
    d = tensors.d
    named = read_rows(tensors, hidden)
    tokens = hidden.shape[-2]
    axes = {"head": 1, "kv_head": 1, "d_model": d["width"], "query": tokens, "key": tokens}
    parts = LayerParts(norm=norm_op(d, d["eps"]), mixer=NETWORK)
    kind = variant(Settings(positions=NONE), axes, named, layer=parts)
    return plan_on(tensors.model, kind, named, header)


# --- Mamba 2 ---


def read_state_space(tensors: LayerTensors, named: Named) -> NormInGroups | None:
    """Put the tensors of a layer under our names; the norm of its gated heads, if it has one."""
    d = tensors.d
    sizes = StateSizes(*d["state_space"])
    read_inner(tensors, sizes, named)
    read_convolved(tensors, sizes, named)

    for name, use in (("decay_rate", "ssm_decay"), ("decay_step", "ssm_step"), ("skip", "ssm_skip")):
        named[name] = tensors.read_with_origin(use, "", (sizes.heads,))
    shape = (sizes.values, d["width"])
    named |= read_projection(tensors, "ssm_o", "O", shape, has_bias=False)
    if not tensors.has("ssm_norm"):
        return None

    named["gate_norm_weight"] = tensors.read_with_origin("ssm_norm", ".weight", (sizes.values,))
    return NormInGroups(float(d["eps"]), sizes.groups)


def read_inner(tensors: LayerTensors, sizes: StateSizes, named: Named) -> None:
    """One matrix makes the gate, x, B, C and what each token decays by."""
    columns = [sizes.values, sizes.values, sizes.shared, sizes.shared, sizes.heads]
    fused = tensors.matrix("ssm_in", tensors.d["width"], sum(columns))
    origin = tensors.origin("ssm_in")
    gate, x, b, c, decay = np.split(fused, np.cumsum(columns)[:-1], axis=-1)

    named["W_Q"] = of_every_head(split(c, sizes.groups), sizes), origin
    named["W_K"] = of_every_head(split(b, sizes.groups), sizes), origin
    named["W_V"] = split(x, sizes.heads), origin
    named["W_gate"] = gate, origin
    named["W_decay"] = split(decay, sizes.heads), origin


def read_convolved(tensors: LayerTensors, sizes: StateSizes, named: Named) -> None:
    """The convolution that x, B and C go through, one behind the other."""
    ends = [sizes.values, sizes.values + sizes.shared]
    channels = sizes.values + 2 * sizes.shared
    kernels = tensors.read("ssm_conv", ".weight", (channels, 1, sizes.kernel))[:, 0]
    for symbol, part in zip("VKQ", np.split(kernels, ends), strict=True):
        heads = sizes.heads if symbol == "V" else sizes.groups
        by_head = rearrange(part, "(head d) kernel -> head d kernel", head=heads)
        named[f"conv_{symbol}"] = of_every_head(by_head, sizes), tensors.origin("ssm_conv")

    if not tensors.d["conv_bias"]:
        return
    bias = tensors.read("ssm_conv", ".bias", (channels,))
    origin = tensors.origin("ssm_conv", ".bias")
    for symbol, part in zip("VKQ", np.split(bias, ends), strict=True):
        heads = sizes.heads if symbol == "V" else sizes.groups
        named[f"conv_bias_{symbol}"] = of_every_head(split(part, heads), sizes), origin


def of_every_head(by_group: Array, sizes: StateSizes) -> Array:
    """What the heads of a group share, once for each of them."""
    return by_group.repeat(sizes.heads // len(by_group), axis=0)


# --- the convolution of LFM2 ---


def read_convolution(tensors: LayerTensors, named: Named) -> None:
    """Put the tensors of a layer under our names: a matrix makes both gates, and what is mixed."""
    d = tensors.d
    width = d["width"]
    has_bias = bool(d["conv_bias"])
    fused = tensors.matrix("conv_in", width, 3 * width)
    parts = np.split(fused, 3, axis=-1)
    name_parts(named, "W", parts, tensors.origin("conv_in"))

    kernels = tensors.read("conv", ".weight", (width, 1, d["convolution"]))
    named["conv_V"] = rearrange(kernels, "d head kernel -> head d kernel"), tensors.origin("conv")
    if has_bias:
        bias = tensors.read("conv_in", ".bias", (3 * width,))
        name_parts(named, "b", np.split(bias, 3), tensors.origin("conv_in", ".bias"))
        own = tensors.read("conv", ".bias", (width,))
        named["conv_bias_V"] = split(own, 1), tensors.origin("conv", ".bias")
    named |= read_projection(tensors, "conv_o", "O", (width, width), has_bias=has_bias)


def name_parts(named: Named, letter: str, parts: list[Array], origin: str) -> None:
    """The gate before the convolution, the one after it, and what goes through both."""
    before, after, mixed = parts
    named[f"{letter}_in_gate"] = split(before, 1), origin
    named[f"{letter}_gate"] = after, origin
    named[f"{letter}_V"] = split(mixed, 1), origin
