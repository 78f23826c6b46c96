"""Weights laid over the picture that a model saw: layers down, heads across, one token's look at patches.

The picture is grey, so that colour is weight alone: a patch is as red as its weight is of the largest.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from struct import pack
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import one_of, quote
from attnctl.drawing.pictures import FAINT
from attnctl.drawing.pictures.draw import (
    GAP,
    HEADING,
    MARGIN,
    TITLE,
    WIDTH,
    Canvas,
    Picture,
    cut,
    document,
    element,
)
from attnctl.drawing.pictures.png import chunk
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View, count_heads, heads_of
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace
from attnctl.record.picture import SeenPicture, picture_in

LARGEST_PANEL = 112.0
SMALLEST_PANEL = 28.0
BETWEEN = 4
"""From one panel to the next."""

LAYER_WIDTH = 60
"""For the name of a layer, on the left of its panels."""

MOST_PANELS = 1024
HEAT = (206, 32, 41)
"""What a patch is coloured where all of a head's look is at it."""
STRONGEST = 217
"""How much of it covers the picture there, of 255."""
MEAN = "mean"


class Gaze(NamedTuple):
    """Whose weights are drawn."""

    words: str
    places: list[int]
    """The queries, whose mean is taken."""


def has_picture(traces: Sequence[Trace], view: View) -> bool:
    """Whether weights are drawn over a picture: no steps are named, and each trace has one."""
    if view.steps is not None or not traces:
        return False
    return all(WEIGHTS in trace and picture_in(trace.header) is not None for trace in traces)


MOST_DESCRIBED = 24
"""Heads of a layer that the description tells of, at most."""


def overlay_picture(traces: Sequence[Trace], view: View) -> Picture:
    """A panel for each layer and head. Raises AttnError for a query that there is not."""
    pictures = [picture_in(trace.header) for trace in traces]
    first = pictures[0]
    assert first is not None
    look = look_of(traces[0], first, view.query)

    shown = [shown_heads(trace, view) for trace in traces]
    across = max(map(len, shown))
    panels = across * len(traces)
    if panels > MOST_PANELS:
        raise AttnError(f"{panels} heads; a picture holds {MOST_PANELS}: name a --layer or --head")

    title = visible(first.path or "a picture")
    canvas = Canvas(name_of(traces, look))
    canvas.line(cut(title, 80), TITLE, full=title)
    canvas.line(f"what {look.words} looks at, by head: red is the head's largest weight", fill=FAINT)

    size = panel_size(across)
    draw_headings(canvas, shown[0], size)
    descriptions: list[str] = []
    for trace, picture, heads in zip(traces, pictures, shown, strict=True):
        assert picture is not None
        draw_layer(canvas, trace, picture, heads, look=look, size=size)
        descriptions += describe_layer(trace, picture, heads, look)

    width = round(canvas.right + MARGIN)
    height = round(canvas.y + MARGIN)
    body = "\n".join(canvas.parts)
    svg = document(canvas.own, title, " ".join(descriptions), body, size=(width, height))
    return Picture(svg, width, height)


def panel_size(across: int) -> float:
    """The width of each of so many panels side by side, which share that of a picture."""
    room = (WIDTH - 90) / across - BETWEEN
    return max(SMALLEST_PANEL, min(LARGEST_PANEL, room))


def look_of(trace: Trace, picture: SeenPicture, asked: str | None) -> Gaze:
    """Whose look is drawn: that of a token, by its name or number, [CLS]'s, or the mean of all."""
    tokens = list(trace.tokens or [])
    queries = trace[WEIGHTS].shape[-2]
    of_all = Gaze("the mean of all tokens", list(range(queries)))
    if asked is None:
        begins_with_class = tokens[:1] == ["[CLS]"] and picture.before > 0
        return Gaze("[CLS]", [0]) if begins_with_class else of_all

    if asked == MEAN:
        return of_all
    if asked in tokens:
        return Gaze(visible(asked), [tokens.index(asked)])
    if asked.removeprefix("-").isdecimal() and -queries <= int(asked) < queries:
        number = int(asked) % queries
        return Gaze(f"token {number}", [number])

    known = f"0 to {queries - 1}, or {MEAN}"
    if tokens:
        known = one_of([*tokens[: picture.before], "r0c0", MEAN])
    raise AttnError(f"--query: no token {quote(asked)}; give {known}")


def shown_heads(trace: Trace, view: View) -> list[int]:
    count_heads(trace, view.heads)
    return list(range(heads_of(trace))) if view.heads is None else list(view.heads)


def name_of(traces: Sequence[Trace], look: Gaze) -> str:
    """What the ids of the picture begin with: the same for the same picture."""
    digest = sha256(repr(look).encode())
    for trace in traces:
        digest.update(np.ascontiguousarray(trace[WEIGHTS], dtype="<f8").tobytes())
    return f"a{digest.hexdigest()[:8]}"


