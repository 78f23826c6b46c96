"""The likeliest next tokens on a screen; and the lens, the likeliest after each layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import number_repeats, quote
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.listing import Listing, column_blocks
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import shell_word, token_text
from attnctl.math import Array
from attnctl.math.names import LOGITS
from attnctl.models.next import MASKS, Pass, Ranked, top_tokens
from attnctl.record import Trace
from attnctl.record.cells import spell_cell


def next_lines(trace: Trace, screen: Screen) -> Iterator[Element]:
    """The prompt, the likeliest tokens at the position that was asked, and how to see one's arithmetic."""
    found, rows = trace.header["next"], next_rows(trace, screen)
    place = found["at"]
    yield from prompt_lines(trace.tokens or [], screen, place)
    yield []
    yield from Listing(screen, [NEXT_TITLES], rows, frozenset({0})).lines()
    total = sum(token["probability"] for token in found["tokens"])
    shown, whole = len(rows), found["vocabulary"]
    yield [(f"{shown} of {whole:,} tokens, {total:.1%} of the probability", "dim")]
    cell = spell_cell(trace, LOGITS, (place, 0))
    yield [(f"Where a logit comes from: attnctl explain last {shell_word(cell)}", "")]


NEXT_TITLES = ["token", "id", "logit", "probability"]


def next_rows(trace: Trace, screen: Screen) -> list[Line]:
    rows: list[Line] = []
    for token in trace.header["next"]["tokens"]:
        share = token["probability"]
        likely = f"{share:.2%}" if share >= 5e-5 else f"{share:.1e}"
        named = (screen.token(token["text"]), "token"), (str(token["id"]), "dim")
        rows.append([*named, (f"{token['logit']:.4f}", ""), (likely, "")])
    return rows


def prompt_lines(tokens: Sequence[str], screen: Screen, place: int) -> Iterator[Line]:
    """The tokens of a prompt, one of them marked."""
    spans = [(screen.token(token), "strong" if at == place else "token") for at, token in enumerate(tokens)]
    yield from screen.flow(spans, "  ")
    yield [(place_words(tokens, screen, place), "dim")]


def place_words(tokens: Sequence[str], screen: Screen, place: int) -> str:
    there = "at" if tokens[place] in MASKS else "after"
    return f"{there} token {place}, {quote(screen.token(tokens[place]))}"


@dataclass(frozen=True)
class Lens:
    """After each layer the likeliest token at each position (nostalgebraist 2020, "the logit lens")."""

    model: str
    tokens: list[str]
    ids: list[int]
    layers: tuple[list[Ranked], ...]
    """What comes into layer 0, then what leaves each layer."""

    @property
    def names(self) -> list[str]:
        return ["embeddings", *(f"layer {number}" for number in range(len(self.layers) - 1))]

    @property
    def shares(self) -> Array:
        return np.array([[token.probability for token in layer] for layer in self.layers])

    def to_dict(self) -> dict[str, Any]:
        named = zip(self.names, self.layers, strict=True)
        layers = [{"after": name, "tokens": [token._asdict() for token in layer]} for name, layer in named]
        return {"model": self.model, "tokens": self.tokens, "ids": self.ids, "layers": layers}


def lens_of(prompt: Pass, states: Iterable[Array]) -> Lens:
    layers = tuple(top_tokens(prompt, state) for state in states)
    return Lens(prompt.runner.model.name, prompt.tokens.labels, prompt.tokens.ids, layers)


def lens_lines(found: Lens, screen: Screen) -> Iterator[Element]:
    """Layers down, positions across, as many side by side as there is room for."""
    rows: list[Line] = []
    for name, layer in zip(found.names, found.layers, strict=True):
        shown = [(screen.token(token.text), "strong" * (token.probability > 0.5)) for token in layer]
        rows.append([(name, "label"), *shown])
    labels = list(map(screen.token, found.tokens))
    yield from column_blocks(screen, ["after", *labels], rows, frozenset(range(len(labels) + 1)))
    yield [("The likeliest next token at each position, were the layer the last; bold above 50%.", "dim")]


def lens_picture(found: Sequence[Lens]) -> Picture:
    about, plots = ("probability of the likeliest next token, were the layer the last",), []
    for lens in found:
        tokens = number_repeats(map(token_text, lens.tokens))
        plots.append(Plot(lens.model, about, [Panel("", lens.shares)], lens.names, tokens))
    return draw(plots, "What each layer would say next")


write_svg, write_png = writers(lens_picture)
