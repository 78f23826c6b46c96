"""Decoders of the kind of Llama: gated networks and rotary positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from operator import ge

from attnctl.models.family import (
    LAYER_NORM,
    ROTARY,
    ROTARY_BY_TYPE,
    TYPES,
    Stack,
    When,
    derive_stack,
    inside,
    on_even_layers,
)
from attnctl.models.keys import (
    INDEX,
    INDICES,
    Key,
    by_layer,
    count,
    derived_key,
    epsilon,
    flag,
    number_key,
    text_key,
)

USED_WINDOW = derived_key(
    lambda used, size: size if used else None,
    flag("use_sliding_window"),
    count("sliding_window", default=4096, nullable=True),
)
"""A window that is there only where `use_sliding_window` says so."""

PLAIN = Stack(
    layer="layers.{i}.",
    outer={"embed": "embed_tokens", "final_norm": "norm"},
    inner={
        "attention_norm": "input_layernorm",
        **inside("self_attn.", q="q_proj", k="k_proj", v="v_proj", o="o_proj"),
        "mlp_norm": "post_attention_layernorm",
        **inside("mlp.", gate="gate_proj", up="up_proj", down="down_proj"),
    },
    settings={
        **ROTARY,
        "kv_heads": count("num_key_value_heads"),
        "d_k": count("head_dim"),
        "act": text_key("hidden_act", default="silu"),
        "eps": epsilon("rms_norm_eps", 1e-6),
        "bias": flag("attention_bias"),
        "mlp_bias": False,
    },
    ignored=("self_attn.rotary_emb.inv_freq",),
)
"""Llama without a bias in its network: what most of them share."""

LLAMA = derive_stack(PLAIN, settings={"mlp_bias": flag("mlp_bias")})

HEAD_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}

MISTRAL = derive_stack(
    PLAIN,
    settings={
        "window": count("sliding_window", default=4096, nullable=True),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "bias": False,
    },
)


QWEN2 = derive_stack(
    PLAIN,
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=32, nullable=True),
        "bias": True,
        "out_bias": False,
        "window": USED_WINDOW,
        "sliding": by_layer(ge, count("max_window_layers", default=28, kind=INDEX)),
    },
)

QWEN3 = derive_stack(
    QWEN2,
    inner=HEAD_NORMS,
    settings={
        "bias": flag("attention_bias"),
        "out_bias": flag("attention_bias"),
        "d_k": count("head_dim", default=128),
    },
)


GELU = "gelu_pytorch_tanh"
GEMMA_ACT = derived_key(lambda act: GELU if act == "gelu" else act, text_key("hidden_act", default=GELU))
"""Gemma 1 was released with "gelu" where the one by a tanh is meant."""

GEMMAS = derive_stack(
    PLAIN,
    settings={
        "plus_one": True,
        "d_k": count("head_dim", default=256),
        "embed_scale": derived_key(sqrt, count("hidden_size")),
    },
    only={"use_bidirectional_attention": False},
)

GEMMA = derive_stack(
    GEMMAS,
    settings={"act": GEMMA_ACT, "kv_heads": count("num_key_value_heads", default=16, nullable=True)},
    only={"hidden_activation": GEMMA_ACT},
)

WIDTH, ACT = count("hidden_size", default=2304), text_key("hidden_activation", default=GELU)

GEMMA2 = derive_stack(
    GEMMAS,
    inner={
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    },
    settings={
        **TYPES,
        "act": ACT,
        "width": WIDTH,
        "embed_scale": derived_key(sqrt, WIDTH),
        "intermediate": count("intermediate_size", default=9216),
        "layers": count("num_hidden_layers", default=26),
        "heads": count("num_attention_heads", default=8),
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "scale": derived_key(lambda size: size**-0.5, number_key("query_pre_attn_scalar", default=256)),
        "softcap": number_key("attn_logit_softcapping", default=50.0, nullable=True),
        "window": count("sliding_window", default=4096),
        "sliding": on_even_layers,
    },
    only={"hidden_act": ACT},
)

GEMMA3 = derive_stack(
    GEMMA2,
    inner=HEAD_NORMS,
    settings={
        "softcap": None,
        "sliding": by_layer(
            lambda layer, every: (layer + 1) % every != 0, count("sliding_window_pattern", default=6)
        ),
        **ROTARY_BY_TYPE,
        "rope_in_windows": False,
        "theta": number_key("rope_theta", default=1e6),
        "local_theta": number_key("rope_local_base_freq", default=10000.0),
    },
)

HUNYUAN = derive_stack(
    PLAIN,
    inner={"q_norm": "self_attn.query_layernorm", "k_norm": "self_attn.key_layernorm"},
    settings={
        "eps": epsilon("rms_norm_eps", 1e-5),
        "norm_after_rotation": True,
    },
)

PHI = derive_stack(
    PLAIN,
    outer={"final_norm": "final_layernorm"},
    inner={"o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2"},
    settings={
        **LAYER_NORM,
        "act": text_key("hidden_act", default="gelu_new"),
        "bias": True,
        "mlp_bias": True,
        "parallel": True,
        "rotary_share": number_key("partial_rotary_factor", default=0.5),
    },
    without=("mlp_norm", "gate"),
    when=(
        When(
            flag("qk_layernorm"),
            True,
            {"qk_norm_bias": True},
            {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
        ),
    ),
)

PHI3 = derive_stack(
    PLAIN,
    inner={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"},
    settings={
        "eps": epsilon("rms_norm_eps", 1e-5),
        "qkv": "blocks",
        "bias": False,
        "window": count("sliding_window"),
        "rope_kinds": {"default": "default", **dict.fromkeys(("longrope", "su", "yarn"), "longrope")},
        "rotary_share": number_key("partial_rotary_factor", default=1.0),
        "original": count("original_max_position_embeddings", default=4096),
    },
    without=("q", "k", "v", "gate", "up"),
)

OLMO2 = derive_stack(
    PLAIN,
    inner={
        "attention_out_norm": "post_attention_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
        **HEAD_NORMS,
    },
    settings={"eps": epsilon("rms_norm_eps", 1e-5), "qk_norm": "heads"},
    without=("attention_norm", "mlp_norm"),
)

COHERE = derive_stack(
    PLAIN,
    settings={
        **LAYER_NORM,
        "norm_bias": False,
        "parallel": True,
        "interleaved": True,
        "theta": number_key("rope_theta", default=500000.0),
    },
    without=("mlp_norm",),
    when=(When(flag("use_qk_norm"), True, inner=HEAD_NORMS),),
)

SHARE = number_key("partial_rotary_factor", default=0.25)

STABLELM = derive_stack(
    PLAIN,
    settings={
        **LAYER_NORM,
        "kv_heads": count("num_key_value_heads", default=32, nullable=True),
        "d_k": None,
        "bias": flag("use_qkv_bias"),
        "out_bias": False,
        "parallel": flag("use_parallel_residual"),
        "rotary_share": SHARE,
    },
    when=(
        When(flag("use_parallel_residual"), True, without=("mlp_norm",)),
        When(
            flag("qk_layernorm"),
            True,
            inner={
                "q_norm": "self_attn.q_layernorm.norms.{h}",
                "k_norm": "self_attn.k_layernorm.norms.{h}",
            },
        ),
    ),
    only={"rope_pct": SHARE, "rotary_scaling_factor": 1.0, "norm_eps": LAYER_NORM["eps"]},
)

STARCODER2 = derive_stack(
    PLAIN,
    inner={"up": "mlp.c_fc", "down": "mlp.c_proj"},
    settings={
        **LAYER_NORM,
        "eps": epsilon("norm_epsilon", 1e-5),
        "act": text_key("hidden_act", default="gelu_pytorch_tanh"),
        "kv_heads": count("num_key_value_heads", default=2, nullable=True),
        "bias": flag("use_bias", default=True),
        "mlp_bias": flag("use_bias", default=True),
        "window": count("sliding_window"),
    },
    without=("gate",),
    only={"mlp_type": "default", "norm_type": "layer_norm", "scale_attn_weights": True},
    inert=("activation_function", "layer_norm_epsilon"),  # of its predecessor; its files still have them
)

GRANITE = derive_stack(
    LLAMA,
    settings={
        "scale": number_key("attention_multiplier", default=1.0),
        "residual": number_key("residual_multiplier", default=1.0),
        "embed_scale": number_key("embedding_multiplier", default=1.0),
    },
)


def rotates(layer: int, listed: Sequence[int] | None, interval: int) -> bool:
    """True if a layer of SmolLM3 has rotary positions."""
    if listed is None:
        return (layer + 1) % interval != 0
    if layer >= len(listed):
        raise ValueError(f"no_rope_layers says nothing of layer {layer}")
    return bool(listed[layer])


ROTATED = Key(("no_rope_layers",), INDICES), count("no_rope_layer_interval", default=4)

SMOLLM3 = derive_stack(
    LLAMA,
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "theta": number_key("rope_theta", default=2e6),
        "rotated": by_layer(rotates, *ROTATED),
        "window": count("sliding_window"),
        "sliding": by_layer(
            lambda layer, used, *said: used and not rotates(layer, *said),
            flag("use_sliding_window"),
            *ROTATED,
        ),
    },
    inert=("max_window_layers",),
)
