"""The derivation of a layer's attention, and its tensors in our layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

import numpy as np

from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.inputs.plan.tensors import Named, arrays_of
from attnctl.math import Array, Shape
from attnctl.math.axes import rearrange
from attnctl.math.derivation import LayerParts
from attnctl.math.kind import HEAD, HEADS, HeadNorm
from attnctl.math.ops import Buckets, RMSNorm
from attnctl.math.rules import Alibi, Causal, Rule, Softcap, alibi_slopes
from attnctl.models.description import Description, Layer
from attnctl.models.layer import LayerTensors, Model, norm_op, split
from attnctl.models.stream import SHARED, read_beside, stream_width
from attnctl.models.tensors import bfloat16


def prepare_attention(
    tensors: LayerTensors,
    hidden: Array,
    header: Mapping[str, Any] | None = None,
    memory: Array | None = None,
    *,
    cross: bool = False,
) -> Plan:
    """The attention of a layer, or its `cross` one to `memory`. Raises AttnError for unfit tensors."""
    d, own = tensors.d, tensors.this_layer
    tensors.refuse_foreign()
    if own.linear:
        return prepare_delta(tensors, hidden, header)
    named: Named = {"hidden": (hidden[..., : d["width"]], "what came into the layer")}
    if cross:
        assert memory is not None
        named["memory"] = memory, "the encoder's output"
    queries = hidden.shape[-2]
    named |= read_shared(tensors, hidden)
    named |= read_weights(tensors, cross=cross) | read_biases(tensors, queries, cross=cross)
    over = HEADS if d["qk_norm"] == "heads" else HEAD
    norm = HeadNorm(d["norm"], float(d["eps"]), over, bool(d["plus_one"]), bool(d["norm_after_rotation"]))
    asked = Settings(
        scale=own.scale,
        rules=() if cross else rules_of(d, own),
        positions=NONE if cross or own.rope is None else own.rope.rotary(queries),
        qk_norm=norm if norms_heads(tensors, cross=cross) else None,
        temperature=None if cross else own.temperature,
        gate=bool(d["gated_q"]),
    )
    sizes = {**d.sizes, "query": queries, "key": queries if memory is None else memory.shape[-2]}
    buckets = Buckets(furthest=d["furthest"], both_ways=not d["causal"])
    parts = LayerParts(
        norm=norm_op(d, d["eps"]) if norm_before(tensors, cross=cross) else None,
        v_norm=norm_op(d, d["eps"]) if d["v_norm"] and d["source"] is None else None,
        shared=d["source"] is not None,
        latent_norm=norm_op(d, d["latent_eps"]) if d["kv_rank"] else None,
        buckets=buckets if d["buckets"] and not cross else None,
        output_norm=norm_op(d, d["eps"]) if tensors.has("attention_out_norm") and not cross else None,
        residual=float(d["residual"]),
        from_norm=bool(d["from_norm"]),
    )
    kind = variant(asked, sizes, named, layer=parts)
    model = tensors.model
    return Plan(kind, arrays_of(named), dict(header or {}), model.dtype, model.max_memory)


def blank_rows(model: Model, tokens: int) -> Array:
    """Rows to plan a layer's attention on where only their shape counts."""
    return np.broadcast_to(np.zeros(1, model.dtype), (tokens, stream_width(model.description)))


def read_shared(tensors: LayerTensors, hidden: Array) -> Named:
    """K and V of the earlier layer that has them for this one, if it has none."""
    if (source := tensors.d["source"]) is None:
        return {}
    rows = {symbol: read_beside(tensors, hidden, symbol, source) for symbol in SHARED}
    by_head, heads = "... token (head d) -> ... head token d", tensors.d["kv_heads"]
    return {
        symbol: (rearrange(rows[symbol], by_head, head=heads), f"{step} of layer {source}")
        for symbol, step in SHARED.items()
    }


def norm_before(tensors: LayerTensors, *, cross: bool) -> str | None:
    name = "cross_norm" if cross else "attention_norm"
    return name if tensors.has(name) and (tensors.this_layer.normed or cross) else None


def norms_heads(tensors: LayerTensors, *, cross: bool) -> bool:
    here = tensors.d["norm_unrotated"] or tensors.this_layer.rope is not None
    return bool(tensors.d["qk_norm"]) and here and not cross


def read_weights(tensors: LayerTensors, *, cross: bool) -> Named:
    d, role = tensors.d, "cross_" if cross else ""
    named: Named = {}
    if before := norm_before(tensors, cross=cross):
        named |= norm_factors(tensors, before, "norm", (d["width"],))
    named |= read_latents(tensors) if d["kv_rank"] else read_projections(tensors, role)
    if norms_heads(tensors, cross=cross) and tensors.has("q_norm"):
        named |= head_norm_factors(tensors)
    shape = d["heads"] * d["d_v"], d["width"]
    named |= read_projection(tensors, f"{role}o", "O", shape, d["out_bias"])
    if tensors.has("attention_out_norm") and not cross:
        named |= norm_factors(tensors, "attention_out_norm", "output_norm", (d["width"],))
    if tensors.has("attention_scale"):
        named["output_scale"] = tensors.read_with_origin("attention_scale", "", (d["width"],))
    return named


