"""The description of a model that a config.json gives, the same whatever program wrote it.

Reads what transformers 4 wrote (`rope_theta`, `rope_scaling`) and what 5 writes (`rope_parameters`,
nested by type of layer; `layer_types`). What is not understood is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.math.kind import Temperature
from attnctl.math.rules import BlockLocal, Window
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.families import FAMILIES, LACKING, TOWER_DEFAULTS, TOWERS, stacks_of
from attnctl.models.family import DEFAULTS, HEAD, Names, Stack
from attnctl.models.keys import Config, keys_of_setting, setting_value
from attnctl.models.packing import known_formats, packing_of
from attnctl.models.rope import KINDS, ORIGINAL, PROPORTIONAL, USUAL, Rope, misread_rope
from attnctl.models.tensors import Block


@dataclass(frozen=True)
class Layer:
    window: Window | BlockLocal | None
    rope: Rope | None
    temperature: Temperature | None
    scale: float | None
    has_experts: bool
    has_norm: bool
    is_linear: bool
    """Whether it does something else than attend: carries a state, say."""
    is_network: bool
    """Whether that is its network, and nothing mixes tokens."""
    has_network: bool
    overrides: Mapping[str, Any]
    """Settings that are those of this layer alone."""


class ByLayer(NamedTuple):
    """The settings that are said for each layer, or for each type of layer."""

    types: Sequence[str] | None
    slides: Sequence[bool]
    """Whether each layer has a window, or is a chunk at a time."""
    linear: Callable[[int], bool]
    expert_layer: Callable[[int], bool]
    rotated: Callable[[int], bool]
    rope: Mapping[str, Any] | None
    rope_by_type: Mapping[str, Any] | None
    overriding: Callable[[int, Sequence[bool]], Mapping[str, Any]] | None

    @classmethod
    def take_from(cls, settings: dict[str, Any]) -> ByLayer:
        """Take these settings out of those of the whole stack."""
        by_layer = {name: settings.pop(name) for name in BY_LAYER}
        types = by_layer["types"]
        if types:
            slides = [TYPES[name] for name in types]
        else:
            slides = [by_layer["sliding"](index) for index in range(settings["layers"])]

        return cls(
            types=types,
            slides=slides,
            linear=by_layer["linear"],
            expert_layer=by_layer["expert_layer"],
            rotated=by_layer["rotated"],
            rope=by_layer["rope"],
            rope_by_type=by_layer["rope_by_type"],
            overriding=by_layer["own"],
        )

    def overrides(self, index: int) -> Mapping[str, Any]:
        return self.overriding(index, self.slides) if self.overriding else {}

    def is_linear(self, index: int) -> bool:
        if self.types:
            return self.types[index] in (*MIXING, *NETWORKS)
        return self.linear(index)

    def is_network(self, index: int) -> bool:
        return self.types[index] in NETWORKS if self.types else False


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
        suffixes = []
        if self["norm_weight"]:
            suffixes.append(".weight")
        if self["norm_bias"]:
            suffixes.append(".bias")
        return suffixes

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "head": self["heads"],
            "kv_head": self["kv_heads"],
            "d_model": self["width"],
            "d_k": self["d_k"],
            "d_v": self["d_v"],
        }

    @property
    def attending(self) -> list[int]:
        return [index for index, layer in enumerate(self.layers) if not layer.is_linear]

    @property
    def sources(self) -> list[int]:
        """The layers whose K and V others read."""
        return sorted({layer.overrides["source"] for layer in self.layers if "source" in layer.overrides})

    def of_layer(self, index: int) -> Description:
        overrides = self.layers[index].overrides
        return replace(self, settings={**self.settings, **overrides}) if overrides else self

    @property
    def crosses(self) -> bool:
        return "cross_q" in self.inner


def describe(config: Config, part: str = "", place: str = "config.json") -> Description:
    """The description of a stack of layers. Raises AttnError with everything wrong or not understood."""
    # Weights that are quantised in another way come first: their config.json may say anything else.
    scale_blocks(config, place)
    family = family_of(config, place)
    stack = stack_of(family, part, place)
    section = section_of(stack, config, place)
    if config.get("model_type") in TOWERS:
        section = {**TOWER_DEFAULTS.get(str(text_of(config)), {}), **section}

    try:
        raise_all(f"{place}: {problem}" for problem in misread(family, stack, section))
        settings, inner = resolve_settings(stack, section)
        raise_all(f"{place}: {problem}" for problem in impossible(settings, stack))

        by_layer = ByLayer.take_from(settings)
        layers = [layer_of(settings, by_layer, index, stack, place) for index in range(settings["layers"])]
        return Description(
            family=family,
            part=part,
            stack=stack,
            inner=inner,
            settings=settings,
            layers=tuple(layers),
            head=resolve_head(stack, {**config, **section, **tie_of(config, section)}),
        )
    # Rules of families compute with what keys say, each of which is as it should be only by itself.
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        text = f"no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise AttnError(f"{place}: a setting is missing or of the wrong kind ({text})") from None


def family_of(config: Config, place: str) -> str:
    """The model_type. Raises AttnError where no family has it, with what it would need if known."""
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return kind
    if isinstance(kind, str) and (text := text_of(config)):
        if kind in TOWERS:
            return f"{kind}/{text}"
        raise AttnError(
            f"{place}: model_type {quote(kind)} is not known; its text is {text}, which is, but what "
            "surrounds it has not been held to transformers, as that of "
            f"{', '.join(sorted(TOWERS))} has"
        )

    problem = "no model_type" if kind is None else f"model_type {quote(str(kind))} is not known"
    if config.get("auto_map"):
        problem += " (it comes with code of its own, which attnctl does not run)"
    if need := LACKING.get(str(kind)):
        problem += f": it has {need}, which no family here has"
    raise AttnError(f"{place}: {problem}; known are {', '.join(sorted(FAMILIES))}")


def tie_of(config: Config, section: Config) -> dict[str, bool]:
    """Whether a head shares the embeddings, which a model that is more may say for its text."""
    if config.get("model_type") not in TOWERS:
        return {}
    return {
        "tie_word_embeddings": any(each.get("tie_word_embeddings") is True for each in (config, section))
    }


def text_of(config: Config) -> str | None:
    """The family of the text of a model that is more; None where it is none that is known by itself."""
    text = config.get("text_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    if not isinstance(kind, str) or kind not in FAMILIES or FAMILIES[kind][""].section:
        return None
    return kind


def stack_of(family: str, part: str, place: str) -> Stack:
    stacks = stacks_of(family)
    if part not in stacks:
        names = one_of(name or "the first" for name in stacks)
        raise AttnError(f"{place}: {family} has no part {quote(part)}; it has {names}")
    return stacks[part]


def section_of(stack: Stack, config: Config, place: str) -> Config:
    """The part of config.json that is about a stack: all of it, or one object in it."""
    if not stack.section:
        return config
    if "hidden_size" in config and stack.section not in config:
        # The first Qwen2-VL had the keys of its text model beside the others, and beside its pictures.
        return {key: value for key, value in config.items() if key != "vision_config"}

    section = config.get(stack.section) or {}
    if not isinstance(section, Mapping):
        raise AttnError(f"{place}: {stack.section}: expected an object")
    encoder = config.get(stack.encoder) if stack.encoder else None
    if isinstance(encoder, Mapping) and "hidden_size" in encoder:
        # Whatever its own section says: what it attends to is as wide as the encoder is.
        return {**section, OF_MEMORY: encoder["hidden_size"]}
    return section


OF_MEMORY = "cross_attention_hidden_size"
"""The key that says how wide the rows are that a decoder attends to."""


def scale_blocks(config: Config, place: str) -> Block | None:
    """The rows and columns that have one scale, of weights in FP8. Raises AttnError where others are."""
    if packing_of(config, place) is not None:
        return None
    quantised = config.get("quantization_config") or config.get("compression_config") or {}
    entries = quantised if isinstance(quantised, Mapping) else {}
    method = entries.get("quant_method", "of some kind")
    match entries.get("weight_block_size"):
        case [int(rows), int(columns)] if method == "fp8" and rows > 0 and columns > 0:
            return rows, columns
        case None if method == "fp8":
            return ALL_ROWS, ALL_COLUMNS
    if method == "compressed-tensors" and entries.get("format") == "float-quantized":
        return scale_groups(entries.get("config_groups"), place)

    if quantised and method != "mxfp4":
        instead = f"give {known_formats()}; or float32, float16 or bfloat16"
        raise AttnError(f"{place}: its weights are quantised ({method}); {instead}")
    return None


ALL_ROWS = ALL_COLUMNS = 2**40
"""A block that is as large as any matrix: it has one scale."""

BY_STRATEGY: dict[Any, Block] = {"tensor": (ALL_ROWS, ALL_COLUMNS), "channel": (1, ALL_COLUMNS)}


def scale_groups(groups: Any, place: str) -> Block:
    """The rows and columns that have one scale, by compressed-tensors. Raises AttnError for others."""
    entries = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [entry.get("weights") for entry in entries if isinstance(entry, Mapping)]
    blocks = {scale_group(each) for each in weights}
    (block,) = blocks if len(blocks) == 1 else {None}
    if block is None:
        raise AttnError(
            f"{place}: its weights are quantised (compressed-tensors); of these only FP8 with a scale for "
            "each matrix or each row is read, and whole numbers (pack-quantized, int-quantized)"
        )
    return block


def scale_group(weights: Any) -> Block | None:
    if not isinstance(weights, Mapping) or (weights.get("num_bits"), weights.get("type")) != (8, "float"):
        return None
    strategy = weights.get("strategy")
    return BY_STRATEGY.get(strategy) if isinstance(strategy, str) else None


BY_LAYER = ("types", "sliding", "linear", "expert_layer", "rotated", "rope", "rope_by_type", "own")
"""Settings that are told layer by layer."""


def resolve_settings(stack: Stack, config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting with its value, those that follow from others too; and the tensors of a layer."""
    entries = {**DEFAULTS, **stack.settings}
    inner = dict(stack.inner)
    for case in stack.when:
        if setting_value(case.setting, config) == case.equals:
            entries.update(case.settings)
            inner.update(case.inner)
            inner = {use: name for use, name in inner.items() if use not in case.without}

    settings = {name: setting_value(setting, config) for name, setting in entries.items()}
    # In this order: the size of a head first, as `d_v` follows from it.
    use_defaults(settings, {"d_k": head_size(settings)})
    use_defaults(settings, sizes_by_default(settings))
    use_defaults(settings, facts_of_tensors(settings, stack, inner))
    return settings, inner


