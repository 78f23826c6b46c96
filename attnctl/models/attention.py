"""The derivation of a layer's attention, and its tensors in our layout."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, sqrt
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.inputs.plan.tensors import Named
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.derivation import LayerParts
from attnctl.math.kind import HEAD, HEADS, HeadNorm
from attnctl.math.names import PAST_KEY, PAST_VALUE
from attnctl.math.ops import AddByDistance, Buckets, LayerNorm
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import Alibi, Causal, Rule, Softcap, alibi_slopes
from attnctl.models.delta import prepare_delta
from attnctl.models.description import Description, Layer
from attnctl.models.layer import LayerTensors, Model, norm_op, split
from attnctl.models.mixing import prepare_mixing, prepare_network
from attnctl.models.parts import norm_factors, plan_on, read_fused, read_projection
from attnctl.models.rope import OF_GRID
from attnctl.models.stream import SHARED, read_beside, stream_width
from attnctl.models.tensors import bfloat16
from attnctl.record.picture import PatchGrid


class Past(NamedTuple):
    """Keys and values of the tokens before, (kv_head, token, d), as rotations and norms have left them."""

    key: Array
    value: Array


def prepare_attention(
    tensors: LayerTensors,
    hidden: Array,
    header: Mapping[str, Any] | None = None,
    memory: Array | None = None,
    *,
    cross: bool = False,
    past: Past | None = None,
) -> Plan:
    """The attention of a layer, or its `cross` one to `memory`. Raises AttnError for unfit tensors.

    The rows of `hidden` stand after those that a `past` is of.
    """
    d = tensors.d
    tensors.refuse_foreign()
    if tensors.this_layer.is_linear:
        if tensors.this_layer.is_network:
            return prepare_network(tensors, hidden, header)
        prepare = prepare_delta if d["delta"] else prepare_mixing
        return prepare(tensors, hidden, header)

    queries = hidden.shape[-2]
    before = 0 if past is None else past.key.shape[-2]
    keys = before + queries if memory is None else memory.shape[-2]
    named: Named = {"hidden": (hidden[..., : d["width"]], "what came into the layer")}
    if cross:
        assert memory is not None
        named["memory"] = memory, "the encoder's output"
    named |= read_shared(tensors, hidden)
    named |= read_weights(tensors, cross=cross)
    named |= read_biases(tensors, keys, cross=cross)
    if d["distances"]:
        named |= read_distances(tensors)
    sizes = {**d.sizes, "query": queries, "key": keys}
    if past is not None:
        named[PAST_KEY] = past.key, "of the tokens before"
        named[PAST_VALUE] = past.value, "of the tokens before"
        sizes["past"] = before

    settings = cross_settings(d, tensors.this_layer) if cross else self_settings(tensors, keys)
    parts = parts_of_layer(tensors, cross=cross)
    places = places_on_grid(tensors, queries)
    kind = variant(settings, sizes, named, offset=before, layer=parts, places=places)
    return plan_on(tensors.model, kind, named, header)


def places_on_grid(tensors: LayerTensors, tokens: int) -> GivenPlaces:
    """The row and the column of each patch, from −1 to 1, and 0 of the tokens before them; else nothing."""
    rope = tensors.this_layer.rope
    if rope is None or rope.kind != OF_GRID:
        return ()

    grid = tensors.model.grid or square_grid(tensors, tokens)
    down = 2 * (np.arange(grid.rows) + 0.5) / grid.rows - 1
    across = 2 * (np.arange(grid.columns) + 0.5) / grid.columns - 1
    before = np.zeros(tokens - grid.rows * grid.columns)
    row = np.concatenate([before, np.repeat(down, grid.columns)])
    column = np.concatenate([before, np.tile(across, grid.rows)])
    return tuple((tuple(each.tolist()),) for each in (row, column, np.zeros(tokens)))


def square_grid(tensors: LayerTensors, tokens: int) -> PatchGrid:
    """The grid of rows that came from no picture: as many patches each way. Raises AttnError for others."""
    before = 1 + int(tensors.d["registers"])
    side = isqrt(max(tokens - before, 0))
    if tokens > before and side * side != tokens - before:
        raise AttnError(
            f"{tensors.model.name}: {tokens - before} patches behind {before} tokens are no square, and "
            "its rotary positions go by rows and columns; run it on a picture: --image FILE"
        )
    return PatchGrid(side, side)


def cross_settings(d: Description, layer: Layer) -> Settings:
    """Attention to another sequence: of rules and positions, only a cap is about its keys."""
    rules = (Softcap(float(d["softcap"])),) if d["softcap"] else ()
    return Settings(scale=layer.scale, rules=rules, positions=NONE, gate=bool(d["gated_q"]))


def self_settings(tensors: LayerTensors, queries: int) -> Settings:
    d = tensors.d
    layer = tensors.this_layer
    norm = HeadNorm(
        kind=d["norm"],
        eps=float(d["eps"]),
        over=HEADS if d["qk_norm"] == "heads" else HEAD,
        plus_one=bool(d["plus_one"]),
        after_rotation=bool(d["norm_after_rotation"]),
    )
    return Settings(
        scale=layer.scale,
        rules=rules_of(d, layer),
        positions=NONE if layer.rope is None else layer.rope.rotary(queries),
        qk_norm=norm if norms_heads(tensors, cross=False) else None,
        temperature=layer.temperature,
        gate=bool(d["gated_q"]),
    )


def parts_of_layer(tensors: LayerTensors, *, cross: bool) -> LayerParts:
    """What a layer of a model has around its attention, and in it, that no setting asks for."""
    d = tensors.d
    norm = norm_op(d, d["eps"])
    is_shared = d["source"] is not None
    has_buckets = d["buckets"] and not cross
    out_norm = output_norm_of(tensors, cross=cross)
    has_concat_norm = tensors.has("concat_norm") and not cross
    return LayerParts(
        norm=norm if norm_before(tensors, cross=cross) else None,
        v_norm=norm if d["v_norm"] and not is_shared else None,
        shared=is_shared,
        latent_norm=norm_op(d, d["latent_eps"]) if d["kv_rank"] else None,
        buckets=Buckets(furthest=d["furthest"], both_ways=not d["causal"]) if has_buckets else None,
        output_norm=norm if out_norm else None,
        concat_norm=norm if has_concat_norm else None,
        distances=distances_of(d) if d["distances"] else None,
        distances_norm=LayerNorm(float(d["eps"])) if d["distances_normed"] else None,
        residual=float(d["residual"]),
        from_norm=bool(d["from_norm"]),
    )


def output_norm_of(tensors: LayerTensors, *, cross: bool) -> str | None:
    """The use of the norm of what attention adds; None where that is added as it is."""
    use = "cross_out_norm" if cross else "attention_out_norm"
    return use if tensors.has(use) else None


def blank_rows(model: Model, tokens: int) -> Array:
    """Rows to plan a layer's attention on where only their shape counts."""
    return np.broadcast_to(np.zeros(1, model.dtype), (tokens, stream_width(model.description)))


