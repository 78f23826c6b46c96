"""The description of a model that a config.json gives, the same whatever program wrote it.

Reads what transformers 4 wrote (`rope_theta`, `rope_scaling`) and what 5 writes (`rope_parameters`,
nested by type of layer; `layer_types`). What is not understood is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.math.kind import Temperature
from attnctl.math.rules import BlockLocal, Window
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.families import FAMILIES, LACKING
from attnctl.models.family import DEFAULTS, HEAD, Names, Stack
from attnctl.models.keys import Config, keys_of_setting, setting_value
from attnctl.models.rope import KINDS, ORIGINAL, PROPORTIONAL, USUAL, Rope, misread_rope
from attnctl.models.tensors import Block


@dataclass(frozen=True)
class Layer:
    window: Window | BlockLocal | None
    rope: Rope | None
    temperature: Temperature | None
    scale: float | None
    experts: bool
    normed: bool
    linear: bool
    """Whether it carries a state instead of attending."""
    own: Mapping[str, Any]
    """Settings that are those of this layer alone."""


@dataclass(frozen=True)
class Description:
    """A model as its config.json says it; `settings` are those of `attnctl.models.family.DEFAULTS`."""

    family: str
    part: str
    stack: Stack
    inner: Names
    settings: Mapping[str, Any]
    layers: tuple[Layer, ...]
    head: Mapping[str, Any]
    """What makes logits, by the names of `attnctl.models.family.HEAD`."""

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def norm_suffixes(self) -> list[str]:
        there = {".weight": self["norm_weight"], ".bias": self["norm_bias"]}
        return [suffix for suffix, is_there in there.items() if is_there]

    @property
    def sizes(self) -> dict[str, int]:
        said = {"head": "heads", "kv_head": "kv_heads", "d_model": "width", "d_k": "d_k", "d_v": "d_v"}
        return {axis: self[setting] for axis, setting in said.items()}

    @property
    def attending(self) -> list[int]:
        return [index for index, layer in enumerate(self.layers) if not layer.linear]

    @property
    def sources(self) -> list[int]:
        """The layers whose K and V others read."""
        return sorted({layer.own["source"] for layer in self.layers if "source" in layer.own})

    def of_layer(self, index: int) -> Description:
        own = self.layers[index].own
        return replace(self, settings={**self.settings, **own}) if own else self

    @property
    def crosses(self) -> bool:
        return "cross_q" in self.inner


def describe(config: Config, part: str = "", place: str = "config.json") -> Description:
    """The description of a stack of layers. Raises AttnError with everything wrong or not understood."""
    kind = config.get("model_type")
    scale_blocks(config, place)
    if not isinstance(kind, str) or kind not in FAMILIES:
        found = "no model_type" if kind is None else f"model_type {quote(str(kind))} is not known"
        if config.get("auto_map"):
            found += " (it comes with code of its own, which attnctl does not run)"
        if need := LACKING.get(str(kind)):
            found += f": it has {need}, which no family here has"
        raise AttnError(f"{place}: {found}; known are {', '.join(sorted(FAMILIES))}")
    stacks = FAMILIES[kind]
    if part not in stacks:
        names = one_of(name or "the first" for name in stacks)
        raise AttnError(f"{place}: {kind} has no part {quote(part)}; it has {names}")
    stack = stacks[part]
    own = config
    if stack.section:
        in_one = "hidden_size" in config and stack.section not in config  # as the first Qwen2-VL had it
        own = config if in_one else config.get(stack.section) or {}
        if not isinstance(own, Mapping):
            raise AttnError(f"{place}: {stack.section}: expected an object")
    try:
        raise_all(f"{place}: {problem}" for problem in misread(kind, stack, own))
        settings, inner = resolve_settings(stack, own)
        raise_all(f"{place}: {problem}" for problem in impossible(settings, stack))
        by_layer = {name: settings.pop(name) for name in BY_LAYER}
        types, slides = by_layer["types"], by_layer["sliding"]
        every = range(settings["layers"])
        by_layer["slides"] = [TYPES[types[index]] if types else slides(index) for index in every]
        layers = tuple(layer_of(settings, by_layer, index, stack, place) for index in every)
        head = {
            name: setting_value(setting, {**config, **own})
            for name, setting in {**HEAD, **stack.head}.items()
        }
        return Description(kind, part, stack, inner, settings, layers, head)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, KeyError) else f"no {error}"
        raise AttnError(f"{place}: a setting is missing or of the wrong kind ({text})") from None


def scale_blocks(config: Config, place: str) -> Block | None:
    """The rows and columns that have one scale, of weights in FP8. Raises AttnError where others are."""
    quantised = config.get("quantization_config") or config.get("compression_config") or {}
    kinds = quantised if isinstance(quantised, Mapping) else {}
    method = kinds.get("quant_method", "of some kind")
    match kinds.get("weight_block_size"):
        case [int(rows), int(columns)] if method == "fp8" and rows > 0 and columns > 0:
            return rows, columns
    if quantised and method != "mxfp4":
        instead = "give blocks of FP8, MXFP4, or float32, float16 or bfloat16"
        raise AttnError(f"{place}: its weights are quantised ({method}); {instead}")
    return None


BY_LAYER = ("types", "sliding", "linear", "expert_layer", "rotated", "rope", "rope_by_type", "own")
"""Settings that are told layer by layer."""


def resolve_settings(stack: Stack, config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting with its value, those that follow from others too; and the tensors of a layer."""
    found = {**DEFAULTS, **stack.settings}
    inner = dict(stack.inner)
    for case in stack.when:
        if setting_value(case.setting, config) == case.equals:
            found.update(case.settings)
            inner.update(case.inner)
            inner = {use: name for use, name in inner.items() if use not in case.without}
    s = {name: setting_value(setting, config) for name, setting in found.items()}
    width, heads = s["width"], s["heads"]
    if s["d_k"] is None and width and heads and width % heads == 0:
        s["d_k"] = width // heads
    usual = {"kv_heads": heads, "d_v": s["d_k"], "expert_size": s["intermediate"], "embed_width": width}
    usual |= dict.fromkeys(("k_bias", "out_bias", "mlp_bias"), s["bias"])
    s |= {name: value for name, value in usual.items() if s[name] is None}
    there = {
        "project": s["embed_width"] != width,
        "qk_norm": "row" if "q_norm" in inner else None,
        "sink": "sink" in inner,
        "gated": "gate" in inner or "gate_up" in inner,
        "positions": "plain" if "position" in stack.outer else None,
        "final_norm": "final_norm" in stack.outer,
    }
    return s | {name: value for name, value in there.items() if s[name] is None}, inner


