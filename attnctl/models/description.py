"""What a config.json describes: one description of a model, whatever wrote it.

Reads what transformers 4 wrote (`rope_theta`, `rope_scaling`) and what 5 writes (`rope_parameters`,
nested by type of layer; `layer_types`). What is not understood is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attnctl.errors import AttnError, raise_all
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.families import FAMILIES
from attnctl.models.family import DEFAULTS, Config, Key, Names, Stack
from attnctl.models.rope import KINDS, NEEDS, UNDERSTOOD, Rope
from attnctl.rules import Window
from attnctl.words import did_you_mean, one_of, quoted

MOST_LAYERS = 10_000
LARGEST, LARGEST_HEAD, LARGEST_NUMBER = 2**31, 2**16, 1e30
TYPES = {"full_attention": False, "sliding_attention": True}
"""The types of layers, and whether each has a window."""


@dataclass(frozen=True)
class Layer:
    """What is one layer's own."""

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
        """The tensors outside of layers."""
        return self.stack.outer

    @property
    def norm_kind(self) -> str:
        """LayerNorm or RMSNorm."""
        return "LayerNorm" if self["norm"] == "layer" else "RMSNorm"

    @property
    def crosses(self) -> bool:
        """Whether its layers attend to another sequence too."""
        return "cross_q" in self.inner


def describe(config: Config, part: str = "", place: str = "config.json") -> Description:
    """The description of a stack of layers of a model.

    Raises AttnError with everything that is missing, wrong or not understood.
    """
    kind = config.get("model_type")
    raise_all(refused(config, place))
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = sorted(FAMILIES)
        found = "no model_type" if kind is None else f"model_type {quoted(str(kind))} is not known"
        if config.get("auto_map"):
            found += " (it comes with code of its own, which attnctl does not run)"
        hint = did_you_mean(str(kind), known, f"known are {', '.join(known)}")
        raise AttnError(f"{place}: {found}; {hint}")
    stacks = FAMILIES[kind]
    if part not in stacks:
        names = one_of(name or "the first" for name in stacks)
        raise AttnError(f"{place}: {kind} has no part {quoted(part)}; it has {names}")
    stack = stacks[part]
    own = config
    if stack.section:
        own = config.get(stack.section) or {}
        if not isinstance(own, Mapping):
            raise AttnError(f"{place}: {stack.section}: expected an object")
    try:
        return described(kind, part, stack, own, place)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, KeyError) else f"no {error}"
        raise AttnError(f"{place}: a setting is missing or of the wrong kind ({text})") from None


def refused(config: Config, place: str) -> Iterator[str]:
    """What makes a model one of another kind, whatever its family."""
    if config.get("quantization_config") or config.get("compression_config"):
        found = config.get("quantization_config") or config.get("compression_config")
        method = found.get("quant_method", "of some kind") if isinstance(found, Mapping) else "of some kind"
        yield f"{place}: its weights are quantised ({method}); give float32, float16 or bfloat16"


def described(kind: str, part: str, stack: Stack, config: Config, place: str) -> Description:
    """The description, once the family is known."""
    settings, inner = resolved(stack, config)
    for name, allowed in stack.only.items():
        if config.get(name, allowed[0]) not in (*allowed, None):
            raise AttnError(
                f"{place}: {name} {quoted(str(config[name]))} is not understood; only {allowed[0]}"
            )
    raise_all(problems(settings, config, place))
    layers = tuple(layer_of(settings, config, index, place) for index in range(settings["layers"]))
    return Description(kind, part, stack, inner, settings, layers)


