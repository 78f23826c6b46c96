"""A token followed down the layers, as a picture: a line down, and what flows into it from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, NamedTuple, TextIO

import numpy as np

from attnctl.drawing.pictures import BLUE, FAINT, INK
from attnctl.drawing.pictures.draw import Picture, cut, element, escape_xml, plain_document, text_width
from attnctl.drawing.pictures.png import png
from attnctl.drawing.screen.text import token_text
from attnctl.verbs.models.follow import Followed, LayerMoves

TOP = 76.0
LEFT = 84.0
RIGHT = 190.0
"""Room for what would come next."""
ROW = 54.0
NARROWEST = 34.0
THICKEST = 14.0
THINNEST = 0.35
"""Of a line that is drawn at all."""
TEXT = 11.0


class PlaceOnSheet(NamedTuple):
    x: float
    y: float


class FlowSheet(NamedTuple):
    """Where tokens and layers stand."""

    columns: list[float]
    rows: int

    @property
    def width(self) -> float:
        return self.columns[-1] + RIGHT

    @property
    def height(self) -> float:
        return TOP + self.rows * ROW + 40

    def at(self, token: int, row: int) -> PlaceOnSheet:
        return PlaceOnSheet(self.columns[token], TOP + row * ROW)


def sheet_of(found: Followed) -> FlowSheet:
    x = LEFT
    columns = []
    for token in found.tokens:
        wide = max(NARROWEST, text_width(shown(token), TEXT) + 12)
        columns.append(x + wide / 2)
        x += wide
    return FlowSheet(columns, len(found.layers))


def shown(token: str) -> str:
    return cut(token_text(token).strip() or "·", 14)


def draw_followed(found: Followed, place: int | None = None) -> Picture:
    """Layers down, tokens across. Each line is as thick as what it adds is long, of the longest there."""
    at = found.place if place is None else place
    sheet = sheet_of(found)
    largest = max((float(found.into(moves, at).max()) for moves in found.layers), default=0.0) or 1.0
    title = f"“{shown(found.tokens[at])}” down the layers"
    parts = [
        words(title, PlaceOnSheet(16, 26), size=15.0),
        words(
            "thickness: ‖A·V·W_O‖, what attention adds to it of each token",
            PlaceOnSheet(16, 44),
            fill=FAINT,
        ),
    ]
    for token, x in enumerate(sheet.columns):
        parts.append(
            words(shown(found.tokens[token]), PlaceOnSheet(x, TOP - 10), anchor="middle", bold=token == at)
        )

    next_column = PlaceOnSheet(sheet.columns[-1] + 44, TOP - 10)
    parts.append(words("next token", next_column, fill=FAINT))

    for row, moves in enumerate(found.layers):
        parts += layer_parts(found, moves, sheet, row=row, at=at, largest=largest)
    last = sheet.at(at, sheet.rows)
    parts.append(
        words(shown(found.tokens[at]), PlaceOnSheet(last.x, last.y + 16), anchor="middle", bold=True)
    )

    size = (round(sheet.width), round(sheet.height))
    svg = plain_document(title, parts, size, font_size=TEXT, fill=INK)
    return Picture(svg, *size)


def layer_parts(
    found: Followed, moves: LayerMoves, sheet: FlowSheet, *, row: int, at: int, largest: float
) -> list[str]:
    """A layer's name, the lines into the token, its own line down, and what would come next."""
    begin = sheet.at(at, row)
    end = sheet.at(at, row + 1)
    parts = [words(f"layer {moves.layer}", PlaceOnSheet(16, end.y - ROW / 2 + 4), fill=FAINT)]
    into = found.into(moves, at)
    for source in np.argsort(into, kind="stable").tolist():  # the thickest are drawn last
        thick = into[source] / largest * THICKEST
        if thick >= THINNEST:
            parts.append(flow(found, moves, sheet, row=row, source=source, at=at, thick=thick))

    own = f"layer {moves.layer}: its network adds {moves.network[at]:.3g}"
    line = f"M {begin.x:.1f} {begin.y:.1f} L {end.x:.1f} {end.y:.1f}"
    parts.append(element("path", tip(own), d=line, stroke=INK, stroke_width=2.0, fill="none"))
    parts.append(element("circle", cx=end.x, cy=end.y, r=4.0, fill=INK))

    following = moves.next[at]
    said = f"“{shown(following.text)}” {following.probability:.0%}"
    parts.append(
        words(said, PlaceOnSheet(sheet.columns[-1] + 44, end.y + 4), bold=following.probability > 0.5)
    )
    return parts


def flow(
    found: Followed,
    moves: LayerMoves,
    sheet: FlowSheet,
    *,
    row: int,
    source: int,
    at: int,
    thick: float,
) -> str:
    """The curve from a token to the one that is followed."""
    begin = sheet.at(source, row)
    end = sheet.at(at, row + 1)
    middle = (begin.y + end.y) / 2
    curve = (
        f"M {begin.x:.1f} {begin.y:.1f} C {begin.x:.1f} {middle:.1f} {end.x:.1f} {middle:.1f} "
        f"{end.x:.1f} {end.y:.1f}"
    )
    length = moves.norms[at, source]
    head = f"{moves.layer}.{moves.heads[at, source]}"
    said = f"layer {moves.layer}: “{shown(found.tokens[source])}” adds {length:.3g}, most by head {head}"
    look = {"stroke": BLUE[3], "stroke_opacity": 0.72, "stroke_linecap": "round", "fill": "none"}
    return element("path", tip(said), d=curve, stroke_width=float(thick), **look)


def tip(said: str) -> str:
    return element("title", escape_xml(said))


def words(
    said: str,
    place: PlaceOnSheet,
    *,
    size: float | None = None,
    fill: str | None = None,
    anchor: str | None = None,
    bold: bool = False,
) -> str:
    weight = "bold" if bold else None
    return element(
        "text",
        escape_xml(said),
        x=float(place.x),
        y=float(place.y),
        font_size=size,
        fill=fill,
        text_anchor=anchor,
        font_weight=weight,
    )


def write_svg(found: Sequence[Followed], stream: TextIO) -> None:
    stream.write(draw_followed(found[0]).svg)


def write_png(found: Sequence[Followed], stream: IO[bytes]) -> None:
    stream.write(png(*draw_followed(found[0])))