def shares_of(trace: Trace, picture: SeenPicture, head: int, look: Gaze) -> Array:
    """The weight of each patch, (row, column). Raises AttnError where there are fewer keys than patches."""
    weights = np.asarray(trace[WEIGHTS], np.float64)
    *_, queries, keys = weights.shape
    of_head = weights.reshape(-1, queries, keys)[head]

    grid = picture.grid
    end = picture.before + grid.rows * grid.columns
    if end > keys:
        patches = f"{grid.rows} × {grid.columns} patches behind {picture.before} tokens"
        raise AttnError(f"{patches}, and there are {keys} keys; say where they begin, like --grid 24x24@1")

    mean = of_head[look.places].mean(axis=0)
    return np.asarray(mean[picture.before : end].reshape(grid))


def draw_headings(canvas: Canvas, heads: Sequence[int], size: float) -> None:
    canvas.y += GAP + HEADING
    for place, head in enumerate(heads):
        heading = str(head) if len(heads) > 1 else f"head {head}"
        canvas.text(heading, left_of(place, size) + 2, canvas.y)
    canvas.y += 4


def left_of(place: int, size: float) -> float:
    return MARGIN + LAYER_WIDTH + place * (size + BETWEEN)


def draw_layer(
    canvas: Canvas,
    trace: Trace,
    picture: SeenPicture,
    heads: Sequence[int],
    *,
    look: Gaze,
    size: float,
) -> None:
    """A row of panels: the picture once, and over each copy the weights of a head."""
    rows, columns = picture.pixels.shape[:2]
    tall = size * rows / columns
    layer = trace.header.get("layer")
    canvas.text("" if layer is None else f"layer {layer}", MARGIN, canvas.y + tall / 2)

    grey = grey_png(picture.pixels)
    for place, head in enumerate(heads):
        left = left_of(place, size)
        heat = heat_png(shares_of(trace, picture, head, look))
        frame = {"x": left, "y": canvas.y, "width": size, "height": tall}
        canvas.parts.append(image_of(grey, frame, smooth=True))
        canvas.parts.append(image_of(heat, frame, smooth=False))
        canvas.right = max(canvas.right, left + size)
    canvas.y += tall + BETWEEN


def image_of(data: bytes, frame: Mapping[str, Any], *, smooth: bool) -> str:
    href = f"data:image/png;base64,{b64encode(data).decode()}"
    style = None if smooth else "image-rendering:optimizeSpeed;image-rendering:pixelated"
    return element("image", **frame, preserveAspectRatio="none", style=style, href=href)


def png_of(pixels: Array, colour_type: int, *more: bytes) -> bytes:
    """Bytes (row, column) as a PNG of one channel, or of places in a palette."""
    rows, columns = pixels.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = pixels

    # Eight bits a pixel; compression, filter and interlace are the only ones, or none.
    header = pack(">IIBBBBB", columns, rows, 8, colour_type, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 9)
    chunks = [chunk(b"IHDR", header), *more, chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


GREY = 0
PALETTE = 3
"""Kinds of PNG."""

MOST_GREY = 112
"""Pixels of the picture along its longer side, at most: as many as a panel has."""

LUMINANCE = (0.299, 0.587, 0.114)
"""How much red, green and blue each add to what is seen as light (Rec. 601)."""

DARKEST = 70
"""What black is drawn as: light enough for red to show on it."""


def grey_png(pixels: Array) -> bytes:
    """The picture without its colours, lighter, and no larger than it is drawn."""
    longer_side = max(pixels.shape[:2])
    step = max(1, -(-longer_side // MOST_GREY))  # rounded up
    light = pixels[::step, ::step].astype(np.float64) @ LUMINANCE
    lighter = DARKEST + light * (255 - DARKEST) / 255
    return png_of(lighter.astype(np.uint8), GREY)


def heat_png(shares: Array) -> bytes:
    """A pixel a patch, the more opaque the larger its weight is."""
    largest = float(shares.max()) or 1.0
    levels = np.clip(np.rint(shares / largest * 255), 0, 255).astype(np.uint8)
    opacity = bytes(level * STRONGEST // 255 for level in range(256))
    one_colour = bytes(HEAT) * 256
    return png_of(levels, PALETTE, chunk(b"PLTE", one_colour), chunk(b"tRNS", opacity))


def describe_layer(trace: Trace, picture: SeenPicture, heads: Sequence[int], look: Gaze) -> list[str]:
    """For each head of a layer the patch that it looks at most, in words."""
    words = []
    layer = trace.header.get("layer", 0)
    for head in heads[:MOST_DESCRIBED]:
        shares = shares_of(trace, picture, head, look)
        row, column = np.unravel_index(int(shares.argmax()), shares.shape)
        words.append(f"Head {layer}.{head}: most at row {row}, column {column} ({shares.max():.0%}).")
    return words