def resolved(stack: Stack, config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting with its value, and the tensors of a layer."""
    found = {**DEFAULTS, **stack.settings}
    inner = dict(stack.inner)
    for case in stack.when:
        if value_of(case.setting, config) == case.equals:
            found.update(case.settings)
            inner.update(case.inner)
            inner = {use: name for use, name in inner.items() if use not in case.without}
    by_layer = {name: found.pop(name) for name in ("sliding", "expert_layer")}
    settings = {name: value_of(setting, config) for name, setting in found.items()} | by_layer
    return completed(settings), inner


def value_of(setting: Any, config: Config) -> Any:
    """What a setting comes to."""
    if isinstance(setting, Key):
        return setting.value(config)
    return setting(config) if callable(setting) else setting


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with what follows from others."""
    s = settings
    width, heads = s["width"], s["heads"]
    s["kv_heads"] = heads if s["kv_heads"] is None else s["kv_heads"]
    if s["d_k"] is None and is_count(width) and is_count(heads):
        s["d_k"] = width // heads
    s["d_v"] = s["d_k"] if s["d_v"] is None else s["d_v"]
    for name in ("k_bias", "out_bias", "mlp_bias"):
        s[name] = s["bias"] if s[name] is None else s[name]
    s["intermediate"] = 4 * width if s["intermediate"] is None else s["intermediate"]
    s["expert_size"] = s["intermediate"] if s["expert_size"] is None else s["expert_size"]
    s["embed_width"] = width if s["embed_width"] is None else s["embed_width"]
    s["project"] = s["embed_width"] != width if s["project"] is None else s["project"]
    return s


def is_count(value: Any) -> bool:
    """Whether it is a number of things: a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST


NUMBERS = ("eps", "residual", "embed_scale", "scale", "softcap", "router_scale", "latent_eps")
COUNTS = (
    *(
        "experts",
        "chosen",
        "expert_size",
        "groups",
        "chosen_groups",
        "buckets",
        "furthest",
        "rank",
        "kv_rank",
    ),
    *("d_rope", "rotary_size", "shared_groups", "embed_width", "longest"),
)
FLAGS = (
    *(
        "norm_weight",
        "norm_bias",
        "bias",
        "k_bias",
        "out_bias",
        "mlp_bias",
        "causal",
        "interleaved",
        "parallel",
    ),
    *("from_norm", "gated", "router_normalized", "final_norm", "scale_over_layer"),
)
"""Settings that are a number, a number of things, or on and off, where they are not None."""


def ill_typed(s: Mapping[str, Any], place: str) -> Iterator[str]:
    """Settings of the wrong kind."""
    for names, fits, expected in (
        (NUMBERS, is_number, "a number"),
        (COUNTS, is_count, "a whole number from 1"),
        (FLAGS, lambda value: isinstance(value, bool), "true or false"),
    ):
        for name in names:
            if s[name] is not None and not fits(s[name]):
                yield f"{place}: {told(name)}: {quoted(str(s[name]))}, expected {expected}"


def is_number(value: Any) -> bool:
    """Whether it is a number that float32 holds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER


def told(name: str) -> str:
    """What config.json most often calls a setting."""
    setting = DEFAULTS[name]
    return setting.names[0] if isinstance(setting, Key) else name


def problems(s: Mapping[str, Any], config: Config, place: str) -> Iterator[str]:
    """What no model can have."""
    counted = ("layers", "width", "heads", "kv_heads", "d_k", "d_v", "intermediate")
    wrong = [name for name in counted if not is_count(s[name])]
    for name in wrong:
        yield f"{place}: {told(name)}: {quoted(str(s[name]))}, expected a whole number from 1"
    yield from ill_typed(s, place)
    if not wrong and s["heads"] % s["kv_heads"]:
        yield f"{place}: {s['kv_heads']} kv heads do not divide {s['heads']} heads"
    if is_count(s["layers"]) and s["layers"] > MOST_LAYERS:
        yield f"{place}: {s['layers']} layers; {MOST_LAYERS} are the most"
    if not wrong and s["d_k"] > LARGEST_HEAD:
        yield f"{place}: heads of {s['d_k']} columns; {LARGEST_HEAD} are the most"
    if s["experts"] is not None and not wrong and s["experts"] % (s["groups"] or 1):
        yield f"{place}: {s['groups']} groups do not divide {s['experts']} experts"
    if s["clamp"] is not None and not all(map(is_number, s["clamp"])):
        yield f"{place}: swiglu_alpha and swiglu_limit: {quoted(str(s['clamp']))}, expected numbers"
    if not isinstance(s["act"], str) or s["act"] not in ACTIVATIONS:
        yield (
            f"{place}: the function {quoted(str(s['act']))} is not known; "
            f"known are {', '.join(ACTIVATIONS)}"
        )
    types = config.get("layer_types")
    for kind in sorted({str(each) for each in types} - set(TYPES)) if isinstance(types, list) else ():
        yield f"{place}: layer_types: {quoted(kind)} is not understood; only {one_of(TYPES)}"
    if isinstance(types, list) and is_count(s["layers"]) and len(types) < s["layers"]:
        yield f"{place}: layer_types: {len(types)} of {s['layers']} layers"


def layer_of(s: Mapping[str, Any], config: Config, index: int, place: str) -> Layer:
    """What is this layer's own."""
    types = config.get("layer_types")
    slides = TYPES[types[index]] if types else bool(s["sliding"](config, index))
    reach = s["window"] if slides else None
    window = None
    if reach is not None:
        if not is_count(reach):
            raise AttnError(
                f"{place}: sliding_window: {quoted(str(reach))}, expected a whole number from 1"
            )
        window = Window(reach - 1, reach - 1 if s["both_ways"] else None)
    rotates = s["rotary"] and (s["rotated_layers"] is None or bool(s["rotated_layers"][index]))
    scale = s["scale"]
    if s["scale_over_layer"]:
        scale = (s["d_k"] ** -0.5 if scale is None else scale) / (index + 1)
    return Layer(
        window,
        rope_of(s, config, slides, place) if rotates else None,
        None if scale is None else float(scale),
        s["experts"] is not None and bool(s["expert_layer"](config, index)),
        index > 0 or s["first_norm"],
    )


def rope_of(s: Mapping[str, Any], config: Config, slides: bool, place: str) -> Rope:
    """The rotary positions of a layer of this type."""
    parameters = rope_parameters(s, config, slides)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    kind = s["rope_names"].get(kind, kind)
    if kind != "default" and kind not in KINDS:
        known = one_of(("default", *KINDS))
        raise AttnError(f"{place}: rope_type {quoted(str(kind))} is not understood; only {known}")
    unknown = [name for name in parameters if name not in UNDERSTOOD and parameters[name] is not None]
    raise_all(f"{place}: rope: {quoted(str(name))} is not understood" for name in unknown)
    missing = [name for name in NEEDS.get(kind, ()) if parameters.get(name) is None]
    raise_all(f"{place}: rope_type {kind} without {name}" for name in missing)
    theta = parameters.get("rope_theta")
    if theta is None:
        theta = s["local_theta"] if slides and s["local_theta"] is not None else s["theta"]
    share = parameters.get("partial_rotary_factor")
    size = s["d_rope"] or s["d_k"]
    dims = s["rotary_size"] or int(size * (s["rotary_share"] if share is None else share))
    dims += dims % 2
    if not 0 < float(theta) < float("inf") or not 2 <= dims <= size:
        raise AttnError(f"{place}: rotating {dims} of {size} columns with theta {theta} is not possible")
    first = s["d_k"] - size
    rope = Rope(kind, float(theta), dims, bool(s["interleaved"]), first, s["longest"], parameters)
    rope.rotary(1)  # parameters of the wrong kind or length show here
    return rope


def rope_parameters(s: Mapping[str, Any], config: Config, slides: bool) -> dict[str, Any]:
    """What config.json says of the rope of layers of this type, in any of its forms."""
    written = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if any(kind in written for kind in TYPES):
        own = next(kind for kind, sliding in TYPES.items() if sliding == slides)
        written = written.get(own) or {}
    elif slides and s["local_theta"] is not None and "rope_parameters" not in config:
        written = {}  # rope_scaling is that of the layers without a window
    found = dict(written)
    if config.get("original_max_position_embeddings") is not None:
        found["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    return found
