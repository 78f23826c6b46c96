"""Plots as SVG: panels with tokens on both axes, a colour bar, a description for screen readers.

Byte for byte the same on every machine, but for what its zlib makes of large panels, each a palette
image of a pixel a cell. Lines between the anchors of a ramp are integers, so that gradient and cells agree.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from hashlib import sha256
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, TextIO
from unicodedata import east_asian_width

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing import pictures
from attnctl.drawing.pictures import FAINT, HATCH, HATCHED, ODD, PAPER, ColourScale, Plot, rgb
from attnctl.drawing.pictures.png import palette_png, png
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.text import safe
from attnctl.math import Array
from attnctl.store.files import open_output

WIDTH = 1150
"""What panels side by side take at most, where more than one fits."""

DESCRIBED = 24
"""Panels that the description tells of, at most."""

GAP = 14.0  # between panels
TITLE = 15.0  # size of the font of the picture's title
HEADING = 13.0  # size of the font of a plot's title
BAR = 180.0  # the length of the colour bar
BAR_HEIGHT = 10.0
SLANT = 0.7071  # cos 45°, at which labels of columns stand that do not fit side by side


class Picture(NamedTuple):
    svg: str
    width: int
    height: int

    def __str__(self) -> str:
        return self.svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file, .svg or .png.

        Raises AttnError for another suffix, where the file cannot be written, and for a PNG where
        resvg-py is missing.
        """
        suffix = Path(path).suffix
        if suffix not in {".svg", ".png"}:
            raise AttnError(f"{fspath(path)}: a picture is written as .svg or .png, not {suffix!r}")
        data = self.svg.encode() if suffix == ".svg" else png(*self)
        with open_output(fspath(path)) as stream:
            stream.write(data)


def writers(picture_of: Callable[..., Picture]) -> tuple[Callable[..., None], Callable[..., None]]:
    """What writes such a picture as SVG, and as PNG (which raises AttnError where resvg-py is missing)."""

    def write_svg(found: Sequence[Any], stream: TextIO, **look: Any) -> None:
        stream.write(picture_of(found, **look).svg)

    def write_png(found: Sequence[Any], stream: IO[bytes], **look: Any) -> None:
        stream.write(png(*picture_of(found, **look)))

    return write_svg, write_png


def draw(plots: Sequence[Plot], title: str = "", lines: tuple[str, ...] = ()) -> Picture:
    canvas = Canvas(picture_name(plots, title, lines))
    if title:
        canvas.line(cut(title, 80), TITLE, full=title)
    for words in lines:
        canvas.line(words, fill=FAINT)

    descriptions = []
    for whole_plot in plots:
        plot = whole_plot.merge_cells()
        scale = plot.scale()
        draw_plot(canvas, plot, scale)
        descriptions.append(describe_plot(plot, scale))

    width = round(canvas.right + MARGIN)
    height = round(canvas.y + MARGIN)
    body = "\n".join(canvas.parts)
    svg = document(canvas.own, title, " ".join(descriptions), body, size=(width, height))
    return Picture(svg, width, height)


def picture_name(plots: Sequence[Plot], title: str, lines: tuple[str, ...]) -> str:
    """What the ids of a picture begin with: the same for the same picture, on every machine."""
    digest = sha256(repr((title, lines)).encode("utf-8", "backslashreplace"))
    for plot in plots:
        captions = [panel.caption for panel in plot.panels]
        digest.update(repr((replace(plot, panels=()), captions)).encode("utf-8", "backslashreplace"))
        for panel in plot.panels:
            digest.update(np.ascontiguousarray(panel.values, dtype="<f8").tobytes())
    return f"a{digest.hexdigest()[:8]}"


