"""One cell, moving: q meets k, the products add up, the score is scaled, softmax shares out, V is mixed.

An SVG that moves by itself where it is shown, also inside a page of someone else; or a GIF of the same.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, TextIO

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import FAINT, INK, TWO_HUES, hexadecimal, ink_on, ramp_colours
from attnctl.drawing.pictures.draw import cut, element, escape_xml, plain_document
from attnctl.drawing.pictures.png import png, require_resvg
from attnctl.drawing.screen.text import visible
from attnctl.math import Array, Cell
from attnctl.math.names import HEAD_OUTPUTS, WEIGHTS
from attnctl.record import Trace

WIDTH = 780
MARGIN = 20.0
NAMES = 130.0
"""From the margin to the first box of a row."""
BOX = 62.0
HEIGHT = 28.0
MOST = 9
"""Numbers of a row that are drawn; of more the largest, and how many there are."""

SCENE = 1.8
"""Seconds from one scene to the next."""
HELD = 3.0
"""Seconds that the last one stays."""

LACKING = (
    "a moving cell needs Q, K, the scores, the weights and V of one head; "
    "name a cell of attention_weights or head_outputs in a dump that has them"
)


class ScoreAtStep(NamedTuple):
    """A score at one step, and the formula of that step."""

    name: str
    formula: str
    value: float


class CellWay(NamedTuple):
    """The numbers by which a query's weight on a key comes about, and what it is for."""

    query: str
    key: str
    head: str
    q: Array
    k: Array
    scores: Sequence[ScoreAtStep]
    """What the score is from step to step, until softmax."""
    keys: Sequence[str]
    weights: Array
    at: int
    v: Array
    """The rows of V, (key, d_v)."""
    output: Array


def way_of(trace: Trace, step: str, cell: Cell) -> CellWay:
    """The way of a cell of weights, scores or head outputs. Raises AttnError where it cannot be drawn."""
    line = trace.steps.get(WEIGHTS)
    if line is None or trace[WEIGHTS].ndim != 3 or len(cell) != 3 or HEAD_OUTPUTS not in trace:
        raise AttnError(LACKING)
    names = [line.inputs[0]]
    while names[-1] in trace and trace.steps[names[-1]].inputs and not is_product(trace, names[-1]):
        names.append(trace.steps[names[-1]].inputs[0])
    reads = trace.steps[names[-1]].inputs if names[-1] in trace else ()
    of_values = trace.steps[HEAD_OUTPUTS].inputs
    if len(reads) != 2 or len(of_values) != 2 or any(name not in trace for name in (*reads, of_values[1])):
        raise AttnError(LACKING)

    head, query, key = cell
    weights = trace[WEIGHTS][head, query]
    if step == HEAD_OUTPUTS:
        key = int(np.nanargmax(weights))
    elif trace[step].shape != trace[WEIGHTS].shape:
        raise AttnError(LACKING)

    queries = labels(trace, 1)
    keys = labels(trace, 2)
    scores = []
    for name in reversed(names):
        value = float(trace[name][head, query, key])
        scores.append(ScoreAtStep(name, trace.steps[name].formula, value))
    return CellWay(
        query=queries[query],
        key=keys[key],
        head=f"head {head}",
        q=trace[reads[0]][head, query],
        k=trace[reads[1]][head, key],
        scores=scores,
        keys=keys,
        weights=weights,
        at=key,
        v=trace[of_values[1]][head],
        output=trace[HEAD_OUTPUTS][head, query],
    )


def is_product(trace: Trace, name: str) -> bool:
    """True for the scores themselves: two rows of one length come to one number."""
    inputs = trace.steps[name].inputs
    if len(inputs) != 2 or any(read not in trace for read in inputs):
        return False
    left, right = (trace[read].shape for read in inputs)
    shape = trace[name].shape
    return len(left) == len(right) == 3 and (left[1], right[1]) == shape[1:] and left[2] == right[2]


def labels(trace: Trace, axis: int) -> list[str]:
    tokens = trace.tokens_along(WEIGHTS, axis)
    if tokens is None:
        kind = trace.steps[WEIGHTS].axes[axis]
        return [f"{kind} {place}" for place in range(trace[WEIGHTS].shape[axis])]
    return [visible(token, joined=True) for token in tokens]


# --- scenes ---


class Scene(NamedTuple):
    """What comes into a picture at once: its parts, and how far down these reach."""

    parts: list[str]
    bottom: float


def scenes(way: CellWay) -> Iterator[Scene]:
    """Each from the top of the picture; what was there before stays."""
    y = 64.0
    order = by_size(way.q * way.k)
    parts = [*row(f"q of {cut(way.query, 10)}", way.q[order], y)]
    parts += row(f"k of {cut(way.key, 10)}", way.k[order], y + 36)
    parts += rest_of(len(way.q), order, y + 36)
    yield Scene(parts, y + 70)

    y += 78
    yield Scene([*row("q · k", (way.q * way.k)[order], y)], y + HEIGHT)

    y += 54
    first, *others = way.scores
    yield Scene(
        [sentence(f"They add up: {first.name} = {first.formula} = {short(first.value)}", y)], y + 12
    )
    for line in others:
        y += 26
        yield Scene([sentence(f"then {line.name} = {line.formula} = {short(line.value)}", y)], y + 12)

    y += 36
    order = with_key(by_size(way.weights), way.at)
    parts = [sentence("softmax makes shares of the scores of all keys:", y)]
    for place, key in enumerate(order):
        parts += bar(way, key, y + 14 + 24 * place)
    y += 14 + 24 * len(order)
    parts += rest_of(len(way.weights), order, y)
    yield Scene(parts, y + 20)

    y += 36
    weight = float(way.weights[way.at])
    columns = by_size(way.v[way.at])
    yield Scene([*row(f"{short(weight)} · v", weight * way.v[way.at][columns], y)], y + HEIGHT)

    y += 36
    parts = [*row("sum over keys", way.output[columns], y)]
    parts += rest_of(len(way.output), columns, y)
    yield Scene(parts, y + HEIGHT)


