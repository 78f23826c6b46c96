"""Decoders of the kind of Llama whose networks are experts; and DeepSeek's latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import add, ge, mul
from typing import Any

from attnctl.models.families.llama import GRANITE, HEAD_NORMS, MISTRAL, OLMO2, PLAIN, QWEN3, TURNED, rotates
from attnctl.models.families.windows import MINISTRAL_YARN, temperature_in
from attnctl.models.family import LAYER_NORM, ROTARY, TYPES, When, always, derive_stack, inside
from attnctl.models.keys import (
    AMOUNT,
    INDEX,
    INDICES,
    Key,
    Setting,
    by_layer,
    count,
    epsilon,
    flag,
    from_keys,
    real,
    word,
)
from attnctl.models.rope import OF_PHIMOE, ORIGINAL, TEMPERED, scale_of_length

GATED = {
    "router": "mlp.gate",
    **inside("mlp.experts.{e}.", expert_gate="gate_proj", expert_up="up_proj", expert_down="down_proj"),
}

MIXTRAL = derive_stack(
    MISTRAL,
    inner={
        "router": "block_sparse_moe.gate",
        **inside("block_sparse_moe.experts.{e}.", expert_gate="w1", expert_up="w3", expert_down="w2"),
    },
    settings={
        "eps": epsilon("rms_norm_eps", 1e-5),
        "window": count("sliding_window"),
        "experts": count("num_local_experts", "num_experts", default=8),
        "chosen": count("num_experts_per_tok", default=2),
        "theta": real("rope_theta", default=1e6),
    },
)

QWEN3_MOE = derive_stack(
    QWEN3,
    inner=GATED,
    settings={
        "d_k": count("head_dim"),
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "types": None,
        "sliding": always,
        "experts": count("num_experts", "num_local_experts", default=128),
        "expert_size": count("moe_intermediate_size", default=768),
        "expert_layer": by_layer(
            lambda layer, dense, step: layer not in dense and (layer + 1) % step == 0,
            Key(("mlp_only_layers",), INDICES, ()),
            count("decoder_sparse_step", default=1),
        ),
        "chosen": count("num_experts_per_tok", default=8),
        "router_normalized": flag("norm_topk_prob"),
    },
    inert=("max_window_layers",),
)

CHOSEN = count("num_experts_per_tok", default=4)
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}

GPT_OSS = derive_stack(
    PLAIN,
    inner={
        "sink": "self_attn.sinks!",
        "router": "mlp.router",
        "experts_gate_up": "mlp.experts.gate_up_proj!",
        "experts_gate_up_bias": "mlp.experts.gate_up_proj_bias!",
        "experts_down": "mlp.experts.down_proj!",
        "experts_down_bias": "mlp.experts.down_proj_bias!",
    },
    settings={
        **TYPES,
        "act": "silu",  # of a kind of its own, which `clamp` is about
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": flag("attention_bias", default=True),
        "d_k": count("head_dim", default=64),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "window": count("sliding_window", default=128),
        "sliding": lambda layer: layer % 2 == 0,
        "rope": replace(ROTARY["rope"], default=YARN),
        "theta": real("rope_theta", default=150000.0),
        "experts": count("num_local_experts", "num_experts", default=128),
        "chosen": CHOSEN,
        "router": "chosen",
        "router_bias": True,
        "clamp": from_keys(
            lambda *both: both, real("swiglu_alpha", default=1.702), real("swiglu_limit", default=7.0)
        ),
    },
    only={"experts_per_token": CHOSEN},
    inert=("hidden_act", "initial_context_length"),
)

OWN, ROTATED = count("qk_nope_head_dim", default=128), count("qk_rope_head_dim", default=64)
"""Columns of a head of Q and K: those without positions, and those with."""


def deepseek_scale(own: int, rotated: int, rope: Mapping[str, Any]) -> float:
    """1/√d_k, grown where YaRN stretches positions."""
    scale = float((own + rotated) ** -0.5)
    mscale = rope.get("mscale_all_dim")
    if rope.get("rope_type", rope.get("type", "default")) == "default" or not mscale:
        return scale
    return scale * scale_of_length(rope.get("factor") or 1.0, mscale) ** 2


RANK = count("q_lora_rank", default=1536, nullable=True)
OWN4, RANK4 = count("qk_nope_head_dim", default=64), count("q_lora_rank", default=1024, nullable=True)

SHARED = inside(
    "mlp.shared_experts.", shared_gate="gate_proj", shared_up="up_proj", shared_down="down_proj"
)
CORRECTED = {**GATED, **SHARED, "router_correction": "mlp.gate.e_score_correction_bias!"}


def in_groups(
    experts: int | None,
    size: int,
    dense: int,
    kept: tuple[int, int],
    scale: float,
    *,
    normalized: bool,
    shared: int = 1,
) -> dict[str, Setting]:
    """The settings of DeepSeek's routers, by what they are where config.json says nothing."""
    expert_size = count("moe_intermediate_size", default=size)
    return {
        "experts": count("n_routed_experts", "num_local_experts", default=experts),
        "expert_size": expert_size,
        "shared_size": from_keys(mul, expert_size, count("n_shared_experts", default=shared)),
        "expert_layer": by_layer(ge, count("first_k_dense_replace", default=dense, kind=INDEX)),
        "router": "sigmoid",
        "router_normalized": flag("norm_topk_prob", default=normalized),
        "router_scale": real("routed_scaling_factor", default=scale),
        "groups": count("n_group", default=kept[1]),
        "chosen_groups": count("topk_group", default=kept[0]),
    }


