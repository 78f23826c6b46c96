"""Encoders: BERT and its kin, ModernBERT, and those of images."""

from __future__ import annotations

from attnctl.models.family import LAYER_NORM, Stack, changed, key

BERT = Stack(
    layer="encoder.layer.{i}.",
    outer={
        "embed": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "segment": "embeddings.token_type_embeddings",
        "embed_norm": "embeddings.LayerNorm",
    },
    inner={
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "attention_sum_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "mlp_sum_norm": "output.LayerNorm",
    },
    settings={
        "norm": "layer",
        "norm_bias": True,
        "eps": key("layer_norm_eps", default=1e-12),
        "act": key("hidden_act", default="gelu"),
        "bias": True,
        "gated": False,
        "positions": "plain",
        "causal": key("is_decoder", default=False),
        "final_norm": False,
    },
    only={"position_embedding_type": ("absolute",), "add_cross_attention": (False,)},
)


ROBERTA = changed(
    BERT,
    settings={
        "positions": "after_pad",
        "position_start": lambda c: key("pad_token_id", default=1).value(c) + 1,
    },
)

ELECTRA = changed(
    BERT, outer={"embed_project": "embeddings_project"}, settings={"embed_width": key("embedding_size")}
)

DISTILBERT = Stack(
    layer="transformer.layer.{i}.",
    outer={name: BERT.outer[name] for name in ("embed", "position", "embed_norm")},
    inner={
        "q": "attention.q_lin",
        "k": "attention.k_lin",
        "v": "attention.v_lin",
        "o": "attention.out_lin",
        "attention_sum_norm": "sa_layer_norm",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
        "mlp_sum_norm": "output_layer_norm",
    },
    settings={**BERT.settings, "eps": 1e-12, "act": key("activation", default="gelu"), "causal": False},
)

ALBERT = changed(
    BERT,
    layer="encoder.albert_layer_groups.{i}.albert_layers.0.",
    outer={"embed_project": "encoder.embedding_hidden_mapping_in"},
    inner={
        "q": "attention.query",
        "k": "attention.key",
        "v": "attention.value",
        "o": "attention.dense",
        "attention_sum_norm": "attention.LayerNorm",
        "up": "ffn",
        "down": "ffn_output",
        "mlp_sum_norm": "full_layer_layer_norm",
    },
    settings={
        "act": key("hidden_act", default="gelu_new"),
        "causal": False,
        "embed_width": key("embedding_size", default=128),
        "project": True,
        "shared_groups": key("num_hidden_groups", default=1),
    },
    only={"inner_group_num": (1,)},
)

MODERNBERT = Stack(
    layer="layers.{i}.",
    outer={
        "embed": "embeddings.tok_embeddings",
        "embed_norm": "embeddings.norm",
        "final_norm": "final_norm",
    },
    inner={
        "attention_norm": "attn_norm",
        "qkv": "attn.Wqkv",
        "o": "attn.Wo",
        "mlp_norm": "mlp_norm",
        "gate_up": "mlp.Wi",
        "down": "mlp.Wo",
    },
    settings={
        "norm": "layer",
        "norm_bias": key("norm_bias", default=False),
        "eps": key("norm_eps", default=1e-5),
        "first_norm": False,
        "act": key("hidden_activation", default="gelu"),
        "qkv": "blocks",
        "bias": key("attention_bias", default=False),
        "mlp_bias": key("mlp_bias", default=False),
        "causal": False,
        "window": lambda c: (
            key("sliding_window", default=key("local_attention", default=128).value(c) // 2).value(c) + 1
        ),
        "both_ways": True,
        "sliding": lambda c, i: i % key("global_attn_every_n_layers", default=3).value(c) != 0,
        "rotary": True,
        "theta": key("global_rope_theta", default=160000.0),
        "local_theta": key("local_rope_theta", default=10000.0),
        "d_k": None,
    },
)


VIT = Stack(
    layer="encoder.layer.{i}.",
    inner={
        "attention_norm": "layernorm_before",
        "q": "attention.attention.query",
        "k": "attention.attention.key",
        "v": "attention.attention.value",
        "o": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "up": "intermediate.dense",
        "down": "output.dense",
    },
    settings={
        **LAYER_NORM,
        "eps": key("layer_norm_eps", default=1e-12),
        "act": key("hidden_act", default="gelu"),
        "bias": key("qkv_bias", default=True),
        "out_bias": True,
        "mlp_bias": True,
        "gated": False,
        "causal": False,
        "final_norm": False,  # it belongs to what is pooled
    },
)

CLIP_VISION = changed(
    VIT,
    layer="encoder.layers.{i}.",
    inner={
        "attention_norm": "layer_norm1",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.out_proj",
        "mlp_norm": "layer_norm2",
        "up": "mlp.fc1",
        "down": "mlp.fc2",
    },
    settings={
        "eps": key("layer_norm_eps", default=1e-5),
        "act": key("hidden_act", default="quick_gelu"),
        "bias": True,
    },
)

CLIP_TEXT = changed(
    CLIP_VISION,
    outer={
        "embed": "embeddings.token_embedding",
        "position": "embeddings.position_embedding",
    },
    settings={"causal": True, "positions": "plain"},
)
