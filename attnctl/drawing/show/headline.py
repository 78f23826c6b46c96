"""The headline of a trace: its sentence, the kind of attention, the tokens and their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.base.words import all_of
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import fold_text
from attnctl.math.kind import KIND
from attnctl.math.names import BIAS, FADED, MASK, MEMORY, OUTPUT, PROJECTED, WRITTEN, matrix_of
from attnctl.math.ops import Copy
from attnctl.math.rules import RULES, Composed, Rule
from attnctl.record import Trace

LONGEST = 240  # characters of a sentence above its tables: all of its tokens are in the first of them


def facts(trace: Trace) -> list[str]:
    config = trace.config
    if not config:
        return []
    crosses = MEMORY in trace or "key_ids" in trace.header
    rule = FADED in trace or WRITTEN in trace
    said = ["gated delta rule" if rule else "cross-attention" if crosses else "self-attention"]
    heads, kv_heads = config.get("heads"), config.get("kv_heads")
    if heads is not None:
        said.append("1 head" if heads == 1 else f"{heads} heads")
    if kv_heads not in (None, heads):
        said.append("1 kv head" if kv_heads == 1 else f"{kv_heads} kv heads")
    said += [f"{name} {config[name]}" for name in ("d_model", "d_k") if config.get(name) is not None]
    if config.get("d_v") not in (None, config.get("d_k")):
        said.append(f"d_v {config['d_v']}")
    said += positions(config.get("positions"))
    if OUTPUT in trace and isinstance(trace.steps[OUTPUT].op, Copy):
        said.append("no output projection")
    said += kind_words(config)
    said += seeds(config)
    return said + ([str(config["dtype"])] if config.get("dtype") not in (None, "float64") else [])


def seeds(config: Mapping[str, Any]) -> list[str]:
    """`seed 0`, `seeds 0 and 1` where tensors have their own; nothing where nothing was drawn."""
    if config.get("seed") is None:
        return []
    weights = config.get("weights")
    if not isinstance(weights, dict):
        return [f"seed {config['seed']}"]
    own = [tensor for tensor in (config.get("embeddings"), *weights.values()) if isinstance(tensor, dict)]
    given = weights.keys() | {name for head in weights.get("heads") or () for name in head}
    if not ({"file", "W"} & given or {*map(matrix_of, PROJECTED)} <= given):
        own.append(weights)
    drawn = [tensor["random"] for tensor in own if isinstance(tensor.get("random"), dict)]
    found = dict.fromkeys(how.get("seed", config["seed"]) for how in drawn)
    return [f"seed{'s' * (len(found) > 1)} {all_of(found)}"] if found else []


def kind_words(config: Mapping[str, Any]) -> list[str]:
    rules = config.get("rules")
    said = [rule_words(rule) for rule in (rules if isinstance(rules, list) else [])]
    asked = ((KIND[name], config.get(name)) for name in KIND if name not in {"scale", "rules"})
    said += [setting.describe(value) for setting, value in asked if setting and value not in (None, False)]
    return said + ([f"scale {config['scale']}"] if config.get("scale") is not None else [])


def positions(setting: Any) -> list[str]:
    if setting in (None, "none"):
        return []
    word = next(iter(setting)) if isinstance(setting, dict) and setting else str(setting)
    return [f"{'rotary' if word == 'rope' else word} positions"]


def rule_words(rule: Any) -> str:
    """A rule of the config in a few words: causal, softcap 30, (causal or window 2)."""
    if not isinstance(rule, dict) or len(rule) != 1:
        return str(rule)
    ((name, value),) = rule.items()
    if name in {MASK, BIAS}:
        return f"given {name}"
    values = value if isinstance(value, list) else [value]
    kind = RULES.get(str(name), Rule)
    if issubclass(kind, Composed):
        return f"({f' {kind.between} '.join(map(rule_words, values))})"
    words = ", ".join("∞" if value is None else rule_words(value) for value in values)
    return f"{name.replace('_', ' ')} {words}"


def headline(trace: Trace, screen: Screen, *, full: bool = False) -> Iterator[Line]:
    """The sentence (unless `full` its beginning), what it attends to if that is another, and the facts."""
    for label, text in (("", trace.sentence), ("context  ", trace.header.get("context"))):
        if text is None:
            continue
        shown, rest = (f"{label}{text}", 0) if full else beginning(f"{label}{text}")
        words = screen.printable(shown)
        for line in fold_text(words, screen.width) if screen.fits else [words]:
            yield [(line, "sentence")]
        if rest:
            yield [(f"{screen.left_out(rest)} characters (--full shows them)", "aside")]
    said = facts(trace)
    if said:
        yield from screen.flow([(screen.printable(fact), "aside") for fact in said], screen.dot)


def beginning(sentence: str) -> tuple[str, int]:
    """The first words of a long sentence, and how many characters come after them."""
    if len(sentence) <= LONGEST:
        return sentence, 0
    shown = sentence[:LONGEST].rpartition(" ")[0] or sentence[:LONGEST]
    return shown, len(sentence) - len(shown)
