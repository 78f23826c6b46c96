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
"""From the left side of a box to that of the next."""
GAP = 4.0
HEIGHT = 28.0
BASE = 19
"""From the top of a row down to its letters."""

ROW = 36
"""From one row to the next."""

BAR = 24
LONGEST_BAR = 420.0

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


class StepsRead(NamedTuple):
    """The names of the steps that a moving cell tells of."""

    q: str
    k: str
    scores: list[str]
    """From the product on, to what softmax reads."""
    v: str


def way_of(trace: Trace, step: str, cell: Cell) -> CellWay:
    """The way of a cell of weights, scores or head outputs. Raises AttnError where it cannot be drawn."""
    read = steps_read(trace)
    if read is None or len(cell) != 3:
        raise AttnError(LACKING)

    head, query, key = cell
    weights = trace[WEIGHTS][head, query]
    if step == HEAD_OUTPUTS:
        # A number of the output is of no one key: the one that it is most of is shown.
        key = int(np.nanargmax(weights))
    elif trace[step].shape != trace[WEIGHTS].shape:
        raise AttnError(LACKING)

    scores = []
    for name in read.scores:
        value = float(trace[name][head, query, key])
        scores.append(ScoreAtStep(name, trace.steps[name].formula, value))

    queries = labels(trace, 1)
    keys = labels(trace, 2)
    return CellWay(
        query=queries[query],
        key=keys[key],
        head=f"head {head}",
        q=trace[read.q][head, query],
        k=trace[read.k][head, key],
        scores=scores,
        keys=keys,
        weights=weights,
        at=key,
        v=trace[read.v][head],
        output=trace[HEAD_OUTPUTS][head, query],
    )


def steps_read(trace: Trace) -> StepsRead | None:
    """The steps from Q and K to the weights, and V; None where some are not there, or there is a batch."""
    softmax = trace.steps.get(WEIGHTS)
    if softmax is None or trace[WEIGHTS].ndim != 3 or HEAD_OUTPUTS not in trace:
        return None

    # Back along first inputs, as far as the product of Q and K.
    name = softmax.inputs[0]
    names = [name]
    while name in trace and trace.steps[name].inputs and not is_product(trace, name):
        name = trace.steps[name].inputs[0]
        names.append(name)

    of_scores = trace.steps[name].inputs if name in trace else ()
    of_outputs = trace.steps[HEAD_OUTPUTS].inputs
    if len(of_scores) != 2 or len(of_outputs) != 2:
        return None
    q, k = of_scores
    _, v = of_outputs
    if not all(read in trace for read in (q, k, v)):
        return None
    return StepsRead(q, k, names[::-1], v)


def is_product(trace: Trace, name: str) -> bool:
    """True for the scores themselves: two rows of one length come to one number."""
    inputs = trace.steps[name].inputs
    if len(inputs) != 2 or any(read not in trace for read in inputs):
        return False

    rows, columns = (trace[read].shape for read in inputs)
    if len(rows) != 3 or len(columns) != 3:
        return False
    _, queries, length = rows
    _, keys, length_of_key = columns
    return trace[name].shape[1:] == (queries, keys) and length == length_of_key


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
    products = way.q * way.k
    order = by_size(products)

    y = 64.0
    q_row = row(f"q of {cut(way.query, 10)}", way.q[order], y)
    k_row = row(f"k of {cut(way.key, 10)}", way.k[order], y + ROW)
    rest = rest_of(len(way.q), order, y + ROW)
    yield Scene([*q_row, *k_row, *rest], y + 70)

    y += 78
    yield Scene([*row("q · k", products[order], y)], y + HEIGHT)

    y += 54
    first, *others = way.scores
    yield Scene([sentence(f"They add up: {say_score(first)}", y)], y + 12)
    for score in others:
        y += 26
        yield Scene([sentence(f"then {say_score(score)}", y)], y + 12)

    y += ROW
    keys = with_key(by_size(way.weights), way.at)
    parts = [sentence("softmax makes shares of the scores of all keys:", y)]
    y += 14
    for key in keys:
        parts += bar(way, key, y)
        y += BAR
    parts += rest_of(len(way.weights), keys, y)
    yield Scene(parts, y + 20)

    y += ROW
    weight = float(way.weights[way.at])
    value = way.v[way.at]
    columns = by_size(value)
    yield Scene([*row(f"{short(weight)} · v", weight * value[columns], y)], y + HEIGHT)

    y += ROW
    output_row = row("sum over keys", way.output[columns], y)
    rest = rest_of(len(way.output), columns, y)
    yield Scene([*output_row, *rest], y + HEIGHT)


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


