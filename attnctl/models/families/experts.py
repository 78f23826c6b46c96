"""Decoders of the kind of Llama whose networks are experts; and DeepSeek's latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import add, ge, mul
from typing import Any

from attnctl.models.families.llama import MISTRAL, PLAIN, QWEN3
from attnctl.models.family import ROTARY, TYPES, When, always, derive_stack, inside, on_even_layers
from attnctl.models.keys import INDEX, INDICES, Key, by_layer, count, derived_key, epsilon, flag, number_key
from attnctl.models.rope import scale_of_length

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
        "theta": number_key("rope_theta", default=1e6),
    },
)

QWEN3_MOE = derive_stack(
    QWEN3,
    inner={
        "router": "mlp.gate",
        **inside("mlp.experts.{e}.", expert_gate="gate_proj", expert_up="up_proj", expert_down="down_proj"),
    },
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
        "sliding": on_even_layers,
        "rope": replace(ROTARY["rope"], default=YARN),
        "theta": number_key("rope_theta", default=150000.0),
        "experts": count("num_local_experts", "num_experts", default=128),
        "chosen": CHOSEN,
        "router": "chosen",
        "router_bias": True,
        "clamp": derived_key(
            lambda *both: both,
            number_key("swiglu_alpha", default=1.702),
            number_key("swiglu_limit", default=7.0),
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
EXPERT_SIZE = count("moe_intermediate_size", default=2048)

DEEPSEEK_V3 = derive_stack(
    QWEN3_MOE,
    inner={
        **inside("self_attn.", latent_q="q_a_proj", latent_q_norm="q_a_layernorm", q="q_b_proj"),
        **inside(
            "self_attn.", latent_kv="kv_a_proj_with_mqa", latent_kv_norm="kv_a_layernorm", kv="kv_b_proj"
        ),
        "router_correction": "mlp.gate.e_score_correction_bias!",
        **inside(
            "mlp.shared_experts.", shared_gate="gate_proj", shared_up="up_proj", shared_down="down_proj"
        ),
    },
    settings={
        "spare": count("num_nextn_predict_layers", "num_mtp_layers", default=1, kind=INDEX),
        "kv_heads": None,
        "d_k": derived_key(add, OWN, ROTATED),
        "d_v": count("v_head_dim", default=128),
        "rank": RANK,
        "kv_rank": count("kv_lora_rank", default=512),
        "d_rope": ROTATED,
        "scale": derived_key(deepseek_scale, OWN, ROTATED, replace(ROTARY["rope"], default={})),
        "interleaved": flag("rope_interleave", default=True),
        "window": None,
        "experts": count("n_routed_experts", "num_local_experts", default=256),
        "expert_size": EXPERT_SIZE,
        "shared_size": derived_key(mul, EXPERT_SIZE, count("n_shared_experts", default=1)),
        "expert_layer": by_layer(ge, count("first_k_dense_replace", default=3, kind=INDEX)),
        "router": "sigmoid",
        "router_normalized": flag("norm_topk_prob", default=True),
        "router_scale": number_key("routed_scaling_factor", default=2.5),
        "groups": count("n_group", default=8),
        "chosen_groups": count("topk_group", default=4),
    },
    without=("k", "v", "q_norm", "k_norm"),
    when=(When(RANK, None, {}, {"q": "self_attn.q_proj"}, ("latent_q", "latent_q_norm")),),
    only={
        "num_key_value_heads": count("num_attention_heads"),
        "head_dim": ROTATED,
        "qk_head_dim": derived_key(add, OWN, ROTATED),
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
    },
    inert=("ep_size",),
)
