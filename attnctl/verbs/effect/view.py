"""Effects of heads on a screen: the finding, layers × heads, what to type next; as CSV, as a picture."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from math import isnan
from typing import TextIO

import numpy as np

from attnctl.base.words import quote
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.listing import column_blocks
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import shell_line
from attnctl.math import Array
from attnctl.verbs.effect import MEAN, PATCH, ZERO, Effects
from attnctl.verbs.models.next import prompt_lines

DONE = {ZERO: "left out", MEAN: "replaced by its mean over positions", PATCH: "taken from the other prompt"}
STRONG = 0.5
"""The part of the largest effect from which one is drawn strong."""


def effect_lines(found: Effects, screen: Screen) -> Iterator[Element]:
    tokens = found.prompt["tokens"]
    yield from prompt_lines(tokens, screen, found.prompt["at"])
    layer, head = found.strongest
    for text in findings(found):
        yield from screen.sentence(text)
    yield []
    yield [(screen.printable(f"Change in the difference, each head {DONE[found.how]}"), "label")]
    yield from table_of(found.effect, screen)
    if found.direct:
        yield from direct_lines(found, screen)
    if found.is_changed:
        yield []
        yield [(f"What head {layer}.{head} attends to: {shell_line(looking_at(found, layer, head))}", "")]


def findings(found: Effects) -> Iterator[str]:
    a, b = found.between
    before, (layer, head) = found.difference, found.strongest
    names = f"logit {quote(a.text)} − logit {quote(b.text)}"
    yield f"{names} = {short(a.logit)} − {short(b.logit)} = {short(before)}.".replace("− -", "+ ")
    change = float(found.effect[layer, head])
    end = f"it changes the difference by {short(change, '+')}, to {short(before + change)}"
    what = f"Head {layer}.{head} matters most: {DONE[found.how]}, {end}"
    if not found.is_changed:
        yield f"No head changes it, {DONE[found.how]}."
    elif found.other:
        gap = found.other["difference"] - before
        share = f", {change / gap:.0%} of the way" if gap else ""
        yield f"{what}{share}; the other prompt has {short(found.other['difference'])}."
    else:
        yield f"{what}."


def short(number: float, sign: str = "") -> str:
    """A number to four decimals; what rounding has left of 0 is 0."""
    return f"{round(number, 4) + 0.0:{sign}.4g}"


def looking_at(found: Effects, layer: int, head: int) -> list[str]:
    sentence, ids = found.prompt.get("sentence"), ",".join(map(str, found.prompt["ids"]))
    start = ["attnctl", "run", *([sentence] if sentence else ["--ids", ids])]
    rest = ["--layer", str(layer), "--head", str(head), "--step", "attention_weights"]
    return [*start, "--model", found.prompt["model"], *rest]


def table_of(effect: Array, screen: Screen, *more: str) -> Iterator[Element]:
    """Layers down, heads across, and `more` columns after them."""
    strong = STRONG * np.nanmax(np.abs(effect), initial=0)
    rows: list[list[Span]] = []
    for layer, row in enumerate(effect.tolist()):
        cells = [
            (screen.printable("–"), "dim")
            if isnan(cell)
            else (f"{round(cell, 3) + 0.0:+.3f}", "strong" if strong and abs(cell) >= strong else "")
            for cell in row
        ]
        rows.append([(f"layer {layer}", "label"), *cells])
    heads = map(str, range(effect.shape[1] - len(more)))
    yield from column_blocks(screen, ["", *heads, *more], rows, frozenset({0}))


def direct_lines(found: Effects, screen: Screen) -> Iterator[Element]:
    direct = found.direct
    yield []
    yield [("What each part writes into the difference itself, norms held", "label")]
    yield from table_of(np.column_stack([direct["heads"], direct["networks"]]), screen, "network")
    total = f"all come to {direct['sum']:.6g}" + (", before the cap on logits" if direct["capped"] else "")
    said = f"embeddings {short(direct['embeddings'], '+')}, biases {short(direct['biases'], '+')}; {total}"
    yield [(screen.printable(said), "")]


def write_csv(found: Sequence[Effects], stream: TextIO) -> None:
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["layer", "head", "effect", *["direct"] * any(effects.direct for effects in found)])
    for effects in found:
        for (layer, head), cell in np.ndenumerate(effects.effect):
            own = [effects.direct["heads"][layer][head]] if effects.direct else []
            rows.writerow([layer, head, cell, *own])


def effect_picture(found: Sequence[Effects]) -> Picture:
    plots = []
    for effects in found:
        layers, heads = effects.effect.shape
        a, b = (quote(token.text) for token in effects.between)
        change = f"change in logit {a} − logit {b}, each head {DONE[effects.how]}"
        about, panels = (change, "layers down, heads across"), [Panel("", effects.effect)]
        names = [f"layer {layer}" for layer in range(layers)]
        plots.append(Plot("effect", about, panels, names, list(map(str, range(heads))), signed=True))
    return draw(plots, "What each head does to the next token")


write_svg, write_png = writers(effect_picture)
