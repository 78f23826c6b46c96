"""A trace in words: its sentence and the kind of attention, then the key that each head looks at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.words import all_of, number_repeats, plural
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import fold_text
from attnctl.math import Array, Cell, names
from attnctl.math.kind import KIND
from attnctl.math.names import OUTPUT, TABLE, WEIGHTS, matrix_of
from attnctl.math.ops import Copy
from attnctl.math.rules import RULES, Composed, Rule
from attnctl.record import Trace

LONGEST = 240  # characters of a sentence above its tables: all of its tokens are in the first of them


def facts(trace: Trace) -> list[str]:
    config = trace.config
    if not config:
        return []
    crosses = names.MEMORY in trace or "key_ids" in trace.header
    rule = names.FADED in trace or names.WRITTEN in trace
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
    if not ({"file", "W"} & given or {*map(matrix_of, names.PROJECTED)} <= given):
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
    if name in {names.MASK, names.BIAS}:
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


# --- rows, keys and shares in sentences; a sentence a head ---

MOST_KEYS, MOST_HEADS = 4, 8  # keys that are named one by one, heads that have a sentence each
RANDOM = "Random weights mean nothing: try attnctl run example:it-was-tired"

ULPS = 8  # numbers that differ by no more than so many units in the last place are the same for a person

UNBROKEN = "\N{NO-BREAK SPACE}"


class Namer:
    def __init__(self, trace: Trace, screen: Screen) -> None:
        self.trace, self.screen = trace, screen

    def row(self, step: str, row: Cell) -> str:
        """`"love"`; `head 1: "love"`, where there are several; query 2, where there are no tokens."""
        axes, shape = self.trace.steps[step].axes, self.trace[step].shape
        words = self.trace.tokens_along(step, len(row) - 1)
        name = f"query {row[-1]}" if words is None else self.screen.printable(names_of(words)[row[-1]])
        where = [f"{axes[at]} {row[at]}" for at in range(len(row) - 1) if shape[at] > 1]
        return f"{', '.join(where)}: {name}" if where else name

    def key(self, at: int) -> str:
        words = self.trace.key_tokens
        if words is None or at >= len(words):
            return f"key {at}"
        return self.screen.printable(names_of(words)[at])

    def seen(self, row: Cell, keys: Sequence[int]) -> str:
        """The keys that a row sees: itself, where it is the one and the keys are the queries."""
        own = self.trace.tokens is not None and self.trace.key_tokens == self.trace.tokens
        return "itself" if own and tuple(keys) == row[-1:] else self.keys(keys)

    def keys(self, keys: Sequence[int]) -> str:
        if len(keys) > MOST_KEYS:
            shown = [self.key(at) for at in keys[: MOST_KEYS - 1]]
            return all_of([*shown, f"{len(keys) - len(shown)} more"])
        return all_of(self.key(at) for at in keys)


def look_lines(trace: Trace, screen: Screen, heads: Sequence[int] | None) -> Iterator[Line]:
    """For each of these heads the row that looks hardest at one key."""
    weights, name = trace[WEIGHTS], Namer(trace, screen)
    leads = list(np.ndindex(*weights.shape[:-2]))
    if heads is not None and trace.steps[WEIGHTS].axes[:-2] == ("head",):
        leads = [(head,) for head in heads]
    for lead in leads[:MOST_HEADS]:
        sure = np.isfinite(weights[lead]).all(axis=-1)
        known = np.where(sure, weights[lead].max(axis=-1, initial=0), 0)
        free = np.where((weights[lead] > 0).sum(axis=-1) > 1, known, 0)
        most = free if free.any() else known  # of rows that see several keys, if any does
        if not most.size or not most.max() > 0:
            continue
        row = int(most.argmax())
        own = weights[lead][row]
        said = f"{name.row(WEIGHTS, (*lead, row))} looks most at {name.seen((row,), find_ties(own))}"
        share = percent(float(own.max())).replace(" ", UNBROKEN)
        for line in screen.flow([(f"{said}, {share}", "")], ""):
            yield [(text.replace(UNBROKEN, " "), style) for text, style in line]
    if len(leads) > MOST_HEADS:
        yield [(screen.printable(f"… and {plural(len(leads) - MOST_HEADS, 'head')} more"), "aside")]
    drawn = (step for step in trace.steps.values() if step.formula.startswith("drawn "))
    if any(step.name in TABLE and TABLE[step.name].drawn for step in drawn):
        yield from screen.sentence(RANDOM, "aside")


def find_ties(row: Array) -> tuple[int, ...]:
    """The places of the largest number of a row, and of those that equal it but for rounding."""
    top = row.max()
    near = ULPS * np.finfo(row.dtype).eps * abs(top)
    return tuple(int(at) for at in np.flatnonzero(row >= top - near))


def quoted_token(token: str) -> str:
    return f'"{token}"'


def names_of(tokens: Sequence[str]) -> list[str]:
    return number_repeats(map(quoted_token, tokens))


def percent(share: float) -> str:
    """0.6234 -> 62 %; of small shares a digit more."""
    size = share * 100
    if size == 0 or size >= 9.95:
        return f"{size:.0f} %"
    return f"{size:.1f} %" if size >= 0.95 else f"{size:.2g} %"