def blank_memory(model: Model, tokens: int) -> Array:
    """The same of what a decoder attends to, which may be of another width."""
    width = model.description["memory_width"] or stream_width(model.description)
    return np.broadcast_to(np.zeros(1, model.dtype), (tokens, width))


def read_shared(tensors: LayerTensors, hidden: Array) -> Named:
    """K and V of the earlier layer that has them for this one, if it has none."""
    source = tensors.d["source"]
    if source is None:
        return {}

    named: Named = {}
    for symbol, step in SHARED.items():
        rows = read_beside(tensors, hidden, symbol, source)
        by_head = rearrange(rows, "... token (head d) -> ... head token d", head=tensors.d["kv_heads"])
        named[symbol] = by_head, f"{step} of layer {source}"
    return named


def norm_before(tensors: LayerTensors, *, cross: bool) -> str | None:
    """The use of the norm that attention reads through; None where it reads the rows as they are."""
    if cross:
        return "cross_norm" if tensors.has("cross_norm") else None
    has_norm = tensors.has("attention_norm") and tensors.this_layer.has_norm
    return "attention_norm" if has_norm else None


def norms_heads(tensors: LayerTensors, *, cross: bool) -> bool:
    """Whether rows of Q and K go through norms of their own."""
    if cross or not tensors.d["qk_norm"]:
        return False
    return bool(tensors.d["norm_unrotated"] or tensors.this_layer.rope is not None)


def read_weights(tensors: LayerTensors, *, cross: bool) -> Named:
    d = tensors.d
    role = "cross_" if cross else ""
    named: Named = {}
    if before := norm_before(tensors, cross=cross):
        named |= norm_factors(tensors, before, "norm", (d["width"],))
    named |= read_latents(tensors) if d["kv_rank"] else read_projections(tensors, role)
    if norms_heads(tensors, cross=cross) and tensors.has("q_norm"):
        named |= head_norm_factors(tensors)

    shape = (d["heads"] * d["d_v"], d["width"])
    named |= read_projection(tensors, f"{role}o", "O", shape, has_bias=d["out_bias"])
    if tensors.has("concat_norm") and not cross:
        named |= norm_factors(tensors, "concat_norm", "concat_norm", (d["heads"] * d["d_v"],))
    if out_norm := output_norm_of(tensors, cross=cross):
        named |= norm_factors(tensors, out_norm, "output_norm", (d["width"],))
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
        shape = (d["buckets"], d["heads"])
        if tensors.has("bias_table"):
            table, origin = tensors.read_with_origin("bias_table", ".weight", shape)
        else:
            table = tensors.model.outer("bias_table", ".weight", shape)
            origin = d.stack.outer["bias_table"]
        named["bias_table"] = np.ascontiguousarray(table.T), origin
    if d["alibi"] == "keys":
        bias = falcon_alibi(d["heads"], d["d_k"], keys)
        named["bias"] = bias.astype(tensors.model.dtype), "slope · key, in bfloat16"
    return named


