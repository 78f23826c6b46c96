"""Encoders with decoders: T5 and Whisper."""

from __future__ import annotations

from attnctl.models.families.gpt import OPT
from attnctl.models.family import LAYER_NORM, Config, Stack, When, changed, key


def t5_gated(config: Config) -> bool:
    """Whether the feed-forward network has a gate."""
    return str(config.get("feed_forward_proj", "relu")).startswith("gated-")


def t5_activation(config: Config) -> str:
    """Its function; "gated-gelu" stands for the one by a tanh."""
    kind = str(config.get("feed_forward_proj", "relu"))
    return "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")


T5_ENCODER = Stack(
    layer="encoder.block.{i}.",
    outer={
        "embed": "shared",
        "bias_table": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "final_norm": "encoder.final_layer_norm",
    },
    inner={
        "attention_norm": "layer.0.layer_norm",
        "q": "layer.0.SelfAttention.q",
        "k": "layer.0.SelfAttention.k",
        "v": "layer.0.SelfAttention.v",
        "o": "layer.0.SelfAttention.o",
        "mlp_norm": "layer.1.layer_norm",
        "up": "layer.1.DenseReluDense.wi",
        "down": "layer.1.DenseReluDense.wo",
    },
    settings={
        "d_k": key("d_kv", default=64),
        "intermediate": key("d_ff", default=2048),
        "eps": key("layer_norm_epsilon", default=1e-6),
        "act": t5_activation,
        "gated": t5_gated,
        "causal": False,
        "scale": 1.0,
        "buckets": key("relative_attention_num_buckets", default=32),
        "furthest": key("relative_attention_max_distance", default=128),
    },
    when=(
        When(
            t5_gated,
            True,
            {},
            {"gate": "layer.1.DenseReluDense.wi_0", "up": "layer.1.DenseReluDense.wi_1"},
        ),
    ),
    ignored=("layer.0.SelfAttention.relative_attention_bias",),
)

T5_DECODER = changed(
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
        "cross_q": "layer.1.EncDecAttention.q",
        "cross_k": "layer.1.EncDecAttention.k",
        "cross_v": "layer.1.EncDecAttention.v",
        "cross_o": "layer.1.EncDecAttention.o",
        "mlp_norm": "layer.2.layer_norm",
        "up": "layer.2.DenseReluDense.wi",
        "down": "layer.2.DenseReluDense.wo",
    },
    settings={"causal": True, "layers": key("num_decoder_layers", "num_layers", "num_hidden_layers")},
    when=(
        When(
            t5_gated,
            True,
            {},
            {"gate": "layer.2.DenseReluDense.wi_0", "up": "layer.2.DenseReluDense.wi_1"},
        ),
    ),
)

WHISPER_ENCODER = Stack(
    layer="encoder.layers.{i}.",
    outer={"final_norm": "encoder.layer_norm"},
    inner=dict(OPT.inner),
    settings={
        **LAYER_NORM,
        "eps": 1e-5,
        "layers": key("encoder_layers", default=4),
        "heads": key("encoder_attention_heads", default=6),
        "intermediate": key("encoder_ffn_dim", default=1536),
        "act": key("activation_function", default="gelu"),
        "bias": True,
        "k_bias": False,
        "gated": False,
        "causal": False,
    },
)

WHISPER_DECODER = changed(
    WHISPER_ENCODER,
    layer="decoder.layers.{i}.",
    outer={
        "embed": "decoder.embed_tokens",
        "position": "decoder.embed_positions",
        "final_norm": "decoder.layer_norm",
    },
    inner={
        "cross_norm": "encoder_attn_layer_norm",
        "cross_q": "encoder_attn.q_proj",
        "cross_k": "encoder_attn.k_proj",
        "cross_v": "encoder_attn.v_proj",
        "cross_o": "encoder_attn.out_proj",
    },
    settings={
        "layers": key("decoder_layers", default=4),
        "heads": key("decoder_attention_heads", default=6),
        "intermediate": key("decoder_ffn_dim", default=1536),
        "causal": True,
        "positions": "plain",
    },
    only={"scale_embedding": (False,)},
)
