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
    yield from prompt_lines(found.prompt["tokens"], screen, found.prompt["at"])
    for text in findings(found):
        yield from screen.sentence(text)

    yield []
    yield [(screen.printable(f"Change in the difference, each head {DONE[found.how]}"), "label")]
    yield from table_of(found.effect, screen)
    if found.direct:
        yield from direct_lines(found, screen)
    if found.is_changed:
        layer, head = found.strongest
        yield []
        yield [(f"What head {layer}.{head} attends to: {shell_line(looking_at(found, layer, head))}", "")]


def findings(found: Effects) -> Iterator[str]:
    """The difference in numbers, then the head that changes it most."""
    a, b = found.between
    before = found.difference
    names = f"logit {quote(a.text)} − logit {quote(b.text)}"
    yield f"{names} = {short(a.logit)} − {short(b.logit)} = {short(before)}.".replace("− -", "+ ")

    edit = DONE[found.how]
    if not found.is_changed:
        yield f"No head changes it, {edit}."
        return

    layer, head = found.strongest
    change = float(found.effect[layer, head])
    consequence = f"it changes the difference by {short(change, '+')}, to {short(before + change)}"
    sentence = f"Head {layer}.{head} matters most: {edit}, {consequence}"
    if not found.other:
        yield f"{sentence}."
        return

    other = found.other["difference"]
    gap = other - before
    share = f", {change / gap:.0%} of the way" if gap else ""
    yield f"{sentence}{share}; the other prompt has {short(other)}."


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


def table_of(effect: Array, screen: Screen, *more: str) -> Iterator[Element]:
    """Layers down, heads across, and `more` columns after them."""
    strong = STRONG * np.nanmax(np.abs(effect), initial=0)
    rows: list[list[Span]] = []
    for layer, numbers in enumerate(effect.tolist()):
        row: list[Span] = [(f"layer {layer}", "label")]
        row += [effect_cell(number, strong, screen) for number in numbers]
        rows.append(row)

    heads = map(str, range(effect.shape[1] - len(more)))
    titles = ["", *heads, *more]
    yield from column_blocks(screen, titles, rows, frozenset({0}))


def effect_cell(number: float, strong: float, screen: Screen) -> Span:
    """A number, or a dash where there is none; strong from this size on (0: none is)."""
    if isnan(number):
        return screen.printable("–"), "dim"
    text = f"{round(number, 3) + 0.0:+.3f}"  # adding 0.0 makes a rounded -0.0 a +0.0
    is_strong = strong and abs(number) >= strong
    return text, "strong" if is_strong else ""


def direct_lines(found: Effects, screen: Screen) -> Iterator[Element]:
    direct = found.direct
    yield []
    yield [("What each part writes into the difference itself, norms held", "label")]
    yield from table_of(np.column_stack([direct["heads"], direct["networks"]]), screen, "network")

    embeddings = short(direct["embeddings"], "+")
    biases = short(direct["biases"], "+")
    total = f"all come to {direct['sum']:.6g}"
    if direct["capped"]:
        total += ", before the cap on logits"
    yield [(screen.printable(f"embeddings {embeddings}, biases {biases}; {total}"), "")]


def write_csv(found: Sequence[Effects], stream: TextIO) -> None:
    rows = csv.writer(stream, lineterminator="\n")
    columns = ["layer", "head", "effect"]
    if any(effects.direct for effects in found):
        columns.append("direct")
    rows.writerow(columns)

    for effects in found:
        for (layer, head), number in np.ndenumerate(effects.effect):
            row = [layer, head, number]
            if effects.direct:
                row.append(effects.direct["heads"][layer][head])
            rows.writerow(row)


def effect_picture(found: Sequence[Effects]) -> Picture:
    plots = []
    for effects in found:
        layers, heads = effects.effect.shape
        a, b = (quote(token.text) for token in effects.between)
        change = f"change in logit {a} − logit {b}, each head {DONE[effects.how]}"
        plots.append(
            Plot(
                "effect",
                (change, "layers down, heads across"),
                [Panel("", effects.effect)],
                rows=[f"layer {layer}" for layer in range(layers)],
                columns=list(map(str, range(heads))),
                signed=True,
            )
        )
    return draw(plots, "What each head does to the next token")


write_svg, write_png = writers(effect_picture)