def read_biases(tensors: LayerTensors, keys: int, *, cross: bool) -> Named:
    """Whatever stands beside the scores or is added to them: sinks, buckets, slopes of keys."""
    d = tensors.d
    named: Named = {}
    if d["sink"]:
        named["sink"] = tensors.read_with_origin("sink", "", (d["heads"],))
    if d["buckets"] and not cross:
        table = tensors.model.outer("bias_table", ".weight", (d["buckets"], d["heads"]))
        named["bias_table"] = np.ascontiguousarray(table.T), d.stack.outer["bias_table"]
    if d["alibi"] == "keys":  # Falcon's, (head, 1, key): slope · key rounded to bfloat16, over √d_k
        slopes = bfloat16(alibi_slopes(d["heads"]).astype(np.float32))
        rows = bfloat16(slopes[:, None] * np.arange(keys, dtype=np.float32))
        bias = rows[:, None, :] * np.float32(1 / sqrt(d["d_k"]))
        named["bias"] = bias.astype(tensors.model.dtype), "slope · key, in bfloat16"
    return named


def rules_of(d: Description, own: Layer) -> tuple[Rule, ...]:
    rules: list[Rule] = [Causal()] if d["causal"] else []
    if own.window:
        rules.append(own.window)
    if d["softcap"]:
        rules.append(Softcap(float(d["softcap"])))
    if d["alibi"] == "slopes":
        rules.append(Alibi())
    return tuple(rules)


def norm_factors(tensors: LayerTensors, use: str, name: str, shape: Shape) -> Named:
    return {
        f"{name}_{suffix[1:]}": tensors.read_with_origin(use, suffix, shape)
        for suffix in tensors.d.norm_suffixes
    }


def head_norm_factors(tensors: LayerTensors) -> Named:
    """The weights of the norms of Q and K: one row for all heads, or one for each."""
    d, size = tensors.d, tensors.d["d_k"]
    named: Named = {}
    for symbol, use, heads in (("Q", "q_norm", d["heads"]), ("K", "k_norm", d["kv_heads"])):
        if symbol == "K" and tensors.d["source"] is not None:
            continue
        if "{h}" in d.inner[use]:
            weight = np.stack([tensors.read(use, ".weight", (size,), h=head) for head in range(heads)])
        elif d["qk_norm"] == "heads":
            weight = tensors.read(use, ".weight", (heads * size,)).reshape(heads, size)
        else:
            stored = tensors.model.checkpoint.tensors.get(tensors.name_of(use, ".weight"))
            by_head = stored is not None and stored.shape == (heads, size)
            weight = tensors.read(use, ".weight", (heads, size) if by_head else (size,))
        named[f"{symbol}_norm_weight"] = weight, tensors.origin(use)
        if d["qk_norm_bias"]:
            named[f"{symbol}_norm_bias"] = tensors.read_with_origin(use, ".bias", (size,))
    return named


def read_projections(tensors: LayerTensors, role: str) -> Named:
    d = tensors.d
    if tensors.has("qkv"):
        return fused_projections(tensors)
    named: Named = {}
    if d["gated_q"]:
        named |= read_gated(tensors)
    for symbol, count in (("Q", d["heads"]), ("K", d["kv_heads"]), ("V", d["kv_heads"])):
        if d["gated_q"] if symbol == "Q" else tensors.d["source"] is not None:
            continue
        columns = count * d["d_v" if symbol == "V" else "d_k"]
        there = d["k_bias" if symbol == "K" else "bias"]
        use = "k" if symbol == "V" and d["v_of_k"] else f"{role}{symbol.lower()}"
        named |= read_projection(tensors, use, symbol, (d["width"], columns), there, heads=count)
    return named


def read_projection(
    tensors: LayerTensors, use: str, symbol: str, shape: Shape, there: bool, *, heads: int = 0
) -> Named:
    """The matrix (in, out) of a projection and its bias, if there is one; split where it has heads."""
    rows, columns = shape
    named: Named = {f"W_{symbol}": (tensors.projection(use, rows, columns, heads), tensors.origin(use))}
    if there:
        bias, origin = tensors.read_with_origin(use, ".bias", (columns,))
        named[f"b_{symbol}"] = split(bias, heads) if heads else bias, origin
    return named


def read_gated(tensors: LayerTensors) -> Named:
    """Q and the gate of one matrix, which has those of a head beside each other."""
    d = tensors.d
    named: Named = {}
    for kind, fused, origin in read_both(tensors, "q", d["width"], 2 * d["heads"] * d["d_k"]):
        q, gate = rearrange(fused, "... (head two d) -> two head ... d", head=d["heads"], two=2)
        flat = rearrange(gate, "head ... d -> ... (head d)")
        named |= {f"{kind}_Q": (q, origin), f"{kind}_gate": (flat, origin)}
    return named