def say_score(score: ScoreAtStep) -> str:
    return f"{score.name} = {score.formula} = {short(score.value)}"


def row(name: str, values: Array, y: float) -> Iterator[str]:
    """A name, and a box for each number, in its colour."""
    yield words(name, MARGIN, y + BASE)
    finite = np.abs(values[np.isfinite(values)])
    most = float(finite.max(initial=0.0)) or 1.0
    for place, value in enumerate(values.tolist()):
        yield from box(value, most, left_of(place), y)


def left_of(place: int) -> float:
    """Where the box of a number of a row begins."""
    return MARGIN + NAMES + BOX * place


def box(value: float, most: float, x: float, y: float) -> Iterator[str]:
    """A number in the colour of its share of the largest: from −1, the first of a ramp, to 1, the last."""
    colours = ramp_colours(TWO_HUES)
    share = value / most if np.isfinite(value) else 0.0
    colour = colours[round((len(colours) - 1) * (share + 1) / 2)]

    width = BOX - GAP
    frame: dict[str, Any] = {"x": x, "y": y, "width": width, "height": HEIGHT, "rx": 4.0}
    yield element("rect", **frame, fill=hexadecimal(colour))

    middle = x + width / 2
    ink = ink_on(colour)
    yield words(short(value), middle, y + BASE, text_anchor="middle", fill=ink, font_size=13.0)


def bar(way: CellWay, key: int, y: float) -> Iterator[str]:
    """The weight of a key as a bar beside its word; that of the cell in the colour of what is looked at."""
    weight = float(np.nan_to_num(way.weights[key]))
    is_cell = key == way.at
    colour = "#c2410c" if is_cell else "#2f75b6"
    bold = "bold" if is_cell else None
    yield words(cut(way.keys[key], 14), MARGIN, y + 14, font_weight=bold, font_size=13.0)

    left = left_of(0)
    length = max(1.0, LONGEST_BAR * weight)
    yield element("rect", x=left, y=y + 3, width=length, height=13.0, fill=colour)
    yield words(short(weight), left + length + 8, y + 14, font_size=13.0)


def rest_of(count: int, order: Sequence[int], y: float) -> Iterator[str]:
    """How many numbers of a row are not drawn, behind those that are."""
    drawn = len(order)
    if count > drawn:
        yield words(f"… {count - drawn} more", left_of(drawn) + 4, y + BASE, fill=FAINT)


def sentence(text: str, y: float) -> str:
    return words(text, MARGIN, y, font_size=15.0)


def words(text: str, x: float, y: float, **more: object) -> str:
    return element("text", escape_xml(text), x=x, y=y, **more)


# --- the picture ---


FADE = 0.4
"""Seconds in which a scene comes in."""


def moving_svg(way: CellWay) -> str:
    """Its scenes one after the other, and from the beginning again."""
    shown = [*scenes(way)]
    length = SCENE * len(shown) + HELD
    parts = []
    for number, scene in enumerate(shown):
        fade = fade_in(number, length)
        motion = element("animate", **fade, dur=f"{length:.1f}s", repeatCount="indefinite")
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


def fade_in(number: int, length: float) -> dict[str, str]:
    """When a scene is seen, in parts of the whole: the first from the start, and all until the end."""
    if number == 0:
        return {"attributeName": "opacity", "values": "1;1;0.6", "keyTimes": "0;0.985;1"}
    begin = number * SCENE / length
    end = begin + FADE / length
    times = f"0;{begin:.4f};{end:.4f};0.985;1"
    return {"attributeName": "opacity", "values": "0;0;1;1;0", "keyTimes": times}


def write_cell_gif(way: CellWay, stream: IO[bytes]) -> None:
    """Raises AttnError where resvg-py or Pillow is missing."""
    images = require_gif()
    drawn = []
    for svg in frames(way):
        height = int(svg.partition('height="')[2].partition('"')[0])
        picture = images.open(io.BytesIO(png(svg, WIDTH, height)))
        drawn.append(picture.convert("RGB").quantize(64))

    # Milliseconds; the last picture stays.
    scene = int(1000 * SCENE)
    last_scene = int(1000 * (SCENE + HELD))
    first, *others = drawn
    times = [scene] * len(others) + [last_scene]
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