def layer_of(
    s: Mapping[str, Any], by_layer: Mapping[str, Any], index: int, stack: Stack, place: str
) -> Layer:
    types, slides = by_layer["types"], by_layer["slides"][index]
    own = by_layer["own"](index, by_layer["slides"]) if by_layer["own"] else {}
    s = {**s, **own}
    raise_all(f"{place}: {problem}" for problem in impossible({**s, **by_layer}, stack) if own)
    reach, chunk = (s["window"], s["chunk"]) if slides else (None, None)
    rotates = s["rotary"] and by_layer["rotated"](index) and (slides or s["rotated_in_full"])
    scale = s["scale"]
    if s["scale_over_layer"]:
        scale = (s["d_k"] ** -0.5 if scale is None else scale) / (index + 1)
    window = None if reach is None else Window(reach - 1, reach - 1 if s["both_ways"] else None)
    return Layer(
        window if chunk is None else BlockLocal(chunk),
        rope_of(s, by_layer, slides, place) if rotates else None,
        None if rotates and not s["temperature_rotated"] else s["temperature"],
        None if scale is None else float(scale),
        s["experts"] is not None and by_layer["expert_layer"](index),
        index > 0 or s["first_norm"],
        types[index] == "linear_attention" if types else by_layer["linear"](index),
        own,
    )


