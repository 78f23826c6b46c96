"""Encoders: BERT and its kin, ModernBERT, those of images, and those with decoders."""

from __future__ import annotations

from dataclasses import replace
from operator import mul
from typing import Any

from attnctl.models.families.gpt import OPT
from attnctl.models.families.llama import GEMMA2, LLAMA
from attnctl.models.family import (
    LAYER_NORM,
    ROPE_BY_TYPE,
    ROTARY,
    TYPES,
    Patches,
    Stack,
    When,
    derive_stack,
    inside,
)
from attnctl.models.keys import (
    COUNT,
    INDEX,
    SIDE,
    TEXTS,
    Key,
    KeyKind,
    Setting,
    by_layer,
    count,
    epsilon,
    flag,
    from_keys,
    real,
    word,
)
from attnctl.models.rope import OF_GRID


def predict_masked(
    place: str, unembed: str, dense: str, norm: str, act: str | None = None
) -> dict[str, Setting]:
    """The head of a family that fills in [MASK]; its bias may stand beside the unembedding."""
    whole = f"{place}{unembed}"
    biases = f"{whole}.bias", f"{place}bias"
    return {"unembed": (whole,), "bias": biases, **inside(place, dense=dense, norm=norm), "act": act}


BERT = Stack(
    layer="encoder.layer.{i}.",
    outer={
        "embed": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "segment": "embeddings.token_type_embeddings",
        "embed_norm": "embeddings.LayerNorm",
    },
    inner={
        **inside("attention.self.", q="query", k="key", v="value"),
        **inside("attention.output.", o="dense", attention_sum_norm="LayerNorm"),
        "up": "intermediate.dense",
        "down": "output.dense",
        "mlp_sum_norm": "output.LayerNorm",
    },
    settings={
        **LAYER_NORM,
        "eps": epsilon("layer_norm_eps", 1e-12),
        "act": word("hidden_act", default="gelu"),
        "bias": True,
        "segments": count("type_vocab_size"),
        "causal": flag("is_decoder"),
    },
    only={"position_embedding_type": "absolute", "add_cross_attention": False},
    inert=("directionality",),
    head=predict_masked("cls.predictions.", "decoder", "transform.dense", "transform.LayerNorm"),
)

ROBERTA = derive_stack(
    BERT,
    settings={
        "positions": "after_pad",
        "position_start": from_keys(lambda pad: pad + 1, count("pad_token_id", default=1, kind=INDEX)),
    },
    head=predict_masked("lm_head.", "decoder", "dense", "layer_norm", "gelu"),
)

ROBERTA_PRELAYERNORM = derive_stack(
    ROBERTA,
    outer={"final_norm": "LayerNorm"},
    inner={"attention_norm": "attention.LayerNorm", "mlp_norm": "intermediate.LayerNorm"},
    without=("attention_sum_norm", "mlp_sum_norm"),
)

XLM_ROBERTA_XL = derive_stack(
    ROBERTA,
    outer={"final_norm": "encoder.LayerNorm"},
    inner={"attention_norm": "attention.self_attn_layer_norm", "mlp_norm": "LayerNorm"},
    without=("embed_norm", "attention_sum_norm", "mlp_sum_norm"),
    settings={"eps": epsilon("layer_norm_eps", 1e-5)},
)

MPNET = derive_stack(
    ROBERTA,
    outer={"bias_table": "encoder.relative_attention_bias"},
    inner={
        **inside("attention.attn.", q="q", k="k", v="v", o="o"),
        "attention_sum_norm": "attention.LayerNorm",
    },
    without=("segment",),
    settings={
        "segments": None,
        "causal": False,
        "position_start": 2,
        "buckets": 32,
    },
    only={"relative_attention_num_buckets": 32},  # which sizes its table and not the distances
)
"""A table of distances that all layers share; its padding is 1, whatever its config.json says."""

DEBERTA_TYPES = Key(
    ("pos_att_type",),
    KeyKind("a list of p2c and c2p", lambda value: {*type_names(value)} <= {"p2c", "c2p"}),
)


def type_names(value: Any) -> list[Any]:
    """What reads distances: a list of it, or a text with a bar between."""
    if isinstance(value, str):
        return [name.strip() for name in value.lower().split("|")]
    return value if TEXTS.fits(value) else [value]