def describe_plot(plot: Plot, scale: ColourScale) -> str:
    """The words of a screen reader on a plot: its title, its ends, the largest number of each panel."""
    ends = f"numbers from {plain_number(scale.low)} to {plain_number(scale.high)}"
    words = [f"{plot.title}: {'; '.join(plot.about)}; {ends}."]

    for panel in plot.panels[:DESCRIBED]:
        values = np.asarray(panel.values, dtype=np.float64)
        finite = np.where(np.isfinite(values), values, -np.inf)
        largest = float(finite.max(initial=-np.inf))
        if np.isneginf(largest):
            continue
        row, column = np.unravel_index(int(finite.argmax()), finite.shape)
        labels = filter(None, (plot.rows[int(row)].strip(), plot.columns[int(column)].strip()))
        place = ", ".join(labels)
        words.append(f"{panel.caption or plot.title}: largest {plain_number(largest)} at {place}.")

    return " ".join([*words, *plot.notes])


def plain_number(value: float) -> str:
    return f"{value + 0.0:.3g}"


def draw_plot(canvas: Canvas, plot: Plot, scale: ColourScale) -> None:
    canvas.y += GAP
    canvas.line(plot.title, HEADING)
    canvas.line(" · ".join(plot.about), fill=FAINT)

    texts = cell_texts(plot)
    axes = plot_axes(plot, texts)
    label_width = max((text_width(label, LABEL) for label in plot.beside), default=axes.down.widest)
    left = float(round(MARGIN + (label_width + 6 if label_width else 0)))
    fits = panels_in(WIDTH - left, axes.across)
    if texts and fits == 1 < len(plot.panels):
        # Without their numbers panels are smaller, and some may stand side by side.
        texts = []
        axes = plot_axes(plot, texts)
        fits = panels_in(WIDTH - left, axes.across)

    per_row = plot.across or max(1, min(len(plot.panels), fits))
    is_grid = bool(plot.beside)
    canvas.y += 4
    for number, start in enumerate(range(0, len(plot.panels), per_row)):
        row = slice(start, start + per_row)
        row_texts = texts[row] or [[]] * per_row
        draw_row(canvas, plot.panels[row], scale, axes, left=left, texts=row_texts)
        if is_grid:
            label = label_text(plot.beside[number], x=left - 5, y=canvas.y - axes.down.length / 2 + 4)
            canvas.group([label], text_anchor="end", font_size=LABEL)
        canvas.y += GAP / 2 if is_grid else GAP
    if is_grid:
        canvas.y += GAP / 2

    draw_bar(canvas, scale, plot.hidden)
    for words in plot.notes:
        canvas.line(words, fill=FAINT)