DEEPSEEK_V3 = derive_stack(
    QWEN3_MOE,
    inner={
        **CORRECTED,
        **inside("self_attn.", latent_q="q_a_proj", latent_q_norm="q_a_layernorm", q="q_b_proj"),
        **inside(
            "self_attn.", latent_kv="kv_a_proj_with_mqa", latent_kv_norm="kv_a_layernorm", kv="kv_b_proj"
        ),
    },
    settings={
        "spare": count("num_nextn_predict_layers", "num_mtp_layers", default=1, kind=INDEX),
        "kv_heads": None,
        "d_k": from_keys(add, OWN, ROTATED),
        "d_v": count("v_head_dim", default=128),
        "rank": RANK,
        "kv_rank": count("kv_lora_rank", default=512),
        "d_rope": ROTATED,
        "scale": from_keys(deepseek_scale, OWN, ROTATED, replace(ROTARY["rope"], default={})),
        "interleaved": flag("rope_interleave", default=True),
        "window": None,
        **in_groups(256, 2048, 3, (4, 8), 2.5, normalized=True),
    },
    without=("k", "v", "q_norm", "k_norm"),
    when=(When(RANK, None, {}, {"q": "self_attn.q_proj"}, ("latent_q", "latent_q_norm")),),
    only={
        "num_key_value_heads": count("num_attention_heads"),
        "head_dim": ROTATED,
        "qk_head_dim": from_keys(add, OWN, ROTATED),
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
    },
    inert=("ep_size",),
)

FEW = {"num_experts_per_tok": 2, "moe_intermediate_size": 8}
ROUTED = {**FEW, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}

METHOD, BY_GROUP = word("topk_method", default="greedy"), "group_limited_greedy"


def where_by_group(key: Key) -> Setting:
    """What a key says where the experts are chosen by group, or else 1."""
    return from_keys(lambda method, said: (said if method == BY_GROUP else None) or 1, METHOD, key)


DEEPSEEK_V2 = derive_stack(
    DEEPSEEK_V3,
    without=("router_correction",),
    settings={
        **in_groups(64, 1407, 0, (1, 1), 1.0, normalized=False, shared=2),
        "spare": 0,
        "experts": count("n_routed_experts", "num_experts", default=64),
        "chosen": count("num_experts_per_tok", default=6),
        "router": "softmax",
        "router_normalized": False,
        "groups": where_by_group(count("n_group")),
        "chosen_groups": where_by_group(count("topk_group")),
        "interleaved": True,
    },
    only={
        "mlp_bias": False,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "topk_method": from_keys(lambda method: method if method == BY_GROUP else "greedy", METHOD),
    },
    example={**LATENT, **ROUTED, "topk_method": BY_GROUP, "head_dim": 4, "num_experts_per_tok": 3},
)

MISTRAL4_YARN = {**MINISTRAL_YARN, "rope_theta": 10000.0, "factor": 128.0, ORIGINAL: 8192}
MISTRAL4_ROPE = replace(ROTARY["rope"], default=MISTRAL4_YARN)

MISTRAL4 = derive_stack(
    DEEPSEEK_V3,
    inner={"experts_gate_up": "mlp.experts.gate_up_proj!", "experts_down": "mlp.experts.down_proj!"},
    without=("router_correction", "expert_gate", "expert_up", "expert_down"),
    settings={
        **in_groups(128, 2048, 0, (1, 1), 1.0, normalized=True),
        "router": "softmax",
        "best_of_group": 2,
        "spare": 0,
        "original": None,
        "chosen": count("num_experts_per_tok", default=4),
        "rope": MISTRAL4_ROPE,
        "rope_kinds": {"yarn": TEMPERED},
        "rotary_size": ROTATED,
        "rotary_share": from_keys(lambda own, rotated: rotated / (own + rotated), OWN4, ROTATED),
        "temperature": from_keys(temperature_in, MISTRAL4_ROPE),
        "scale": from_keys(deepseek_scale, OWN4, ROTATED, MISTRAL4_ROPE),
        "d_k": from_keys(add, OWN4, ROTATED),
        "rank": RANK4,
        "kv_rank": count("kv_lora_rank", default=256),
    },
    when=(replace(DEEPSEEK_V3.when[0], setting=RANK4),),
    only=dict.fromkeys(("head_dim", "qk_head_dim"), from_keys(add, OWN4, ROTATED)),
    example={**LATENT, **ROUTED, "num_key_value_heads": 4}
    | {"rope_parameters": {**MISTRAL4_YARN, ORIGINAL: 3, "factor": 2.0}},
)

