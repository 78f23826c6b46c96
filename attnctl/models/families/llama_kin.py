"""Decoders of the kind of Llama that differ from it in a function, a norm or a factor."""

from __future__ import annotations

from dataclasses import replace

from attnctl.models.families.llama import GRANITE, HEAD_NORMS, LLAMA, PLAIN
from attnctl.models.family import LAYER_NORM, ROTARY, UNTIED, When, derive_stack, inside
from attnctl.models.keys import FLAG, Key, count, epsilon, flag, real, word
from attnctl.models.rope import BACKWARDS

APERTUS_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

APERTUS_ACT = word("hidden_act", default="xielu")

APERTUS = derive_stack(
    PLAIN,
    inner={**HEAD_NORMS, "attention_norm": "attention_layernorm", "mlp_norm": "feedforward_layernorm"},
    settings={
        "act": APERTUS_ACT,
        "eps": epsilon("rms_norm_eps", 1e-5),
        "rope": replace(ROTARY["rope"], default=APERTUS_ROPE),
        "theta": real("rope_theta", default=12e6),
    },
    without=("gate",),
    when=(
        When(
            APERTUS_ACT,
            "xielu",
            inner=inside(
                "mlp.act_fn.",
                act_above="alpha_p!",
                act_below="alpha_n!",
                act_slope="beta!",
                act_most="eps!",
            ),
        ),
    ),
)
"""Each layer has learned its own curve: xIELU."""

NANOCHAT = derive_stack(
    PLAIN,
    outer={"embed_norm": "norm"},
    inner=inside("mlp.", up="fc1", down="fc2"),
    settings={
        "norm_weight": False,
        "qk_norm": "row",
        "norm_after_rotation": True,
        "act": word("hidden_act", default="relu2"),
        "rope_kinds": {"default": BACKWARDS},
    },
    without=("gate",),
    head={"cap": real("final_logit_softcapping", default=15.0, nullable=True)},
)
"""Its norms have no weight, and pairs of columns turn the other way round."""

BITNET = derive_stack(
    PLAIN,
    inner={"concat_norm": "self_attn.attn_sub_norm", "inner_norm": "mlp.ffn_sub_norm"},
    settings={
        "kv_heads": count("num_key_value_heads", default=5, nullable=True),
        "act": word("hidden_act", default="relu2"),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "theta": real("rope_theta", default=500000.0),
    },
    example={"head_dim": 4},
)
"""Heads, side by side, and the inside of a network go through a norm before the last matrix of each."""

INTERNLM3 = derive_stack(
    LLAMA,
    settings={
        "kv_heads": count("num_key_value_heads", default=2, nullable=True),
        "d_k": count("head_dim", default=128),
        "eps": epsilon("rms_norm_eps", 1e-5),
        "bias": Key(("attention_bias", "qkv_bias"), FLAG, default=False),
        "mlp_bias": Key(("mlp_bias", "bias"), FLAG, default=False),
    },
)

EXAONE = derive_stack(
    PLAIN,
    layer="h.{i}.",
    outer={"embed": "wte", "final_norm": "ln_f"},
    inner={
        **inside("attn.attention.", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
        **inside("ln_", attention_norm="1", mlp_norm="2"),
        **inside("mlp.", gate="c_fc_0", up="c_fc_1", down="c_proj"),
    },
    settings={
        "layers": count("num_layers", "num_hidden_layers"),
        "kv_heads": count("num_key_value_heads", default=8, nullable=True),
        "act": word("activation_function", "hidden_act", default="silu"),
        "eps": replace(epsilon("rms_norm_eps", 1e-5), names=("layer_norm_epsilon", "rms_norm_eps")),
        "theta": real("rope_theta", default=500000.0),
    },
    only={"mlp_bias": False, "attention_bias": False},
    ignored=("attn.attention.rotary.inv_freq",),
)
"""EXAONE 3.0 and 3.5, and EXAONE Deep: Llama under the names of GPT-2."""

JAIS2 = derive_stack(
    LLAMA,
    settings={
        **LAYER_NORM,
        "act": word("hidden_act", default="relu2"),
        "bias": flag("attention_bias", default=True),
        "mlp_bias": flag("mlp_bias", default=True),
    },
    without=("gate",),
)

HYPERCLOVAX = derive_stack(
    GRANITE,
    settings={"scale": real("attention_multiplier")},
    when=(
        When(
            flag("use_post_norm", default=True),
            True,
            inner=inside("post_norm", attention_out_norm="1", mlp_out_norm="2"),
        ),
    ),
    head={"scale": real("logits_scaling", default=1.0), "tied": UNTIED},
)
