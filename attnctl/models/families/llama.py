"""Decoders of the kind of Llama: gated networks and rotary positions."""

from __future__ import annotations

from math import sqrt

from attnctl.models.family import (
    LAYER_NORM,
    Config,
    Stack,
    When,
    changed,
    key,
    nullable,
    on_even_layers,
)

LLAMA = Stack(
    layer="layers.{i}.",
    outer={"embed": "embed_tokens", "final_norm": "norm"},
    inner={
        "attention_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    settings={
        "act": key("hidden_act", default="silu"),
        "bias": key("attention_bias", default=False),
        "mlp_bias": key("mlp_bias", default=False),
        "rotary": True,
    },
    ignored=("self_attn.rotary_emb.inv_freq",),
)

HEAD_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}

MISTRAL = changed(
    LLAMA,
    settings={
        "window": nullable("sliding_window", 4096),
        "kv_heads": key("num_key_value_heads", default=8),
        "bias": False,
        "mlp_bias": False,
    },
)


QWEN2 = changed(
    LLAMA,
    settings={
        "bias": True,
        "out_bias": False,
        "mlp_bias": False,
        "window": lambda c: (
            key("sliding_window", default=4096).value(c) if c.get("use_sliding_window") else None
        ),
        "sliding": lambda c, i: i >= key("max_window_layers", default=28).value(c),
    },
)

QWEN3 = changed(
    QWEN2,
    inner=HEAD_NORMS,
    settings={
        "bias": key("attention_bias", default=False),
        "out_bias": key("attention_bias", default=False),
        "qk_norm": "row",
        "d_k": key("head_dim", default=128),
    },
)


GEMMA = changed(
    LLAMA,
    settings={
        "plus_one": True,
        "act": key("hidden_activation", default="gelu_pytorch_tanh"),
        "mlp_bias": False,
        "heads": key("num_attention_heads", default=8),
        "d_k": key("head_dim", default=256),
        "embed_scale": lambda c: sqrt(c["hidden_size"]),
    },
)

GEMMA2 = changed(
    GEMMA,
    inner={
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    },
    settings={
        "kv_heads": key("num_key_value_heads", default=4),
        "scale": lambda c: key("query_pre_attn_scalar", default=256).value(c) ** -0.5,
        "softcap": nullable("attn_logit_softcapping", 50.0),
        "window": nullable("sliding_window", 4096),
        "sliding": on_even_layers,
    },
    only={"use_bidirectional_attention": (False,)},
)

GEMMA3 = changed(
    GEMMA2,
    inner=HEAD_NORMS,
    settings={
        "qk_norm": "row",
        "softcap": key("attn_logit_softcapping"),
        "sliding": lambda c, i: (
            (i + 1) % key("sliding_window_pattern", "_sliding_window_pattern", default=6).value(c) != 0
        ),
        "theta": key("rope_theta", default=1e6),
        "local_theta": key("rope_local_base_freq", default=10000.0),
    },
)

HUNYUAN = changed(
    LLAMA,
    inner={"q_norm": "self_attn.query_layernorm", "k_norm": "self_attn.key_layernorm"},
    settings={"qk_norm": "row", "norm_after_rotation": True},
)

PHI = changed(
    LLAMA,
    outer={"final_norm": "final_layernorm"},
    inner={"o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2"},
    settings={
        **LAYER_NORM,
        "act": key("hidden_act", default="gelu_new"),
        "bias": True,
        "mlp_bias": True,
        "gated": False,
        "parallel": True,
        "rotary_share": key("partial_rotary_factor", default=0.5),
    },
    without=("mlp_norm", "gate"),
    when=(
        When(
            key("qk_layernorm", default=False),
            True,
            {"qk_norm": "row", "qk_norm_bias": True},
            {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
        ),
    ),
)

PHI3 = changed(
    LLAMA,
    inner={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"},
    settings={
        "eps": key("rms_norm_eps", default=1e-5),
        "qkv": "blocks",
        "bias": False,
        "mlp_bias": False,
        "window": key("sliding_window"),
        "rope_names": {"su": "longrope", "yarn": "longrope"},
    },
    without=("q", "k", "v", "gate", "up"),
)

OLMO2 = changed(
    LLAMA,
    inner={
        "attention_out_norm": "post_attention_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
        **HEAD_NORMS,
    },
    settings={"eps": key("rms_norm_eps", default=1e-5), "qk_norm": "heads", "mlp_bias": False},
    without=("attention_norm", "mlp_norm"),
)

COHERE = changed(
    LLAMA,
    settings={
        **LAYER_NORM,
        "norm_bias": False,
        "mlp_bias": False,
        "parallel": True,
        "interleaved": True,
        "theta": key("rope_theta", default=500000.0),
    },
    without=("mlp_norm",),
    when=(When(key("use_qk_norm", default=False), True, {"qk_norm": "row"}, HEAD_NORMS),),
)

STABLELM = changed(
    LLAMA,
    settings={
        **LAYER_NORM,
        "kv_heads": key("num_key_value_heads", default=32),
        "bias": key("use_qkv_bias", default=False),
        "out_bias": False,
        "mlp_bias": False,
        "parallel": key("use_parallel_residual", default=False),
        "rotary_share": key("partial_rotary_factor", "rope_pct", default=0.25),
    },
    when=(
        When(key("use_parallel_residual", default=False), True, without=("mlp_norm",)),
        When(
            key("qk_layernorm", default=False),
            True,
            {"qk_norm": "row"},
            {"q_norm": "self_attn.q_layernorm.norms.{h}", "k_norm": "self_attn.k_layernorm.norms.{h}"},
        ),
    ),
)

STARCODER2 = changed(
    LLAMA,
    inner={"up": "mlp.c_fc", "down": "mlp.c_proj"},
    settings={
        **LAYER_NORM,
        "eps": key("norm_epsilon", default=1e-5),
        "act": key("hidden_act", default="gelu_pytorch_tanh"),
        "kv_heads": key("num_key_value_heads", default=2),
        "bias": key("use_bias", default=True),
        "mlp_bias": key("use_bias", default=True),
        "gated": False,
        "window": key("sliding_window"),
    },
    without=("gate",),
)

GRANITE = changed(
    LLAMA,
    settings={
        "scale": key("attention_multiplier", default=1.0),
        "residual": key("residual_multiplier", default=1.0),
        "embed_scale": key("embedding_multiplier", default=1.0),
    },
)


def smollm3_rotates(config: Config) -> list[int]:
    """1 for each layer that rotates, 0 for the others."""
    if config.get("no_rope_layers"):
        return list(config["no_rope_layers"])
    interval = key("no_rope_layer_interval", default=4).value(config)
    layers = key("num_hidden_layers", default=36).value(config)
    return [int((layer + 1) % interval != 0) for layer in range(layers)]


SMOLLM3 = changed(
    LLAMA,
    settings={
        "kv_heads": key("num_key_value_heads", default=4),
        "theta": key("rope_theta", default=2e6),
        "rotated_layers": smollm3_rotates,
        "window": lambda c: c.get("sliding_window") if c.get("use_sliding_window") else None,
        "sliding": lambda c, i: not smollm3_rotates(c)[i],
    },
)