ROTATED_IN_LLAMA4 = by_layer(
    lambda layer, listed, interval: rotates(layer, listed or None, interval), *TURNED
)
FEEDING = "feed_forward."

LLAMA4 = derive_stack(
    PLAIN,
    inner={
        **inside(FEEDING, gate="gate_proj", up="up_proj", down="down_proj", router="router"),
        **inside(f"{FEEDING}experts.", experts_gate_up="gate_up_proj!", experts_down="down_proj!"),
        **{
            use: name.replace("mlp.shared_experts.", f"{FEEDING}shared_expert.")
            for use, name in SHARED.items()
        },
    },
    settings={
        "heads": count("num_attention_heads", default=40),
        "kv_heads": count("num_key_value_heads", default=8),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "interleaved": True,
        "theta": real("rope_theta", default=500000.0),
        "intermediate": count("intermediate_size_mlp", default=16384),
        # attention is within blocks where it rotates, and has a temperature where it does not
        **TYPES,
        "chunk": count("attention_chunk_size", default=8192, nullable=True),
        **dict.fromkeys(("sliding", "rotated"), ROTATED_IN_LLAMA4),
        "qk_norm": from_keys(lambda used: "row" if used else None, flag("use_qk_norm", default=True)),
        "norm_after_rotation": True,
        "norm_unrotated": False,
        "temperature_rotated": False,
        "temperature": from_keys(
            lambda used, beta, every: (beta, every, 1) if used else None,
            flag("attn_temperature_tuning", default=True),
            real("attn_scale", default=0.1),
            count("floor_scale", default=8192),
        ),
        # experts read rows times their share
        "experts": count("num_local_experts", default=16),
        **dict.fromkeys(("expert_size", "shared_size"), count("intermediate_size", default=8192)),
        "expert_layer": by_layer(
            lambda layer, listed, step: layer in listed if listed is not None else (layer + 1) % step == 0,
            Key(("moe_layers",), INDICES),
            count("interleave_moe_layer_step", default=1),
        ),
        "chosen": count("num_experts_per_tok", default=1),
        "router": "inputs",
        "experts_transposed": True,
    },
    example={"attention_chunk_size": 3, "floor_scale": 2, "attn_scale": 0.5, "intermediate_size": 12}
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "no_rope_layers": [1, 0], "moe_layers": [1]},
)

GLM4_MOE = derive_stack(
    PLAIN,
    inner=CORRECTED,
    settings={
        **in_groups(128, 1408, 1, (1, 1), 1.0, normalized=True),
        "spare": count("num_nextn_predict_layers", "num_mtp_layers", default=1, kind=INDEX),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "out_bias": False,
        "rotary_share": real("partial_rotary_factor", default=0.5),
        "chosen": count("num_experts_per_tok", default=8),
    },
    when=(When(flag("use_qk_norm"), True, inner=HEAD_NORMS),),
    example={**ROUTED, "head_dim": 8},
)

SOLAR_OPEN = derive_stack(
    GLM4_MOE,
    settings={
        **in_groups(128, 1280, 0, (1, 1), 1.0, normalized=True),
        "spare": 0,
        "intermediate": count("moe_intermediate_size", default=1280),
        "expert_layer": always,
        "d_k": count("head_dim", default=128),
        "rotary_share": None,
        "theta": real("rope_theta", default=1e6),
    },
    when=(),
    only={"first_k_dense_replace": 0, "use_qk_norm": False},
    inert=("intermediate_size",),
    example={**ROUTED, "first_k_dense_replace": 0, "head_dim": 6},
)

DOTS1 = derive_stack(
    QWEN3_MOE,
    inner=CORRECTED,
    settings={
        **TYPES,
        **in_groups(None, 1408, 0, (1, 1), 1.0, normalized=False),
        "kv_heads": count("num_key_value_heads"),
        "chosen": count("num_experts_per_tok", default=6),
        "window": count("sliding_window", default=4096, nullable=True),
        "sliding": by_layer(ge, count("max_window_layers", default=62, kind=INDEX)),
    },
    inert=(),
    example={**ROUTED, "n_shared_experts": 2},
)

M2_SIZE = count("head_dim", default=128)


