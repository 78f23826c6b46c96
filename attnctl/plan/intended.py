"""What someone's arrays were meant to be: the derivation that options and names ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnctl.array import Array
from attnctl.arrays.fit import Facts, rotary
from attnctl.arrays.layout import PATTERNS, Reading, lay_out_mask, read_layout
from attnctl.config.settings import SINUSOIDAL, Settings
from attnctl.derivation import Derivation, Rotary, Step, Variant, derive
from attnctl.ops import Copy, Unstated
from attnctl.plan import operator
from attnctl.rules import Alibi, Rule, Softcap, VisibilityRule, Window
from attnctl.trace import Trace

LEAVES = (
    "embeddings",
    "positions",
    "X",
    "memory",
    *(f"{kind}_{of}" for kind in "Wb" for of in "QKVO"),
    *("Q", "K", "V", "past_key", "past_value", "bias", "mask"),
)
"""What may be handed in; anything else follows."""


@dataclass(frozen=True)
class Intent:
    """Recorded steps in our layout, the sizes of their axes, and how they should have come about."""

    trace: Trace
    sizes: Mapping[str, int]
    derivation: Derivation


def stated(trace: Trace) -> Intent:
    """A dump of ours that says itself how each of its steps came about."""
    sizes = {
        axis: size
        for name, step in trace.steps.items()
        for axis, size in zip(step.axes, trace[name].shape, strict=True)
    }
    return Intent(trace, {**sizes, "query": sizes.get("query", sizes.get("token", 0))}, trace.derivation)


def anyones(arrays: Mapping[str, Any]) -> Trace:
    """Arrays of no file as a trace that says nothing of how they came about."""
    found = {name: operator.as_array(name, array) for name, array in arrays.items()}
    steps = {
        name: Step(name, Unstated(), (), tuple(f"axis {at}" for at in range(array.ndim)), "", name)
        for name, array in found.items()
    }
    return Trace(steps, found)


def is_stated(trace: Trace) -> bool:
    """Whether every step says how it came about, from steps that are all there."""
    return all(
        not isinstance(step.op, Unstated) and all(name in trace for name in step.inputs)
        for step in trace.steps.values()
    )


def derived(trace: Trace, settings: Settings, lengths: Any = None, *, keep: bool = True) -> Intent:
    """What these settings make of a file's arrays; where a step says how it came about, that stands.

    `lengths` are those of the keys where the file has no `key_lengths`; with `keep` False the
    settings overrule what steps say of themselves.
    """
    arrays = {name: np.asarray(trace[name]) for name in trace}
    settings_arrays(arrays, settings)
    reading = read_layout(
        {name: array.shape for name, array in arrays.items()},
        asked(settings),
        batch_first=any("batch" in step.axes for step in trace.steps.values() if step.inputs),
    )
    complete(reading.sizes, arrays)
    facts = facts_of(reading.sizes)
    ours = {
        name: reading.lay_out(name, array) for name, array in arrays.items() if name in reading.patterns
    }
    for name in ("mask", "bias"):
        if name in arrays:
            ours[name] = lay_out_mask(name, operator.widen(arrays[name], facts), reading.sizes)
    if lengths is not None:
        arrays.setdefault("key_lengths", np.asarray(lengths))
    derivation = derive_from(ours, settings, facts, operator.key_lengths(arrays, facts))
    if keep:
        own = {name: step for name, step in trace.steps.items() if not isinstance(step.op, Unstated)}
        derivation = Derivation(tuple(own.get(step.name, step) for step in derivation))
    steps = {name: derivation[name] if name in derivation else aside(name, reading) for name in ours}
    return Intent(Trace(steps, ours, trace.header), reading.sizes, derivation)


def aside(name: str, reading: Reading) -> Step:
    """A recorded step that this derivation has no use for."""
    axes = tuple("·".join(group) for group in reading.canonical(name))
    return Step(name, Unstated(), (), axes, "", name)


def settings_arrays(arrays: dict[str, Array], settings: Settings) -> None:
    """Add what the settings write out and the file leaves out; a float mask is a bias."""
    if "mask" in arrays:
        mask = arrays.pop("mask")
        floats = mask.dtype.kind == "f"
        arrays["bias" if floats else "mask"] = mask if floats else mask.astype(bool)
    if settings.mask is not None:
        arrays.setdefault("mask", np.array(settings.mask, dtype=bool))
    if settings.bias is not None:
        arrays.setdefault("bias", np.array(settings.bias, dtype=np.float64))
    if isinstance(settings.positions, list) and "embeddings" in arrays:
        rows = operator.position_rows(settings, arrays["embeddings"].shape, 0)
        arrays.setdefault("positions", rows)


def asked(settings: Settings) -> dict[str, int]:
    """The sizes that settings say."""
    said = {"head": settings.heads, "kv_head": settings.kv_heads}
    said |= {name: getattr(settings, name) for name in ("d_model", "d_k", "d_v")}
    return {axis: size for axis, size in said.items() if size is not None}


def complete(sizes: dict[str, int], arrays: Mapping[str, Array]) -> None:
    """Write down the sizes that follow from others: a sentence that attends to itself has its own keys."""
    if {"X", "embeddings"} & arrays.keys() and "memory" not in arrays:
        new = sizes.setdefault("new" if "past" in sizes else "key", sizes["query"])
        sizes.setdefault("key", new + sizes.get("past", 0))
    sizes.setdefault("head", sizes.get("kv_head", 1))
    sizes.setdefault("kv_head", sizes["head"])


def facts_of(s: Mapping[str, int]) -> Facts:
    """The sizes in the form that options are turned into rules from."""
    keys = s.get("key", s.get("query", 0))
    return Facts(
        s.get("batch"), s["head"], s["kv_head"], s.get("query", 0), keys, s.get("d_k", 0), s.get("past", 0)
    )


def derive_from(arrays: Mapping[str, Array], settings: Settings, facts: Facts, lengths: Any) -> Derivation:
    """The derivation of arrays in our layout.

    A step that is recorded though nothing asks for it is kept, unexplained: what follows reads it.
    Without W_O the output is the heads side by side.
    """
    sinusoidal = settings.positions == SINUSOIDAL and "embeddings" in arrays
    given = {name: (arrays[name], "given") for name in LEAVES if name in arrays}
    if sinusoidal:
        given.pop("positions", None)
    settings = replace(settings, positions=settings.positions if sinusoidal or rotary(settings) else "none")
    settings = operator.with_padding(settings, lengths)
    offset = operator.causal_offset(settings, facts, lengths)
    variant = operator.variant(settings, given, facts, offset)
    variant, unasked = with_unasked(variant, arrays, facts)
    unknown = set(unasked) | ({"scaled_scores"} if not facts.d_k and settings.scale is None else set())
    steps = [unstated(step) if step.name in unknown else step for step in derive(variant)]
    if "output" in arrays and "W_O" not in arrays:
        concat = steps[-1]
        steps.append(Step("output", Copy(), (concat.name,), concat.axes, concat.name, "Y"))
    return Derivation(tuple(steps))


def unstated(step: Step) -> Step:
    """The step, with nothing said of how it came about."""
    return Step(step.name, Unstated(), step.inputs, step.axes, step.formula, step.symbol)


def with_unasked(v: Variant, arrays: Mapping[str, Array], facts: Facts) -> tuple[Variant, list[str]]:
    """The variant with the steps that are recorded though it does not have them, and their names."""
    unasked: list[str] = []
    kinds = {type(rule) for rule in v.rules}
    rules: list[Rule] = list(v.rules)
    if "softcapped_scores" in arrays and Softcap not in kinds:
        rules.append(Softcap(1.0))
        unasked.append("softcapped_scores")
    if "biased_scores" in arrays and "bias" not in v.given and Alibi not in kinds:
        rules.append(Alibi())
        unasked.append("biased_scores")
    hides = "mask" in v.given or any(isinstance(rule, VisibilityRule) for rule in rules)
    if "masked_scores" in arrays and not hides:
        rules.append(Window())
        unasked.append("masked_scores")
    turned = v.rotary
    if turned is None and {"Q_rotated", "K_rotated"} & arrays.keys():
        turned = Rotary()
        unasked += ["Q_rotated", "K_rotated"]
    share = v.kv_share
    if share == 1 and {"K_shared", "V_shared"} & arrays.keys():
        share = 2
        unasked += ["K_shared", "V_shared"]
    return replace(v, rules=tuple(rules), rotary=turned, kv_share=share), unasked


def unknown_names(trace: Trace) -> list[str]:
    """Recorded arrays that attnctl has no name for."""
    return [name for name in trace if name not in PATTERNS and name not in {"mask", "bias", "key_lengths"}]
