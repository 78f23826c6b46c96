"""Encoders with decoders: T5 and Whisper."""

from __future__ import annotations

from attnctl.models.families.gpt import OPT
from attnctl.models.family import LAYER_NORM, Names, Stack, When, derive_stack, inside
from attnctl.models.keys import FLAG, Key, Setting, count, epsilon, flag, from_keys, word

NETWORK = (word("feed_forward_proj"), word("model_type"))


def t5_network(network: str | None, family: str) -> str:
    return network or ("gated-gelu" if family == "mt5" else "relu")


def t5_gated(network: str | None, family: str, gated: bool | None) -> bool:
    return t5_network(network, family).startswith("gated-") if gated is None else gated


def t5_activation(network: str | None, family: str, act: str | None) -> str:
    """Its function; "gated-gelu" stands for the one by a tanh."""
    kind = t5_network(network, family)
    return act or ("gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-"))


GATED = from_keys(t5_gated, *NETWORK, Key(("is_gated_act",), FLAG))
LAYERS = count("num_layers", "num_hidden_layers")
BIAS = "layer.0.SelfAttention.relative_attention_bias"

T5_ENCODER = Stack(
    layer="encoder.block.{i}.",
    outer={
        "embed": "shared",
        "bias_table": f"encoder.block.0.{BIAS}",
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
        "act": from_keys(t5_activation, *NETWORK, word("dense_act_fn")),
        "causal": False,
        "scale": 1.0,
        "buckets": count("relative_attention_num_buckets", default=32),
        "furthest": count("relative_attention_max_distance", default=128),
    },
    inert=("is_decoder", "output_past", "n_positions"),
    when=(When(GATED, True, inner=inside("layer.1.DenseReluDense.", gate="wi_0", up="wi_1")),),
    ignored_first=(BIAS,),
)

T5_DECODER = derive_stack(
    T5_ENCODER,
    ignored_first=(BIAS, "layer.1.EncDecAttention.relative_attention_bias"),
    layer="decoder.block.{i}.",
    outer={"bias_table": f"decoder.block.0.{BIAS}", "final_norm": "decoder.final_layer_norm"},
    inner={
        "cross_norm": "layer.1.layer_norm",
        **inside("layer.1.EncDecAttention.", cross_q="q", cross_k="k", cross_v="v", cross_o="o"),
        "mlp_norm": "layer.2.layer_norm",
        **inside("layer.2.DenseReluDense.", up="wi", down="wo"),
    },
    settings={
        "causal": True,
        "layers": from_keys(lambda own, shared: own or shared, count("num_decoder_layers"), LAYERS),
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
        "act": word("activation_function", default="gelu"),
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

BART_WIDTH = count("d_model", "hidden_size", default=1024)
TABLE_OF_BART = from_keys(lambda longest: longest + 2, count("max_position_embeddings", default=1024))


def sizes_of(part: str, *, layers: int, heads: int, size: int) -> dict[str, Setting]:
    """The settings of the encoder or the decoder, under keys that begin with its name."""
    also = ("num_hidden_layers", "num_attention_heads") if part == "encoder" else ()
    return {
        "layers": count(f"{part}_layers", *also[:1], default=layers),
        "heads": count(f"{part}_attention_heads", *also[1:], default=heads),
        "intermediate": count(f"{part}_ffn_dim", default=size),
    }


BOTH_WAYS = {
    "embed_scale": from_keys(
        lambda scaled, width: width**0.5 if scaled else 1.0, flag("scale_embedding"), BART_WIDTH
    ),
    "k_bias": True,
    "position_start": 2,
    "longest": TABLE_OF_BART,
    "width": BART_WIDTH,
}


def names_in(part: str) -> Names:
    names = inside(f"{part}.", position="embed_positions", embed_norm="layernorm_embedding")
    return {"embed": "shared", **names}


BART_ENCODER = derive_stack(
    WHISPER_ENCODER,
    outer=names_in("encoder"),
    inner={"attention_sum_norm": "self_attn_layer_norm", "mlp_sum_norm": "final_layer_norm"},
    without=("attention_norm", "mlp_norm", "final_norm"),
    settings={**BOTH_WAYS, **sizes_of("encoder", layers=12, heads=16, size=4096)},
    only={"normalize_before": False, "add_final_layer_norm": False, "tie_word_embeddings": True},
    inert=("normalize_embedding", "static_position_embeddings", "extra_pos_embeddings", "add_bias_logits"),
)

BART_DECODER = derive_stack(
    WHISPER_DECODER,
    outer=names_in("decoder"),
    inner={
        "self_sum_norm": "self_attn_layer_norm",
        "attention_sum_norm": "encoder_attn_layer_norm",
        "mlp_sum_norm": "final_layer_norm",
    },
    without=("attention_norm", "cross_norm", "mlp_norm", "final_norm"),
    settings={**BOTH_WAYS, **sizes_of("decoder", layers=12, heads=16, size=4096)},
    only={"scale_embedding": flag("scale_embedding")},
)

SINUSOIDAL = {"position_start": 0, "longest": count("max_position_embeddings", default=1024)}
SHARED = {
    "share_encoder_decoder_embeddings": True,
    "decoder_vocab_size": count("vocab_size", default=58101),
}
MARIAN_ENCODER = derive_stack(BART_ENCODER, without=("embed_norm",), settings=SINUSOIDAL, only=SHARED)
MARIAN_DECODER = derive_stack(BART_DECODER, without=("embed_norm",), settings=SINUSOIDAL)
