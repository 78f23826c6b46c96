"""What an entry of a family of models is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Config = Mapping[str, Any]
"""A config.json, or the part of one that is about a stack of layers."""


class Key(NamedTuple):
    """Where config.json says a setting: under the first of these names that it has; null is absent."""

    names: tuple[str, ...]
    default: Any = None

    def value(self, config: Config) -> Any:
        """What it says."""
        found = (config[name] for name in self.names if config.get(name) is not None)
        return next(found, self.default)


def key(*names: str, default: Any = None) -> Key:
    """The first of these names that config.json has."""
    return Key(names, default)


Setting = Any
"""A value, a `Key`, or a function of the config."""

Names = Mapping[str, str]
"""What a tensor is for, and what the checkpoint calls it, without .weight or .bias."""


@dataclass(frozen=True)
class When:
    """What is different where a setting has this value."""

    setting: Setting
    equals: Any
    settings: Mapping[str, Setting] = field(default_factory=dict)
    inner: Names = field(default_factory=dict)
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stack:
    """A stack of layers: where its tensors are and what its config.json means.

    `layer` is the name of a layer, `inner` its tensors, `outer` those outside of layers. A name
    that ends in "!" is a tensor itself; {i}, {e} and {h} are the layer, the expert and the head.
    `settings` lie over `DEFAULTS`. `only` lists the values of keys that are understood: any other
    is refused. `section` is the part of config.json, `within` the part of the checkpoint, where
    that has several.
    """

    layer: str
    inner: Names
    outer: Names = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    when: tuple[When, ...] = ()
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    section: str | None = None
    within: str = ""


def always(config: Config, layer: int) -> bool:
    """Every layer."""
    return True


DEFAULTS: dict[str, Setting] = {
    "layers": key("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": key("hidden_size", "n_embd", "d_model", "dim"),
    "heads": key("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": key("num_key_value_heads"),  # None: as many as heads
    "d_k": key("head_dim"),  # None: width / heads
    "d_v": None,  # None: d_k
    "vocab": key("vocab_size"),
    "longest": key("max_position_embeddings", "n_positions", default=2048),
    "intermediate": key("intermediate_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff"),
    "act": key("hidden_act", "hidden_activation", "activation_function", "activation"),
    # norms
    "norm": "rms",  # rms | layer
    "eps": key("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default=1e-6),
    "norm_weight": True,
    "norm_bias": False,
    "plus_one": False,
    "qk_norm": None,  # row: one weight for all heads; heads: all heads are one row
    "qk_norm_bias": False,
    "norm_after_rotation": False,
    "first_norm": True,  # whether layer 0 has a norm before attention
    # projections
    "transposed": False,  # (in, out), as Conv1D keeps a matrix
    "qkv": "split",  # split | blocks: all Q, then K, then V | groups: by kv head, its queries, K, V
    "bias": False,
    "k_bias": None,  # None: as `bias`
    "out_bias": None,
    "mlp_bias": None,
    # scores
    "causal": True,
    "window": None,
    "sliding": always,  # where `layer_types` does not say
    "both_ways": False,  # a window that looks ahead too
    "scale": None,  # None: 1/√d_k
    "scale_over_layer": False,
    "softcap": None,
    "alibi": None,  # slopes | keys: a bias by key, rounded to bfloat16
    "buckets": None,
    "furthest": 128,
    "sink": False,
    # rotary positions
    "rotary": False,
    "theta": key("rope_theta", default=10000.0),
    "local_theta": None,  # of sliding layers, where it differs
    "rotary_share": key("partial_rotary_factor", default=1.0),
    "rotary_size": None,
    "interleaved": False,
    "rotated_layers": None,  # 1 or 0 for each layer
    "rope_names": {},  # other names of kinds of rope
    # what surrounds attention
    "parallel": False,
    "from_norm": False,
    "residual": 1.0,
    # the feed-forward network
    "gated": True,
    "gate_up": "halves",  # of a fused matrix: halves | interleaved
    "experts": None,
    "expert_layer": always,
    "expert_size": None,  # None: intermediate
    "chosen": key("num_experts_per_tok", default=2),
    "router": "softmax",  # softmax: then choose | chosen: choose, then softmax | sigmoid: in groups
    "router_bias": False,
    "router_normalized": True,
    "groups": 1,
    "chosen_groups": 1,
    "router_scale": 1.0,
    "clamp": None,  # alpha and limit of gpt-oss
    # embeddings
    "embed_scale": 1.0,
    "embed_width": None,  # None: width
    "project": None,  # None: where embed_width is not width
    "project_first": False,  # before positions are added
    "project_bias": True,
    "positions": None,  # None | plain | after_pad
    "position_start": 0,
    "final_norm": True,
    # latent attention
    "rank": None,
    "kv_rank": None,
    "d_rope": None,
    "latent_eps": 1e-6,
    "shared_groups": None,  # of layers that share their tensors (ALBERT)
}
"""Every setting of a stack, with where config.json most often says it."""


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


LAYER_NORM = {"norm": "layer", "norm_bias": True, "eps": key("layer_norm_eps", default=1e-5)}
"""The settings of families whose norms are LayerNorms with a bias."""