def rope_of(s: Mapping[str, Any], by_layer: Mapping[str, Any], slides: bool, place: str) -> Rope:
    parameters = rope_parameters(s, by_layer, slides)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    known = s["rope_kinds"] or {name: name for name in USUAL}
    if kind not in known:
        raise AttnError(f"{place}: rope_type {quote(str(kind))} is not understood; only {one_of(known)}")
    kind, share = known[kind], parameters.get("partial_rotary_factor")
    share = None if kind == PROPORTIONAL else share  # a share of frequencies, not of columns
    raise_all(f"{place}: {problem}" for problem in misread_rope(kind, parameters))
    if s["rotary_share"] is None and share not in (None, 1):
        raise AttnError(f"{place}: rope: partial_rotary_factor {share}; this family rotates all columns")
    theta = parameters.get("rope_theta")
    if theta is None:
        theta = s["local_theta"] if slides and s["local_theta"] is not None else s["theta"]
    size = s["d_rope"] or s["d_k"]
    dims = s["rotary_size"] or int(size * (share or s["rotary_share"] or 1))
    if dims % 2 or not 2 <= dims <= size:
        said = "rotary_dim" if s["rotary_size"] else "partial_rotary_factor"
        raise AttnError(
            f"{place}: {said}: {dims} of {size} columns of a head would turn, which they do in pairs "
            "(head_dim is hidden_size / num_attention_heads)"
        )
    first = s["d_k"] - size
    rope = Rope(kind, float(theta), dims, bool(s["interleaved"]), first, s["longest"], parameters)
    for name in ("short_factor", "long_factor") if kind.startswith("longrope") else ():
        if len(parameters[name]) != dims // 2:
            raise AttnError(f"{place}: rope: {name}: {len(parameters[name])} numbers, expected {dims // 2}")
    rope.rotary(1)  # what is not possible together shows here
    return rope


def rope_parameters(s: Mapping[str, Any], by_layer: Mapping[str, Any], slides: bool) -> dict[str, Any]:
    own = "sliding_attention" if slides else "full_attention"
    found = dict((by_layer["rope_by_type"] or {}).get(own) or {})
    if not slides or s["rope_in_windows"]:
        found |= by_layer["rope"] or {}
    if s["original"] is not None and found.get("rope_type", found.get("type")) in ORIGINALS:
        found[ORIGINAL] = s["original"]
    return found


ORIGINALS = [name for name, (_, _, reads) in KINDS.items() if ORIGINAL in reads] + ["su"]
"""The kinds that read how many positions there were first, which may stand outside of their parameters."""


# --- what cannot be, or is not read ---

MOST = {"layers": 10_000, "d_k": 2**16}
TYPES = {
    "full_attention": False,
    "sliding_attention": True,
    "chunked_attention": True,
    "linear_attention": False,
}
"""The types of layers, and whether each has a window."""

SILENT = {"partial_rotary_factor": 1.0, "is_causal": True}
"""Keys that say nothing where they say this; any other says nothing by false, 0 and what is empty."""

NAMES = (
    # the file itself, and how it is loaded
    r"_.*|architectures|auto_map|model_type|transformers_version|name_or_path|tokenizer_class|language",
    r"(?:torch_)?dtype|torchscript|use_bfloat16|tie_\w+|gradient_checkpointing|transformers\.js_config",
    r"quantization_config|attn_implementation|experts_implementation|is_llama_config|unsloth_\w+",
    # what a call returns, and the cache it keeps
    r"return_dict|output_\w+|use_cache|cache_implementation|is_encoder_decoder|chunk_size_feed_forward",
    # training
    r"\w*dropout\w*|\w*_pdrop|\w*layerdrop|init_std|initializer_\w+|\w*aux_loss\w*|router_jitter_noise",
    r"seq_aux|pretraining_tp|mask_(?:time|feature)_\w+|apply_spec_augment",
    # tasks, and what follows the last layer
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_\w+",
    r"summary_\w+|pooler_\w+|decoder_bias|sparse_pred\w*|projection_dim|logit_scale\w*|logits_scaling",
    r"scale_decoder_outputs|final_logit_softcapping|use_weighted_layer_sum|median_filter_width",
    # generation
    r"\w*token_(?:ids?|index)|prefix|(?:max|min)_length|max_new_tokens|do_sample|early_stopping|num_beams",
    r"num_beam_groups|temperature|top_[kp]|typical_p|\w+_penalty|\w*no_repeat_ngram_size|bad_words_ids",
    r"num_return_sequences|remove_invalid_values|(?:begin_)?suppress_tokens|forced_decoder_ids",
    # what makes an image or a sound into what comes into layer 0
    r"image_size|patch_size|num_channels|encoder_stride|num_mel_bins|max_source_positions",
    # how it is computed
    r"\w*softmax_in_fp32|\w+_fusion|slow_but_exact|deterministic_flash_attn|reference_compile",
    r"repad_logits_with_grad|skip_bias_add\w*",
    # lengths of training, which no table has
    r"n_ctx|seq_length|model_max_length|max_sequence_length",
)
INERT = re.compile("|".join(NAMES))
"""Keys that change no attention and no hidden state in any family; one may read them all the same."""


