"""The families of models: an entry each, a table of where things are and what they are called.

To add one: its names of tensors and, of `attnctl.models.family.DEFAULTS`, the settings in which it
differs. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

from attnctl.models.family import Config, Stack, When, always, key
from attnctl.models.rope import mscaled

# --- encoders with norms after the sums ---

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


def changed(stack: Stack, *, without: tuple[str, ...] = (), **changes: Any) -> Stack:
    """A stack with other entries, and without these tensors; mappings are laid over its own."""
    entries: dict[str, Any] = {
        name: {**getattr(stack, name), **value} if isinstance(value, dict) else value
        for name, value in {"inner": {}, "outer": {}, **changes}.items()
    }
    for name in ("inner", "outer"):
        entries[name] = {use: each for use, each in entries[name].items() if use not in without}
    return replace(stack, **entries)


def on_even_layers(config: Config, layer: int) -> bool:
    """Layers 0, 2, 4, …"""
    return layer % 2 == 0


def nullable(name: str, default: Any) -> Callable[[Config], Any]:
    """A key of config.json whose null says that there is none."""
    return lambda config: config.get(name, default)


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

# --- decoders of the kind of GPT-2 ---

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

# --- decoders of the kind of Llama ---

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

LAYER_NORM = {"norm": "layer", "norm_bias": True, "eps": key("layer_norm_eps", default=1e-5)}
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

MIXTRAL = changed(
    MISTRAL,
    inner={
        "router": "block_sparse_moe.gate",
        "expert_gate": "block_sparse_moe.experts.{e}.w1",
        "expert_up": "block_sparse_moe.experts.{e}.w3",
        "expert_down": "block_sparse_moe.experts.{e}.w2",
    },
    settings={
        "eps": key("rms_norm_eps", default=1e-5),
        "window": key("sliding_window"),
        "experts": key("num_local_experts", default=8),
        "theta": key("rope_theta", default=1e6),
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

QWEN3_MOE = changed(
    QWEN3,
    inner={
        "router": "mlp.gate",
        "expert_gate": "mlp.experts.{e}.gate_proj",
        "expert_up": "mlp.experts.{e}.up_proj",
        "expert_down": "mlp.experts.{e}.down_proj",
    },
    settings={
        "d_k": key("head_dim"),
        "kv_heads": key("num_key_value_heads", default=4),
        "sliding": always,
        "experts": key("num_experts", "num_local_experts", default=128),
        "expert_size": key("moe_intermediate_size", default=768),
        "expert_layer": lambda c, i: (
            i not in (c.get("mlp_only_layers") or ())
            and (i + 1) % key("decoder_sparse_step", default=1).value(c) == 0
        ),
        "chosen": key("num_experts_per_tok", default=8),
        "router_normalized": key("norm_topk_prob", default=False),
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

GPT_OSS = changed(
    LLAMA,
    inner={
        "sink": "self_attn.sinks!",
        "router": "mlp.router",
        "experts_gate_up": "mlp.experts.gate_up_proj!",
        "experts_gate_up_bias": "mlp.experts.gate_up_proj_bias!",
        "experts_down": "mlp.experts.down_proj!",
        "experts_down_bias": "mlp.experts.down_proj_bias!",
    },
    settings={
        "eps": key("rms_norm_eps", default=1e-5),
        "bias": key("attention_bias", default=True),
        "d_k": key("head_dim", default=64),
        "kv_heads": key("num_key_value_heads", default=8),
        "window": nullable("sliding_window", 128),
        "sliding": on_even_layers,
        "theta": key("rope_theta", default=150000.0),
        "sink": True,
        "experts": key("num_local_experts", "num_experts", default=128),
        "chosen": key("num_experts_per_tok", "experts_per_token", default=4),
        "router": "chosen",
        "router_bias": True,
        "gate_up": "interleaved",
        "clamp": lambda c: (
            key("swiglu_alpha", default=1.702).value(c),
            key("swiglu_limit", default=7.0).value(c),
        ),
    },
)


def deepseek_scale(config: Config) -> float:
    """1/√d_k, grown where YaRN stretches positions."""
    size = key("qk_nope_head_dim", default=128).value(config) + key("qk_rope_head_dim", default=64).value(
        config
    )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    mscale = rope.get("mscale_all_dim")
    if kind == "default" or not mscale:
        return float(size**-0.5)
    return float(size**-0.5 * mscaled(rope.get("factor") or 1.0, mscale) ** 2)


DEEPSEEK_V3 = changed(
    QWEN3_MOE,
    inner={
        "latent_q": "self_attn.q_a_proj",
        "latent_q_norm": "self_attn.q_a_layernorm",
        "q": "self_attn.q_b_proj",
        "latent_kv": "self_attn.kv_a_proj_with_mqa",
        "latent_kv_norm": "self_attn.kv_a_layernorm",
        "kv": "self_attn.kv_b_proj",
        "router_correction": "mlp.gate.e_score_correction_bias!",
        "shared_gate": "mlp.shared_experts.gate_proj",
        "shared_up": "mlp.shared_experts.up_proj",
        "shared_down": "mlp.shared_experts.down_proj",
    },
    settings={
        "kv_heads": None,
        "d_k": lambda c: (
            key("qk_nope_head_dim", default=128).value(c) + key("qk_rope_head_dim", default=64).value(c)
        ),
        "d_v": key("v_head_dim", default=128),
        "rank": lambda c: c.get("q_lora_rank", 1536),
        "kv_rank": key("kv_lora_rank", default=512),
        "d_rope": key("qk_rope_head_dim", default=64),
        "qk_norm": None,
        "scale": deepseek_scale,
        "interleaved": key("rope_interleave", default=True),
        "rotary_share": 1.0,
        "window": None,
        "experts": key("n_routed_experts", "num_local_experts", default=256),
        "expert_size": key("moe_intermediate_size", default=2048),
        "expert_layer": lambda c, i: i >= key("first_k_dense_replace", default=3).value(c),
        "router": "sigmoid",
        "router_normalized": key("norm_topk_prob", default=True),
        "router_scale": key("routed_scaling_factor", default=2.5),
        "groups": key("n_group", default=8),
        "chosen_groups": key("topk_group", default=4),
    },
    without=("k", "v", "q_norm", "k_norm"),
    when=(
        When(
            lambda c: c.get("q_lora_rank", 1536),
            None,
            {},
            {"q": "self_attn.q_proj"},
            ("latent_q", "latent_q_norm"),
        ),
    ),
)

# --- encoders and decoders ---


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

# --- images, and texts beside them ---

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

FAMILIES: dict[str, dict[str, Stack]] = {
    "bert": {"": BERT},
    "roberta": {"": ROBERTA},
    "xlm-roberta": {"": ROBERTA},
    "camembert": {"": ROBERTA},
    "electra": {"": ELECTRA},
    "distilbert": {"": DISTILBERT},
    "albert": {"": ALBERT},
    "modernbert": {"": MODERNBERT},
    "gpt2": {"": GPT2},
    "gptj": {"": GPTJ},
    "gpt_neox": {"": GPT_NEOX},
    "opt": {"": OPT},
    "bloom": {"": BLOOM},
    "falcon": {"": FALCON},
    "llama": {"": LLAMA},
    "mistral": {"": MISTRAL},
    "mixtral": {"": MIXTRAL},
    "qwen2": {"": QWEN2},
    "qwen3": {"": QWEN3},
    "qwen3_moe": {"": QWEN3_MOE},
    "gemma": {"": GEMMA},
    "gemma2": {"": GEMMA2},
    "gemma3_text": {"": GEMMA3},
    "gemma3": {"": changed(GEMMA3, section="text_config", within="language_model.")},
    "hunyuan_v1_dense": {"": HUNYUAN},
    "phi": {"": PHI},
    "phi3": {"": PHI3},
    "olmo2": {"": OLMO2},
    "cohere": {"": COHERE},
    "stablelm": {"": STABLELM},
    "starcoder2": {"": STARCODER2},
    "granite": {"": GRANITE},
    "smollm3": {"": SMOLLM3},
    "gpt_oss": {"": GPT_OSS},
    "deepseek_v3": {"": DEEPSEEK_V3},
    "t5": {"": T5_ENCODER, "decoder": T5_DECODER},
    "mt5": {"": T5_ENCODER, "decoder": T5_DECODER},
    "whisper": {"": WHISPER_ENCODER, "decoder": WHISPER_DECODER},
    "vit": {"": VIT},
    "clip_text_model": {"": CLIP_TEXT},
    "clip_vision_model": {"": CLIP_VISION},
    "clip": {
        "": changed(CLIP_TEXT, section="text_config", within="text_model."),
        "vision": changed(CLIP_VISION, section="vision_config", within="vision_model."),
    },
}
"""Every model_type, with its stacks of layers by name; the one without a name comes first."""