def by_size(values: Array) -> list[int]:
    """The places of a row, in their order; of a long row those of its largest numbers."""
    if len(values) <= MOST:
        return list(range(len(values)))
    largest = np.argsort(-np.abs(np.nan_to_num(values)), kind="stable")[:MOST]
    return sorted(largest.tolist())


def with_key(order: list[int], key: int) -> list[int]:
    return order if key in order else sorted([*order[:-1], key])


def short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def row(name: str, values: Array, y: float) -> Iterator[str]:
    """A name, and a box for each number, in its colour."""
    yield words(name, MARGIN, y + 19)
    finite = np.abs(values[np.isfinite(values)])
    most = float(finite.max(initial=0.0)) or 1.0
    for place, value in enumerate(values.tolist()):
        x = MARGIN + NAMES + BOX * place
        yield from box(value, most, x, y)


def box(value: float, most: float, x: float, y: float) -> Iterator[str]:
    colours = ramp_colours(TWO_HUES)
    share = value / most if np.isfinite(value) else 0.0
    colour = colours[round((len(colours) - 1) * (share + 1) / 2)]
    frame: dict[str, Any] = {"x": x, "y": y, "width": BOX - 4, "height": HEIGHT, "rx": 4.0}
    yield element("rect", **frame, fill=hexadecimal(colour))
    middle = x + (BOX - 4) / 2
    yield words(short(value), middle, y + 19, text_anchor="middle", fill=ink_on(colour), font_size=13.0)


def bar(way: CellWay, key: int, y: float) -> Iterator[str]:
    """The weight of a key as a bar beside its word; that of the cell in the colour of what is looked at."""
    weight = float(np.nan_to_num(way.weights[key]))
    colour = "#c2410c" if key == way.at else "#2f75b6"
    bold = "bold" if key == way.at else None
    yield words(cut(way.keys[key], 14), MARGIN, y + 14, font_weight=bold, font_size=13.0)
    length = max(1.0, 420.0 * weight)
    yield element("rect", x=MARGIN + NAMES, y=y + 3, width=length, height=13.0, fill=colour)
    yield words(short(weight), MARGIN + NAMES + length + 8, y + 14, font_size=13.0)


def rest_of(count: int, order: Sequence[int], y: float) -> Iterator[str]:
    left = count - len(order)
    if left > 0:
        yield words(f"… {left} more", MARGIN + NAMES + BOX * len(order) + 4, y + 19, fill=FAINT)


def sentence(text: str, y: float) -> str:
    return words(text, MARGIN, y, font_size=15.0)


def words(text: str, x: float, y: float, **more: object) -> str:
    return element("text", escape_xml(text), x=x, y=y, **more)


# --- the picture ---


def moving_svg(way: CellWay) -> str:
    """Its scenes one after the other, and from the beginning again."""
    shown = [*scenes(way)]
    length = SCENE * len(shown) + HELD
    parts = []
    for number, scene in enumerate(shown):
        begin = number * SCENE / length
        times = f"0;{begin:.4f};{begin + 0.4 / length:.4f};0.985;1"
        values = "0;0;1;1;0"
        if number == 0:
            times, values = "0;0.985;1", "1;1;0.6"
        moves = {"attributeName": "opacity", "values": values, "keyTimes": times}
        motion = element("animate", **moves, dur=f"{length:.1f}s", repeatCount="indefinite")
        parts.append(element("g", motion + "".join(scene.parts)))
    return document(way, parts, height_of(shown))


def frames(way: CellWay) -> Iterator[str]:
    """An SVG of each scene with those before it."""
    shown = [*scenes(way)]
    for count in range(1, len(shown) + 1):
        parts = [element("g", "".join(scene.parts)) for scene in shown[:count]]
        yield document(way, parts, height_of(shown))


def height_of(shown: Sequence[Scene]) -> int:
    return int(max(scene.bottom for scene in shown) + MARGIN)


def document(way: CellWay, parts: Sequence[str], height: int) -> str:
    title = f"{way.query} → {way.key}, {way.head}: {short(float(way.weights[way.at]))}"
    heading = words(title, MARGIN, 36.0, font_size=20.0)
    return plain_document(title, [heading, *parts], (WIDTH, height), font_size="14", fill=INK)


def write_cell_svg(way: CellWay, stream: TextIO) -> None:
    stream.write(moving_svg(way))


def write_cell_gif(way: CellWay, stream: IO[bytes]) -> None:
    """Raises AttnError where resvg-py or Pillow is missing."""
    images = require_gif()
    drawn = []
    for svg in frames(way):
        height = int(svg.partition('height="')[2].partition('"')[0])
        picture = images.open(io.BytesIO(png(svg, WIDTH, height)))
        drawn.append(picture.convert("RGB").quantize(64))
    times = [int(1000 * SCENE)] * (len(drawn) - 1) + [int(1000 * (SCENE + HELD))]
    first, *others = drawn
    first.save(stream, "GIF", save_all=True, append_images=others, duration=times, loop=0)


def require_gif() -> Any:
    """Import what makes a GIF. Raises AttnError where it is not installed."""
    require_resvg()
    try:
        from PIL import Image
    except ImportError:
        raise AttnError(
            "a GIF needs Pillow; pip install 'attnctl[gif]', or write .svg, which needs nothing"
        ) from None
    return Image