def deberta_scale(types: Any, width: int, heads: int) -> float:
    """1/√d_k, over the root of how many terms a score has."""
    terms = 1 + len({*type_names(types or [])})
    return float((width // heads * terms) ** -0.5)


def distances(
    there: bool, types: Any, buckets: int, furthest: int, longest: int, shared: bool
) -> tuple[int, int, bool, bool, bool] | None:
    """The setting `distances`."""
    names = type_names(types or [])
    if not there or not names:
        return None
    furthest = furthest if furthest > 0 else longest
    span = buckets if buckets > 0 else furthest
    return span, furthest if buckets > 0 else 0, "c2p" in names, "p2c" in names, shared


DEBERTA_LONGEST = count("max_position_embeddings", default=512)
"""Said or not, how far distances are told apart: their buckets are wider for a larger one."""

FROM_BELOW = KeyKind("a whole number", lambda value: COUNT.fits(value) or value in (0, -1))

DEBERTA_V2 = derive_stack(
    BERT,
    outer={"distances": "encoder.rel_embeddings", "distances_norm": "encoder.LayerNorm"},
    inner={
        **inside("attention.self.", q="query_proj", k="key_proj", v="value_proj"),
        **inside("attention.self.", distances_q="pos_query_proj", distances_k="pos_key_proj"),
    },
    settings={
        "eps": epsilon("layer_norm_eps", 1e-7),
        "segments": count("type_vocab_size", default=0, kind=INDEX),
        "positions": from_keys(
            lambda used: "plain" if used else "", flag("position_biased_input", default=True)
        ),
        "causal": False,
        "scale": from_keys(
            deberta_scale, DEBERTA_TYPES, count("hidden_size"), count("num_attention_heads")
        ),
        "distances": from_keys(
            distances,
            *(flag("relative_attention"), DEBERTA_TYPES, Key(("position_buckets",), FROM_BELOW, -1)),
            *(Key(("max_relative_positions",), FROM_BELOW, -1), DEBERTA_LONGEST),
            flag("share_att_key"),
        ),
        "distances_normed": from_keys(
            lambda said: "layer_norm" in said.lower().split("|"), word("norm_rel_ebd", default="none")
        ),
    },
    when=(
        When(flag("share_att_key"), True, without=("distances_q", "distances_k")),
        When(flag("relative_attention"), False, without=("distances_q", "distances_k")),
    ),
    only={
        "attention_head_size": from_keys(
            lambda width, heads: width and heads and width // heads,
            count("hidden_size"),
            count("num_attention_heads"),
        ),
        "embedding_size": count("hidden_size"),
        "conv_kernel_size": 0,
    },
    inert=("conv_act", "conv_groups", "legacy"),
)
"""DeBERTa 2 and 3. Position 0 of its vectors of distances is the furthest that stands ahead."""

ELECTRA = derive_stack(
    BERT,
    outer={"embed_project": "embeddings_project"},
    settings={"embed_width": count("embedding_size", default=128)},
    head=predict_masked("generator_", "lm_head", "predictions.dense", "predictions.LayerNorm", "gelu"),
)

DISTILBERT = Stack(
    layer="transformer.layer.{i}.",
    outer={name: BERT.outer[name] for name in ("embed", "position", "embed_norm")},
    inner={
        **inside("attention.", q="q_lin", k="k_lin", v="v_lin", o="out_lin"),
        "attention_sum_norm": "sa_layer_norm",
        **inside("ffn.", up="lin1", down="lin2"),
        "mlp_sum_norm": "output_layer_norm",
    },
    settings={
        **BERT.settings,
        "layers": count("n_layers", "num_hidden_layers"),
        "width": count("dim", "hidden_size"),
        "heads": count("n_heads", "num_attention_heads"),
        "intermediate": count("hidden_dim"),
        "eps": 1e-12,
        "act": word("activation", default="gelu"),
        "segments": None,
        "causal": False,
    },
    inert=("sinusoidal_pos_embds",),  # how its table of positions began
    head=predict_masked("vocab_", "projector", "transform", "layer_norm"),
)

ALBERT = derive_stack(
    BERT,
    layer="encoder.albert_layer_groups.{i}.albert_layers.0.",
    outer={"embed_project": "encoder.embedding_hidden_mapping_in"},
    inner={
        **inside("attention.", q="query", k="key", v="value", o="dense", attention_sum_norm="LayerNorm"),
        "up": "ffn",
        "down": "ffn_output",
        "mlp_sum_norm": "full_layer_layer_norm",
    },
    settings={
        "act": word("hidden_act", default="gelu_new"),
        "causal": False,
        "embed_width": count("embedding_size", default=128),
        "project": True,
        "shared_groups": count("num_hidden_groups", default=1),
    },
    only={"inner_group_num": 1, "position_embedding_type": "absolute"},
    inert=("down_scale_factor",),
    head=predict_masked("predictions.", "decoder", "dense", "LayerNorm"),
)

NORM_EPS = epsilon("norm_eps", 1e-5)

MODERNBERT = Stack(
    layer="layers.{i}.",
    outer={**inside("embeddings.", embed="tok_embeddings", embed_norm="norm"), "final_norm": "final_norm"},
    inner={
        "attention_norm": "attn_norm",
        **inside("attn.", qkv="Wqkv", o="Wo"),
        "mlp_norm": "mlp_norm",
        **inside("mlp.", gate_up="Wi", down="Wo"),
    },
    settings={
        **ROPE_BY_TYPE,
        **TYPES,
        "norm": "layer",
        "norm_bias": flag("norm_bias"),
        "eps": NORM_EPS,
        "first_norm": False,
        "act": word("hidden_activation", default="gelu"),
        "qkv": "blocks",
        "bias": flag("attention_bias"),
        "mlp_bias": flag("mlp_bias"),
        "causal": False,
        "window": from_keys(
            lambda whole, half: (whole // 2 if half is None else half) + 1,
            count("local_attention", default=128),
            count("sliding_window"),
        ),
        "both_ways": True,
        "sliding": by_layer(
            lambda layer, every: layer % every != 0, count("global_attn_every_n_layers", default=3)
        ),
        "theta": real("global_rope_theta", default=160000.0),
        "local_theta": real("local_rope_theta", default=10000.0),
    },
    only={"position_embedding_type": "absolute", "layer_norm_eps": NORM_EPS},
    head={
        "unembed": ("decoder",),
        "bias": from_keys(
            lambda there: ("decoder.bias",) if there else (), flag("decoder_bias", default=True)
        ),
        **inside("head.", dense="dense", norm="norm"),
        "dense_bias": flag("classifier_bias"),
        "act": word("classifier_activation", default="gelu"),
    },
)

ESM_KINDS = KeyKind("absolute or rotary", lambda value: value in ("absolute", "rotary"))
ESM_POSITIONS = Key(("position_embedding_type",), ESM_KINDS, "absolute")

ESM = derive_stack(
    BERT,
    outer={"embed_norm": "embeddings.layer_norm", "final_norm": "encoder.emb_layer_norm_after"},
    inner={"attention_norm": "attention.LayerNorm", "mlp_norm": "LayerNorm"},
    without=("segment", "attention_sum_norm", "mlp_sum_norm"),
    settings={
        "segments": None,
        "act": "gelu",
        "embed_norm": flag("emb_layer_norm_before"),
        "rotary": from_keys(lambda kind: kind == "rotary", ESM_POSITIONS),
        "positions": from_keys(lambda kind: "after_pad" if kind == "absolute" else "", ESM_POSITIONS),
        "position_start": ROBERTA.settings["position_start"],
        "masked": from_keys(
            lambda used, token: token if used else None,
            flag("token_dropout"),
            count("mask_token_id", kind=INDEX),
        ),
    },
    only={"position_embedding_type": ESM_POSITIONS, "is_folding_model": False, "rope_theta": 10000.0},
    inert=("hidden_act", "vocab_list", "esmfold_config"),
    ignored=("attention.self.rotary_embeddings.inv_freq",),
    head=predict_masked("lm_head.", "decoder", "dense", "layer_norm", "gelu"),
)
"""Proteins, a token for each amino acid: ESM-1b by a table of positions, ESM-2 by rotation."""

HALF = from_keys(lambda both: both // 2, count("local_attention", default=128))

MODERNBERT_DECODER = derive_stack(
    MODERNBERT,
    inner=inside("attn.", q="q_proj", k="k_proj", v="v_proj"),
    without=("qkv",),
    settings={"causal": True, "window": HALF, "both_ways": False},
    only={"sliding_window": HALF},
    example={"local_attention": 6, "global_attn_every_n_layers": 2},
    head=inside("lm_head.", dense="dense", norm="norm"),
)

EUROBERT = derive_stack(
    LLAMA,
    settings={"causal": False, "eps": epsilon("rms_norm_eps", 1e-5)},
    head={"bias": from_keys(lambda there: ("lm_head.bias",) if there else (), flag("mlp_bias"))},
)

MEGATRON_BERT = derive_stack(
    BERT,
    outer={"final_norm": "encoder.ln"},
    inner={"attention_norm": "attention.ln", "mlp_norm": "ln"},
    without=("embed_norm", "attention_sum_norm", "mlp_sum_norm"),
    inert=(),
    example={"type_vocab_size": 2},
)

NOMIC_BERT = Stack(
    layer="encoder.layers.{i}.",
    outer={**inside("embeddings.", embed="word_embeddings", segment="token_type_embeddings")}
    | {"embed_norm": "emb_ln"},
    inner={
        **inside("attn.", qkv="Wqkv", o="out_proj"),
        "attention_sum_norm": "norm1",
        **inside("mlp.", gate="fc12", up="fc11", down="fc2"),
        "mlp_sum_norm": "norm2",
    },
    settings={
        **LAYER_NORM,
        **ROTARY,
        "eps": epsilon("layer_norm_eps", 1e-12),
        "d_k": count("head_dim"),
        "act": word("hidden_act", default="silu"),
        "qkv": "blocks",
        "segments": count("type_vocab_size"),
        "causal": False,
        "theta": real("rope_theta", default=1000.0),
    },
    head=predict_masked("cls.predictions.", "decoder", "transform.dense", "transform.layer_norm"),
    example={"type_vocab_size": 2, "head_dim": 4},
)

PATCHES = {
    "patch": Key(("patch_size",), SIDE, default=16),
    "image": Key(("image_size",), SIDE, default=224),
    "channels": count("num_channels", default=3),
}
OF_EMBEDDINGS = inside(
    "embeddings.", patch="patch_embeddings.projection", cls="cls_token", position="position_embeddings"
)
OF_VIT = Patches(
    weight=OF_EMBEDDINGS["patch"],
    leading=(OF_EMBEDDINGS["cls"],),
    position=OF_EMBEDDINGS["position"],
    position_in_batch=True,
    resize="bicubic",
)

VIT = Stack(
    layer="encoder.layer.{i}.",
    outer={"final_norm": "layernorm"},
    inner={
        "attention_norm": "layernorm_before",
        **inside("attention.attention.", q="query", k="key", v="value"),
        "o": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "up": "intermediate.dense",
        "down": "output.dense",
    },
    settings={
        **LAYER_NORM,
        "vocab": None,
        "longest": None,
        "eps": epsilon("layer_norm_eps", 1e-12),
        "act": word("hidden_act", default="gelu"),
        "bias": flag("qkv_bias", default=True),
        "out_bias": True,
        "mlp_bias": True,
        "causal": False,
        **PATCHES,
    },
    patches=OF_VIT,
)
DEIT = derive_stack(
    VIT, patches=replace(OF_VIT, leading=(*OF_VIT.leading, "embeddings.distillation_token"))
)

RATIO = count("hidden_size"), count("mlp_ratio", default=4)
SWIGLU = inside("mlp.", gate_up="weights_in", down="weights_out")
TWO_THIRDS = from_keys(lambda width, ratio: (width * ratio * 2 // 3 + 7) // 8 * 8, *RATIO)

DINOV2 = derive_stack(
    VIT,
    inner={
        **inside("norm", attention_norm="1", mlp_norm="2"),
        **inside("layer_scale", attention_scale="1.lambda1!", mlp_scale="2.lambda1!"),
        **inside("mlp.", up="fc1", down="fc2"),
    },
    settings={
        "eps": epsilon("layer_norm_eps", 1e-6),
        "intermediate": from_keys(mul, *RATIO),
        "patch": Key(("patch_size",), SIDE, default=14),
    },
    when=(
        When(flag("use_swiglu_ffn"), True, {"act": "silu", "intermediate": TWO_THIRDS}, SWIGLU, ("up",)),
    ),
    inert=(
        *("layerscale_value", "drop_path_rate", "num_register_tokens", "use_mask_token", "apply_layernorm"),
        *("reshape_hidden_states", "stage_names", "out_features", "out_indices"),
    ),
)

DINOV2_WITH_REGISTERS = derive_stack(
    DINOV2,
    settings={"registers": Key(("num_register_tokens",), INDEX, default=4)},
    patches=replace(OF_VIT, registers=("embeddings.register_tokens",), antialias=True),
)

DINOV3 = derive_stack(
    DINOV2,
    layer="layer.{i}.",
    outer={"final_norm": "norm"},
    inner={
        **inside("attention.", q="q_proj", k="k_proj", v="v_proj", o="o_proj"),
        **inside("mlp.", up="up_proj", down="down_proj"),
    },
    settings={
        "eps": epsilon("layer_norm_eps", 1e-5),
        "intermediate": count("intermediate_size", default=1536),
        "bias": flag("query_bias", default=True),
        "k_bias": flag("key_bias", default=False),
        "v_bias": flag("value_bias", default=True),
        "out_bias": flag("proj_bias", default=True),
        "mlp_bias": flag("mlp_bias", default=True),
        "rotary": True,
        "rope_kinds": {"default": OF_GRID},
        "theta": real("rope_theta", default=100.0),
        "patch": Key(("patch_size",), SIDE, default=16),
        "registers": Key(("num_register_tokens",), INDEX, default=0),
    },
    when=(
        When(
            flag("use_gated_mlp"),
            True,
            inner=inside("mlp.", gate="gate_proj"),
        ),
    ),
    inert=(
        *("layerscale_value", "drop_path_rate", "apply_layernorm", "reshape_hidden_states", "stage_names"),
        *("out_features", "out_indices", "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"),
    ),
    patches=Patches(
        weight="embeddings.patch_embeddings",
        leading=("embeddings.cls_token",),
        registers=("embeddings.register_tokens",),
    ),
)
"""Rotary positions of rows and columns, which no row of a table says; what shifts them is for training."""

CLIP_VISION = derive_stack(
    VIT,
    without=("final_norm",),
    layer="encoder.layers.{i}.",
    inner={
        "attention_norm": "layer_norm1",
        **inside("self_attn.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
        "mlp_norm": "layer_norm2",
        **inside("mlp.", up="fc1", down="fc2"),
    },
    settings={
        "layers": count("num_hidden_layers", default=12),
        "width": count("hidden_size", default=768),
        "heads": count("num_attention_heads", default=12),
        "intermediate": count("intermediate_size", default=3072),
        "eps": epsilon("layer_norm_eps", 1e-5),
        "act": word("hidden_act", default="quick_gelu"),
        "bias": True,
        "patch": Key(("patch_size",), SIDE, default=32),
    },
    patches=Patches(
        weight="embeddings.patch_embedding",
        has_bias=False,
        leading=("embeddings.class_embedding",),
        position="embeddings.position_embedding.weight",
        norm="pre_layrnorm",
    ),
)

NO_PATCHES = dict.fromkeys(("patch", "image"), None) | {"channels": 3}

CLIP_TEXT = derive_stack(
    CLIP_VISION,
    patches=None,
    outer={
        **inside("embeddings.", embed="token_embedding", position="position_embedding"),
        "final_norm": "final_layer_norm",
    },
    settings={
        "vocab": count("vocab_size", default=49408),
        "width": count("hidden_size", default=512),
        "heads": count("num_attention_heads", default=8),
        "intermediate": count("intermediate_size", default=2048),
        "longest": count("max_position_embeddings", default=77),
        "causal": True,
        **NO_PATCHES,
    },
)

SIGLIP_VISION = derive_stack(
    CLIP_VISION,
    outer={"final_norm": "post_layernorm"},
    settings={
        "eps": epsilon("layer_norm_eps", 1e-6),
        "act": word("hidden_act", default="gelu_pytorch_tanh"),
        "patch": Key(("patch_size",), SIDE, default=16),
    },
    inert=("vision_use_head",),
    patches=Patches(weight="embeddings.patch_embedding", position="embeddings.position_embedding.weight"),
)

SIGLIP2_VISION = derive_stack(
    SIGLIP_VISION,
    settings={"image": None, "patches": count("num_patches", default=256)},
    patches=Patches(
        weight="embeddings.patch_embedding",
        linear=True,
        position="embeddings.position_embedding.weight",
        resize="bilinear",
        antialias=True,
        always_resized=True,
    ),
)
"""Pictures of any shape, of no more than so many patches."""

SIGLIP_TEXT = derive_stack(
    CLIP_TEXT,
    settings={
        **SIGLIP_VISION.settings,
        **NO_PATCHES,
        "vocab": count("vocab_size", default=32000),
        "longest": count("max_position_embeddings", default=64),
    },
    inert=("projection_size",),
)

# --- encoders with decoders ---

NETWORK = (word("feed_forward_proj"), word("model_type"))


def t5_network(network: str | None, family: str) -> str:
    return network or ("gated-gelu" if family in {"mt5", "umt5"} else "relu")


def t5_activation(network: str | None, family: str, act: str | None) -> str:
    """Its function; "gated-gelu" stands for the one by a tanh."""
    kind = t5_network(network, family)
    return act or ("gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-"))


GATED = from_keys(
    lambda said, family, gated: t5_network(said, family).startswith("gated-") if gated is None else gated,
    *(*NETWORK, flag("is_gated_act", default=None)),
)
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

TABLE_OF_LAYER = {"bias_table": BIAS}

UMT5_ENCODER = derive_stack(T5_ENCODER, without=("bias_table",), ignored_first=(), when=T5_ENCODER.when)
UMT5_ENCODER = derive_stack(UMT5_ENCODER, inner=TABLE_OF_LAYER)
UMT5_DECODER = derive_stack(T5_DECODER, without=("bias_table",), ignored_first=())
UMT5_DECODER = derive_stack(UMT5_DECODER, inner=TABLE_OF_LAYER)
"""Every layer has a table of distances of its own."""

T5GEMMA_WINDOW = from_keys(lambda size: size + 1, count("sliding_window", default=4096))
"""It counts the keys on either side, but the query."""

T5GEMMA_ENCODER = derive_stack(
    GEMMA2,
    layer="encoder.layers.{i}.",
    outer={"embed": "encoder.embed_tokens", "final_norm": "encoder.norm"},
    inner={
        "attention_norm": "pre_self_attn_layernorm",
        "attention_out_norm": "post_self_attn_layernorm",
    },
    settings={"causal": False, "both_ways": True, "window": T5GEMMA_WINDOW},
    inert=("is_decoder", "cross_attention_hidden_size", "dropout_rate"),
    section="encoder",
    head={"unembed": ()},
)

T5GEMMA_DECODER = derive_stack(
    T5GEMMA_ENCODER,
    layer="decoder.layers.{i}.",
    outer={"embed": "decoder.embed_tokens", "final_norm": "decoder.norm"},
    inner={
        "cross_norm": "pre_cross_attn_layernorm",
        **inside("cross_attn.", cross_q="q_proj", cross_k="k_proj", cross_v="v_proj", cross_o="o_proj"),
        "cross_out_norm": "post_cross_attn_layernorm",
    },
    settings={
        "causal": True,
        "both_ways": False,
        "window": GEMMA2.settings["window"],
        "memory_width": count("cross_attention_hidden_size", default=2304),
    },
    inert=("is_decoder", "dropout_rate"),
    section="decoder",
    encoder="encoder",
)
"""Gemma 2 as an encoder, and as a decoder whose layers attend to it, too."""

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


def sizes_of(part: str) -> dict[str, Setting]:
    """The settings of the encoder or the decoder, under keys that begin with its name."""
    also = ("num_hidden_layers", "num_attention_heads") if part == "encoder" else ()
    return {
        "layers": count(f"{part}_layers", *also[:1], default=12),
        "heads": count(f"{part}_attention_heads", *also[1:], default=16),
        "intermediate": count(f"{part}_ffn_dim", default=4096),
    }


BOTH_WAYS = {
    "embed_scale": from_keys(
        lambda scaled, width: width**0.5 if scaled else 1.0, flag("scale_embedding"), BART_WIDTH
    ),
    "k_bias": True,
    "position_start": 2,
    "longest": from_keys(lambda longest: longest + 2, count("max_position_embeddings", default=1024)),
    "width": BART_WIDTH,
}


def names_in(part: str) -> dict[str, str]:
    names = inside(f"{part}.", position="embed_positions", embed_norm="layernorm_embedding")
    return {"embed": "shared", **names}


BART_ENCODER = derive_stack(
    WHISPER_ENCODER,
    outer=names_in("encoder"),
    inner={"attention_sum_norm": "self_attn_layer_norm", "mlp_sum_norm": "final_layer_norm"},
    without=("attention_norm", "mlp_norm", "final_norm"),
    settings={**BOTH_WAYS, **sizes_of("encoder")},
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
    settings={**BOTH_WAYS, **sizes_of("decoder")},
    only={"scale_embedding": flag("scale_embedding")},
)

MBART_ENCODER = derive_stack(
    WHISPER_ENCODER,
    outer={**names_in("encoder"), "final_norm": "encoder.layer_norm"},
    settings={**BOTH_WAYS, **sizes_of("encoder")},
    only={"normalize_before": True, "add_final_layer_norm": True, "tie_word_embeddings": True},
    inert=("normalize_embedding", "static_position_embeddings", "extra_pos_embeddings", "add_bias_logits"),
)

MBART_DECODER = derive_stack(
    WHISPER_DECODER,
    outer={**names_in("decoder"), "final_norm": "decoder.layer_norm"},
    settings={**BOTH_WAYS, **sizes_of("decoder")},
    only={"scale_embedding": flag("scale_embedding")},
)
"""Norms before each part, as Whisper has them, and one of the embeddings."""

COUNTED = {
    "positions": "after_pad",
    "position_start": ROBERTA.settings["position_start"],
    "longest": None,
    "embed_scale": from_keys(
        lambda scaled, width: width**0.5 if scaled else 1.0,
        flag("scale_embedding", default=True),
        BART_WIDTH,
    ),
    "act": word("activation_function", default="relu"),
}
M2M_ENCODER = derive_stack(
    MBART_ENCODER,
    without=("position", "embed_norm"),
    settings=COUNTED,
    inert=("max_position_embeddings",),
)
M2M_DECODER = derive_stack(
    MBART_DECODER,
    without=("position", "embed_norm"),
    settings=COUNTED,
    only={"scale_embedding": flag("scale_embedding", default=True)},
    inert=("max_position_embeddings",),
)
"""NLLB and M2M-100: their positions are waves, which no checkpoint has, counted without padding."""

PLAIN_TABLE = {"position_start": 0, "longest": count("max_position_embeddings", default=1024)}
PEGASUS_ENCODER = derive_stack(MBART_ENCODER, without=("embed_norm",), settings=PLAIN_TABLE)
PEGASUS_DECODER = derive_stack(MBART_DECODER, without=("embed_norm",), settings=PLAIN_TABLE)
"""Pegasus: mBART without a norm of embeddings."""


def blenderbot_sizes(part: str, layers: int) -> dict[str, Setting]:
    """What a config.json of Blenderbot means by saying nothing: other sizes than Pegasus has."""
    own = {**sizes_of(part), "width": count("d_model", "hidden_size", default=2560)}
    own["longest"] = count("max_position_embeddings", default=128)
    for use, size in (("layers", layers), ("heads", 32), ("intermediate", 10240)):
        own[use] = replace(own[use], default=size)
    return own


BLENDERBOT_ENCODER = derive_stack(PEGASUS_ENCODER, settings=blenderbot_sizes("encoder", layers=2))
BLENDERBOT_DECODER = derive_stack(PEGASUS_DECODER, settings=blenderbot_sizes("decoder", layers=24))
"""Blenderbot's large ones."""

SINUSOIDAL = {"position_start": 0, "longest": count("max_position_embeddings", default=1024)}
SHARED = {
    "share_encoder_decoder_embeddings": True,
    "decoder_vocab_size": count("vocab_size", default=58101),
}
MARIAN_ENCODER = derive_stack(BART_ENCODER, without=("embed_norm",), settings=SINUSOIDAL, only=SHARED)
MARIAN_DECODER = derive_stack(BART_DECODER, without=("embed_norm",), settings=SINUSOIDAL)