def use_defaults(settings: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Give these values to the settings that have none."""
    for name, value in defaults.items():
        if settings[name] is None:
            settings[name] = value


def head_size(settings: Mapping[str, Any]) -> int | None:
    """The columns of a head where nothing says them; None where the heads do not divide the width."""
    width = settings["width"]
    heads = settings["heads"]
    if not width or not heads or width % heads:
        return None
    size: int = width // heads
    return size


def sizes_by_default(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes and biases that are those of others unless a family or its config.json says otherwise."""
    return {
        "kv_heads": settings["heads"],
        "d_v": settings["d_k"],
        "expert_size": settings["intermediate"],
        "expert_width": settings["width"],
        "state_act": settings["act"],
        "embed_width": settings["width"],
        "k_bias": settings["bias"],
        "v_bias": settings["bias"],
        "out_bias": settings["bias"],
        "mlp_bias": settings["bias"],
    }


def facts_of_tensors(settings: Mapping[str, Any], stack: Stack, inner: Names) -> dict[str, Any]:
    """What follows from the sizes, and from which tensors the family has."""
    return {
        "project": settings["embed_width"] != settings["width"],
        "qk_norm": "row" if "q_norm" in inner else None,
        "sink": "sink" in inner,
        "gated": "gate" in inner or "gate_up" in inner,
        "positions": "plain" if "position" in stack.outer else None,
        "embed_norm": "embed_norm" in stack.outer,
        "final_norm": "final_norm" in stack.outer,
    }


def resolve_head(stack: Stack, config: Config) -> dict[str, Any]:
    entries = {**HEAD, **stack.head}
    return {name: setting_value(setting, config) for name, setting in entries.items()}


def layer_of(settings: Mapping[str, Any], by_layer: ByLayer, index: int, stack: Stack, place: str) -> Layer:
    """What layer `index` is: its window, its positions, its experts."""
    overrides = by_layer.overrides(index)
    if overrides:
        settings = {**settings, **overrides}
        together = {**settings, "types": by_layer.types}
        raise_all(f"{place}: {problem}" for problem in impossible(together, stack))

    slides = by_layer.slides[index]
    rotates = settings["rotary"] and by_layer.rotated(index) and (slides or settings["rotated_in_full"])
    has_temperature = not rotates or settings["temperature_rotated"]

    return Layer(
        window=window_rule(settings) if slides else None,
        rope=rope_of(settings, by_layer, slides, place) if rotates else None,
        temperature=settings["temperature"] if has_temperature else None,
        scale=scale_of(settings, index),
        has_experts=settings["experts"] is not None and by_layer.expert_layer(index),
        has_norm=index > 0 or settings["first_norm"],
        is_linear=by_layer.is_linear(index),
        is_network=by_layer.is_network(index),
        has_network=by_layer.is_network(index) or not settings["one_part"],
        overrides=overrides,
    )


def window_rule(settings: Mapping[str, Any]) -> Window | BlockLocal | None:
    if settings["chunk"] is not None:
        return BlockLocal(settings["chunk"])
    if settings["window"] is None:
        return None

    # A window counts the query itself, a rule how far to either side it sees.
    reach = settings["window"] - 1
    return Window(reach, reach if settings["both_ways"] else None)


def scale_of(settings: Mapping[str, Any], index: int) -> float | None:
    scale = settings["scale"]
    if settings["scale_over_layer"]:
        whole = settings["d_k"] ** -0.5 if scale is None else scale
        scale = whole / (index + 1)
    return None if scale is None else float(scale)


def rope_of(settings: Mapping[str, Any], by_layer: ByLayer, slides: bool, place: str) -> Rope:
    """The rotary positions of layers with a window, or of those without. Raises AttnError for misfits."""
    parameters = rope_parameters(settings, by_layer, slides)
    kind = rope_kind(settings, parameters, place)
    raise_all(f"{place}: {problem}" for problem in misread_rope(kind, parameters))

    size = settings["d_rope"] or settings["d_k"]
    dims = rotated_columns(settings, kind, parameters, size=size, place=place)
    rope = Rope(
        kind=kind,
        theta=float(rope_theta(settings, parameters, slides)),
        dims=dims,
        interleaved=bool(settings["interleaved"]),
        first=settings["d_k"] - size,
        longest=settings["longest"],
        parameters=parameters,
    )

    if kind.startswith("longrope"):
        for name in ("short_factor", "long_factor"):
            count = len(parameters[name])
            if count != dims // 2:
                raise AttnError(f"{place}: rope: {name}: {count} numbers, expected {dims // 2}")
    rope.rotary(1)  # what is not possible together shows here
    return rope


def rope_kind(settings: Mapping[str, Any], parameters: Mapping[str, Any], place: str) -> str:
    """The kind as `attnctl.models.rope` calls it: some families mean another by a usual name."""
    name = parameters.get("rope_type") or parameters.get("type") or "default"
    known = settings["rope_kinds"] or {usual: usual for usual in USUAL}
    if name not in known:
        raise AttnError(f"{place}: rope_type {quote(str(name))} is not understood; only {one_of(known)}")
    kind: str = known[name]
    return kind


def rotated_columns(
    settings: Mapping[str, Any], kind: str, parameters: Mapping[str, Any], *, size: int, place: str
) -> int:
    """How many of the columns of a head turn. Raises AttnError where that cannot be."""
    share = parameters.get("partial_rotary_factor")
    if kind == PROPORTIONAL:
        share = None  # a share of frequencies, not of columns
    if settings["rotary_share"] is None and share not in (None, 1):
        raise AttnError(f"{place}: rope: partial_rotary_factor {share}; this family rotates all columns")

    dims: int = settings["rotary_size"] or int(size * (share or settings["rotary_share"] or 1))
    if dims % 2 or not 2 <= dims <= size:
        key = "rotary_dim" if settings["rotary_size"] else "partial_rotary_factor"
        raise AttnError(
            f"{place}: {key}: {dims} of {size} columns of a head would turn, which they do in pairs "
            "(head_dim is hidden_size / num_attention_heads)"
        )
    return dims


def rope_theta(settings: Mapping[str, Any], parameters: Mapping[str, Any], slides: bool) -> Any:
    theta = parameters.get("rope_theta")
    if theta is not None:
        return theta
    if slides and settings["local_theta"] is not None:
        return settings["local_theta"]
    return settings["theta"]


def rope_parameters(settings: Mapping[str, Any], by_layer: ByLayer, slides: bool) -> dict[str, Any]:
    """What config.json says of the rope: for this type of layer, and over that for all."""
    layer_type = "sliding_attention" if slides else "full_attention"
    parameters = dict((by_layer.rope_by_type or {}).get(layer_type) or {})
    if not slides or settings["rope_in_windows"]:
        parameters |= by_layer.rope or {}

    kind = parameters.get("rope_type", parameters.get("type"))
    if settings["original"] is not None and kind in ORIGINALS:
        parameters[ORIGINAL] = settings["original"]
    return parameters


ORIGINALS = [*(name for name, kind in KINDS.items() if ORIGINAL in kind.reads), "su"]
"""The kinds that read how many positions there were first, which may stand outside of their parameters."""


# --- what cannot be, or is not read ---

MOST = {"layers": 10_000, "d_k": 2**16}
TYPES = {
    "full_attention": False,
    "sliding_attention": True,
    "chunked_attention": True,
    "linear_attention": False,
    "attention": False,
    "mamba": False,
    "conv": False,
    "mlp": False,
    "moe": False,
}
"""The types of layers, and whether each has a window."""

MIXING = ("linear_attention", "mamba", "conv")
"""Those of layers that mix tokens without attending."""

NETWORKS = ("mlp", "moe")
"""Those of layers that are a network alone."""

SILENT = {"partial_rotary_factor": 1.0, "is_causal": True}
"""Keys that say nothing where they say this; any other says nothing by false, 0 and what is empty."""

NAMES = (
    # the file itself, and how it is loaded
    r"_.*|architectures|auto_map|model_type|transformers_version|name_or_path|tokenizer_class|language",
    r"(?:torch_)?dtype|torchscript|use_bfloat16|tie_\w+|gradient_checkpointing|transformers\.js_config",
    r"quantization(?:_config)?|compression_config|attn_implementation|experts_implementation|is_llama_config|unsloth_\w+",
    # what a call returns, and the cache it keeps
    r"return_dict|output_\w+|use_cache|cache_implementation|is_encoder_decoder|chunk_size_feed_forward",
    # training
    r"\w*dropout\w*|\w*_pdrop|\w*layerdrop|init_std|initializer_\w+|\w*aux_loss\w*|router_jitter_noise",
    r"seq_aux|pretraining_tp|mask_(?:time|feature)_\w+|apply_spec_augment",
    # tasks, and what follows the last layer
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_\w+",
    r"summary_\w+|pooler_\w+|decoder_bias|sparse_pred\w*|projection_dim|logit_scale\w*|logits_scaling",
    r"predict_special_tokens|scale_decoder_outputs|final_logit_softcapping|use_weighted_layer_sum|median_filter_width",
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
CANNOT_TELL = "attnctl cannot tell what it changes, and without it might compute another model"
"""What is said of a key that no family knows: never that it may be left out."""

INERT = re.compile("|".join(NAMES))
"""Keys that change no attention and no hidden state in any family; one may read them all the same."""


def misread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """Keys whose values are of no kind that they may have, and keys that this family does not read."""
    keys = [*stack.keys, *(key for setting in stack.head.values() for key in keys_of_setting(setting))]
    # Several settings may be read off one key: its problem is said once.
    yield from dict.fromkeys(problem for key in keys for problem in key.problems(config))

    for setting in ("layers", "width", "heads", "intermediate"):
        keys_of_size = keys_of_setting({**DEFAULTS, **stack.settings}[setting])
        if all(key.value(config) is None for key in keys_of_size):
            yield f"no {one_of(name for key in keys_of_size for name in key.names)}"

    for name, setting in stack.only.items():
        value = config.get(name)
        understood = setting_value(setting, config)
        if value is not None and value != understood:
            yield f"{name} {quote(str(value))} is not understood; only {understood}"

    yield from unread(kind, stack, config)


def unread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """The keys that say something and that no part of the family reads."""
    understood: set[str] = set()
    for part in stacks_of(kind).values():
        if part.section == stack.section:
            understood |= part.understood

    for name, value in config.items():
        if is_silent(name, value) or name in understood or INERT.fullmatch(name):
            continue
        hint = did_you_mean(name, sorted(understood), CANNOT_TELL)
        yield f"{quote(name)} is {quote(str(value))}, but {kind} reads no such key; {hint}"


def is_silent(name: str, value: Any) -> bool:
    """Whether a key says nothing by this value."""
    if value is None:
        return True
    if name in SILENT:
        return bool(value == SILENT[name])
    return not value


def impossible(settings: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    """Combinations that no model can have, though each key by itself says what it may."""
    key = stack.key_of
    if settings["act"] not in ACTIVATIONS:
        function = quote(str(settings["act"]))
        yield f"{key('act')}: the function {function} is not known; known are {', '.join(ACTIVATIONS)}"
    yield from impossible_heads(settings, stack)
    for name, most in MOST.items():
        if settings[name] is not None and settings[name] > most:
            yield f"{key(name)}: {settings[name]}; {most} are the most"

    if settings["experts"] is not None:
        yield from impossible_experts(settings, stack)
    if settings["delta"]:
        yield from impossible_delta(settings, key("act"))
    if settings["state_space"]:
        yield from impossible_state(settings, stack)
    if settings["types"] is not None:
        of_types = one_of(keys_of_setting(stack.settings["types"])[0].names)
        yield from impossible_types(settings, of_types, chunked="chunk" in stack.settings)


def impossible_heads(settings: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    key = stack.key_of
    heads = settings["heads"]
    kv_heads = settings["kv_heads"]
    turns_all = settings["rotary"] and settings["rotary_share"] is None and settings["rotary_size"] is None

    if settings["d_k"] is None:
        yield f"{key('heads')}: {heads} heads do not divide {key('width')}, {settings['width']}"
    elif turns_all:
        name = "d_rope" if settings["d_rope"] else "d_k"
        if settings[name] % 2:
            yield f"{key(name)}: {settings[name]} columns of a head do not turn in pairs"

    if heads % kv_heads:
        yield f"{key('kv_heads')}: {kv_heads} do not divide {key('heads')}, {heads}"


def impossible_experts(settings: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    key = stack.key_of
    experts = settings["experts"]
    chosen = settings["chosen"]
    groups = settings["groups"]
    chosen_groups = settings["chosen_groups"]

    if experts % groups:
        yield f"{key('groups')}: {groups} do not divide {key('experts')}, {experts}"
        return
    if chosen_groups > groups:
        yield f"{key('chosen_groups')}: {chosen_groups} cannot be chosen of {groups}"
        return

    most = chosen_groups * experts // groups
    if not chosen or chosen > most:
        yield f"{key('chosen')}: {chosen} experts cannot be chosen of {most}"


def impossible_delta(settings: Mapping[str, Any], act: str) -> Iterator[str]:
    _, heads, v_heads, *_ = settings["delta"]
    if v_heads % heads:
        yield f"linear_num_key_heads: {heads} do not divide linear_num_value_heads, {v_heads}"
    if ACTIVATIONS.get(settings["act"]) is not ACTIVATIONS["silu"]:
        yield f"{act}: {quote(str(settings['act']))}; layers of a delta rule are read with silu alone"


def impossible_state(settings: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    _, heads, _, groups, _ = settings["state_space"]
    _, of_heads, _, of_groups, *_ = keys_of_setting(stack.settings["state_space"])
    if heads % groups:
        yield f"{of_groups.names[0]}: {groups} do not divide {of_heads.names[0]}, {heads}"
    act = settings["state_act"]
    if ACTIVATIONS.get(act) is not ACTIVATIONS["silu"]:
        key = stack.key_of("state_act" if "state_act" in stack.settings else "act")
        yield f"{key}: {quote(str(act))}; layers of a state space are read with silu alone"


NEAR_TYPES = {
    "delta": ("linear_attention",),
    "state_space": ("attention", "linear_attention", "mamba"),
    "convolution": ("conv",),
}
"""Beside full_attention, by the setting that says how large what is in the layers of the others is."""


def impossible_types(settings: Mapping[str, Any], key: str, *, chunked: bool) -> Iterator[str]:
    size = next((name for name in NEAR_TYPES if settings[name]), "chunk" if chunked else "window")
    near = "chunked_attention" if chunked else "sliding_attention"

    types = settings["types"]
    named = (*NEAR_TYPES.get(size, (near,)), *(NETWORKS if settings["one_part"] else ()))
    known = ("full_attention", *named)
    for name in sorted({*types} - set(known)):
        yield f"{key}: {quote(name)} is not understood; only {one_of(known)}"
    if len(types) != settings["layers"]:
        yield f"{key}: {len(types)} of {settings['layers']} layers"
    if settings[size] is None and near in types:
        yield f"{key}: '{near}', but there is no {'attention_chunk_size' if chunked else 'sliding_window'}"
