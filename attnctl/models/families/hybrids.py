"""Decoders most of whose layers mix tokens without attending: by a state space, or a short convolution."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

from attnctl.models.families.llama import LLAMA, PLAIN
from attnctl.models.families.mixtures import GRANITEMOESHARED
from attnctl.models.family import FLAG_OF_TIES, TYPES, Names, When, always, derive_stack, inside, never
from attnctl.models.keys import (
    COUNT,
    FLAG,
    INDEX,
    INDICES,
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

# --- Mamba 2: Granite 4 and Bamba ---

MAMBA: Names = {
    **inside("mamba.", ssm_in="in_proj", ssm_conv="conv1d", ssm_norm="norm", ssm_o="out_proj"),
    **inside("mamba.", ssm_decay="A_log!", ssm_step="dt_bias!", ssm_skip="D!"),
}

AUTO = KeyKind(f"{COUNT.expected}, or auto", lambda value: value == "auto" or COUNT.fits(value))
INFINITE = float("inf"), {"__float__": "Infinity"}
UNLIMITED = KeyKind("[0, Infinity]", lambda value: value in [[0, most] for most in INFINITE])
STEP_LIMIT = {"time_step_limit": Key(("time_step_limit",), UNLIMITED)}
"""How long a token may last: no file limits it."""


def state_sizes(
    kernel: int, heads: int, columns: int | str, groups: int, numbers: int, width: int, times: int
) -> tuple[int, ...]:
    """The setting `state_space`; its heads are so many times as wide as the rows."""
    inner = width * times
    each = inner // heads if columns == "auto" else columns
    if heads * int(each) != inner:
        raise ValueError(f"mamba_n_heads: {heads} heads of {each} columns are not {inner}")
    return kernel, heads, int(each), groups, numbers


STATE_SPACE: dict[str, Setting] = {
    "state_space": from_keys(
        state_sizes,
        count("mamba_d_conv", default=4),
        count("mamba_n_heads", default=128),
        Key(("mamba_d_head",), AUTO, "auto"),
        count("mamba_n_groups", default=1),
        count("mamba_d_state", default=256),
        count("hidden_size"),
        count("mamba_expand", default=2),
    ),
    "conv_bias": flag("mamba_conv_bias", default=True),
}
TINY_STATE = {"mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3}

GRANITE_EXPERTS = count("num_local_experts", default=8, kind=INDEX)
DENSE = inside("shared_mlp.", gate_up="input_linear", down="output_linear")
ROUTED = ("router", "experts_gate_up", "experts_down", "shared_gate_up", "shared_down")
SHARED_SIZE = count("shared_intermediate_size", default=1024)

GRANITEMOEHYBRID = derive_stack(
    GRANITEMOESHARED,
    inner={**MAMBA, **DENSE},
    settings={
        **STATE_SPACE,
        "types": Key(("layer_types", "layers_block_type"), TEXTS),
        "linear": always,
        "rotary": from_keys(lambda kind: kind == "rope", word("position_embedding_type")),
        "experts": from_keys(lambda experts: experts or None, GRANITE_EXPERTS),
        "intermediate": SHARED_SIZE,
        "shared_size": SHARED_SIZE,
        "expert_size": count("intermediate_size", default=11008),
    },
    without=("gate", "up"),
    when=(When(GRANITE_EXPERTS, 0, without=ROUTED),),
    only={**STEP_LIMIT, "mamba_proj_bias": False, "normalization_function": "rmsnorm"},
    inert=("mamba_chunk_size", "init_method"),
    example={**TINY_STATE, "num_local_experts": 4, "shared_intermediate_size": 12}
    | {"layer_types": ["mamba", "attention"], "position_embedding_type": "rope", "intermediate_size": 24},
)
"""Granite 4: experts and a network that all rows share, or that network alone."""

ATTENDING = Key(("attn_layer_indices",), INDICES, ())

BAMBA = derive_stack(
    LLAMA,
    outer={"final_norm": "final_layernorm"},
    inner={
        **MAMBA,
        "mlp_norm": "pre_ff_layernorm",
        **inside("feed_forward.", gate="gate_proj", up="up_proj", down="down_proj"),
    },
    settings={
        **STATE_SPACE,
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "linear": by_layer(lambda layer, attending: layer not in attending, ATTENDING),
        "rotary_share": 0.5,
    },
    only={**STEP_LIMIT, "mamba_proj_bias": False},
    inert=("mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"),
    example={**TINY_STATE, "attn_layer_indices": [1], "head_dim": 4},
)

# --- a mixer or a network in each layer: Nemotron-H ---

BLOCKS = Key(("layers_block_type", "layer_types"), TEXTS)
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
PATTERN = Key(
    ("hybrid_override_pattern",),
    KeyKind(
        "a text of M, *, - and E, a letter for each layer",
        lambda value: isinstance(value, str) and bool(value) and {*value} <= {*LETTERS},
    ),
)


def types_of_blocks(types: Sequence[str] | None, pattern: str | None) -> Sequence[str] | None:
    """What each layer is, by the list or by the letters."""
    if types is not None or pattern is None:
        return types
    return [LETTERS[letter] for letter in pattern]


def count_blocks(types: Sequence[str] | None, pattern: str | None) -> int | None:
    blocks = types_of_blocks(types, pattern)
    return len(blocks) if blocks else None


def is_routed(layer: int, types: Sequence[str] | None, pattern: str | None) -> bool:
    blocks = types_of_blocks(types, pattern)
    return blocks is not None and blocks[layer] == "moe"


NEMOTRON_D_K = count("head_dim", default=128)
LATENT = count("moe_latent_size")
NEMOTRON_EPS = epsilon("layer_norm_epsilon", 1e-5)

NEMOTRON_H = derive_stack(
    PLAIN,
    outer={"embed": "embeddings", "final_norm": "norm_f"},
    inner={
        "attention_norm": "norm",
        **{use: name.replace("mamba.", "mixer.") for use, name in MAMBA.items()},
        **inside("mixer.", q="q_proj", k="k_proj", v="v_proj", o="o_proj"),
        **inside("mixer.", up="up_proj", down="down_proj"),
        **inside("mixer.", router="gate", router_correction="gate.e_score_correction_bias!"),
        **inside("mixer.experts.{e}.", expert_up="up_proj", expert_down="down_proj"),
        **inside("mixer.", experts_into="fc1_latent_proj", experts_out_of="fc2_latent_proj"),
        **inside("mixer.shared_experts.", shared_up="up_proj", shared_down="down_proj"),
    },
    settings={
        "rotary": False,
        "rope": None,
        "original": None,
        "theta": 10000.0,
        "types": from_keys(types_of_blocks, BLOCKS, PATTERN),
        "one_part": True,
        "layers": from_keys(count_blocks, BLOCKS, PATTERN),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "d_k": NEMOTRON_D_K,
        "eps": NEMOTRON_EPS,
        "bias": False,
        "act": word("mlp_hidden_act", default="relu2"),
        "mlp_bias": flag("mlp_bias"),
        "state_space": from_keys(
            lambda *sizes: sizes,
            count("conv_kernel", "mamba_d_conv", default=4),
            count("mamba_num_heads", default=128),
            count("mamba_head_dim", default=64),
            count("n_groups", "mamba_n_groups", default=8),
            count("ssm_state_size", default=128),
        ),
        "state_act": word("mamba_hidden_act", default="silu"),
        "conv_bias": Key(("use_conv_bias", "mamba_conv_bias"), FLAG, default=True),
        "intermediate": count("intermediate_size", default=21504),
        "experts": count("n_routed_experts", "num_local_experts", default=8),
        "expert_width": LATENT,
        "expert_size": count("moe_intermediate_size", default=7688),
        "shared_size": count("moe_shared_expert_intermediate_size", default=7688),
        "expert_layer": by_layer(is_routed, BLOCKS, PATTERN),
        "chosen": count("num_experts_per_tok", default=2),
        "router": "sigmoid",
        "router_normalized": flag("norm_topk_prob", default=True),
        "router_scale": real("routed_scaling_factor", default=1.0),
        "groups": count("n_group", default=1),
        "chosen_groups": count("topk_group", default=1),
    },
    without=("gate", "mlp_norm"),
    when=(When(LATENT, None, without=("experts_into", "experts_out_of")),),
    only={
        **STEP_LIMIT,
        **dict.fromkeys(("attention_bias", "use_bias", "mamba_proj_bias"), False),
        "attention_head_dim": NEMOTRON_D_K,
        **dict.fromkeys(("rms_norm_eps", "norm_eps"), NEMOTRON_EPS),
    },
    inert=(
        *("num_hidden_layers", "rope_theta", "partial_rotary_factor", "sliding_window", "n_shared_experts"),
        *("use_mamba_kernels", "mamba_ssm_cache_dtype", "chunk_size", "mamba_chunk_size", "expand"),
        *("time_step_min", "time_step_max", "time_step_floor", "time_step_rank", "num_logits_to_keep"),
        *("residual_in_fp32", "rescale_prenorm_residual", "moe_shared_expert_overlap"),
        *("num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern"),
    ),
    example={
        "hybrid_override_pattern": "ME*-",
        **dict.fromkeys(("mamba_num_heads", "mamba_head_dim", "n_routed_experts"), 4),
        "n_groups": 2,
        "ssm_state_size": 6,
        "conv_kernel": 3,
        "moe_intermediate_size": 8,
        "moe_shared_expert_intermediate_size": 12,
    },
)
"""A layer is a state space, an attention without positions, a network or experts, and nothing besides."""

# --- a convolution: LFM2 ---


def adjusted(size: int, is_adjusted: bool, factor: float | None, multiple: int) -> int:
    """The size of the network: two thirds of what is said, up to a multiple."""
    if not is_adjusted:
        return size
    size = int(2 * size / 3)
    if factor is None:
        return size
    return -(-int(factor * size) // multiple) * multiple


def is_convolution(layer: int, attending: Sequence[int] | None) -> bool:
    return attending is not None and layer not in attending


LFM2 = derive_stack(
    PLAIN,
    outer={"final_norm": "embedding_norm"},
    inner={
        **inside("conv.", conv_in="in_proj", conv="conv", conv_o="out_proj"),
        **inside("self_attn.", o="out_proj", q_norm="q_layernorm", k_norm="k_layernorm"),
        **inside("", attention_norm="operator_norm", mlp_norm="ffn_norm"),
        **inside("feed_forward.", gate="w1", up="w3", down="w2"),
    },
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=8),
        "act": "silu",
        "eps": epsilon("norm_eps", 1e-5),
        "bias": False,
        "theta": real("rope_theta", default=1e6),
        "convolution": count("conv_L_cache", default=3),
        "conv_bias": flag("conv_bias"),
        "linear": by_layer(is_convolution, Key(("full_attn_idxs",), INDICES)),
        "intermediate": from_keys(
            adjusted,
            count("block_ff_dim", "intermediate_size", default=12288),
            flag("block_auto_adjust_ff_dim", default=True),
            real("block_ffn_dim_multiplier", default=1.0, nullable=True),
            count("block_multiple_of", default=256),
        ),
    },
    head={"tied": FLAG_OF_TIES},
    example={"conv_L_cache": 3, "layer_types": ["conv", "full_attention"], "head_dim": 4},
)

LFM2_MOE = derive_stack(
    LFM2,
    inner={
        "router": "feed_forward.gate",
        "router_correction": "feed_forward.expert_bias!",
        **inside("feed_forward.experts.{e}.", expert_gate="w1", expert_up="w3", expert_down="w2"),
    },
    settings={
        "intermediate": count("intermediate_size", default=7168),
        "linear": never,
        "experts": count("num_experts", "num_local_experts", default=32),
        "expert_size": count("moe_intermediate_size", default=1792),
        "expert_layer": by_layer(ge, count("num_dense_layers", default=2, kind=INDEX)),
        "chosen": count("num_experts_per_tok", default=4),
        "router": "sigmoid",
        "router_normalized": flag("norm_topk_prob", default=True),
        "router_least": 1e-6,
        "router_scale": real("routed_scaling_factor", default=1.0),
    },
    only={"use_expert_bias": True},
    example={"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    | {"num_dense_layers": 1, "intermediate_size": 24},
)
