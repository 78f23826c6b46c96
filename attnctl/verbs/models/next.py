"""The likeliest next tokens on a screen; and the lens, the likeliest after each layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.words import number_repeats, quote
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen import Line, Screen, Span
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
    prediction = trace.header["next"]
    place = prediction["at"]
    yield from prompt_lines(trace.tokens or [], screen, place)
    yield []

    rows = next_rows(trace, screen)
    yield from Listing(screen, [NEXT_TITLES], rows, frozenset({0})).lines()
    total = sum(token["probability"] for token in prediction["tokens"])
    yield [(f"{len(rows)} of {prediction['vocabulary']:,} tokens, {total:.1%} of the probability", "dim")]

    cell = spell_cell(trace, LOGITS, (place, 0))
    yield [(f"Where a logit comes from: attnctl explain last {shell_word(cell)}", "")]


NEXT_TITLES = ["token", "id", "logit", "probability"]


def next_rows(trace: Trace, screen: Screen) -> list[Line]:
    return [next_row(token, screen) for token in trace.header["next"]["tokens"]]


def next_row(token: Mapping[str, Any], screen: Screen) -> Line:
    return [
        (screen.token(token["text"]), "token"),
        (str(token["id"]), "dim"),
        (f"{token['logit']:.4f}", ""),
        (probability_text(token["probability"]), ""),
    ]


def probability_text(share: float) -> str:
    """In percent, unless two decimals would show nothing of it."""
    return f"{share:.2%}" if share >= 5e-5 else f"{share:.1e}"


def prompt_lines(tokens: Sequence[str], screen: Screen, place: int) -> Iterator[Line]:
    """The tokens of a prompt, one of them marked."""
    spans = []
    for index, token in enumerate(tokens):
        spans.append((screen.token(token), "strong" if index == place else "token"))
    yield from screen.flow(spans, "  ")
    yield [(place_words(tokens, screen, place), "dim")]


def place_words(tokens: Sequence[str], screen: Screen, place: int) -> str:
    preposition = "at" if tokens[place] in MASKS else "after"
    name = quote(screen.token(tokens[place]))
    return f"{preposition} token {place}, {name}"


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
        """What each of `layers` is after."""
        layers = [f"layer {number}" for number, _ in enumerate(self.layers[1:])]
        return ["embeddings", *layers]

    @property
    def shares(self) -> Array:
        return np.array([[token.probability for token in layer] for layer in self.layers])

    def to_dict(self) -> dict[str, Any]:
        layers = []
        for name, layer in zip(self.names, self.layers, strict=True):
            layers.append({"after": name, "tokens": [token._asdict() for token in layer]})
        return {"model": self.model, "tokens": self.tokens, "ids": self.ids, "layers": layers}


def lens_of(prompt: Pass, states: Iterable[Array]) -> Lens:
    layers = tuple(top_tokens(prompt, state) for state in states)
    return Lens(
        model=prompt.runner.model.name,
        tokens=prompt.tokens.labels,
        ids=prompt.tokens.ids,
        layers=layers,
    )


def lens_lines(found: Lens, screen: Screen) -> Iterator[Element]:
    """Layers down, positions across, as many side by side as there is room for."""
    rows: list[Line] = []
    for name, layer in zip(found.names, found.layers, strict=True):
        rows.append([(name, "label"), *(lens_cell(token, screen) for token in layer)])

    titles = ["after", *map(screen.token, found.tokens)]
    texts = frozenset(range(len(titles)))  # the columns of text, which are all
    yield from column_blocks(screen, titles, rows, texts)
    yield [("The likeliest next token at each position, were the layer the last; bold above 50%.", "dim")]


def lens_cell(token: Ranked, screen: Screen) -> Span:
    return screen.token(token.text), "strong" if token.probability > 0.5 else ""


def lens_picture(found: Sequence[Lens]) -> Picture:
    about = ("probability of the likeliest next token, were the layer the last",)
    plots = []
    for lens in found:
        tokens = number_repeats(map(token_text, lens.tokens))
        panels = [Panel("", lens.shares)]
        plots.append(Plot(lens.model, about, panels, rows=lens.names, columns=tokens))
    return draw(plots, "What each layer would say next")


write_svg, write_png = writers(lens_picture)
