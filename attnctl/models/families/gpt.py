"""Decoders of the kind of GPT-2: LayerNorms and networks without a gate."""

from __future__ import annotations

from attnctl.models.family import LAYER_NORM, ROTARY, UNTIED, Stack, When, derive_stack, inside
from attnctl.models.keys import (
    EVEN,
    PLAIN_ALIBI,
    TYPES_TIMES,
    Key,
    Setting,
    count,
    epsilon,
    flag,
    from_keys,
    real,
    word,
)

GPT: dict[str, Setting] = {
    "layers": count("n_layer", "num_hidden_layers"),
    "width": count("n_embd", "hidden_size"),
    "heads": count("n_head", "num_attention_heads"),
    "longest": count("n_positions", "max_position_embeddings"),
    "intermediate": from_keys(
        lambda inner, width: inner or 4 * width, count("n_inner"), count("n_embd", "hidden_size")
    ),
    "norm": "layer",
    "norm_bias": True,
    "eps": epsilon("layer_norm_epsilon", 1e-5),
    "act": word("activation_function", default="gelu_new"),
}
"""The settings that GPT-2, GPT-J and BLOOM share."""

LM_HEAD: dict[str, Setting] = {"unembed": ("lm_head",)}

GPT2 = Stack(
    layer="h.{i}.",
    outer={"embed": "wte", "position": "wpe", "final_norm": "ln_f"},
    inner={
        "attention_norm": "ln_1",
        **inside("attn.", qkv="c_attn", o="c_proj"),
        "mlp_norm": "ln_2",
        **inside("mlp.", up="c_fc", down="c_proj"),
    },
    settings={
        **GPT,
        "transposed": True,
        "qkv": "blocks",
        "bias": True,
        "scale_over_layer": flag("scale_attn_by_inverse_layer_idx"),
    },
    when=(When(flag("scale_attn_weights", default=True), False, {"scale": 1.0}),),
    only={"add_cross_attention": False},
    inert=("reorder_and_upcast_attn",),
    ignored=("attn.bias", "attn.masked_bias"),
    head=LM_HEAD,
)

