"""Layers of a gated delta rule, which carry a state from token to token, in our layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.inputs.plan.tensors import Named
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import LayerParts
from attnctl.math.kind import HeadNorm
from attnctl.math.ops import RMSNorm
from attnctl.models.layer import LayerTensors, norm_op, split
from attnctl.models.parts import norm_factors, plan_on

UNIT = 1e-6
"""What is added to the sum of squares that a row of Q or K is divided by the root of."""


class DeltaSizes(NamedTuple):
    """The setting `delta`: tokens of the convolution, heads of Q and K, of V, the columns of each."""

    kernel: int
    heads: int
    v_heads: int
    d_k: int
    d_v: int

    @property
    def keys(self) -> int:
        """The columns of Q in all its heads; those of K are as many."""
        return self.heads * self.d_k

    @property
    def values(self) -> int:
        return self.v_heads * self.d_v


def prepare_delta(tensors: LayerTensors, hidden: Array, header: Mapping[str, Any] | None) -> Plan:
    """The lines of a layer, heads of Q and K repeated for those of V."""
    d = tensors.d
    model = tensors.model
    sizes = DeltaSizes(*d["delta"])
    named: Named = {"hidden": (hidden, "what came into the layer")}
    named |= norm_factors(tensors, "attention_norm", "norm", (d["width"],))
    named |= read_delta(tensors)
    # A row over its length is the row over the root of its mean square, times 1/√d_k.
    for symbol in "QK":
        weight = np.full(sizes.d_k, sizes.d_k**-0.5, model.dtype)
        named[f"{symbol}_norm_weight"] = weight, "1/√d_k: rows of length 1"

    axes = {"head": sizes.v_heads, "kv_head": sizes.v_heads, "d_k": sizes.d_k, "d_v": sizes.d_v}
    axes |= {"d_model": d["width"], "query": hidden.shape[-2], "key": hidden.shape[-2]}
    settings = Settings(qk_norm=HeadNorm(eps=UNIT / sizes.d_k), gate=True)
    parts = LayerParts(norm=norm_op(d, d["eps"]), head_norm=RMSNorm(float(d["eps"])))
    return plan_on(model, variant(settings, axes, named, layer=parts), named, header)


def read_delta(tensors: LayerTensors) -> Named:
    """The tensors of a layer under our names."""
    sizes = DeltaSizes(*tensors.d["delta"])
    matrices = read_matrices(tensors)
    named = convolved_projections(tensors, sizes, matrices)
    for name in ("beta", "decay"):
        fused, origin = matrices[name]
        named[f"W_{name}"] = split(fused, sizes.v_heads), origin
    named["W_gate"] = matrices["gate"]
    named["decay_rate"] = tensors.read_with_origin("delta_decay", "", (sizes.v_heads,))
    named["decay_step"] = tensors.read_with_origin("delta_step", "", (sizes.v_heads,))
    named["head_norm_weight"] = tensors.read_with_origin("delta_norm", ".weight", (sizes.d_v,))
    named["W_O"] = tensors.matrix("delta_o", sizes.values, tensors.d["width"]), tensors.origin("delta_o")
    return named


def convolved_projections(tensors: LayerTensors, sizes: DeltaSizes, matrices: Named) -> Named:
    """Q, K and V and the convolution that each goes through, for every head of V."""
    channels = 2 * sizes.keys + sizes.values
    convolution = tensors.read("delta_conv", ".weight", (channels, 1, sizes.kernel))[:, 0]
    by_symbol = np.split(convolution, [sizes.keys, 2 * sizes.keys])
    named: Named = {}
    for symbol, kernels in zip("QKV", by_symbol, strict=True):
        fused, origin = matrices[symbol]
        by_head = split(fused, sizes.v_heads if symbol == "V" else sizes.heads)
        kernels_by_head = rearrange(kernels, "(head d) kernel -> head d kernel", head=len(by_head))

        repeats = sizes.v_heads // len(by_head)
        named[f"W_{symbol}"] = by_head.repeat(repeats, axis=0), origin
        named[f"conv_{symbol}"] = kernels_by_head.repeat(repeats, axis=0), tensors.origin("delta_conv")
    return named


class FusedMatrix(NamedTuple):
    """A tensor that has several matrices beside each other, in each of its groups of columns."""

    use: str
    groups: int
    columns: Mapping[str, int]
    """Of each matrix, those in one group."""


def delta_matrices(tensors: LayerTensors) -> list[FusedMatrix]:
    """The tensors of X's matrices: four of all heads in turn, or two that have heads together."""
    sizes = DeltaSizes(*tensors.d["delta"])
    if tensors.has("delta_qkv"):
        qkv = {"Q": sizes.keys, "K": sizes.keys, "V": sizes.values}
        return [
            FusedMatrix("delta_qkv", 1, qkv),
            FusedMatrix("delta_z", 1, {"gate": sizes.values}),
            FusedMatrix("delta_b", 1, {"beta": sizes.v_heads}),
            FusedMatrix("delta_a", 1, {"decay": sizes.v_heads}),
        ]

    values = sizes.values // sizes.heads  # those that share a head of Q and K
    shared = sizes.v_heads // sizes.heads
    qkvz = {"Q": sizes.d_k, "K": sizes.d_k, "V": values, "gate": values}
    return [
        FusedMatrix("delta_qkvz", sizes.heads, qkvz),
        FusedMatrix("delta_ba", sizes.heads, {"beta": shared, "decay": shared}),
    ]


def read_matrices(tensors: LayerTensors) -> Named:
    """The matrices (in, out) that X goes through."""
    width = tensors.d["width"]
    named: Named = {}
    for stored in delta_matrices(tensors):
        total = stored.groups * sum(stored.columns.values())
        fused = tensors.matrix(stored.use, width, total)
        by_group = rearrange(fused, "x (group d) -> x group d", group=stored.groups)
        ends = np.cumsum([*stored.columns.values()])[:-1]
        for name, part in zip(stored.columns, np.split(by_group, ends, axis=-1), strict=True):
            named[name] = part.reshape(width, -1), tensors.origin(stored.use)
    return named
