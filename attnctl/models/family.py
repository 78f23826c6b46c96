"""The noun for a family of models, and the parts of an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.models.keys import (
    BY_TYPE,
    TABLE,
    TEXTS,
    UNTYPED,
    Config,
    Key,
    Setting,
    count,
    epsilon,
    flag,
    keys_of_setting,
    real,
    word,
)

Names = Mapping[str, str]
"""What a tensor is for, and what the checkpoint calls it, without .weight or .bias."""


@dataclass(frozen=True)
class When:
    """A setting that takes another value where a second one has this value."""

    setting: Setting
    equals: Any
    settings: Mapping[str, Setting] = field(default_factory=dict)
    inner: Names = field(default_factory=dict)
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Patches:
    """How a stack begins with a picture: the tensors that make rows of its patches, by whole names.

    `leading` are tokens of its own before them, `registers` those behind these that have no position. Rows
    of positions are brought to another grid by `resize`, or never where it is None.
    """

    weight: str
    has_bias: bool = True
    linear: bool = False  # a matrix of whole patches, pixel by pixel, in place of a convolution
    leading: tuple[str, ...] = ()
    registers: tuple[str, ...] = ()
    position: str | None = None
    position_in_batch: bool = False
    resize: str | None = None  # bicubic | bilinear
    antialias: bool = False
    always_resized: bool = False
    norm: str = ""


@dataclass(frozen=True)
class Stack:
    """A stack of layers: where its tensors are and what its config.json means.

    `layer` is the name of a layer, `inner` its tensors, `outer` those outside of layers. A name
    that ends in "!" is a tensor itself; {i}, {e} and {h} are the layer, the expert and the head.
    `settings` lie over `DEFAULTS`: the keys in them are all that the family reads. `only` says of
    further keys what they must say, `inert` names those that change nothing in this family (beside
    those of `attnctl.models.description`); any other key is refused. `ignored` are tensors that are not
    read in any layer, `ignored_first` in the first one. `section` is the part of config.json, `encoder`
    that of what this stack attends to, `within` the part of the checkpoint, where that has several.
    `head` lies over `HEAD`. `patches` say how a picture comes in. `example` is what a tiny config.json
    says beside the sizes that every family has.
    """

    layer: str
    inner: Names
    outer: Names = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    when: tuple[When, ...] = ()
    only: Mapping[str, Setting] = field(default_factory=dict)
    inert: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    ignored_first: tuple[str, ...] = ()
    section: str | None = None
    encoder: str | None = None
    within: str = ""
    head: Mapping[str, Setting] = field(default_factory=dict)
    patches: Patches | None = None
    example: Config = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """All that config.json is read for, those of cases among them."""
        settings = [*{**DEFAULTS, **self.settings}.values(), *self.only.values()]
        for case in self.when:
            settings += [case.setting, *case.settings.values()]
        return tuple(key for setting in settings for key in keys_of_setting(setting))

    @cached_property
    def understood(self) -> frozenset[str]:
        """The names of config.json that mean something here, or are known to mean nothing."""
        names = {*self.only, *self.inert}
        for key in self.keys:
            names |= {*key.names}
        return frozenset(names)

    def key_of(self, name: str) -> str:
        """What config.json calls a setting; its own name where no key gives it."""
        keys = keys_of_setting({**DEFAULTS, **self.settings}[name])
        return keys[0].names[0] if keys else name


def inside(module: str, **names: str) -> Names:
    """The tensors of a module, by what they are for."""
    return {use: f"{module}{name}" for use, name in names.items()}


def always(layer: int) -> bool:
    return True


def never(layer: int) -> bool:
    return False


DEFAULTS: dict[str, Setting] = {
    "layers": count("num_hidden_layers"),
    "width": count("hidden_size"),
    "heads": count("num_attention_heads"),
    "kv_heads": None,  # None: as many as heads
    "d_k": None,  # None: width / heads
    "d_v": None,  # None: d_k
    "vocab": count("vocab_size"),
    "longest": count("max_position_embeddings"),
    "segments": None,
    "intermediate": count("intermediate_size"),
    "act": word("hidden_act"),
    # norms
    "norm": "rms",  # rms | layer
    "eps": 1e-6,
    "norm_weight": True,
    "norm_bias": False,
    "plus_one": False,
    "gated_q": False,  # the matrix of Q has the columns of a gate behind those of each head
    "qk_norm": None,  # None: row, one weight for all heads, where there are norms; heads: all are one row
    "qk_norm_bias": False,
    "norm_after_rotation": False,
    "v_norm": False,  # V has one too, without a weight
    "norm_unrotated": True,  # whether Q and K are normed in layers without rotary positions, too
    "first_norm": True,  # whether layer 0 has a norm before attention
    # projections
    "v_of_k": False,  # the matrix of K makes V, too
    "memory_width": None,  # of the encoder's rows; None: width
    "source": None,  # the layer that has K and V for this one
    "transposed": False,  # (in, out), as Conv1D keeps a matrix
    "qkv": "split",  # split | blocks: all Q, then K, then V | groups: by kv head, its queries, K, V
    "bias": False,
    "k_bias": None,  # None: as `bias`
    "v_bias": None,
    "out_bias": None,
    "mlp_bias": None,
    # scores
    "causal": True,
    "window": None,
    "chunk": None,  # of so many positions, in place of a window
    "types": None,  # of layers, by name
    "sliding": always,  # the layers with a window, where there are no `types`
    "both_ways": False,  # a window that looks ahead too
    "scale": None,  # None: 1/√d_k
    "scale_over_layer": False,
    "softcap": None,
    "alibi": None,  # slopes | keys: a bias by key, rounded to bfloat16
    "buckets": None,
    "furthest": 128,
    "distances": None,  # rows on either side, the furthest or 0; if queries, if keys, if own matrices read
    "distances_normed": False,
    "sink": None,  # None: as the tensors say
    "temperature": None,  # β, L and the first position
    "temperature_rotated": True,  # whether layers with rotary positions have it, too
    # rotary positions
    "rotary": False,
    "rope": None,  # what config.json says of their kind, in whole
    "rope_by_type": None,  # what it says for each type of layer
    "rope_in_windows": True,  # whether `rope` is about layers with a window too
    "rope_kinds": None,  # the kinds that there are, by the names that they have; None: all
    "original": None,  # the number of positions a model was first trained on
    "theta": 10000.0,
    "local_theta": None,  # of sliding layers, where it differs
    "rotary_share": None,  # None: all columns, and no key says otherwise
    "rotary_size": None,
    "interleaved": False,
    "rotated": always,  # the layers that have them
    "rotated_in_full": True,  # whether those without a window do
    # layers that carry a state, or mix a few tokens, instead of attending
    "delta": None,  # tokens of the convolution, heads of Q and K, of V, the columns of each
    "state_space": None,  # tokens of the convolution, heads, their columns, groups, numbers of a state
    "convolution": None,  # its tokens
    "conv_bias": False,
    "state_act": None,  # the function of a state space; None: act
    "one_part": False,  # whether a layer is a mixer or a network, of which others have both
    "linear": never,  # which layers they are, where there are no `types`
    # what surrounds attention
    "parallel": False,
    "from_norm": False,
    "residual": 1.0,
    "streams": 1,  # of rows, side by side, that each layer predicts and corrects
    "laurel": None,  # the rank of what is added beside attention
    # the feed-forward network
    "gated": None,  # None: as the tensors say
    "cutoff": None,  # what of a gate is left out: up to so many deviations over the mean of its row
    "experts": None,
    "expert_layer": always,
    "experts_transposed": False,  # (in, out), where a tensor has those of all | "by shape"
    "expert_size": None,  # None: intermediate
    "expert_width": None,  # of the rows that experts read and give; None: width
    "shared_size": None,  # of the expert that every row goes to
    "chosen": 2,
    "router": "softmax",  # softmax: then choose | chosen: choose, then softmax | sigmoid | inputs | rivals
    "rivals": None,  # half of how near others come that count
    "router_bias": False,
    "router_normalized": True,
    "router_least": 1e-20,  # what is added to the sum that weights are divided by
    "groups": 1,
    "chosen_groups": 1,
    "best_of_group": 1,  # so many of its experts say how good a group is
    "router_scale": 1.0,
    "clamp": None,  # alpha and limit of gpt-oss
    # embeddings
    "inputs": 0,  # columns of what a layer reads of the tokens themselves
    "inputs_vocab": None,
    "embed_scale": 1.0,
    "embed_width": None,  # None: width
    "project": None,  # None: where embed_width is not width
    "project_first": False,  # before positions are added
    "project_bias": True,
    "positions": None,  # None: plain, where there is a table | after_pad
    "position_start": 0,
    "masked": None,  # the token whose rows are 0, the others larger for it, as if it were dropped (ESM)
    "embed_norm": None,  # None: as the tensors say
    "final_norm": None,  # None: as the tensors say
    # pictures
    "patch": None,  # pixels to a side
    "image": None,  # pixels to a side of what positions are of
    "patches": None,  # the rows of a table of positions, where it is said
    "channels": 3,
    "registers": 0,
    # latent attention
    "rank": None,
    "kv_rank": None,
    "d_rope": None,
    "latent_eps": 1e-6,
    "own": None,  # the settings of a layer that are its own, by its number and which layers have windows
    "spare": 0,  # layers after the last, which guess tokens further ahead
    "shared_groups": None,  # of layers that share their tensors (ALBERT)
}
"""Every setting of a stack; the keys are those that all families read, unless they say otherwise."""

TIED, UNTIED = (flag("tie_word_embeddings", default=tied) for tied in (True, False))

FLAG_OF_TIES = replace(TIED, names=("tie_embedding", "tie_word_embeddings"))

HEAD: dict[str, Setting] = {
    "unembed": (),  # the names that its matrix has had; none: there is no head
    "bias": (),  # the tensors that may be its bias; none: it has none
    "tied": TIED,  # whether the matrix is that of the embeddings where it is not in the checkpoint
    "scale": None,
    "cap": None,
    "dense": None,  # the layer that a masked-language head has before it
    "dense_bias": True,
    "act": None,  # None: that of the network
    "norm": "",  # the norm after it
}
"""What makes logits of the rows that leave the last layer: the names are whole ones, without a prefix."""

ROTARY: dict[str, Setting] = {
    "rotary": True,
    "rope": Key(("rope_parameters", "rope_scaling"), TABLE),
    "theta": real("rope_theta", default=10000.0),
    "original": count("original_max_position_embeddings"),
}
"""The settings of families with rotary positions as transformers reads them."""

ROPE_BY_TYPE: dict[str, Setting] = {
    **ROTARY,
    "rope": Key(("rope_scaling",), UNTYPED),  # transformers takes no notice of what is called type here
    "rope_by_type": Key(("rope_parameters",), BY_TYPE),
    "original": None,
}
"""The same where each type of layer has a rope of its own."""

TYPES: dict[str, Setting] = {"types": Key(("layer_types",), TEXTS)}
"""The settings of families that say for each layer whether it has a window."""

LAYER_NORM = {"norm": "layer", "norm_bias": True, "eps": epsilon("layer_norm_eps", 1e-5)}
"""The settings of families whose norms are LayerNorms with a bias."""


def derive_stack(stack: Stack, *, without: tuple[str, ...] = (), **changes: Any) -> Stack:
    """A stack with other entries, and without these tensors; mappings are laid over its own."""
    entries: dict[str, Any] = {"inner": dict(stack.inner), "outer": dict(stack.outer)}
    for name, value in changes.items():
        if isinstance(value, dict):
            entries[name] = {**getattr(stack, name), **value}
        else:
            entries[name] = value

    for use in without:
        entries["inner"].pop(use, None)
        entries["outer"].pop(use, None)
    return replace(stack, **entries)
