"""Decoders with experts that differ from those of `experts` in their router or in what is shared."""

from __future__ import annotations

from typing import Any

from attnctl.models.families.experts import CORRECTED, FEW, GATED, GRANITEMOE, QWEN3_MOE
from attnctl.models.families.llama import ERNIE4_5, HUNYUAN
from attnctl.models.families.windows import QWEN3_VL
from attnctl.models.family import TIED, When, derive_stack, inside
from attnctl.models.keys import COUNT, COUNT_LIST, INDEX, Key, KeyKind, by_layer, count, flag, from_keys

# --- Hunyuan: every row goes through a shared network, too ---


def is_alike(value: Any) -> bool:
    """True for a size, or a list of one size for every layer."""
    return COUNT.fits(value) or (COUNT_LIST.fits(value) and len({*value}) == 1)


ALIKE = KeyKind("a whole number from 1, or a list of the same one", is_alike)
HUNYUAN_SIZE = count("intermediate_size")

HUNYUAN_MOE = derive_stack(
    HUNYUAN,
    inner={
        **GATED,
        "router": "mlp.gate.wg",
        **inside("mlp.shared_mlp.", shared_gate="gate_proj", shared_up="up_proj", shared_down="down_proj"),
    },
    settings={
        "experts": count("num_experts", "num_local_experts", default=1),
        "chosen": from_keys(
            lambda said: said[0] if isinstance(said, list) else said,
            Key(("moe_topk", "num_experts_per_tok"), ALIKE, 1),
        ),
        "shared_size": HUNYUAN_SIZE,
    },
    # Sizes that its tensors have, or are refused for.
    inert=("moe_intermediate_size", "num_shared_expert"),
    example={"num_experts": 4, "moe_topk": 2},
)

# --- ERNIE 4.5: experts are ranked with a correction, and weighed without it ---

FROM_THE_END = KeyKind("a whole number from -1", lambda value: value == -1 or INDEX.fits(value))
ERNIE_SIZE = count("moe_intermediate_size", default=1536)


def has_experts(layer: int, every: int, first: int, last: int) -> bool:
    """True if a layer of ERNIE 4.5 has experts; the last one that has them is −1 for that of all."""
    is_within = first <= layer and (last == -1 or layer <= last)
    return is_within and (layer + 1) % every == 0


ERNIE4_5_MOE = derive_stack(
    ERNIE4_5,
    inner={**CORRECTED, "router_correction": "mlp.moe_statics.e_score_correction_bias!"},
    settings={
        "kv_heads": count("num_key_value_heads", default=4, nullable=True),
        "d_k": count("head_dim"),
        "experts": count("moe_num_experts", "num_experts", "num_local_experts", default=64),
        "chosen": count("moe_k", "num_experts_per_tok", default=6),
        "expert_size": ERNIE_SIZE,
        "shared_size": from_keys(
            lambda size, shared: size * shared,
            ERNIE_SIZE,
            count("moe_num_shared_experts", default=2, kind=INDEX),
        ),
        "expert_layer": by_layer(
            has_experts,
            count("moe_layer_interval", default=1),
            count("moe_layer_start_index", default=1, kind=INDEX),
            Key(("moe_layer_end_index",), FROM_THE_END, -1),
        ),
    },
    when=(
        When(
            count("moe_num_shared_experts", default=2, kind=INDEX),
            0,
            without=("shared_gate", "shared_up", "shared_down"),
        ),
    ),
    only={"moe_norm_min": 1e-12},
    head={"bias": from_keys(lambda there: ("lm_head.bias",) if there else (), flag("use_bias"))},
    example={"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 8},
)

# --- Qwen3-VL's text: experts all in one tensor ---

QWEN3_VL_MOE = derive_stack(
    QWEN3_MOE,
    inner=inside("mlp.experts.", experts_gate_up="gate_up_proj!", experts_down="down_proj!"),
    settings={
        "kv_heads": count("num_key_value_heads", default=16),
        "window": None,
        "theta": QWEN3_VL.settings["theta"],
        "rope_kinds": QWEN3_VL.settings["rope_kinds"],
        "experts": count("num_experts", "num_local_experts", default=60),
        "expert_size": count("moe_intermediate_size", default=1408),
        "chosen": count("num_experts_per_tok", default=4),
        "router_normalized": True,
        "experts_transposed": "by shape",
    },
    without=("expert_gate", "expert_up", "expert_down"),
    only={"norm_topk_prob": True},
    inert=(),
    example={**FEW, "num_experts": 4, **QWEN3_VL.example},
    head={"tied": TIED},
)

# --- Granite: a shared network beside the experts ---

SHARED_SIZE = count("shared_intermediate_size", default=0, kind=INDEX)
SHARED_OF_GRANITE = inside("shared_mlp.", shared_gate_up="input_linear", shared_down="output_linear")

GRANITEMOESHARED = derive_stack(
    GRANITEMOE,
    inner=SHARED_OF_GRANITE,
    settings={"shared_size": SHARED_SIZE},
    when=(When(SHARED_SIZE, 0, without=tuple(SHARED_OF_GRANITE)),),
    example={"num_local_experts": 4, "shared_intermediate_size": 12},
)