def m2_share(share: float | None, columns: int | None, size: int) -> float:
    """The share of a head's columns that turn: said as such, or as the number of them."""
    if share is not None:
        return share
    return 1.0 if columns is None else columns / size


MINIMAX_M2 = derive_stack(
    MIXTRAL,
    inner={**HEAD_NORMS, "router_correction": "block_sparse_moe.e_score_correction_bias!"},
    settings={
        "qk_norm": "heads",
        "d_k": M2_SIZE,
        "eps": epsilon("rms_norm_eps", 1e-6),
        "window": None,
        "experts": count("num_local_experts", "num_experts", default=256),
        "chosen": count("num_experts_per_tok", default=8),
        "router": "sigmoid",
        "theta": real("rope_theta", default=5e6),
        "rotary_share": from_keys(m2_share, real("partial_rotary_factor"), count("rotary_dim"), M2_SIZE),
        "spare": count("num_mtp_modules", default=0, kind=INDEX),
    },
    only={
        "attn_type_list": from_keys(lambda layers: [1] * (layers or 0), count("num_hidden_layers")),
        "qk_norm_type": "per_layer",
        "scoring_func": "sigmoid",
        "use_qk_norm": True,
        "use_routing_bias": True,
    },
    inert=("use_mtp", "mtp_transformer_layers"),  # of layers that guess further ahead
    example={"num_local_experts": 4, "num_experts_per_tok": 2},
)

MIXED = {
    "experts": count("num_experts", "num_local_experts", default=64),
    "chosen": count("num_experts_per_tok", default=8),
    "router_normalized": flag("norm_topk_prob"),
}

OLMOE = derive_stack(
    PLAIN,
    inner={**HEAD_NORMS, **GATED},
    settings={**MIXED, "eps": epsilon("rms_norm_eps", 1e-5), "qk_norm": "heads"},
    example={"num_experts": 4, "num_experts_per_tok": 2, "head_dim": 4},
)

FLEX_OLMO = derive_stack(
    OLMO2,
    inner=GATED,
    settings={
        **MIXED,
        "eps": epsilon("rms_norm_eps", 1e-6),
        "theta": real("rope_theta", default=500000.0),
        "experts": count("num_experts", "num_local_experts", default=7),
        "chosen": count("num_experts_per_tok", default=5),
    },
    example={"num_experts": 4, "num_experts_per_tok": 2},
)

SWITCHED = {name: part.replace("experts", "expert") for name, part in SHARED.items()}

QWEN2_MOE = derive_stack(
    QWEN3_MOE,
    inner={**SWITCHED, "shared_switch": "mlp.shared_expert_gate"},
    without=("q_norm", "k_norm"),
    settings={
        **TYPES,
        "window": from_keys(
            lambda used, size: size if used else None,
            flag("use_sliding_window"),
            count("sliding_window", default=4096, kind=INDEX, nullable=True),  # 0 where it is not used
        ),
        "sliding": by_layer(
            lambda layer, before: layer % 2 == 0 and layer < before,
            count("max_window_layers", default=28, kind=INDEX),
        ),
        "kv_heads": count("num_key_value_heads", default=16, nullable=True),
        "bias": flag("qkv_bias", default=True),
        "out_bias": False,
        "experts": count("num_experts", "num_local_experts", default=60),
        "chosen": count("num_experts_per_tok", default=4),
        "expert_size": count("moe_intermediate_size", default=1408),
        "shared_size": count("shared_expert_intermediate_size", default=5632),
    },
    inert=(),
    example={**FEW, "num_experts": 4, "shared_expert_intermediate_size": 12}
    | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
)

GRANITEMOE = derive_stack(
    GRANITE,
    inner={
        "router": "block_sparse_moe.router.layer",
        "experts_gate_up": "block_sparse_moe.input_linear.weight!",
        "experts_down": "block_sparse_moe.output_linear.weight!",
    },
    settings={
        "mlp_bias": False,
        "experts": count("num_local_experts", default=8),
        "chosen": count("num_experts_per_tok", default=2),
        "router": "chosen",
    },
    example={"num_local_experts": 4},
)

PHIMOE = derive_stack(
    MIXTRAL,
    settings={
        **LAYER_NORM,
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": flag("attention_bias"),
        "experts": count("num_local_experts", "num_experts", default=16),
        "chosen": 2,
        "router": "rivals",
        "rope_kinds": {"default": "default", "longrope": OF_PHIMOE},
        "rivals": Key(("router_jitter_noise",), AMOUNT, 0.01),
    },
    only={"num_experts_per_tok": 2, "input_jitter_noise": 0.0},
    inert=("lm_head_bias",),
    head={"bias": from_keys(lambda there: ("lm_head.bias",) if there else (), flag("lm_head_bias"))},
    example={"num_local_experts": 4},
)
