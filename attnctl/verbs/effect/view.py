"""Effects of parts on a screen: the finding, layers × heads, what to type next; as CSV, as a picture."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, TextIO

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, number_repeats, plural, quote
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.listing import column_blocks
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import shell_line, token_text
from attnctl.math import Array
from attnctl.verbs.effect import Effects
from attnctl.verbs.effect.metrics import DIFFERENCE, DIVERGENCE, METRICS, metric_words
from attnctl.verbs.effect.parts import HEAD, LAYER, MEAN, NETWORK, PATCH, POSITION, ZERO
from attnctl.verbs.effect.paths import PathEffect, PathEffects
from attnctl.verbs.effect.prompts import MeanEffects
from attnctl.verbs.models.next import prompt_lines

DONE = {ZERO: "left out", MEAN: "replaced by its mean over positions", PATCH: "taken from the other prompt"}
EACH = {HEAD: "each head", LAYER: "each layer", NETWORK: "each network", POSITION: "each row of a position"}
MOST_EQUAL = 3
"""Parts of one effect that are named; of more the first is."""
STRONG = 0.5
"""The part of the largest effect from which one is drawn strong."""


def effect_lines(found: Effects, screen: Screen) -> Iterator[Element]:
    yield from prompt_lines(found.prompt["tokens"], screen, found.prompt["at"])
    for text in findings(found):
        yield from screen.sentence(text)

    yield []
    estimated = ", estimated by the gradient" if found.estimated else ""
    title = f"{change_words(found.metric)}, {EACH[found.by]} {DONE[found.how]}{estimated}"
    yield [(screen.printable(title), "label")]
    yield from table_of(found.effect, screen, titles_of(found, screen))
    if found.direct:
        yield from direct_lines(found, screen)
    if found.estimated:
        yield []
        yield [("Those that count, measured: the same command without --attribution", "dim")]
    if found.is_changed and found.by == HEAD:
        layer, head = found.strongest
        yield []
        yield [(f"What head {layer}.{head} attends to: {shell_line(looking_at(found, layer, head))}", "")]


def change_words(metric: str) -> str:
    if metric == DIFFERENCE:
        return "Change in the difference"
    if metric == DIVERGENCE:
        return METRICS[DIVERGENCE]
    return f"Change in {METRICS[metric].format(a='A', b='B')}"


def titles_of(found: Effects | MeanEffects, screen: Screen) -> list[str]:
    """The titles of the columns: words, where they are positions of one prompt."""
    if found.by == POSITION:
        return list(map(screen.token, found.columns))
    return found.columns


def part_words(by: str, layer: int, column: int, tokens: Sequence[str] = ()) -> str:
    """A part in words; of a position its token, too."""
    if by == HEAD:
        return f"Head {layer}.{column}"
    if by == POSITION:
        token = f", {quote(tokens[column])}" if tokens else ""
        return f"What comes into layer {layer} at position {column}{token},"
    return f"The network of layer {layer}" if by == NETWORK else f"Layer {layer}"


NONE_CHANGES = {HEAD: "No head", LAYER: "No layer", NETWORK: "No network", POSITION: "No position"}


def before_words(found: Effects) -> str:
    """The metric of the prompt as it is."""
    a, b = found.between
    before = short(found.before)
    if found.metric == DIFFERENCE:
        names = metric_words(DIFFERENCE, found.between)
        return f"{names} = {short(a.logit)} − {short(b.logit)} = {before}.".replace("− -", "+ ")
    if found.metric == DIVERGENCE:
        return f"What follows: {quote(a.text)} {a.probability:.1%}, {quote(b.text)} {b.probability:.1%}."
    return f"{metric_words(found.metric, found.between)} = {before}."


def findings(found: Effects) -> Iterator[str]:
    """The difference in numbers, then the part that changes it most."""
    yield before_words(found)

    before = found.before
    edit = DONE[found.how]
    if not found.is_changed:
        yield f"{NONE_CHANGES[found.by]} changes it, {edit}."
        return

    layer, column = found.strongest
    change = float(found.effect[layer, column])
    name = "difference" if found.metric == DIFFERENCE else found.metric
    it = "each" if len(equally_strong(found)) > 1 else "it"
    consequence = f"{it} changes the {name} by {short(change, '+')}, to {short(before + change)}"
    if found.metric == DIVERGENCE:
        consequence = f"the next token is {short(change)} nats from what it was"
    sentence = f"{most_words(found)}: {edit}, {consequence}"
    if not found.other:
        yield f"{sentence}."
        return

    other = found.other["value"]
    gap = other - before
    share = f", {change / gap:.0%} of the way" if gap else ""
    yield f"{sentence}{share}; the other prompt has {short(other)}."


def equally_strong(found: Effects) -> list[tuple[int, int]]:
    """The layers and columns of the largest change, and of those that are printed as the same number."""
    largest = short(float(found.effect[found.strongest]))
    places = np.ndindex(found.effect.shape)
    return [
        (layer, column) for layer, column in places if short(float(found.effect[layer, column])) == largest
    ]


def most_words(found: Effects) -> str:
    """Head 0.1 matters most; Head 0.1 and head 1.2 matter most."""
    tokens = found.prompt["tokens"]
    first, *others = [part_words(found.by, *place, tokens) for place in equally_strong(found)]
    if not others:
        return f"{first} matters most"
    if len(others) >= MOST_EQUAL:
        return f"{first} and {len(others)} others matter most"
    return f"{all_of([first, *(part[0].lower() + part[1:] for part in others)])} matter most"


def short(number: float, sign: str = "") -> str:
    """A number to four decimals; what rounding has left of 0 is 0."""
    return f"{round(number, 4) + 0.0:{sign}.4g}"


def looking_at(found: Effects, layer: int, head: int) -> list[str]:
    """The words of the command that shows the weights of a head."""
    words = ["attnctl", "run"]
    if sentence := found.prompt.get("sentence"):
        words.append(sentence)
    else:
        words += ["--ids", ",".join(map(str, found.prompt["ids"]))]
    words += ["--model", found.prompt["model"]]
    return [*words, "--layer", str(layer), "--head", str(head), "--step", "attention_weights"]


def mean_lines(found: MeanEffects, screen: Screen) -> Iterator[Element]:
    """The finding over all prompts, the mean effect of each part, and its spread."""
    for text in mean_findings(found):
        yield from screen.sentence(text)

    titles = titles_of(found, screen)
    yield []
    what = f"{change_words(found.metric)}, {EACH[found.by]} {DONE[found.how]}: the mean"
    yield [(screen.printable(what), "label")]
    yield from table_of(found.effect, screen, titles)
    yield []
    yield [("Its standard deviation over the prompts", "label")]
    yield from table_of(found.spread, screen, titles, sign="")


def mean_findings(found: MeanEffects) -> Iterator[str]:
    count = len(found.each)
    changed = [effects for effects in found.each if effects.is_changed]
    kind = METRICS[found.metric].format(a="A", b="B")
    mean = "" if found.metric == DIVERGENCE else f", {short(found.before)} in the mean"
    yield f"{kind} of {plural(count, 'prompt')}{mean}."
    if not changed:
        yield f"{NONE_CHANGES[found.by]} changes it, {DONE[found.how]}."
        return

    layer, column = found.strongest
    effect = float(found.effect[layer, column])
    spread = float(found.spread[layer, column])
    same_sign = sum(bool(np.sign(each.effect[layer, column]) == np.sign(effect)) for each in found.each)
    part = part_words(found.by, layer, column)
    yield (
        f"{part} matters most: {DONE[found.how]}, {short(effect, '+')} in the mean, give or take "
        f"{short(spread)}; of the same sign in {same_sign} of {count}."
    )


MOST_SHOWN = 20
"""Paths that a screen shows: the strongest ones."""


def path_lines(found: PathEffects, screen: Screen) -> Iterator[Element]:
    """The metric as it is, then the paths along which it changes most."""
    asked = found.asked
    yield from prompt_lines(asked.prompt["tokens"], screen, asked.prompt["at"])
    yield from screen.sentence(before_words(asked))
    strongest = found.strongest
    change = f"{DONE[asked.how]} for {strongest.receiver} alone"
    yield from screen.sentence(
        f"Along {strongest.sender} to {strongest.receiver} it changes most: {change}, "
        f"by {short(strongest.effect, '+')}, to {short(asked.before + strongest.effect)}."
    )

    in_order = sorted(found.paths, key=lambda path: -abs(path.effect))
    largest = STRONG * abs(strongest.effect)
    rows: list[list[Span]] = []
    for path in in_order[:MOST_SHOWN]:
        row: list[Span] = [(path.sender, ""), (path.receiver, "")]
        rows.append([*row, effect_cell(path.effect, largest, screen)])
    yield []
    yield from column_blocks(screen, ["from", "to", change_words(asked.metric)], rows, frozenset({0, 1}))
    if len(in_order) > MOST_SHOWN:
        yield [
            (screen.printable(f"… and {len(in_order) - MOST_SHOWN} more; -o effect.csv has them"), "dim")
        ]


def table_of(
    effect: Array, screen: Screen, titles: Sequence[str] | None = None, sign: str = "+"
) -> Iterator[Element]:
    """Layers down, heads or other parts across, by their titles."""
    if titles is None:
        titles = list(map(str, range(effect.shape[1])))
    strong = STRONG * np.nanmax(np.abs(effect), initial=0)
    rows: list[list[Span]] = []
    for layer, numbers in enumerate(effect.tolist()):
        row: list[Span] = [(f"layer {layer}", "label")]
        row += [effect_cell(number, strong, screen, sign) for number in numbers]
        rows.append(row)
    yield from column_blocks(screen, ["", *titles], rows, frozenset({0}))


def effect_cell(number: float, strong: float, screen: Screen, sign: str = "+") -> Span:
    """A number, or a dash where there is none; strong from this size on (0: none is)."""
    if isnan(number):
        return screen.printable("–"), "dim"
    text = f"{round(number, 3) + 0.0:{sign}.3f}"  # adding 0.0 makes a rounded -0.0 a +0.0
    is_strong = strong and abs(number) >= strong
    return text, "strong" if is_strong else ""


def direct_lines(found: Effects, screen: Screen) -> Iterator[Element]:
    direct = found.direct
    yield []
    yield [("What each part writes into the difference itself, norms held", "label")]
    shares = np.column_stack([direct["heads"], direct["networks"]])
    yield from table_of(shares, screen, [*found.columns, "network"])

    embeddings = short(direct["embeddings"], "+")
    biases = short(direct["biases"], "+")
    total = f"all come to {direct['sum']:.6g}"
    if direct["capped"]:
        total += ", before the cap on logits"
    yield [(screen.printable(f"embeddings {embeddings}, biases {biases}; {total}"), "")]


def write_csv(found: Sequence[Effects | MeanEffects | PathEffects], stream: TextIO) -> None:
    rows = csv.writer(stream, lineterminator="\n")
    if isinstance(found[0], PathEffects):
        rows.writerow(PathEffect._fields)
        for paths in found:
            assert isinstance(paths, PathEffects)
            rows.writerows(paths.paths)
        return

    write_effects(found, rows)


def write_effects(found: Sequence[Any], rows: Any) -> None:
    part = "position" if found[0].by == POSITION else "head"
    columns = ["layer", part, "effect"] if found[0].by in {HEAD, POSITION} else ["layer", "effect"]
    if any(effects.direct for effects in found):
        columns.append("direct")
    if any(isinstance(effects, MeanEffects) for effects in found):
        columns.append("spread")
    rows.writerow(columns)

    for effects in found:
        for (layer, head), number in np.ndenumerate(effects.effect):
            row = [layer, head, number] if part in columns else [layer, number]
            if isinstance(effects, MeanEffects):
                row.append(effects.spread[layer, head])
            if effects.direct:
                row.append(effects.direct["heads"][layer][head])
            rows.writerow(row)


ACROSS = {HEAD: "heads across", POSITION: "positions across"}


def effect_picture(found: Sequence[Effects | MeanEffects | PathEffects]) -> Picture:
    plots: list[Plot] = []
    title = ""
    for effects in found:
        if isinstance(effects, PathEffects):
            raise AttnError("a picture is of layers and heads; of paths give .json or .csv")
        plots.append(plot_of(effects))
        title = f"What {EACH[effects.by]} does to the next token"
    return draw(plots, title)


def plot_of(effects: Effects | MeanEffects) -> Plot:
    if isinstance(effects, MeanEffects):
        what = f"{METRICS[effects.metric].format(a='A', b='B')}, the mean of {len(effects.each)} prompts"
    else:
        what = metric_words(effects.metric, effects.between)
    change = what if effects.metric == DIVERGENCE else f"change in {what}"
    across = ACROSS.get(effects.by)
    return Plot(
        "effect",
        (
            f"{change}, {EACH[effects.by]} {DONE[effects.how]}",
            f"layers down, {across}" if across else "layers down",
        ),
        [Panel("", effects.effect)],
        rows=[f"layer {layer}" for layer in range(len(effects.effect))],
        columns=number_repeats(map(token_text, effects.columns)),
        signed=True,
    )


write_svg, write_png = writers(effect_picture)
