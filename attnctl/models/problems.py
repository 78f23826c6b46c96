"""What a config.json says that cannot be, or that the family of the model does not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.families import FAMILIES
from attnctl.models.family import DEFAULTS, Stack
from attnctl.models.inert import INERT
from attnctl.models.keys import Config, keys_of, value_of

MOST = {"layers": 10_000, "d_k": 2**16}
TYPES = {"full_attention": False, "sliding_attention": True}
"""The types of layers, and whether each has a window."""

OFF = {"partial_rotary_factor": 1.0}
"""Keys that say nothing where they say this; null, false, 0 and what is empty say nothing anyway."""


def misread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """Keys whose values are of no kind that they may have, and keys that this family does not read."""
    yield from dict.fromkeys(problem for each in stack.keys for problem in each.problems(config))
    for setting in ("layers", "width", "heads", "intermediate"):
        keys = keys_of({**DEFAULTS, **stack.settings}[setting])
        if all(each.value(config) is None for each in keys):
            yield f"no {keys[0].names[0]}"
    for name, setting in stack.only.items():
        said, understood = config.get(name), value_of(setting, config)
        if said is not None and said != understood:
            yield f"{name} {quote(str(said))} is not understood; only {understood}"
    yield from unread(kind, stack, config)


def unread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """The keys that say something and that no part of the family reads."""
    parts = (each.understood for each in FAMILIES[kind].values() if each.section == stack.section)
    understood = frozenset[str]().union(*parts)
    for name, said in config.items():
        if said and said != OFF.get(name) and name not in understood and not INERT.fullmatch(name):
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
    if s["types"] is not None:
        yield from impossible_types(s["types"], s["layers"], s["window"])


def impossible_experts(s: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    """Numbers of experts that do not go together."""
    key = stack.key_of
    experts, groups, chosen_groups, chosen = (
        s[name] for name in ("experts", "groups", "chosen_groups", "chosen")
    )
    if experts % groups:
        yield f"{key('groups')}: {groups} do not divide {key('experts')}, {experts}"
    elif chosen_groups > groups:
        yield f"{key('chosen_groups')}: {chosen_groups} cannot be chosen of {groups}"
    elif chosen > chosen_groups * experts // groups:
        most = chosen_groups * experts // groups
        yield f"{key('chosen')}: {chosen} experts cannot be chosen of {most}"


def impossible_types(types: list[str], layers: int, window: int | None) -> Iterator[str]:
    """Types of layers that there are not, or too few of."""
    for each in sorted({*types} - set(TYPES)):
        yield f"layer_types: {quote(each)} is not understood; only {one_of(TYPES)}"
    if len(types) != layers:
        yield f"layer_types: {len(types)} of {layers} layers"
    if window is None and "sliding_attention" in types:
        yield "layer_types: 'sliding_attention', but there is no sliding_window"