GPTJ = Stack(
    layer="h.{i}.",
    outer={"embed": "wte", "final_norm": "ln_f"},
    inner={
        "attention_norm": "ln_1",
        **inside("attn.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
        **inside("mlp.", up="fc_in", down="fc_out"),
    },
    settings={
        **GPT,
        "mlp_bias": True,
        "parallel": True,
        "rotary": True,
        "interleaved": True,
        "rotary_size": count("rotary_dim", default=64, kind=EVEN),
    },
    only={"rotary": True, "scale_attn_weights": True},
    ignored=("attn.bias", "attn.masked_bias"),
    head={**LM_HEAD, "bias": ("lm_head.bias",), "tied": UNTIED},
)

BASE, SHARE = real("rotary_emb_base", default=10000.0), real("rotary_pct", default=0.25)

GPT_NEOX = Stack(
    layer="layers.{i}.",
    outer={"embed": "embed_in", "final_norm": "final_layer_norm"},
    inner={
        "attention_norm": "input_layernorm",
        **inside("attention.", qkv="query_key_value", o="dense"),
        "mlp_norm": "post_attention_layernorm",
        **inside("mlp.", up="dense_h_to_4h", down="dense_4h_to_h"),
    },
    settings={
        **LAYER_NORM,
        **ROTARY,
        "act": word("hidden_act", default="gelu"),
        "qkv": "groups",
        "bias": flag("attention_bias", default=True),
        "mlp_bias": True,
        "parallel": flag("use_parallel_residual", default=True),
        "theta": BASE,
        "rotary_share": SHARE,
    },
    only={"rope_theta": BASE, "partial_rotary_factor": SHARE},
    inert=("is_decoder",),
    ignored=("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"),
    head={"unembed": ("lm_head", "embed_out"), "tied": UNTIED},
)

OPT = Stack(
    layer="decoder.layers.{i}.",
    outer={
        "embed": "decoder.embed_tokens",
        "position": "decoder.embed_positions",
        "embed_project": "decoder.project_in",
        "final_norm": "decoder.final_layer_norm",
        "final_project": "decoder.project_out",
    },
    inner={
        "attention_norm": "self_attn_layer_norm",
        **inside("self_attn.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
        "mlp_norm": "final_layer_norm",
        "up": "fc1",
        "down": "fc2",
    },
    settings={
        "intermediate": count("ffn_dim"),
        "longest": from_keys(lambda longest: longest and longest + 2, count("max_position_embeddings")),
        "norm": "layer",
        "norm_weight": flag("layer_norm_elementwise_affine", default=True),
        "norm_bias": flag("layer_norm_elementwise_affine", default=True),
        "eps": 1e-5,
        "act": word("activation_function", default="relu"),
        "bias": flag("enable_bias", default=True),
        "position_start": 2,
        "embed_width": count("word_embed_proj_dim"),
        "project_first": True,
        "project_bias": False,
    },
    when=(
        When(
            flag("do_layer_norm_before", default=True),
            False,
            {"final_norm": False},
            {"attention_sum_norm": "self_attn_layer_norm", "mlp_sum_norm": "final_layer_norm"},
            ("attention_norm", "mlp_norm"),
        ),
        When(flag("_remove_final_layer_norm"), True, {"final_norm": False}),
    ),
    head=LM_HEAD,
)

WIDTH = count("hidden_size", "n_embed")

BLOOM = Stack(
    layer="h.{i}.",
    outer={"embed": "word_embeddings", "embed_norm": "word_embeddings_layernorm", "final_norm": "ln_f"},
    inner={
        "attention_norm": "input_layernorm",
        **inside("self_attention.", qkv="query_key_value", o="dense"),
        "mlp_norm": "post_attention_layernorm",
        **inside("mlp.", up="dense_h_to_4h", down="dense_4h_to_h"),
    },
    settings={
        **GPT,
        "width": WIDTH,
        "intermediate": from_keys(lambda width: 4 * width, WIDTH),
        "longest": None,
        "act": "gelu_new",
        "qkv": "groups",
        "bias": True,
        "alibi": "slopes",
        "from_norm": flag("apply_residual_connection_post_layernorm"),
    },
    inert=("offset_alibi",),
    head=LM_HEAD,
)

PARALLEL, NEW = flag("parallel_attn", default=True), flag("new_decoder_architecture")
NORMS = count("num_ln_in_parallel_attn")

FALCON = derive_stack(
    BLOOM,
    without=("embed_norm",),
    settings={
        **ROTARY,
        "layers": count("num_hidden_layers", "n_layer"),
        "heads": count("num_attention_heads", "n_head"),
        "longest": count("max_position_embeddings"),
        "act": word("activation", default="gelu"),
        "bias": flag("bias"),
        "intermediate": from_keys(lambda inner, width: inner or 4 * width, count("ffn_hidden_size"), WIDTH),
        "alibi": None,
        "from_norm": False,
        "parallel": PARALLEL,
        "kv_heads": from_keys(lambda one: 1 if one else None, flag("multi_query", default=True)),
    },
    when=(
        When(flag("alibi"), True, {"alibi": "keys", "rotary": False}),
        When(PARALLEL, True, without=("mlp_norm",)),
        When(NEW, True, {"kv_heads": count("num_kv_heads")}),
        When(
            from_keys(lambda new, norms: new and norms in {None, 2}, NEW, NORMS),
            True,
            inner={"attention_norm": "ln_attn", "mlp_norm": "ln_mlp"},
        ),
    ),
    inert=(),
    only={
        "num_ln_in_parallel_attn": from_keys(lambda new, norms: 2 if new and norms != 1 else 1, NEW, NORMS),
        "parallel_attn": from_keys(lambda new, parallel: new or parallel, NEW, PARALLEL),
    },
)

FUSED_BY_HEAD = When(flag("multi_query", default=True), False, {"qkv": "groups", "kv_heads": None})

GPT_BIGCODE = derive_stack(
    GPT2,
    settings={
        "act": word("activation_function", default="gelu_pytorch_tanh"),
        "transposed": False,
        "kv_heads": 1,
        "scale_over_layer": False,
    },
    when=(*GPT2.when, FUSED_BY_HEAD),
    only={
        "num_key_value_heads": from_keys(
            lambda one, heads: 1 if one else heads, FUSED_BY_HEAD.setting, GPT["heads"]
        ),
    },
    inert=("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "attn_pdrop"),
)

GLOBAL = {"global": "full_attention", "local": "sliding_attention"}


def expand_types(parts: list[tuple[list[str], int]]) -> list[str]:
    """The type of each layer, of [[["global", "local"], 12]]."""
    return [GLOBAL.get(name, name) for names, times in parts for _ in range(times) for name in names]


GPT_NEO = derive_stack(
    GPT2,
    inner=inside("attn.attention.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
    without=("qkv",),
    settings={
        "layers": count("num_layers", "num_hidden_layers"),
        "width": count("hidden_size"),
        "heads": count("num_heads", "num_attention_heads"),
        "longest": count("max_position_embeddings"),
        "intermediate": from_keys(
            lambda inner, width: inner or 4 * width, count("intermediate_size"), count("hidden_size")
        ),
        "transposed": False,
        "bias": False,
        "out_bias": True,
        "mlp_bias": True,
        "scale": 1.0,
        "scale_over_layer": False,
        "types": from_keys(
            expand_types, Key(("attention_types",), TYPES_TIMES, [[["global", "local"], 12]])
        ),
        "window": count("window_size", default=256),
    },
    when=(),
    inert=("attention_layers",),
    ignored=("attn.attention.bias", "attn.attention.masked_bias"),
    example={"attention_types": [[["global", "local"], 1]], "window_size": 3},
)

ATTENTION = Key(("attn_config",), PLAIN_ALIBI, {})

MPT = Stack(
    layer="blocks.{i}.",
    outer={"embed": "wte", "final_norm": "norm_f"},
    inner={
        "attention_norm": "norm_1",
        **inside("attn.", qkv="Wqkv", o="out_proj"),
        "mlp_norm": "norm_2",
        **inside("ffn.", up="up_proj", down="down_proj"),
    },
    settings={
        "layers": count("n_layers", "num_hidden_layers"),
        "width": count("d_model", "hidden_size"),
        "heads": count("n_heads", "num_attention_heads"),
        "longest": None,
        "intermediate": from_keys(lambda width: 4 * width, count("d_model", "hidden_size")),
        "norm": "layer",
        "eps": epsilon("layer_norm_epsilon", 1e-5),
        "act": "gelu",
        "qkv": "blocks",
        "alibi": "slopes",
        "scale": from_keys(lambda said: said.get("softmax_scale"), ATTENTION),
    },
    only={"expansion_ratio": 4, "no_bias": True, "embedding_fraction": 1.0},
    inert=(
        *("max_seq_len", "learned_pos_emb", "init_device", "norm_type", "verbose"),
        *("init_config", "tokenizer_name"),
    ),
    head=LM_HEAD,
)

BIOGPT = derive_stack(
    OPT,
    layer="layers.{i}.",
    outer={"embed": "embed_tokens", "position": "embed_positions", "final_norm": "layer_norm"},
    without=("embed_project", "final_project"),
    settings={
        "intermediate": count("intermediate_size"),
        "norm_weight": True,
        "norm_bias": True,
        "act": word("hidden_act", default="gelu"),
        "bias": True,
        "embed_width": None,
        "embed_scale": from_keys(
            lambda scaled, width: width**0.5 if scaled else 1.0,
            flag("scale_embedding", default=True),
            count("hidden_size"),
        ),
    },
    when=(),
    inert=("layer_norm_eps",),
    head={"unembed": ("output_projection",)},
)
