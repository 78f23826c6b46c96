"""Decoders of the kind of Llama whose networks are experts; and DeepSeek's latent attention."""

from __future__ import annotations

from attnctl.models.families.llama import LLAMA, MISTRAL, QWEN3
from attnctl.models.family import Config, When, always, changed, key, nullable, on_even_layers
from attnctl.models.rope import mscaled

MIXTRAL = changed(
    MISTRAL,
    inner={
        "router": "block_sparse_moe.gate",
        "expert_gate": "block_sparse_moe.experts.{e}.w1",
        "expert_up": "block_sparse_moe.experts.{e}.w3",
        "expert_down": "block_sparse_moe.experts.{e}.w2",
    },
    settings={
        "eps": key("rms_norm_eps", default=1e-5),
        "window": key("sliding_window"),
        "experts": key("num_local_experts", default=8),
        "theta": key("rope_theta", default=1e6),
    },
)

QWEN3_MOE = changed(
    QWEN3,
    inner={
        "router": "mlp.gate",
        "expert_gate": "mlp.experts.{e}.gate_proj",
        "expert_up": "mlp.experts.{e}.up_proj",
        "expert_down": "mlp.experts.{e}.down_proj",
    },
    settings={
        "d_k": key("head_dim"),
        "kv_heads": key("num_key_value_heads", default=4),
        "sliding": always,
        "experts": key("num_experts", "num_local_experts", default=128),
        "expert_size": key("moe_intermediate_size", default=768),
        "expert_layer": lambda c, i: (
            i not in (c.get("mlp_only_layers") or ())
            and (i + 1) % key("decoder_sparse_step", default=1).value(c) == 0
        ),
        "chosen": key("num_experts_per_tok", default=8),
        "router_normalized": key("norm_topk_prob", default=False),
    },
)

GPT_OSS = changed(
    LLAMA,
    inner={
        "sink": "self_attn.sinks!",
        "router": "mlp.router",
        "experts_gate_up": "mlp.experts.gate_up_proj!",
        "experts_gate_up_bias": "mlp.experts.gate_up_proj_bias!",
        "experts_down": "mlp.experts.down_proj!",
        "experts_down_bias": "mlp.experts.down_proj_bias!",
    },
    settings={
        "eps": key("rms_norm_eps", default=1e-5),
        "bias": key("attention_bias", default=True),
        "d_k": key("head_dim", default=64),
        "kv_heads": key("num_key_value_heads", default=8),
        "window": nullable("sliding_window", 128),
        "sliding": on_even_layers,
        "theta": key("rope_theta", default=150000.0),
        "sink": True,
        "experts": key("num_local_experts", "num_experts", default=128),
        "chosen": key("num_experts_per_tok", "experts_per_token", default=4),
        "router": "chosen",
        "router_bias": True,
        "gate_up": "interleaved",
        "clamp": lambda c: (
            key("swiglu_alpha", default=1.702).value(c),
            key("swiglu_limit", default=7.0).value(c),
        ),
    },
)


def deepseek_scale(config: Config) -> float:
    """1/√d_k, grown where YaRN stretches positions."""
    size = key("qk_nope_head_dim", default=128).value(config) + key("qk_rope_head_dim", default=64).value(
        config
    )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    mscale = rope.get("mscale_all_dim")
    if kind == "default" or not mscale:
        return float(size**-0.5)
    return float(size**-0.5 * mscaled(rope.get("factor") or 1.0, mscale) ** 2)


DEEPSEEK_V3 = changed(
    QWEN3_MOE,
    inner={
        "latent_q": "self_attn.q_a_proj",
        "latent_q_norm": "self_attn.q_a_layernorm",
        "q": "self_attn.q_b_proj",
        "latent_kv": "self_attn.kv_a_proj_with_mqa",
        "latent_kv_norm": "self_attn.kv_a_layernorm",
        "kv": "self_attn.kv_b_proj",
        "router_correction": "mlp.gate.e_score_correction_bias!",
        "shared_gate": "mlp.shared_experts.gate_proj",
        "shared_up": "mlp.shared_experts.up_proj",
        "shared_down": "mlp.shared_experts.down_proj",
    },
    settings={
        "kv_heads": None,
        "d_k": lambda c: (
            key("qk_nope_head_dim", default=128).value(c) + key("qk_rope_head_dim", default=64).value(c)
        ),
        "d_v": key("v_head_dim", default=128),
        "rank": lambda c: c.get("q_lora_rank", 1536),
        "kv_rank": key("kv_lora_rank", default=512),
        "d_rope": key("qk_rope_head_dim", default=64),
        "qk_norm": None,
        "scale": deepseek_scale,
        "interleaved": key("rope_interleave", default=True),
        "rotary_share": 1.0,
        "window": None,
        "experts": key("n_routed_experts", "num_local_experts", default=256),
        "expert_size": key("moe_intermediate_size", default=2048),
        "expert_layer": lambda c, i: i >= key("first_k_dense_replace", default=3).value(c),
        "router": "sigmoid",
        "router_normalized": key("norm_topk_prob", default=True),
        "router_scale": key("routed_scaling_factor", default=2.5),
        "groups": key("n_group", default=8),
        "chosen_groups": key("topk_group", default=4),
    },
    without=("k", "v", "q_norm", "k_norm"),
    when=(
        When(
            lambda c: c.get("q_lora_rank", 1536),
            None,
            {},
            {"q": "self_attn.q_proj"},
            ("latent_q", "latent_q_norm"),
        ),
    ),
)
