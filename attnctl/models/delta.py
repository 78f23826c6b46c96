"""The derivation of a layer of a gated delta rule, which carries a state from token to token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.inputs.plan.tensors import Named, arrays_of
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import LayerParts
from attnctl.math.kind import HeadNorm
from attnctl.math.ops import RMSNorm
from attnctl.models.family import DeltaSizes
from attnctl.models.layer import LayerTensors, norm_op, split

UNIT = 1e-6
"""What is added to the sum of squares that a row of Q or K is divided by the root of."""


def prepare_delta(tensors: LayerTensors, hidden: Array, header: Mapping[str, Any] | None = None) -> Plan:
    """The lines of a layer, heads of Q and K repeated for those of V."""
    d, model = tensors.d, tensors.model
    sizes: DeltaSizes = d["delta"]
    named: Named = {"hidden": (hidden, "what came into the layer")}
    for suffix in d.norm_suffixes:
        factor = tensors.read_with_origin("attention_norm", suffix, (d["width"],))
        named[f"norm_{suffix[1:]}"] = factor
    named |= dict(read_delta(tensors, sizes))
    for symbol in "QK":  # a row over its length is one over the root of its mean square, times that
        weight = np.full(sizes.d_k, sizes.d_k**-0.5, model.dtype)
        named[f"{symbol}_norm_weight"] = weight, "1/√d_k: rows of length 1"
    asked = Settings(qk_norm=HeadNorm(eps=UNIT / sizes.d_k), gate=True)
    tokens, heads = hidden.shape[-2], sizes.v_heads
    axes = {"head": heads, "kv_head": heads, "d_k": sizes.d_k, "d_v": sizes.d_v, "d_model": d["width"]}
    layer = LayerParts(norm=norm_op(d, d["eps"]), head_norm=RMSNorm(float(d["eps"])))
    kind = variant(asked, {**axes, "query": tokens, "key": tokens}, named, layer=layer)
    return Plan(kind, arrays_of(named), dict(header or {}), model.dtype, model.max_memory)


def read_delta(tensors: LayerTensors, sizes: DeltaSizes) -> Iterator[tuple[str, tuple[Array, str]]]:
    """The tensors of a layer under our names."""
    kernel, heads, v_heads, d_k, d_v = sizes
    width, values = tensors.d["width"], v_heads * d_v
    matrices = dict(read_matrices(tensors, sizes))
    convolved = tensors.read("delta_conv", ".weight", (2 * heads * d_k + values, 1, kernel))[:, 0]
    columns = np.split(convolved, [heads * d_k, 2 * heads * d_k])
    for symbol, own in zip("QKV", columns, strict=True):
        fused, origin = matrices[symbol]
        by_head = split(fused, v_heads if symbol == "V" else heads)
        mixed = rearrange(own, "(head d) kernel -> head d kernel", head=len(by_head))
        share = v_heads // len(by_head)
        yield f"W_{symbol}", (by_head.repeat(share, axis=0), origin)
        yield f"conv_{symbol}", (mixed.repeat(share, axis=0), tensors.origin("delta_conv"))
    for name in ("beta", "decay"):
        fused, origin = matrices[name]
        yield f"W_{name}", (split(fused, v_heads), origin)
    yield "W_gate", matrices["gate"]
    for name, use in (("decay_rate", "delta_decay"), ("decay_step", "delta_step")):
        yield name, tensors.read_with_origin(use, "", (v_heads,))
    yield "head_norm_weight", tensors.read_with_origin("delta_norm", ".weight", (d_v,))
    yield "W_O", (tensors.matrix("delta_o", values, width), tensors.origin("delta_o"))


def read_matrices(tensors: LayerTensors, sizes: DeltaSizes) -> Iterator[tuple[str, tuple[Array, str]]]:
    """The matrices (in, out) that X goes through: of four tensors, or of two that have heads together."""
    _, heads, v_heads, d_k, d_v = sizes
    both, values, width = 2 * heads * d_k, v_heads * d_v, tensors.d["width"]
    own = values // heads
    if tensors.has("delta_qkv"):
        wanted = {
            "delta_qkv": (1, both + values, {"Q": heads * d_k, "K": heads * d_k, "V": values}),
            "delta_z": (1, values, {"gate": values}),
            "delta_b": (1, v_heads, {"beta": v_heads}),
            "delta_a": (1, v_heads, {"decay": v_heads}),
        }
    else:
        wanted = {
            "delta_qkvz": (heads, both + 2 * values, {"Q": d_k, "K": d_k, "V": own, "gate": own}),
            "delta_ba": (heads, 2 * v_heads, {"beta": v_heads // heads, "decay": v_heads // heads}),
        }
    for use, (groups, columns, parts) in wanted.items():
        fused = rearrange(tensors.matrix(use, width, columns), "x (group d) -> x group d", group=groups)
        cuts = np.cumsum([*parts.values()])[:-1]
        for name, part in zip(parts, np.split(fused, cuts, axis=-1), strict=True):
            yield name, (part.reshape(width, -1), tensors.origin(use))
