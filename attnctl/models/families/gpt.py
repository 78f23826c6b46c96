"""Decoders of the kind of GPT-2: LayerNorms and networks without a gate."""

from __future__ import annotations

from attnctl.models.family import Stack, When, changed, key

GPT2 = Stack(
    layer="h.{i}.",
    outer={"embed": "wte", "position": "wpe", "final_norm": "ln_f"},
    inner={
        "attention_norm": "ln_1",
        "qkv": "attn.c_attn",
        "o": "attn.c_proj",
        "mlp_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    settings={
        "norm": "layer",
        "norm_bias": True,
        "eps": key("layer_norm_epsilon", default=1e-5),
        "act": key("activation_function", default="gelu_new"),
        "transposed": True,
        "qkv": "blocks",
        "bias": True,
        "gated": False,
        "positions": "plain",
        "scale_over_layer": key("scale_attn_by_inverse_layer_idx", default=False),
    },
    when=(When(key("scale_attn_weights", default=True), False, {"scale": 1.0}),),
    only={"add_cross_attention": (False,)},
    ignored=("attn.bias", "attn.masked_bias"),
)

GPTJ = Stack(
    layer="h.{i}.",
    outer={"embed": "wte", "final_norm": "ln_f"},
    inner={
        "attention_norm": "ln_1",
        "q": "attn.q_proj",
        "k": "attn.k_proj",
        "v": "attn.v_proj",
        "o": "attn.out_proj",
        "up": "mlp.fc_in",
        "down": "mlp.fc_out",
    },
    settings={
        **{name: GPT2.settings[name] for name in ("norm", "norm_bias", "eps", "act", "gated")},
        "mlp_bias": True,
        "parallel": True,
        "rotary": True,
        "interleaved": True,
        "rotary_size": key("rotary_dim", default=64),
    },
    ignored=("attn.bias", "attn.masked_bias"),
)

GPT_NEOX = Stack(
    layer="layers.{i}.",
    outer={"embed": "embed_in", "final_norm": "final_layer_norm"},
    inner={
        "attention_norm": "input_layernorm",
        "qkv": "attention.query_key_value",
        "o": "attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    settings={
        "norm": "layer",
        "norm_bias": True,
        "eps": key("layer_norm_eps", default=1e-5),
        "act": key("hidden_act", default="gelu"),
        "qkv": "groups",
        "bias": key("attention_bias", default=True),
        "mlp_bias": True,
        "gated": False,
        "parallel": key("use_parallel_residual", default=True),
        "rotary": True,
        "theta": key("rotary_emb_base", "rope_theta", default=10000.0),
        "rotary_share": key("rotary_pct", "partial_rotary_factor", default=0.25),
    },
    ignored=("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"),
)

OPT = Stack(
    layer="decoder.layers.{i}.",
    outer={
        "embed": "decoder.embed_tokens",
        "position": "decoder.embed_positions",
        "embed_project": "decoder.project_in",
        "final_norm": "decoder.final_layer_norm",
    },
    inner={
        "attention_norm": "self_attn_layer_norm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.out_proj",
        "mlp_norm": "final_layer_norm",
        "up": "fc1",
        "down": "fc2",
    },
    settings={
        "norm": "layer",
        "norm_weight": key("layer_norm_elementwise_affine", default=True),
        "norm_bias": key("layer_norm_elementwise_affine", default=True),
        "eps": 1e-5,
        "act": key("activation_function", default="relu"),
        "bias": key("enable_bias", default=True),
        "gated": False,
        "positions": "plain",
        "position_start": 2,
        "embed_width": key("word_embed_proj_dim"),
        "project_first": True,
        "project_bias": False,
    },
    when=(
        When(
            key("do_layer_norm_before", default=True),
            False,
            {"final_norm": False},
            {"attention_sum_norm": "self_attn_layer_norm", "mlp_sum_norm": "final_layer_norm"},
            ("attention_norm", "mlp_norm"),
        ),
        When(key("_remove_final_layer_norm", default=False), True, {"final_norm": False}),
    ),
)

BLOOM = Stack(
    layer="h.{i}.",
    outer={"embed": "word_embeddings", "embed_norm": "word_embeddings_layernorm", "final_norm": "ln_f"},
    inner={
        "attention_norm": "input_layernorm",
        "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    settings={
        "width": key("hidden_size", "n_embed"),
        "norm": "layer",
        "norm_bias": True,
        "eps": key("layer_norm_epsilon", default=1e-5),
        "act": "gelu_new",
        "qkv": "groups",
        "bias": True,
        "gated": False,
        "intermediate": None,
        "alibi": "slopes",
        "from_norm": key("apply_residual_connection_post_layernorm", default=False),
    },
)

FALCON = changed(
    BLOOM,
    without=("embed_norm",),
    settings={
        "width": key("hidden_size", "n_embed"),
        "act": key("activation", default="gelu"),
        "bias": key("bias", default=False),
        "intermediate": key("ffn_hidden_size"),
        "alibi": None,
        "from_norm": False,
        "rotary": True,
        "parallel": key("parallel_attn", default=True),
        "kv_heads": lambda c: 1 if key("multi_query", default=True).value(c) else None,
    },
    when=(
        When(key("alibi", default=False), True, {"alibi": "keys", "rotary": False}),
        When(key("parallel_attn", default=True), True, without=("mlp_norm",)),
        When(key("new_decoder_architecture", default=False), True, {"kv_heads": key("num_kv_heads")}),
        When(
            lambda c: (
                key("new_decoder_architecture", default=False).value(c)
                and key("num_ln_in_parallel_attn", default=2).value(c) == 2
            ),
            True,
            inner={"attention_norm": "ln_attn", "mlp_norm": "ln_mlp"},
        ),
    ),
)
