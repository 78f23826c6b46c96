"""Encoders with decoders: T5 and Whisper."""

from __future__ import annotations

from attnctl.models.families.gpt import OPT
from attnctl.models.family import LAYER_NORM, Stack, When, derive_stack, inside
from attnctl.models.keys import FLAG, Key, count, derived_key, epsilon, text_key

NETWORK = (text_key("feed_forward_proj"), text_key("model_type"))


def t5_network(network: str | None, family: str) -> str:
    return network or ("gated-gelu" if family == "mt5" else "relu")


def t5_gated(network: str | None, family: str, gated: bool | None) -> bool:
    """True if the feed-forward network has a gate."""
    return t5_network(network, family).startswith("gated-") if gated is None else gated


def t5_activation(network: str | None, family: str, act: str | None) -> str:
    """Its function; "gated-gelu" stands for the one by a tanh."""
    kind = t5_network(network, family)
    return act or ("gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-"))


GATED = derived_key(t5_gated, *NETWORK, Key(("is_gated_act",), FLAG))
LAYERS = count("num_layers", "num_hidden_layers")


T5_ENCODER = Stack(
    layer="encoder.block.{i}.",
    outer={
        "embed": "shared",
        "bias_table": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "final_norm": "encoder.final_layer_norm",
    },
    inner={
        "attention_norm": "layer.0.layer_norm",
        **inside("layer.0.SelfAttention.", q="q", k="k", v="v", o="o"),
        "mlp_norm": "layer.1.layer_norm",
        **inside("layer.1.DenseReluDense.", up="wi", down="wo"),
    },
    settings={
        "layers": LAYERS,
        "width": count("d_model", "hidden_size"),
        "heads": count("num_heads", "num_attention_heads"),
        "d_k": count("d_kv", "head_dim", default=64),
        "longest": None,
        "intermediate": count("d_ff"),
        "eps": epsilon("layer_norm_epsilon", 1e-6),
        "act": derived_key(t5_activation, *NETWORK, text_key("dense_act_fn")),
        "causal": False,
        "scale": 1.0,
        "buckets": count("relative_attention_num_buckets", default=32),
        "furthest": count("relative_attention_max_distance", default=128),
    },
    inert=("is_decoder", "output_past", "n_positions"),
    when=(When(GATED, True, inner=inside("layer.1.DenseReluDense.", gate="wi_0", up="wi_1")),),
    ignored=("layer.0.SelfAttention.relative_attention_bias",),
)

T5_DECODER = derive_stack(
    T5_ENCODER,
    ignored=(
        "layer.0.SelfAttention.relative_attention_bias",
        "layer.1.EncDecAttention.relative_attention_bias",
    ),
    layer="decoder.block.{i}.",
    outer={
        "bias_table": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "final_norm": "decoder.final_layer_norm",
    },
    inner={
        "cross_norm": "layer.1.layer_norm",
        **inside("layer.1.EncDecAttention.", cross_q="q", cross_k="k", cross_v="v", cross_o="o"),
        "mlp_norm": "layer.2.layer_norm",
        **inside("layer.2.DenseReluDense.", up="wi", down="wo"),
    },
    settings={
        "causal": True,
        "layers": derived_key(lambda own, shared: own or shared, count("num_decoder_layers"), LAYERS),
    },
    only={"is_encoder_decoder": True},
    when=(When(GATED, True, inner=inside("layer.2.DenseReluDense.", gate="wi_0", up="wi_1")),),
)

WHISPER_ENCODER = Stack(
    layer="encoder.layers.{i}.",
    outer={"final_norm": "encoder.layer_norm"},
    inner=dict(OPT.inner),
    settings={
        **LAYER_NORM,
        "eps": 1e-5,
        "layers": count("encoder_layers", "num_hidden_layers", default=4),
        "width": count("d_model", "hidden_size", default=384),
        "heads": count("encoder_attention_heads", "num_attention_heads", default=6),
        "intermediate": count("encoder_ffn_dim", default=1536),
        "longest": None,
        "act": text_key("activation_function", default="gelu"),
        "bias": True,
        "k_bias": False,
        "causal": False,
    },
)

WHISPER_DECODER = derive_stack(
    WHISPER_ENCODER,
    layer="decoder.layers.{i}.",
    outer=inside("decoder.", embed="embed_tokens", position="embed_positions", final_norm="layer_norm"),
    inner={
        "cross_norm": "encoder_attn_layer_norm",
        **inside("encoder_attn.", cross_q="q_proj", cross_k="k_proj", cross_v="v_proj", cross_o="out_proj"),
    },
    settings={
        "layers": count("decoder_layers", default=4),
        "heads": count("decoder_attention_heads", default=6),
        "intermediate": count("decoder_ffn_dim", default=1536),
        "longest": count("max_target_positions", default=448),
        "causal": True,
    },
    only={"scale_embedding": False},
)
