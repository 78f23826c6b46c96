"""Decoders of the kind of Llama: gated networks and rotary positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from operator import ge

from attnctl.models.family import (
    LAYER_NORM,
    ROPE_BY_TYPE,
    ROTARY,
    TIED,
    TYPES,
    UNTIED,
    Stack,
    When,
    derive_stack,
    inside,
)
from attnctl.models.keys import INDEX, INDICES, Key, by_layer, count, epsilon, flag, from_keys, real, word

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
        "act": word("hidden_act", default="silu"),
        "eps": epsilon("rms_norm_eps", 1e-6),
        "bias": flag("attention_bias"),
        "mlp_bias": False,
    },
    ignored=("self_attn.rotary_emb.inv_freq",),
    head={"unembed": ("lm_head",), "tied": UNTIED},
)
"""Llama without a bias in its network: what most of them share."""

LLAMA = derive_stack(PLAIN, settings={"mlp_bias": flag("mlp_bias")})

HEAD_NORMS = inside("self_attn.", q_norm="q_norm", k_norm="k_norm")

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
        "window": from_keys(
            lambda used, size: size if used else None,
            flag("use_sliding_window"),
            count("sliding_window", default=4096, nullable=True),
        ),
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
GEMMA_ACT = from_keys(lambda act: GELU if act == "gelu" else act, word("hidden_act", default=GELU))
"""Gemma 1 was released with "gelu" where the one by a tanh is meant."""

GEMMAS = derive_stack(
    PLAIN,
    settings={
        "plus_one": True,
        "d_k": count("head_dim", default=256),
        "embed_scale": from_keys(sqrt, count("hidden_size")),
    },
    only={"use_bidirectional_attention": False},
    head={"tied": TIED},
)

GEMMA = derive_stack(
    GEMMAS,
    settings={"act": GEMMA_ACT, "kv_heads": count("num_key_value_heads", default=16, nullable=True)},
    only={"hidden_activation": GEMMA_ACT},
)

WIDTH, ACT = count("hidden_size", default=2304), word("hidden_activation", default=GELU)

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
        "embed_scale": from_keys(sqrt, WIDTH),
        "intermediate": count("intermediate_size", default=9216),
        "layers": count("num_hidden_layers", default=26),
        "heads": count("num_attention_heads", default=8),
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "scale": from_keys(lambda size: size**-0.5, real("query_pre_attn_scalar", default=256)),
        "softcap": real("attn_logit_softcapping", default=50.0, nullable=True),
        "window": count("sliding_window", default=4096),
        "sliding": lambda layer: layer % 2 == 0,
    },
    only={"hidden_act": ACT},
    head={"cap": real("final_logit_softcapping", default=30.0, nullable=True)},
)

GEMMA3 = derive_stack(
    GEMMA2,
    inner=HEAD_NORMS,
    settings={
        "softcap": None,
        "sliding": by_layer(
            lambda layer, every: (layer + 1) % every != 0, count("sliding_window_pattern", default=6)
        ),
        **ROPE_BY_TYPE,
        "rope_in_windows": False,
        "theta": real("rope_theta", default=1e6),
        "local_theta": real("rope_local_base_freq", default=10000.0),
    },
    head={"cap": real("final_logit_softcapping")},
)

HUNYUAN = derive_stack(
    PLAIN,
    inner={"q_norm": "self_attn.query_layernorm", "k_norm": "self_attn.key_layernorm"},
    settings={"eps": epsilon("rms_norm_eps", 1e-5), "norm_after_rotation": True},
)

PHI_SHARE = real("partial_rotary_factor", default=0.5)


def turned_columns(share: float, width: int | None, heads: int | None) -> int | None:
    return int(share * (width // heads)) if width and heads else None


PHI = derive_stack(
    PLAIN,
    outer={"final_norm": "final_layernorm"},
    inner={"o": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2"},
    settings={
        **LAYER_NORM,
        "act": word("hidden_act", default="gelu_new"),
        "bias": True,
        "mlp_bias": True,
        "parallel": True,
        "rotary_share": PHI_SHARE,
    },
    without=("mlp_norm", "gate"),
    only={
        "rotary_dim": from_keys(
            turned_columns, PHI_SHARE, count("hidden_size"), count("num_attention_heads")
        ),
    },
    when=(
        When(
            flag("qk_layernorm"),
            True,
            {"qk_norm_bias": True},
            {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
        ),
    ),
    head={"bias": ("lm_head.bias",)},
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
        "rotary_share": real("partial_rotary_factor", default=1.0),
        "original": count("original_max_position_embeddings", default=4096),
    },
    without=("q", "k", "v", "gate", "up"),
    inert=("full_attn_mod", "interpolate_factor"),  # Phi-4 has them; no program reads them
)

OLMO = derive_stack(
    PLAIN,
    settings={"norm": "layer", "norm_weight": False, "eps": 1e-5},
    only={"clip_qkv": None},
)
"""Its norms have no weight."""

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
        "theta": real("rope_theta", default=500000.0),
    },
    without=("mlp_norm",),
    when=(When(flag("use_qk_norm"), True, inner=HEAD_NORMS),),
    head={"scale": real("logit_scale", default=0.0625), "tied": TIED},
)

SHARE = real("partial_rotary_factor", default=0.25)

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
            inner=inside("self_attn.", q_norm="q_layernorm.norms.{h}", k_norm="k_layernorm.norms.{h}"),
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
        "act": word("hidden_act", default="gelu_pytorch_tanh"),
        "kv_heads": count("num_key_value_heads", default=2, nullable=True),
        "bias": flag("use_bias", default=True),
        "mlp_bias": flag("use_bias", default=True),
        "window": count("sliding_window"),
    },
    without=("gate",),
    only={"mlp_type": "default", "norm_type": "layer_norm", "scale_attn_weights": True},
    inert=("activation_function", "layer_norm_epsilon"),  # of its predecessor; its files still have them
    head={"tied": TIED},
)

GRANITE = derive_stack(
    LLAMA,
    settings={
        "scale": real("attention_multiplier", default=1.0),
        "residual": real("residual_multiplier", default=1.0),
        "embed_scale": real("embedding_multiplier", default=1.0),
    },
    head={"scale": from_keys(lambda divisor: 1 / divisor, real("logits_scaling", default=1.0))},
)


def rotates(layer: int, listed: Sequence[int] | None, interval: int) -> bool:
    """True if a layer of SmolLM3 has rotary positions."""
    if listed is None:
        return (layer + 1) % interval != 0
    if layer >= len(listed):
        raise ValueError(f"no_rope_layers says nothing of layer {layer}")
    return bool(listed[layer])


TURNED = Key(("no_rope_layers",), INDICES), count("no_rope_layer_interval", default=4)

SMOLLM3 = derive_stack(
    LLAMA,
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "theta": real("rope_theta", default=2e6),
        "rotated": by_layer(rotates, *TURNED),
        "window": count("sliding_window"),
        "sliding": by_layer(
            lambda at, used, *said: used and not rotates(at, *said), flag("use_sliding_window"), *TURNED
        ),
    },
    inert=("max_window_layers",),
    head={"tied": TIED},
)

HELIUM = derive_stack(
    LLAMA,
    settings={
        "kv_heads": count("num_key_value_heads", default=20, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-8),
        "out_bias": False,
        "interleaved": True,
        "theta": real("rope_theta", default=100000.0),
    },
    example={"head_dim": 4},  # as many columns as hidden_size, of all heads
)

ARCEE = derive_stack(
    LLAMA,
    settings={"act": word("hidden_act", default="relu2"), "eps": epsilon("rms_norm_eps", 1e-5)},
    without=("gate",),
)

SEED_OSS = derive_stack(
    LLAMA,
    settings={
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "d_k": count("head_dim", default=128),
        "bias": flag("attention_bias", default=True),
        "out_bias": flag("attention_out_bias"),
    },
)

ERNIE4_5 = derive_stack(
    PLAIN,
    settings={
        "kv_heads": count("num_key_value_heads", default=2, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": flag("use_bias"),
        "mlp_bias": flag("use_bias"),
        "interleaved": True,
        "theta": real("rope_theta", default=500000.0),
    },
    head={"tied": TIED},
)

NEMOTRON = derive_stack(
    ARCEE,
    settings={
        **LAYER_NORM,
        "eps": epsilon("norm_eps", 1e-5),
        "plus_one": True,
        "rotary_share": real("partial_rotary_factor", default=0.5),
    },
    example={"head_dim": 8},
)

GLM = derive_stack(
    PLAIN,
    inner={"gate_up": "mlp.gate_up_proj"},
    settings={
        "kv_heads": count("num_key_value_heads", default=2, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1.5625e-07),
        "bias": flag("attention_bias", default=True),
        "out_bias": False,
        "interleaved": True,
        "rotary_share": real("partial_rotary_factor", default=0.5),
    },
    without=("gate", "up"),
    example={"head_dim": 8},
)

GLM4 = derive_stack(
    GLM, inner={"attention_out_norm": "post_self_attn_layernorm", "mlp_out_norm": "post_mlp_layernorm"}
)

PERSIMMON = derive_stack(
    PHI,
    inner={"qkv": "self_attn.query_key_value", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
    | {"mlp_norm": "post_attention_layernorm"},
    without=("q", "k", "v"),
    settings={
        "kv_heads": None,
        "d_k": None,
        "act": word("hidden_act", default="relu2"),
        "qkv": "groups",
        "parallel": False,
    },
    when=(replace(PHI.when[0], setting=flag("qk_layernorm", default=True)),),
    head={"bias": ()},
    example={"hidden_size": 32},
)