def read_both(tensors: LayerTensors, use: str, rows: int, columns: int) -> Iterator[tuple[str, Array, str]]:
    """The matrix (in, out) of several projections, W, and their bias, b, if they have one; its name."""
    yield "W", tensors.matrix(use, rows, columns), tensors.origin(use)
    if tensors.d["bias"]:
        yield "b", *tensors.read_with_origin(use, ".bias", (columns,))


def fused_projections(tensors: LayerTensors) -> Named:
    """Q, K and V from one matrix: all of Q, then K, then V; or by kv head, its queries, its K and its V."""
    d = tensors.d
    heads, kv_heads, size = d["heads"], d["kv_heads"], d["d_k"]
    named: Named = {}
    for kind, fused, origin in read_both(tensors, "qkv", d["width"], (heads + 2 * kv_heads) * size):
        if d["qkv"] == "blocks":
            parts = np.split(fused, [heads * size, (heads + kv_heads) * size], axis=-1)
            q, k, v = map(split, parts, (heads, kv_heads, kv_heads))
        else:
            groups = rearrange(fused, "... (kv group d) -> kv group ... d", kv=kv_heads, d=size)
            by_group = np.ascontiguousarray(groups)
            q = by_group[:, :-2].reshape(heads, *by_group.shape[2:])
            k, v = by_group[:, -2], by_group[:, -1]
        named |= {f"{kind}_Q": (q, origin), f"{kind}_K": (k, origin), f"{kind}_V": (v, origin)}
    return named


def read_latents(tensors: LayerTensors) -> Named:
    """DeepSeek's matrices: down to the latent rows, and up from them by head."""
    d = tensors.d
    heads, rank, d_rope, d_v = d["heads"], d["kv_rank"], d["d_rope"], d["d_v"]
    own = d["d_k"] - d_rope
    named: Named = {}
    source = d["width"]
    if d["rank"]:
        named |= read_projection(tensors, "latent_q", "latent_Q", (source, d["rank"]), d["bias"])
        named |= norm_factors(tensors, "latent_q_norm", "latent_Q_norm", (d["rank"],))
        source = d["rank"]
    named["W_Q"] = split(tensors.matrix("q", source, heads * d["d_k"]), heads), tensors.origin("q")
    for kind, down, origin in read_both(tensors, "latent_kv", d["width"], rank + d_rope):
        latent, rope = np.split(down, [rank], axis=-1)
        named |= {f"{kind}_latent_KV": (latent, origin), f"{kind}_K_rope": (rope, origin)}
    named |= norm_factors(tensors, "latent_kv_norm", "latent_KV_norm", (rank,))
    up = split(tensors.matrix("kv", rank, heads * (own + d_v)), heads)
    named["W_K"], named["W_V"] = ((word, tensors.origin("kv")) for word in np.split(up, [own], axis=-1))
    return named


# --- a gated delta rule, which carries a state from token to token ---

UNIT = 1e-6
"""What is added to the sum of squares that a row of Q or K is divided by the root of."""


def prepare_delta(tensors: LayerTensors, hidden: Array, header: Mapping[str, Any] | None) -> Plan:
    """The lines of a layer, heads of Q and K repeated for those of V."""
    d, model = tensors.d, tensors.model
    _, _, heads, d_k, d_v = d["delta"]
    named: Named = {"hidden": (hidden, "what came into the layer")}
    named |= norm_factors(tensors, "attention_norm", "norm", (d["width"],)) | dict(read_delta(tensors))
    for symbol in "QK":  # a row over its length is one over the root of its mean square, times that
        weight = np.full(d_k, d_k**-0.5, model.dtype)
        named[f"{symbol}_norm_weight"] = weight, "1/√d_k: rows of length 1"
    asked = Settings(qk_norm=HeadNorm(eps=UNIT / d_k), gate=True)
    axes = {"head": heads, "kv_head": heads, "d_k": d_k, "d_v": d_v, "d_model": d["width"]}
    layer = LayerParts(norm=norm_op(d, d["eps"]), head_norm=RMSNorm(float(d["eps"])))
    axes |= {"query": hidden.shape[-2], "key": hidden.shape[-2]}
    kind = variant(asked, axes, named, layer=layer)
    return Plan(kind, arrays_of(named), dict(header or {}), model.dtype, model.max_memory)


def read_delta(tensors: LayerTensors) -> Iterator[tuple[str, tuple[Array, str]]]:
    """The tensors of a layer under our names."""
    kernel, heads, v_heads, d_k, d_v = tensors.d["delta"]
    width, values = tensors.d["width"], v_heads * d_v
    matrices = dict(read_matrices(tensors))
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


def read_matrices(tensors: LayerTensors) -> Iterator[tuple[str, tuple[Array, str]]]:
    """The matrices (in, out) that X goes through: of four tensors, or of two that have heads together."""
    _, heads, v_heads, d_k, d_v = tensors.d["delta"]
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
