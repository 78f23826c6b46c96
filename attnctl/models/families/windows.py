"""Decoders of the kind of Llama whose layers differ: windows, positions, sizes, and whose K they read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from operator import floordiv, ge
from statistics import NormalDist
from typing import Any

from attnctl.math.kind import Temperature
from attnctl.models.families.llama import COHERE, GEMMA2, GEMMA3, OLMO2, PLAIN, QWEN2, QWEN3
from attnctl.models.family import ROPE_BY_TYPE, ROTARY, TYPES, When, always, derive_stack, inside
from attnctl.models.keys import (
    BY_TYPE,
    COUNT,
    COUNTS,
    INDEX,
    SHARES,
    TABLE,
    Key,
    KeyKind,
    by_layer,
    count,
    epsilon,
    flag,
    from_keys,
    real,
)
from attnctl.models.rope import ORIGINAL, PROPORTIONAL, TEMPERED, USUAL

WINDOW = count("sliding_window", default=4096)
WIDE = count("hidden_size", default=8192)
SHARE_OF_WIDTH = from_keys(floordiv, WIDE, count("num_attention_heads", default=64))

IN_TURN = by_layer(
    lambda layer, every: (layer + 1) % every != 0, count("sliding_window_pattern", default=4)
)
"""A full layer after so many with a window."""

COHERE2 = derive_stack(
    COHERE,
    settings={
        **TYPES,
        "window": WINDOW,
        "sliding": IN_TURN,
        "rotated_in_full": False,
        "theta": real("rope_theta", default=10000.0),
        "d_k": None,
    },
    when=(),
    only={"head_dim": SHARE_OF_WIDTH},
    example={"sliding_window": 3, "sliding_window_pattern": 2},
)

OLMO3 = derive_stack(
    OLMO2,
    settings={
        **TYPES,
        **ROPE_BY_TYPE,
        "window": WINDOW,
        "sliding": lambda layer: (layer + 1) % 4 != 0,
        "rope_in_windows": False,
        "theta": real("rope_theta", default=500000.0),
        "local_theta": 500000.0,
    },
    example={"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
)

EXAONE_WINDOW = count("sliding_window", default=4096, nullable=True)

PATTERN = Key(
    ("sliding_window_pattern",),
    KeyKind(f"{COUNT.expected}, or LLLG", lambda value: COUNT.fits(value) or is_window_word(value)),
    default=4,
)
"""How many layers there are to a full one, or a letter for each of them: L has a window, G has none."""


def is_window_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"L{1,99}G", value) is not None


def slides_in_turn(layer: int, pattern: int | str) -> bool:
    every = len(pattern) if isinstance(pattern, str) else pattern
    return (layer + 1) % every != 0


EXAONE4 = derive_stack(
    OLMO2,
    settings={
        **TYPES,
        "qk_norm": "row",
        "bias": False,
        "window": EXAONE_WINDOW,
        "sliding": by_layer(slides_in_turn, PATTERN),
        "rotated_in_full": from_keys(lambda window: window is None, EXAONE_WINDOW),
    },
    example={"sliding_window": 3, "sliding_window_pattern": 2},
)

MINISTRAL = derive_stack(
    PLAIN,
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "bias": False,
        "window": EXAONE_WINDOW,
    },
    example={"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
)

MINISTRAL_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "max_position_embeddings": 262144,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}

MINISTRAL_ROPE = replace(ROTARY["rope"], default=MINISTRAL_YARN)


def temperature_in(rope: Mapping[str, Any]) -> Temperature | None:
    """Mistral's temperature, which stands among the parameters of the rotation."""
    beta, every = rope.get("llama_4_scaling_beta"), rope.get(ORIGINAL)
    return None if beta is None or every is None else (beta, every)


MINISTRAL3 = derive_stack(
    PLAIN,
    settings={
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": False,
        "rope": MINISTRAL_ROPE,
        "original": None,
        "rope_kinds": {"yarn": TEMPERED},
        "temperature": from_keys(temperature_in, MINISTRAL_ROPE),
        "window": count("sliding_window"),
    },
    example={"rope_parameters": {**MINISTRAL_YARN, ORIGINAL: 3, "factor": 2.0}},
)

CWM_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