def falcon_alibi(heads: int, d_k: int, keys: int) -> Array:
    """What Falcon adds to scores, (head, 1, key): slope · key rounded to bfloat16, over √d_k."""
    slopes = bfloat16(alibi_slopes(heads).astype(np.float32))
    rows = bfloat16(slopes[:, None] * np.arange(keys, dtype=np.float32))
    return rows[:, None, :] * np.float32(1 / sqrt(d_k))


def rules_of(d: Description, layer: Layer) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    if d["causal"]:
        rules.append(Causal())
    if layer.window:
        rules.append(layer.window)
    if d["softcap"]:
        rules.append(Softcap(float(d["softcap"])))
    if d["alibi"] == "slopes":
        rules.append(Alibi())
    return tuple(rules)


def head_norm_factors(tensors: LayerTensors) -> Named:
    """The weights of the norms of Q and K: one row for all heads, or one for each."""
    d = tensors.d
    named = factors_of_head_norm(tensors, "Q", "q_norm", d["heads"])
    if d["source"] is None:
        named |= factors_of_head_norm(tensors, "K", "k_norm", d["kv_heads"])
    return named


def factors_of_head_norm(tensors: LayerTensors, symbol: str, use: str, heads: int) -> Named:
    d = tensors.d
    size = d["d_k"]
    if "{h}" in d.inner[use]:
        weight = np.stack([tensors.read(use, ".weight", (size,), h=head) for head in range(heads)])
    elif d["qk_norm"] == "heads":
        weight = tensors.read(use, ".weight", (heads * size,)).reshape(heads, size)
    else:
        stored = tensors.model.checkpoint.tensors.get(tensors.name_of(use, ".weight"))
        by_head = stored is not None and stored.shape == (heads, size)
        weight = tensors.read(use, ".weight", (heads, size) if by_head else (size,))

    named: Named = {f"{symbol}_norm_weight": (weight, tensors.origin(use))}
    if d["qk_norm_bias"]:
        named[f"{symbol}_norm_bias"] = tensors.read_with_origin(use, ".bias", (size,))
    return named


def read_projections(tensors: LayerTensors, role: str) -> Named:
    """Q, K and V, but for what is in one matrix with a gate, or read of an earlier layer."""
    d = tensors.d
    if tensors.has("qkv"):
        return fused_projections(tensors)

    width = d["width"]
    heads = d["heads"]
    kv_heads = d["kv_heads"]
    named: Named = {}
    if d["gated_q"]:
        named |= read_gated(tensors)
    else:
        shape = (width, heads * d["d_k"])
        named |= read_projection(tensors, f"{role}q", "Q", shape, has_bias=d["bias"], heads=heads)
    if d["source"] is not None:
        return named

    if role and d["memory_width"]:
        width = d["memory_width"]
    shape = (width, kv_heads * d["d_k"])
    named |= read_projection(tensors, f"{role}k", "K", shape, has_bias=d["k_bias"], heads=kv_heads)
    shape = (width, kv_heads * d["d_v"])
    use = "k" if d["v_of_k"] else f"{role}v"
    return named | read_projection(tensors, use, "V", shape, has_bias=d["v_bias"], heads=kv_heads)


def read_gated(tensors: LayerTensors) -> Named:
    """Q and the gate of one matrix, which has those of a head beside each other."""
    d = tensors.d
    named: Named = {}
    for fused in read_fused(tensors, "q", d["width"], 2 * d["heads"] * d["d_k"]):
        both = rearrange(fused.columns, "... (head two d) -> two head ... d", head=d["heads"], two=2)
        q, gate = both
        named[f"{fused.letter}_Q"] = q, fused.origin
        named[f"{fused.letter}_gate"] = rearrange(gate, "head ... d -> ... (head d)"), fused.origin
    return named


