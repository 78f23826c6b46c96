"""What a model goes on with, on a screen: the text, each token with its logit, and how to ask why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import shell_word
from attnctl.math.names import LOGITS
from attnctl.record import NEXT_TOKENS, Trace
from attnctl.record.cells import spell_cell
from attnctl.verbs.models.next import probability_text

TITLES = ["after", "token", "id", "logit", "probability", "rank"]


def generated_lines(trace: Trace, screen: Screen) -> Iterator[Element]:
    told = trace.header["generated"]["tokens"]
    labels = trace.tokens or []
    start = told[0]["at"] + 1
    spans = [(screen.token(token), "token") for token in labels[:start]]
    spans += [(screen.token(token), "strong") for token in labels[start:]]
    yield from screen.flow(spans, "  ")
    yield []

    has_words = any(token["text"] != str(token["id"]) for token in told)
    if has_words:
        yield from screen.sentence("".join(token["text"] for token in told))
        yield []

    rows = [generated_row(token, screen) for token in told]
    yield from Listing(screen, [TITLES], rows, frozenset({1})).lines()
    cell = spell_cell(trace, LOGITS, (told[0]["at"], place_of(trace, told[0])))
    yield [(f"Where a logit comes from: attnctl explain last {shell_word(cell)}", "")]


def generated_row(token: Mapping[str, Any], screen: Screen) -> Line:
    return [
        (str(token["at"]), "dim"),
        (screen.token(token["text"]), "token"),
        (str(token["id"]), "dim"),
        (f"{token['logit']:.4f}", ""),
        (probability_text(token["probability"]), ""),
        (str(token["rank"] + 1), "dim"),
    ]


def place_of(trace: Trace, token: Mapping[str, Any]) -> int:
    """The column of a token's logits: the first of its label."""
    return list(trace.header[NEXT_TOKENS]).index(token["token"])