CWM = derive_stack(
    PLAIN,
    settings={
        **TYPES,
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": False,
        "rope": replace(ROTARY["rope"], default=CWM_ROPE),
        "theta": real("rope_theta", default=1e6),
        "window": count("sliding_window", default=8192),
        "sliding": lambda layer: layer % 4 != 0,
    },
    only={"mlp_bias": False},
    example={"sliding_window": 3},
)

VAULTGEMMA = derive_stack(
    GEMMA2, without=("attention_out_norm", "mlp_out_norm"), example={"sliding_window": 3}
)

QWEN2_VL = derive_stack(
    QWEN2,
    settings={
        "width": WIDE,
        "layers": count("num_hidden_layers", default=80),
        "heads": count("num_attention_heads", default=64),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "intermediate": count("intermediate_size", default=29568),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "sliding": by_layer(ge, count("max_window_layers", default=80, kind=INDEX)),
        "theta": real("rope_theta", default=1e6),
        "rope_kinds": {name: "default" if name == "mrope" else name for name in ("mrope", *USUAL)},
        "d_k": None,
    },
    only={"head_dim": SHARE_OF_WIDTH},
    example={"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 0, 1]}},
)

QWEN3_VL = derive_stack(
    QWEN3,
    settings={
        "types": None,
        "sliding": always,
        "window": None,
        "theta": real("rope_theta", default=500000.0),
        "rope_kinds": QWEN2_VL.settings["rope_kinds"],
    },
    example={"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 1, 1]}},
)

# --- Gemma 3n and 4: inputs of each layer's own, keys and values that layers share, sizes by layer ---

ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": PROPORTIONAL, "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
SIZES = {"d_k": "head_dim", "d_v": "head_dim", "kv_heads": "num_key_value_heads"}
LAYERS = count("num_hidden_layers", default=30)


def own_settings(
    listed: Mapping[str, Any] | None, size: int, heads: int | None, v_of_k: bool, wide: bool, *sizes: int
) -> Callable[[int, Sequence[bool]], Mapping[str, Any]]:
    """The settings of a layer that are its own: `listed`, or as those without a window have them."""
    intermediate, layers, sharing = sizes
    of_full = {"head_dim": size} | ({"num_key_value_heads": heads} if heads and v_of_k else {})
    first = layers - sharing  # of those that share

    def own(layer: int, slides: Sequence[bool]) -> dict[str, Any]:
        said = listed.get(str(layer), {}) if listed is not None else {} if slides[layer] else of_full
        if not (said.keys() <= {*SIZES.values()} and COUNTS.fits([*said.values()])):
            raise ValueError(f"per_layer_config: layer {layer} says {said}; only sizes of heads are read")
        found = {ours: said[theirs] for ours, theirs in SIZES.items() if theirs in said}
        found["v_of_k"] = v_of_k and not slides[layer]
        if layer >= first:
            found["intermediate"] = intermediate * (1 + wide)
        return found | source_of(layer, first, slides)

    return own


def source_of(layer: int, first: int, slides: Sequence[bool]) -> dict[str, int]:
    """The layer that has K and V for one from the first on that shares them: the last of its type."""
    if layer < first:
        return {}
    alike = [at for at in range(first) if slides[at] == slides[layer]]
    if not alike:
        raise ValueError(f"num_kv_shared_layers: no layer has K and V for layer {layer}")
    return {"source": alike[-1]}


SHARING = derive_stack(
    GEMMA3,
    outer={
        "inputs_embed": "embed_tokens_per_layer",
        **inside("per_layer_", inputs_project="model_projection", inputs_norm="projection_norm"),
    },
    inner={
        "inputs_out_norm": "post_per_layer_input_norm",
        **inside("per_layer_", inputs_gate="input_gate", inputs_up="projection"),
    },
    settings={
        "plus_one": False,
        "v_norm": True,
        "scale": 1.0,
        "window": count("sliding_window", default=512),
        "inputs_vocab": count("vocab_size_per_layer_input", default=262144),
    },
    ignored=(*PLAIN.ignored, *(f"self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm"))),
)
"""What Gemma 3n and 4 have in common: inputs of each layer's own, and layers without K and V."""

GEMMA4 = derive_stack(
    SHARING,
    inner={
        "layer_scale": "layer_scalar!",
        **inside("router.", router="proj", router_input_scale="scale!", expert_factors="per_expert_scale!"),
        **inside("experts.", experts_gate_up="gate_up_proj!", experts_down="down_proj!"),
        **inside("post_feedforward_layernorm_", mlp_own_norm="1", experts_out_norm="2"),
        "experts_norm": "pre_feedforward_layernorm_2",
    },
    settings={
        "layers": LAYERS,
        "types": from_keys(lambda types: types and [*types[:-1], "full_attention"], TYPES["types"]),
        "sliding": by_layer(lambda at, count: (at + 1) % 6 != 0 and at != count - 1, LAYERS),
        "rope": None,
        "rope_by_type": from_keys(lambda said: said or ROPES, Key(("rope_parameters",), BY_TYPE)),
        "rope_kinds": {name: name for name in (*USUAL, PROPORTIONAL)},
        "theta": 10000.0,
        "local_theta": None,
        "inputs": count("hidden_size_per_layer_input", default=256, kind=INDEX),
        "experts": from_keys(
            lambda used, experts: experts if used else None, flag("enable_moe_block"), count("num_experts")
        ),
        "chosen": count("top_k_experts"),
        "expert_size": count("moe_intermediate_size"),
        "own": from_keys(
            own_settings,
            *(Key(("per_layer_config",), TABLE), count("global_head_dim", default=512)),
            *(count("num_global_key_value_heads"), flag("attention_k_eq_v"), flag("use_double_wide_mlp")),
            *(GEMMA3.settings["intermediate"], LAYERS),
            count("num_kv_shared_layers", default=0, kind=INDEX),
        ),
    },
    only={"use_bidirectional_attention": "vision"},
)

WIDTH, SPARSE_LAYERS = count("hidden_size", default=2048), count("num_hidden_layers", default=35)
NETWORKS = Key(("intermediate_size",), COUNTS, 16384)


def networks(
    sizes: int | list[int], shares: list[float] | None, layers: int, sharing: int
) -> Callable[[int, Sequence[bool]], Mapping[str, Any]]:
    """The settings of a layer that are its own: how large and how sparse its network is, whose K and V."""
    sizes = sizes if isinstance(sizes, list) else [sizes] * layers
    shares = [0.95 * (at < 10 < layers) for at in range(layers)] if shares is None else shares
    for name, said in (("intermediate_size", sizes), ("activation_sparsity_pattern", shares)):
        if len(said) != layers:
            raise ValueError(f"{name}: {len(said)} of {layers} layers")

    def own(layer: int, slides: Sequence[bool]) -> dict[str, Any]:
        cutoff = NormalDist().inv_cdf(shares[layer]) if shares[layer] else None
        found: dict[str, Any] = {"intermediate": sizes[layer], "cutoff": cutoff}
        return found | source_of(layer, layers - sharing, slides)

    return own


GEMMA3N = derive_stack(
    SHARING,
    outer={"altup_project": "altup_projections", "altup_unembed": "altup_unembed_projections"},
    inner={
        **inside("altup.", altup_router="modality_router", altup_norm="router_norm"),
        **inside("altup.", altup_predict="prediction_coefs", altup_correct="correction_coefs"),
        **inside("laurel.", laurel_down="linear_left", laurel_up="linear_right"),
        **inside("", altup_scale="altup.correct_output_scale!", laurel_norm="laurel.post_laurel_norm"),
    },
    settings={
        "layers": SPARSE_LAYERS,
        "width": WIDTH,
        "embed_scale": from_keys(sqrt, WIDTH),
        "intermediate": from_keys(lambda said: max(said) if isinstance(said, list) else said, NETWORKS),
        "kv_heads": count("num_key_value_heads", default=2),
        "sliding": by_layer(lambda at: (at + 1) % 5 != 0),
        "inputs": count("hidden_size_per_layer_input", default=256),
        "streams": count("altup_num_inputs", default=4),
        "laurel": count("laurel_rank", default=64),
        "own": from_keys(
            networks,
            *(NETWORKS, Key(("activation_sparsity_pattern",), SHARES), SPARSE_LAYERS),
            count("num_kv_shared_layers", default=15, kind=INDEX),
        ),
    },
    when=(When(flag("altup_correct_scale", default=True), False, without=("altup_scale",)),),
    inert=("altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar"),
    ignored=(*SHARING.ignored, "altup.correct_output_scale"),
    head=GEMMA2.head,
)