def misread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """Keys whose values are of no kind that they may have, and keys that this family does not read."""
    of_head = (key for setting in stack.head.values() for key in keys_of_setting(setting))
    yield from dict.fromkeys(problem for key in (*stack.keys, *of_head) for problem in key.problems(config))
    for setting in ("layers", "width", "heads", "intermediate"):
        keys = keys_of_setting({**DEFAULTS, **stack.settings}[setting])
        if all(key.value(config) is None for key in keys):
            yield f"no {keys[0].names[0]}"
    for name, setting in stack.only.items():
        said, understood = config.get(name), setting_value(setting, config)
        if said is not None and said != understood:
            yield f"{name} {quote(str(said))} is not understood; only {understood}"
    yield from unread(kind, stack, config)


def unread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """The keys that say something and that no part of the family reads."""
    parts = (part.understood for part in FAMILIES[kind].values() if part.section == stack.section)
    understood = frozenset[str]().union(*parts)
    for name, said in config.items():
        silent = said is None or (said == SILENT[name] if name in SILENT else not said)
        if not silent and name not in understood and not INERT.fullmatch(name):
            hint = did_you_mean(name, sorted(understood), "leave it out where it changes nothing")
            yield f"{quote(name)} is {quote(str(said))}, but {kind} reads no such key; {hint}"


def impossible(s: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    """Combinations that no model can have, though each key by itself says what it may."""
    key = stack.key_of
    if s["act"] not in ACTIVATIONS:
        yield (
            f"{key('act')}: the function {quote(str(s['act']))} is not known; "
            f"known are {', '.join(ACTIVATIONS)}"
        )
    if s["d_k"] is None:
        yield f"{key('heads')}: {s['heads']} heads do not divide {key('width')}, {s['width']}"
    elif s["rotary"] and s["rotary_share"] is s["rotary_size"] is None and (s["d_rope"] or s["d_k"]) % 2:
        name = "d_rope" if s["d_rope"] else "d_k"
        yield f"{key(name)}: {s[name]} columns of a head do not turn in pairs"
    if s["heads"] % s["kv_heads"]:
        yield f"{key('kv_heads')}: {s['kv_heads']} do not divide {key('heads')}, {s['heads']}"
    for name, most in MOST.items():
        if s[name] is not None and s[name] > most:
            yield f"{key(name)}: {s[name]}; {most} are the most"
    if s["experts"] is not None:
        yield from impossible_experts(s, stack)
    if s["delta"]:
        yield from impossible_delta(s, key("act"))
    if s["types"] is not None:
        yield from impossible_types(s, key("types"), chunked="chunk" in stack.settings)


def impossible_experts(s: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    key = stack.key_of
    experts, groups, kept, chosen = (s[name] for name in ("experts", "groups", "chosen_groups", "chosen"))
    if experts % groups:
        yield f"{key('groups')}: {groups} do not divide {key('experts')}, {experts}"
    elif kept > groups:
        yield f"{key('chosen_groups')}: {kept} cannot be chosen of {groups}"
    elif (most := kept * experts // groups) < (chosen or experts + 1):
        yield f"{key('chosen')}: {chosen} experts cannot be chosen of {most}"


def impossible_delta(s: Mapping[str, Any], act: str) -> Iterator[str]:
    _, heads, v_heads, *_ = s["delta"]
    if v_heads % heads:
        yield f"linear_num_key_heads: {heads} do not divide linear_num_value_heads, {v_heads}"
    if ACTIVATIONS.get(s["act"]) is not ACTIVATIONS["silu"]:
        yield f"{act}: {quote(str(s['act']))}; layers of a delta rule are read with silu alone"


def impossible_types(s: Mapping[str, Any], key: str, *, chunked: bool) -> Iterator[str]:
    near, size = ("chunked_attention", "chunk") if chunked else ("sliding_attention", "window")
    near, size = ("linear_attention", "delta") if s["delta"] else (near, size)
    types, known = s["types"], ("full_attention", near)
    for name in sorted({*types} - set(known)):
        yield f"{key}: {quote(name)} is not understood; only {one_of(known)}"
    if len(types) != s["layers"]:
        yield f"{key}: {len(types)} of {s['layers']} layers"
    if s[size] is None and near in types:
        yield f"{key}: '{near}', but there is no {'attention_chunk_size' if chunked else 'sliding_window'}"
