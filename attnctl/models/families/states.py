"""Decoders whose layers carry a state, but for every fourth, which attends and is gated."""

from __future__ import annotations

from attnctl.models.families.experts import FEW, QWEN3_MOE, SWITCHED
from attnctl.models.families.llama import HEAD_NORMS, PLAIN
from attnctl.models.families.windows import QWEN2_VL
from attnctl.models.family import TYPES, Names, always, derive_stack, inside
from attnctl.models.keys import by_layer, count, flag, from_keys, real

STATEFUL = {
    **TYPES,
    "linear": by_layer(
        lambda layer, every: (layer + 1) % every != 0, count("full_attention_interval", default=4)
    ),
    "delta": from_keys(
        lambda *sizes: sizes,
        count("linear_conv_kernel_dim", default=4),
        count("linear_num_key_heads", default=16),
        count("linear_num_value_heads", default=32),
        count("linear_key_head_dim", default=128),
        count("linear_value_head_dim", default=128),
    ),
    "gated_q": True,
    "plus_one": True,
    "d_k": count("head_dim", default=256),
    "rotary_share": real("partial_rotary_factor", default=0.25),
    "window": None,
    "sliding": always,
}
"""The settings of Qwen's models whose layers carry a state, but for every fourth, which is gated."""

UNDER = "linear_attn."
STATE: Names = {
    **inside(UNDER, delta_conv="conv1d", delta_norm="norm", delta_o="out_proj"),
    **inside(UNDER, delta_decay="A_log!", delta_step="dt_bias!"),
}
IN_TWO = inside(UNDER, delta_qkvz="in_proj_qkvz", delta_ba="in_proj_ba")
IN_FOUR = inside(
    UNDER, delta_qkv="in_proj_qkv", delta_z="in_proj_z", delta_b="in_proj_b", delta_a="in_proj_a"
)
TINY_STATE = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
    "full_attention_interval": 2,
    "head_dim": 8,
}

QWEN3_NEXT = derive_stack(
    QWEN3_MOE,
    inner={**SWITCHED, **STATE, **IN_TWO, "shared_switch": "mlp.shared_expert_gate"},
    settings={
        **STATEFUL,
        "kv_heads": count("num_key_value_heads", default=2),
        "experts": count("num_experts", "num_local_experts", default=512),
        "chosen": count("num_experts_per_tok", default=10),
        "router_normalized": flag("norm_topk_prob", default=True),
        "expert_size": count("moe_intermediate_size", default=512),
        "shared_size": count("shared_expert_intermediate_size", default=512),
    },
    inert=(),
    example={**FEW, **TINY_STATE, "num_experts": 4}
    | {"shared_expert_intermediate_size": 6, "linear_key_head_dim": 6},
)

QWEN3_5 = derive_stack(
    PLAIN,
    inner={**HEAD_NORMS, **STATE, **IN_FOUR},
    settings={
        **STATEFUL,
        "kv_heads": count("num_key_value_heads", default=4),
        "rope_kinds": QWEN2_VL.settings["rope_kinds"],
    },
    only={"attn_output_gate": True, "output_gate_type": "swish", "mamba_ssm_dtype": "float32"},
    inert=("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"),  # of layers that guess further ahead
    example=TINY_STATE,
)

QWEN3_5_MOE = derive_stack(
    QWEN3_NEXT,
    inner={**IN_FOUR, **inside("mlp.experts.", experts_gate_up="gate_up_proj!", experts_down="down_proj!")},
    without=tuple(IN_TWO),
    settings={
        "rope_kinds": QWEN3_5.settings["rope_kinds"],
        "intermediate": QWEN3_NEXT.settings["expert_size"],
        "experts": count("num_experts", default=256),
        "expert_layer": always,
        "chosen": count("num_experts_per_tok", default=8),
        "router_normalized": True,
    },
    only=QWEN3_5.only,
    inert=QWEN3_5.inert,
)
