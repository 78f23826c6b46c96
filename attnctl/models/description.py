"""The description of a model that a config.json gives, the same whatever program wrote it.

Reads what transformers 4 wrote (`rope_theta`, `rope_scaling`) and what 5 writes (`rope_parameters`,
nested by type of layer; `layer_types`). What is not understood is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.math.rules import Window
from attnctl.models.families import FAMILIES
from attnctl.models.family import DEFAULTS, Names, Stack
from attnctl.models.keys import Config, value_of
from attnctl.models.problems import TYPES, impossible, misread
from attnctl.models.rope import KINDS, ORIGINAL, Rope
from attnctl.models.rope import misread as misread_rope


@dataclass(frozen=True)
class Layer:
    """One layer of a model: its rules, scale, rope, experts and which of them differ by layer."""

    window: Window | None
    rope: Rope | None
    scale: float | None
    experts: bool
    normed: bool


@dataclass(frozen=True)
class Description:
    """A model as its config.json says it; `settings` are those of `attnctl.models.family.DEFAULTS`."""

    family: str
    part: str
    stack: Stack
    inner: Names
    settings: Mapping[str, Any]
    layers: tuple[Layer, ...]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def shared(self) -> Names:
        return self.stack.outer

    @property
    def norm_kind(self) -> str:
        """LayerNorm or RMSNorm."""
        return "LayerNorm" if self["norm"] == "layer" else "RMSNorm"

    @property
    def crosses(self) -> bool:
        return "cross_q" in self.inner


def describe(config: Config, part: str = "", place: str = "config.json") -> Description:
    """The description of a stack of layers of a model.

    Raises AttnError with everything that is missing, wrong or not understood.
    """
    kind = config.get("model_type")
    raise_all(why_refused(config, place))
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = sorted(FAMILIES)
        found = "no model_type" if kind is None else f"model_type {quote(str(kind))} is not known"
        if config.get("auto_map"):
            found += " (it comes with code of its own, which attnctl does not run)"
        hint = did_you_mean(str(kind), known, f"known are {', '.join(known)}")
        raise AttnError(f"{place}: {found}; {hint}")
    stacks = FAMILIES[kind]
    if part not in stacks:
        names = one_of(name or "the first" for name in stacks)
        raise AttnError(f"{place}: {kind} has no part {quote(part)}; it has {names}")
    stack = stacks[part]
    own = config
    if stack.section:
        own = config.get(stack.section) or {}
        if not isinstance(own, Mapping):
            raise AttnError(f"{place}: {stack.section}: expected an object")
    try:
        return describe_family(kind, part, stack, own, place)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, KeyError) else f"no {error}"
        raise AttnError(f"{place}: a setting is missing or of the wrong kind ({text})") from None


def why_refused(config: Config, place: str) -> Iterator[str]:
    if config.get("quantization_config") or config.get("compression_config"):
        found = config.get("quantization_config") or config.get("compression_config")
        method = found.get("quant_method", "of some kind") if isinstance(found, Mapping) else "of some kind"
        yield f"{place}: its weights are quantised ({method}); give float32, float16 or bfloat16"


def describe_family(kind: str, part: str, stack: Stack, config: Config, place: str) -> Description:
    raise_all(f"{place}: {problem}" for problem in misread(kind, stack, config))
    settings, inner = resolve_settings(stack, config)
    raise_all(f"{place}: {problem}" for problem in impossible(settings, stack))
    by_layer = {name: settings.pop(name) for name in BY_LAYER}
    layers = tuple(layer_of(settings, by_layer, index, place) for index in range(settings["layers"]))
    return Description(kind, part, stack, inner, settings, layers)


BY_LAYER = ("types", "sliding", "expert_layer", "rotated", "rope", "rope_by_type")
"""Settings that are told layer by layer."""


def resolve_settings(stack: Stack, config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting with its value, and the tensors of a layer."""
    found = {**DEFAULTS, **stack.settings}
    inner = dict(stack.inner)
    for case in stack.when:
        if value_of(case.setting, config) == case.equals:
            found.update(case.settings)
            inner.update(case.inner)
            inner = {use: name for use, name in inner.items() if use not in case.without}
    return complete_settings({name: value_of(setting, config) for name, setting in found.items()}), inner


def complete_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with what follows from others."""
    s = settings
    width, heads = s["width"], s["heads"]
    s["kv_heads"] = heads if s["kv_heads"] is None else s["kv_heads"]
    if s["d_k"] is None and width and heads and width % heads == 0:
        s["d_k"] = width // heads
    s["d_v"] = s["d_k"] if s["d_v"] is None else s["d_v"]
    for name in ("k_bias", "out_bias", "mlp_bias"):
        s[name] = s["bias"] if s[name] is None else s[name]
    s["expert_size"] = s["intermediate"] if s["expert_size"] is None else s["expert_size"]
    s["embed_width"] = width if s["embed_width"] is None else s["embed_width"]
    s["project"] = s["embed_width"] != width if s["project"] is None else s["project"]
    return s


def layer_of(s: Mapping[str, Any], by_layer: Mapping[str, Any], index: int, place: str) -> Layer:
    types = by_layer["types"]
    slides = TYPES[types[index]] if types else by_layer["sliding"](index)
    reach = s["window"] if slides else None
    rotates = s["rotary"] and by_layer["rotated"](index)
    scale = s["scale"]
    if s["scale_over_layer"]:
        scale = (s["d_k"] ** -0.5 if scale is None else scale) / (index + 1)
    return Layer(
        None if reach is None else Window(reach - 1, reach - 1 if s["both_ways"] else None),
        rope_of(s, by_layer, slides, place) if rotates else None,
        None if scale is None else float(scale),
        s["experts"] is not None and by_layer["expert_layer"](index),
        index > 0 or s["first_norm"],
    )


def rope_of(s: Mapping[str, Any], by_layer: Mapping[str, Any], slides: bool, place: str) -> Rope:
    """The rotary positions of a layer of this type."""
    parameters = rope_parameters(s, by_layer, slides)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    known = s["rope_kinds"] or {name: name for name in ("default", *KINDS)}
    if kind not in known:
        raise AttnError(f"{place}: rope_type {quote(str(kind))} is not understood; only {one_of(known)}")
    kind, share = known[kind], parameters.get("partial_rotary_factor")
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
    for name in KINDS["longrope"].needs if kind == "longrope" else ():
        if len(parameters[name]) != dims // 2:
            raise AttnError(f"{place}: rope: {name}: {len(parameters[name])} numbers, expected {dims // 2}")
    rope.rotary(1)  # what is not possible together shows here
    return rope


def rope_parameters(s: Mapping[str, Any], by_layer: Mapping[str, Any], slides: bool) -> dict[str, Any]:
    own = next(kind for kind, sliding in TYPES.items() if sliding == slides)
    found = dict((by_layer["rope_by_type"] or {}).get(own) or {})
    if not slides or s["rope_in_windows"]:
        found |= by_layer["rope"] or {}
    if s["original"] is not None and found.get("rope_type", found.get("type")) in ORIGINALS:
        found[ORIGINAL] = s["original"]
    return found


ORIGINALS = [name for name, kind in KINDS.items() if ORIGINAL in kind.reads] + ["su"]
"""The kinds that read how many positions there were first, which may stand outside of their parameters."""