def panels_in(width: float, across: Axis) -> int:
    return max(1, int((width + GAP) // (across.length + GAP)))


def draw_row(
    canvas: Canvas, panels: Sequence[Panel], scale: ColourScale, axes: Axes, *, left: float, texts: Texts
) -> None:
    down, across = axes
    slanted = 0.0 if across.flat else across.widest * SLANT + LABEL * SLANT
    head = LINE if any(panel.caption for panel in panels) else 0.0
    if across.widest:
        head += LABEL + 5 if across.flat else slanted + 4
    canvas.y = float(round(canvas.y + head))  # whole units: no seams between cells

    for number, (panel, panel_texts) in enumerate(zip(panels, texts, strict=False)):
        x = left + number * (across.length + GAP)
        if panel.caption:
            canvas.text(panel.caption, x, canvas.y - head + TEXT)
        draw_column_labels(canvas, across, x)
        draw_cells(canvas, scale, axes, x=x, values=panel.values, texts=panel_texts)
        canvas.right = max(canvas.right, x + across.length + slanted)

    labels = []
    for offset, label in down.ticks():
        labels.append(label_text(label, x=left - 5, y=canvas.y + offset + LABEL * 0.35))
    canvas.group(labels, text_anchor="end", font_size=LABEL)
    canvas.y += down.length


def draw_column_labels(canvas: Canvas, across: Axis, x: float) -> None:
    """The labels above a panel: side by side, or slanted where there is no room for that."""
    labels = []
    for offset, label in across.ticks():
        if across.flat:
            labels.append(label_text(label, x=x + offset, y=canvas.y - 5))
        else:
            turned = f"translate({coordinate(x + offset + 3)} {coordinate(canvas.y - 5)})rotate(-45)"
            labels.append(label_text(label, transform=turned))
    canvas.group(labels, text_anchor="middle" if across.flat else None, font_size=LABEL)


def label_text(label: str, **place: object) -> str:
    """A label, its middle left out where it is long, which its title then has."""
    words = cut(label, LONGEST)
    tip = element("title", escape_xml(label)) if words != label else ""
    return element("text", tip + escape_xml(words), **place)


def draw_cells(
    canvas: Canvas, scale: ColourScale, axes: Axes, *, x: float, values: Array, texts: list[list[str]]
) -> None:
    """The cells of one panel: rectangles with numbers in them, or an image of a pixel a cell."""
    down, across = axes
    levels = scale.levels(values)
    palette = (*scale.colours, rgb(PAPER), rgb(ODD))
    frame: dict[str, Any] = {"x": x, "y": canvas.y, "width": across.length, "height": down.length}

    if (levels == HATCHED).any():
        canvas.parts.append(element("rect", **frame, fill=canvas.paint("hatched")))
    if not texts and levels.size:
        href = f"data:image/png;base64,{b64encode(palette_png(levels, palette, HATCHED)).decode()}"
        style = "image-rendering:optimizeSpeed;image-rendering:pixelated"
        canvas.parts.append(element("image", **frame, preserveAspectRatio="none", style=style, href=href))

    parts = []
    for row, row_texts in enumerate(texts):
        top = canvas.y + row * down.cell
        for column, words in enumerate(row_texts):
            level = int(levels[row, column])
            if level == HATCHED:
                continue
            cell_x = x + column * across.cell
            fill = palette[level]
            place: dict[str, Any] = {"x": cell_x, "y": top, "width": across.cell, "height": down.cell}
            parts.append(element("rect", **place, fill=pictures.hexadecimal(fill)))

            middle = cell_x + across.cell / 2
            base = top + down.cell / 2 + DIGITS * 0.36
            parts.append(element("text", escape_xml(words), x=middle, y=base, fill=pictures.ink_on(fill)))
    canvas.group(parts, text_anchor="middle", font_size=DIGITS)
    canvas.parts.append(element("rect", **frame, fill="none", stroke=HATCH))


def draw_bar(canvas: Canvas, scale: ColourScale, hidden: str) -> None:
    """The colour bar with its ends, and what the other colours mean that are there."""
    base = canvas.y + BAR_HEIGHT - 1
    x = MARGIN

    def words(text: str) -> None:
        nonlocal x
        canvas.text(text, x, base, LABEL)
        x += text_width(text, LABEL)

    def swatch(fill: str, width: float) -> None:
        nonlocal x
        canvas.parts.append(
            element("rect", x=x, y=canvas.y, width=width, height=BAR_HEIGHT, fill=fill, stroke=HATCH)
        )
        x += width + 5

    low = plain_number(scale.low)
    high = plain_number(scale.high)
    words(f"≤ {low}" if scale.clipped else low)
    x += 5
    swatch(canvas.paint("two" if scale.signed else "one"), BAR)
    words(f"{high}, by logarithm" if scale.log else high)

    for is_there, fill, meaning in (
        (scale.hidden, canvas.paint("hatched"), hidden),
        (scale.zero, canvas.paint("hatched"), "0"),
        (scale.strange, ODD, "NaN or ∞"),
    ):
        if is_there:
            x += GAP
            swatch(fill, BAR_HEIGHT + 4)
            words(meaning)
    canvas.y += BAR_HEIGHT + 8


LABEL = 10.0  # size of the font of labels
DIGITS = 10.0  # size of the font of numbers in cells

LONGEST = 16  # characters of a label; the middle of a longer token is left out, and its title has all of it

ROW_STEP = 11  # pixels from one label of a row to the next, at least
COLUMN_STEP = 15  # the same of columns, whose labels are slanted

WITH_NUMBERS = 400
"""Cells of a panel that have their numbers in them, at most."""

ALL_NUMBERS = 3000
"""Cells of a plot that have their numbers in them, at most."""

NUMBER_COLUMNS = 16
CELL_HEIGHT = 24.0  # of cells with numbers in them
CELL_WIDTH = 26.0  # of the same, at least

PANEL_SIDE = 272  # pixels of a panel without numbers
THUMB_SIDE = 72  # pixels of a thumbnail
LARGEST_CELL = 18  # pixels of a cell without a number
THINNEST = 40  # pixels of a panel with few rows or columns

Texts = list[list[list[str]]]
"""The number in each cell, by panel and row; nothing where cells have none."""


class Axis(NamedTuple):
    """The labels along one side of a panel: every `every`-th, `cell` pixels apiece."""

    labels: Sequence[str]
    cell: float
    every: int

    @property
    def length(self) -> float:
        return self.cell * len(self.labels)

    def ticks(self) -> list[tuple[float, str]]:
        """The middle of each cell that has a label, and the label."""
        places = range(0, len(self.labels), self.every)
        return [((place + 0.5) * self.cell, self.labels[place]) for place in places if self.labels[place]]

    @property
    def widest(self) -> float:
        return max((text_width(cut(text, LONGEST), LABEL) for _, text in self.ticks()), default=0.0)

    @property
    def flat(self) -> bool:
        return self.widest <= self.cell * self.every - 3


class Axes(NamedTuple):
    down: Axis
    across: Axis


def cell_texts(plot: Plot) -> Texts:
    """Nothing where they would not fit."""
    cells = len(plot.rows) * len(plot.columns)
    too_many = cells > WITH_NUMBERS or cells * len(plot.panels) > ALL_NUMBERS
    if plot.beside or too_many or len(plot.columns) > NUMBER_COLUMNS:
        return []

    texts = []
    for panel in plot.panels:
        rows = np.asarray(panel.values).tolist()
        texts.append([[digits(value, plot.precision) for value in row] for row in rows])
    return texts


def digits(value: float, precision: int) -> str:
    if value == -np.inf:
        return ""
    if abs(value) >= 10_000:
        return f"{value:.2g}"
    text = f"{float(value):.{precision}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def plot_axes(plot: Plot, texts: Texts) -> Axes:
    """The size of cells, and the labels beside them; thumbnails have none."""
    rows = [""] * len(plot.rows) if plot.beside else plot.rows
    columns = [""] * len(plot.columns) if plot.beside else plot.columns
    if texts:
        all_texts = chain.from_iterable(row for panel in texts for row in panel)
        widest = max((text_width(text, DIGITS) for text in all_texts), default=0.0)
        cell_width = max(CELL_WIDTH, round(widest + 7))
        return Axes(Axis(rows, CELL_HEIGHT, every=1), Axis(columns, cell_width, every=1))

    most = max(len(rows), len(columns), 1)
    panel_side = int(PANEL_SIDE * 1.5) if len(plot.panels) <= 2 else PANEL_SIDE
    room = THUMB_SIDE if plot.beside else panel_side
    cell = min(LARGEST_CELL, max(1, room // most))

    def axis(labels: Sequence[str], apart: int) -> Axis:
        size = max(cell, min(LARGEST_CELL, THINNEST // max(1, len(labels))))
        return Axis(labels, float(size), every=max(1, -(-apart // size)))

    return Axes(axis(rows, ROW_STEP), axis(columns, COLUMN_STEP))


# --- the sheet that a picture is drawn on, and the SVG document around it ---


MARGIN = 16.0  # the border around everything
LINE = 17.0  # the height of a line
TEXT = 11.0  # and of its font

AT_NIGHT = (
    "@media (prefers-color-scheme: dark) { #own { fill: #e8ebee } #own .paper { fill: #14181d } "
    f"#own [fill='{FAINT}'] {{ fill: #a3adb8 }} }}"
)
"""Light letters on dark paper, where a reader wants that; shades are the same, with their own ink."""

RAMPS = {"one": pictures.BLUE, "two": pictures.TWO_HUES}
"""The gradients that a drawing may fill with; there is `hatched`, too."""


@dataclass
class Canvas:
    own: str  # what the ids of this picture begin with, so that several stand in one page
    parts: list[str] = field(default_factory=list)
    y: float = MARGIN
    right: float = 0.0

    def text(
        self, words: str, x: float, y: float, size: float = TEXT, full: str = "", fill: str | None = None
    ) -> None:
        """Words on the canvas; `full` is what a title says of words that were cut."""
        tip = element("title", escape_xml(full)) if full not in {"", words} else ""
        place = {"x": float(x), "y": float(y), "font_size": None if size == TEXT else size, "fill": fill}
        self.parts.append(element("text", tip + escape_xml(words), **place))
        self.right = max(self.right, x + text_width(words, size))

    def paint(self, name: str) -> str:
        return f"url(#{self.own}-{name})"

    def group(self, parts: Sequence[str], **given: object) -> None:
        if parts:
            self.parts.append(element("g", "".join(parts), **given))

    def line(self, words: str, size: float = TEXT, **more: str) -> None:
        self.y += size
        self.text(words, MARGIN, self.y, size, **more)
        self.y += LINE - TEXT


def document(own: str, title: str, description: str, body: str, size: tuple[int, int]) -> str:
    """The SVG around a body, of this width and height; its ids begin with `own`."""
    width, height = size

    paper = element("rect", width=5.0, height=5.0, fill=PAPER, class_="paper")
    stripes = paper + element("rect", width=1.2, height=5.0, fill=HATCH)
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    hatching = element("pattern", stripes, id=f"{own}-hatched", width=5.0, height=5.0, **turned)
    gradients = "".join(gradient(f"{own}-{name}", ramp) for name, ramp in RAMPS.items())

    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{own}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="{own}-title {own}-desc" '
        f'font-family="{FAMILY}" font-size="{coordinate(TEXT)}" fill="{pictures.INK}">'
    )
    parts = [
        head,
        element("title", escape_xml(title) or " ", id=f"{own}-title"),
        element("desc", escape_xml(description) or " ", id=f"{own}-desc"),
        element("style", AT_NIGHT.replace("#own", f"#{own}")),
        element("defs", hatching + gradients),
        element("rect", width=float(width), height=float(height), fill=PAPER, class_="paper"),
        body,
        "</svg>\n",
    ]
    return "\n".join(parts)


def plain_document(title: str, parts: Sequence[str], size: tuple[int, int], **given: object) -> str:
    """An SVG on white, of this width and height, that needs no ids: its title, and its parts in order."""
    width, height = size
    place = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    paper = element("rect", width="100%", height="100%", fill="#ffffff")
    body = "\n".join(["", element("title", escape_xml(title)), paper, *parts, ""])
    about: dict[str, object] = {**place, "role": "img", "font_family": FAMILY, **given}
    return element("svg", body, xmlns="http://www.w3.org/2000/svg", **about) + "\n"


def gradient(name: str, anchors: tuple[str, ...]) -> str:
    last = len(anchors) - 1
    stops = []
    for number, colour in enumerate(anchors):
        stops.append(element("stop", offset=coordinate(number / last), stop_color=colour))
    return element("linearGradient", "".join(stops), id=name)


FAMILY = "DejaVu Sans, Verdana, sans-serif"
ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})

WIDE = 1.0
"""The width of an ideograph, in parts of the size of its font."""

NARROW = 0.62
"""The width of most other characters."""


def escape_xml(text: str) -> str:
    """Characters that mean something in XML as entities; what XML 1.0 does not allow shown escaped."""
    return safe(text, joined=True).translate(ENTITIES)


def coordinate(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(tag: str, content: str = "", **given: object) -> str:
    """An element; its content is SVG already. Of attributes text_anchor is text-anchor, None left out."""
    start = tag
    for name, value in given.items():
        if value is not None:
            text = coordinate(value) if isinstance(value, float) else escape_xml(str(value))
            start += f' {name.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{start}>{content}</{tag}>" if content else f"<{start}/>"


def text_width(text: str, size: float) -> float:
    return size * sum(WIDE if east_asian_width(char) in "WF" else NARROW for char in text)


def cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
