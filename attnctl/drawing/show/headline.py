"""A trace in words: its sentence and the kind of attention, then the key that each head looks at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.words import all_of, number_repeats, plural
from attnctl.drawing.screen import Line, Screen, Span
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

    words = [kind_name(trace)]
    words += head_counts(config)
    for name in ("d_model", "d_k"):
        if config.get(name) is not None:
            words.append(f"{name} {config[name]}")
    if config.get("d_v") not in (None, config.get("d_k")):
        words.append(f"d_v {config['d_v']}")

    words += positions(config.get("positions"))
    if OUTPUT in trace and isinstance(trace.steps[OUTPUT].op, Copy):
        words.append("no output projection")
    words += kind_words(config)
    words += seeds(config)
    if config.get("dtype") not in (None, "float64"):
        words.append(str(config["dtype"]))
    return words


def kind_name(trace: Trace) -> str:
    mixer = trace.header.get("mixer")
    if mixer in (names.STATE_SPACE, names.CONVOLUTION, names.NETWORK):
        return str(mixer)
    if names.FADED in trace or names.WRITTEN in trace:
        return names.DELTA_MIXER
    if names.MEMORY in trace or "key_ids" in trace.header:
        return "cross-attention"
    return "self-attention"


def head_counts(config: Mapping[str, Any]) -> Iterator[str]:
    heads = config.get("heads")
    if heads is not None:
        yield "1 head" if heads == 1 else f"{heads} heads"

    kv_heads = config.get("kv_heads")
    if kv_heads not in (None, heads):
        yield "1 kv head" if kv_heads == 1 else f"{kv_heads} kv heads"


def seeds(config: Mapping[str, Any]) -> list[str]:
    """`seed 0`, `seeds 0 and 1` where tensors have their own; nothing where nothing was drawn."""
    if config.get("seed") is None:
        return []
    weights = config.get("weights")
    if not isinstance(weights, dict):
        return [f"seed {config['seed']}"]

    settings = [config.get("embeddings"), *weights.values()]
    tensors = [tensor for tensor in settings if isinstance(tensor, dict)]
    if not all_given(weights):
        tensors.append(weights)  # it says how to draw the weights that are not given

    different: dict[object, None] = {}
    for tensor in tensors:
        how = tensor.get("random")
        if isinstance(how, dict):
            different[how.get("seed", config["seed"])] = None  # a dict, to keep their order
    if not different:
        return []
    return [f"{'seeds' if len(different) > 1 else 'seed'} {all_of(different)}"]


def all_given(weights: Mapping[str, Any]) -> bool:
    """True where a config says every matrix that Q, K and V are made with, for all heads or for each."""
    given = set(weights)
    for head in weights.get("heads") or ():
        given.update(head)
    if "file" in given or "W" in given:  # each of them holds all matrices
        return True
    return given.issuperset(map(matrix_of, names.PROJECTED))


def kind_words(config: Mapping[str, Any]) -> list[str]:
    rules = config.get("rules")
    words = [rule_words(rule) for rule in rules] if isinstance(rules, list) else []

    for name, setting in KIND.items():
        if name in {"scale", "rules"}:  # the rules come first, the scale last
            continue
        value = config.get(name)
        if setting and value not in (None, False):
            words.append(setting.describe(value))

    if config.get("scale") is not None:
        words.append(f"scale {config['scale']}")
    return words


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


def headline(
    trace: Trace, screen: Screen, *, full: bool = False, more: Sequence[str] = ()
) -> Iterator[Line]:
    """The sentence (unless `full` its beginning), what it attends to if that is another, and the facts.

    `more` is said after the facts.
    """
    if trace.sentence is not None:
        yield from sentence_lines(trace.sentence, screen, full=full)
    context = trace.header.get("context")
    if context is not None:
        yield from sentence_lines(f"context  {context}", screen, full=full)

    words = [*facts(trace), *more]
    if words:
        yield from screen.flow([(screen.printable(fact), "aside") for fact in words], screen.dot)


def sentence_lines(sentence: str, screen: Screen, *, full: bool) -> Iterator[Line]:
    shown, left_out = (sentence, 0) if full else beginning(sentence)
    words = screen.printable(shown)
    for line in fold_text(words, screen.width) if screen.fits else [words]:
        yield [(line, "sentence")]
    if left_out:
        yield [(f"{screen.left_out(left_out)} characters (--full shows them)", "aside")]


def beginning(sentence: str) -> tuple[str, int]:
    """The first words of a long sentence, and how many characters come after them."""
    if len(sentence) <= LONGEST:
        return sentence, 0
    shown = sentence[:LONGEST].rpartition(" ")[0] or sentence[:LONGEST]
    return shown, len(sentence) - len(shown)


# --- rows, keys and shares in sentences; a sentence a head ---

MOST_KEYS = 4  # keys that are named one by one
MOST_HEADS = 8  # heads that have a sentence each
RANDOM = "random weights: try example:it-was-tired"

ULPS = 8  # numbers that differ by no more than so many units in the last place are the same for a person

UNBROKEN = "\N{NO-BREAK SPACE}"


class Namer:
    def __init__(self, trace: Trace, screen: Screen) -> None:
        self.trace = trace
        self.screen = screen

    def row(self, step: str, row: Cell) -> str:
        """`"love"`; `head 1: "love"`, where there are several; query 2, where there are no tokens."""
        *lead, query = row
        tokens = self.trace.tokens_along(step, len(lead))
        name = f"query {query}" if tokens is None else self.screen.printable(names_of(tokens)[query])

        axes = self.trace.steps[step].axes
        sizes = self.trace[step].shape
        places = []
        for axis, place, size in zip(axes, lead, sizes, strict=False):
            if size > 1:
                places.append(f"{axis} {place}")
        return f"{', '.join(places)}: {name}" if places else name

    def key(self, key: int) -> str:
        tokens = self.trace.key_tokens
        if tokens is None or key >= len(tokens):
            return f"key {key}"
        return self.screen.printable(names_of(tokens)[key])

    def seen(self, row: Cell, keys: Sequence[int]) -> str:
        """The keys that a row sees: itself, where it is the one and the keys are the queries."""
        keys_are_queries = self.trace.tokens is not None and self.trace.key_tokens == self.trace.tokens
        if keys_are_queries and tuple(keys) == row[-1:]:
            return "itself"
        return self.keys(keys)

    def keys(self, keys: Sequence[int]) -> str:
        if len(keys) <= MOST_KEYS:
            return all_of(map(self.key, keys))
        shown = [self.key(key) for key in keys[: MOST_KEYS - 1]]
        return all_of([*shown, f"{len(keys) - len(shown)} more"])


def look_lines(trace: Trace, screen: Screen, heads: Sequence[int] | None) -> Iterator[Line]:
    """For each of these heads the row that looks hardest at one key, side by side where there is room."""
    weights = trace[WEIGHTS]
    name = Namer(trace, screen)
    leads = list(np.ndindex(*weights.shape[:-2]))
    if heads is not None and trace.steps[WEIGHTS].axes[:-2] == ("head",):
        leads = [(head,) for head in heads]

    sentences: Line = []
    for lead in leads[:MOST_HEADS]:
        query = hardest_look(weights[lead])
        if query is None:
            continue
        row = weights[lead][query]
        who = name.row(WEIGHTS, (*lead, query))
        at_whom = name.seen((query,), find_ties(row))
        share = percent(float(row.max())).replace(" ", UNBROKEN)  # a number stays beside its %
        sentences.append((f"{who} looks most at {at_whom}, {share}", ""))

    if len(leads) > MOST_HEADS:
        more = f"… and {plural(len(leads) - MOST_HEADS, 'head')} more"
        sentences.append((screen.printable(more), "aside"))

    for line in one_line_or_several(sentences, screen):
        yield [(text.replace(UNBROKEN, " "), style) for text, style in line]


def one_line_or_several(sentences: Sequence[Span], screen: Screen) -> list[Line]:
    """The sentences in a line where all of them fit, else a line each."""
    side_by_side = screen.flow(list(sentences), screen.dot) if sentences else []
    if len(side_by_side) <= 1:
        return side_by_side
    lines: list[Line] = []
    for sentence in sentences:
        lines += screen.flow([sentence], "")
    return lines


def hardest_look(weights: Array) -> int | None:
    """The query with the largest weight of a head; None where no weight is above 0.

    A query that sees one key only has no choice, so others go first.
    """
    is_finite = np.isfinite(weights).all(axis=-1)
    largest = np.where(is_finite, weights.max(axis=-1, initial=0), 0)
    has_choice = (weights > 0).sum(axis=-1) > 1
    of_choice = np.where(has_choice, largest, 0)
    if of_choice.any():
        largest = of_choice

    if not largest.size or not largest.max() > 0:
        return None
    return int(largest.argmax())


def has_random_weights(trace: Trace) -> bool:
    for step in trace.steps.values():
        is_drawn = step.formula.startswith("drawn ")
        if is_drawn and step.name in TABLE and TABLE[step.name].drawn:
            return True
    return False


def find_ties(row: Array) -> tuple[int, ...]:
    """The places of the largest number of a row, and of those that equal it but for rounding."""
    top = row.max()
    near = ULPS * np.finfo(row.dtype).eps * abs(top)
    return tuple(map(int, np.flatnonzero(row >= top - near)))


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
