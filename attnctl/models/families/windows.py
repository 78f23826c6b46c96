"""Decoders of the kind of Llama whose layers have windows in turn, or positions of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import floordiv, ge
from typing import Any

from attnctl.math.kind import Temperature
from attnctl.models.families.llama import COHERE, GEMMA2, OLMO2, PLAIN, QWEN2, QWEN3
from attnctl.models.family import ROPE_BY_TYPE, ROTARY, TYPES, always, derive_stack
from attnctl.models.keys import INDEX, by_layer, count, epsilon, flag, from_keys, real
from attnctl.models.rope import ORIGINAL, TEMPERED, USUAL

WINDOW = count("sliding_window", default=4096)
WIDE = count("hidden_size", default=8192)
SHARE_OF_WIDTH = from_keys(floordiv, WIDE, count("num_attention_heads", default=64))


def on_three_of_four(layer: int) -> bool:
    return (layer + 1) % 4 != 0


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
        "sliding": on_three_of_four,
        "rope_in_windows": False,
        "theta": real("rope_theta", default=500000.0),
        "local_theta": 500000.0,
    },
    example={"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]},
)

EXAONE_WINDOW = count("sliding_window", default=4096, nullable=True)

EXAONE4 = derive_stack(
    OLMO2,
    settings={
        **TYPES,
        "qk_norm": "row",
        "bias": False,
        "window": EXAONE_WINDOW,
        "sliding": IN_TURN,
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
        "window": from_keys(
            lambda used, size: size if used else None, flag("use_sliding_window"), EXAONE_WINDOW
        ),
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
        "kv_heads": count("num_key_value_heads", default=32, nullable=True),
        "theta": real("rope_theta", default=500000.0),
        "rope_kinds": QWEN2_VL.settings["rope_kinds"],
    },
    example={"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 1, 1]}},
)