def fused_projections(tensors: LayerTensors) -> Named:
    """Q, K and V from one matrix."""
    d = tensors.d
    columns = (d["heads"] + 2 * d["kv_heads"]) * d["d_k"]
    parts_of = parts_in_blocks if d["qkv"] == "blocks" else parts_in_groups
    named: Named = {}
    for fused in read_fused(tensors, "qkv", d["width"], columns):
        for symbol, part in zip("QKV", parts_of(fused.columns, d), strict=True):
            named[f"{fused.letter}_{symbol}"] = part, fused.origin
    return named


def parts_in_blocks(fused: Array, d: Description) -> list[Array]:
    """All of Q, then K, then V, by head."""
    heads = d["heads"]
    kv_heads = d["kv_heads"]
    end_of_q = heads * d["d_k"]
    end_of_k = end_of_q + kv_heads * d["d_k"]
    q, k, v = np.split(fused, [end_of_q, end_of_k], axis=-1)
    return [split(q, heads), split(k, kv_heads), split(v, kv_heads)]


def parts_in_groups(fused: Array, d: Description) -> list[Array]:
    """By kv head its queries, its K and its V."""
    axes = "... (kv group d) -> kv group ... d"
    groups = rearrange(fused, axes, kv=d["kv_heads"], d=d["d_k"])
    by_group = np.ascontiguousarray(groups)
    queries = by_group[:, :-2]
    q = queries.reshape(d["heads"], *by_group.shape[2:])
    return [q, by_group[:, -2], by_group[:, -1]]


def read_latents(tensors: LayerTensors) -> Named:
    """DeepSeek's matrices: down to the latent rows, and up from them by head."""
    d = tensors.d
    heads = d["heads"]
    kv_rank = d["kv_rank"]
    named: Named = {}

    columns_of_q = d["width"]
    if d["rank"]:
        shape = (d["width"], d["rank"])
        named |= read_projection(tensors, "latent_q", "latent_Q", shape, has_bias=d["bias"])
        named |= norm_factors(tensors, "latent_q_norm", "latent_Q_norm", (d["rank"],))
        columns_of_q = d["rank"]
    named["W_Q"] = split(tensors.matrix("q", columns_of_q, heads * d["d_k"]), heads), tensors.origin("q")

    for fused in read_fused(tensors, "latent_kv", d["width"], kv_rank + d["d_rope"]):
        latent, rope = np.split(fused.columns, [kv_rank], axis=-1)
        named[f"{fused.letter}_latent_KV"] = latent, fused.origin
        named[f"{fused.letter}_K_rope"] = rope, fused.origin
    named |= norm_factors(tensors, "latent_kv_norm", "latent_KV_norm", (kv_rank,))

    unrotated = d["d_k"] - d["d_rope"]  # the columns of K that come of the latent rows
    up = split(tensors.matrix("kv", kv_rank, heads * (unrotated + d["d_v"])), heads)
    w_k, w_v = np.split(up, [unrotated], axis=-1)
    named["W_K"] = w_k, tensors.origin("kv")
    named["W_V"] = w_v, tensors.origin("kv")
    return named


# --- distances as vectors (DeBERTa) ---


class Distances(NamedTuple):
    """The setting `distances`: rows on either side, the furthest or 0, and what reads them how."""

    span: int
    furthest: int
    of_queries: bool
    of_keys: bool
    is_shared: bool
    """Whether Q's and K's own matrices make what is read."""


def distances_of(d: Description) -> AddByDistance:
    sizes = Distances(*d["distances"])
    return AddByDistance(span=sizes.span, furthest=sizes.furthest)


def read_distances(tensors: LayerTensors) -> Named:
    """The rows of distances, which all layers share, and the matrices that they go through."""
    d = tensors.d
    model = tensors.model
    sizes = Distances(*d["distances"])
    names = d.stack.outer
    shape = (2 * sizes.span, d["width"])
    named: Named = {"distances": (model.outer("distances", ".weight", shape), names["distances"])}
    if d["distances_normed"]:
        for suffix in d.norm_suffixes:
            factor = model.outer("distances_norm", suffix, (d["width"],))
            named[f"distances_norm_{suffix[1:]}"] = factor, f"{names['distances_norm']}{suffix}"

    # Queries read what the matrix of keys makes of distances, and keys what that of queries does.
    readers = {"K": sizes.of_queries, "Q": sizes.of_keys}
    for symbol in (symbol for symbol, reads in readers.items() if reads):
        use = symbol.lower() if sizes.is_shared else f"distances_{symbol.lower()}"
        shape = (d["width"], d["heads"] * d["d_k"])
        heads = d["heads"]
        named |= read_projection(tensors, use, f"{symbol}_distances", shape, has_bias=True, heads=heads)
    return named
