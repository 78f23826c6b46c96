"""Plots as SVG: panels with tokens on both axes, a colour bar, a description for screen readers.

Byte for byte the same on every machine, but for what its zlib makes of large panels, each a palette
image of a pixel a cell. Lines between the anchors of a ramp are integers, so that gradient and cells agree.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures.canvas import (
    LINE,
    MARGIN,
    TEXT,
    Canvas,
    coordinate,
    cut,
    document,
    element,
    escape_xml,
    text_width,
)
from attnctl.drawing.pictures.plot import (
    FAINT,
    HATCH,
    HATCHED,
    ODD,
    PAPER,
    ColourScale,
    Plot,
    hexadecimal,
    ink_on,
    rgb,
)
from attnctl.drawing.pictures.png import palette_png, png
from attnctl.drawing.screen.grid import Panel
from attnctl.math import Array
from attnctl.store.files import open_output

WIDTH, DESCRIBED = 1150, 24
"""What panels side by side take at most, where more than one fits; panels that the description tells of."""

GAP, TITLE, HEADING = 14.0, 15.0, 13.0
BAR, BAR_HEIGHT = 180.0, 10.0

SLANT = 0.7071
"""cos 45°, at which labels of columns stand that do not fit side by side."""


class Picture(NamedTuple):
    """An SVG document and how large it is; notebooks show it as it is."""

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
    """The plots below each other, under a title and lines of words."""
    canvas = Canvas(picture_name(plots, title, lines))
    if title:
        canvas.line(cut(title, 80), TITLE, full=title)
    for words in lines:
        canvas.line(words, fill=FAINT)
    said = []
    for plot in (plot.merge_cells() for plot in plots):
        scale = plot.scale()
        draw_plot(canvas, plot, scale)
        said.append(describe_plot(plot, scale))
    width, height = round(canvas.right + MARGIN), round(canvas.y + MARGIN)
    body = "\n".join(canvas.parts)
    text = document(canvas.own, title, " ".join(said), body, (width, height))
    return Picture(text, width, height)


def picture_name(plots: Sequence[Plot], title: str, lines: tuple[str, ...]) -> str:
    """A name made of all that a picture shows."""
    found = sha256(repr((title, lines)).encode("utf-8", "backslashreplace"))
    for plot in plots:
        captions = [panel.caption for panel in plot.panels]
        found.update(repr((replace(plot, panels=()), captions)).encode("utf-8", "backslashreplace"))
        for panel in plot.panels:
            found.update(np.ascontiguousarray(panel.values, dtype="<f8").tobytes())
    return f"a{found.hexdigest()[:8]}"


def describe_plot(plot: Plot, scale: ColourScale) -> str:
    """The words of a screen reader on a plot: its title, its ends, the largest number of each panel."""
    low, high = plain_number(scale.low), plain_number(scale.high)
    words = [f"{plot.title}: {'; '.join(plot.about)}; numbers from {low} to {high}."]
    for panel in plot.panels[:DESCRIBED]:
        values = np.asarray(panel.values, dtype=np.float64)
        finite = np.where(np.isfinite(values), values, -np.inf)
        if not finite.size or np.isneginf(finite.max()):
            continue
        row, column = (int(at) for at in np.unravel_index(int(finite.argmax()), finite.shape))
        where = ", ".join(filter(None, (plot.rows[row].strip(), plot.columns[column].strip())))
        words.append(
            f"{panel.caption or plot.title}: largest {plain_number(float(finite.max()))} at {where}."
        )
    return " ".join([*words, *plot.notes])


def plain_number(value: float) -> str:
    return f"{value + 0.0:.3g}"


def draw_plot(canvas: Canvas, plot: Plot, scale: ColourScale) -> None:
    canvas.y += GAP
    canvas.line(plot.title, HEADING)
    canvas.line(" · ".join(plot.about), fill=FAINT)
    texts = numbers_of(plot)
    down, across = plot_axes(plot, texts)
    beside = max((text_width(plot_beside, LABEL) for plot_beside in plot.beside), default=down.widest)
    left = float(round(MARGIN + (beside + 6 if beside else 0)))
    fits = panels_in(WIDTH - left, across)
    if texts and fits == 1 < len(plot.panels):
        texts = []
        down, across = plot_axes(plot, texts)
        fits = panels_in(WIDTH - left, across)
    per_row = plot.across or max(1, min(len(plot.panels), fits))
    canvas.y += 4
    for number_, start in enumerate(range(0, len(plot.panels), per_row)):
        row = slice(start, start + per_row)
        draw_row(canvas, plot.panels[row], scale, (down, across), left, texts[row] or [()] * per_row)
        if plot.beside:
            canvas.group(
                [label_text(plot.beside[number_], x=left - 5, y=canvas.y - down.length / 2 + 4)],
                text_anchor="end",
                font_size=LABEL,
            )
        canvas.y += GAP / 2 if plot.beside else GAP
    canvas.y += GAP / 2 if plot.beside else 0
    draw_bar(canvas, scale, plot.hidden)
    for words in plot.notes:
        canvas.line(words, fill=FAINT)


def panels_in(width: float, across: Axis) -> int:
    return max(1, int((width + GAP) // (across.length + GAP)))


def draw_row(
    canvas: Canvas,
    panels: Sequence[Panel],
    scale: ColourScale,
    axes: tuple[Axis, Axis],
    left: float,
    texts: Sequence[Sequence[Sequence[str]]],
) -> None:
    down, across = axes
    slanted = 0.0 if across.flat else across.widest * SLANT + LABEL * SLANT
    head = LINE if any(panel.caption for panel in panels) else 0.0
    if across.widest:
        head += LABEL + 5 if across.flat else slanted + 4
    canvas.y = float(round(canvas.y + head))  # whole units: no seams between cells
    for at, (panel, numbers) in enumerate(zip(panels, texts, strict=False)):
        x = left + at * (across.length + GAP)
        if panel.caption:
            canvas.text(panel.caption, x, canvas.y - head + TEXT)
        names = []
        for offset, label in across.ticks():
            if across.flat:
                names.append(label_text(label, x=x + offset, y=canvas.y - 5))
            else:
                turned = f"translate({coordinate(x + offset + 3)} {coordinate(canvas.y - 5)})rotate(-45)"
                names.append(label_text(label, transform=turned))
        canvas.group(names, text_anchor="middle" if across.flat else None, font_size=LABEL)
        draw_cells(canvas, scale, axes, x, panel.values, numbers)
        canvas.right = max(canvas.right, x + across.length + slanted)
    names = [label_text(label, x=left - 5, y=canvas.y + at + LABEL * 0.35) for at, label in down.ticks()]
    canvas.group(names, text_anchor="end", font_size=LABEL)
    canvas.y += down.length


def label_text(label: str, **place: object) -> str:
    """A label, its middle left out where it is long, which its title then has."""
    words = cut(label, LONGEST)
    tip = element("title", escape_xml(label)) if words != label else ""
    return element("text", tip + escape_xml(words), **place)


def draw_cells(
    canvas: Canvas,
    scale: ColourScale,
    axes: tuple[Axis, Axis],
    x: float,
    values: Array,
    texts: Sequence[Sequence[str]],
) -> None:
    """The cells of one panel: rectangles with numbers in them, or an image of a pixel a cell."""
    down, across = axes
    levels, palette = scale.levels(values), (*scale.colours, rgb(PAPER), rgb(ODD))
    frame: dict[str, Any] = {"x": x, "y": canvas.y, "width": across.length, "height": down.length}
    if (levels == HATCHED).any():
        canvas.parts.append(element("rect", **frame, fill=canvas.paint("hatched")))
    if not texts and levels.size:
        data = b64encode(palette_png(levels, palette, HATCHED)).decode()
        canvas.parts.append(
            element(
                "image",
                **frame,
                preserveAspectRatio="none",
                style="image-rendering:optimizeSpeed;image-rendering:pixelated",
                href=f"data:image/png;base64,{data}",
            )
        )
    parts = []
    for row, line in enumerate(texts):
        for column, words in enumerate(line):
            level = int(levels[row, column])
            if level == HATCHED:
                continue
            at, top, fill = x + column * across.cell, canvas.y + row * down.cell, palette[level]
            place: dict[str, Any] = {"x": at, "y": top, "width": across.cell, "height": down.cell}
            parts.append(element("rect", **place, fill=hexadecimal(fill)))
            middle, base = at + across.cell / 2, top + down.cell / 2 + DIGITS * 0.36
            parts.append(element("text", escape_xml(words), x=middle, y=base, fill=ink_on(fill)))
    canvas.group(parts, text_anchor="middle", font_size=DIGITS)
    canvas.parts.append(element("rect", **frame, fill="none", stroke=HATCH))


def draw_bar(canvas: Canvas, scale: ColourScale, hidden: str) -> None:
    low, high = f"{'≤ ' * scale.clipped}{plain_number(scale.low)}", plain_number(scale.high)
    base, x = canvas.y + BAR_HEIGHT - 1, MARGIN

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

    words(low)
    x += 5
    swatch(canvas.paint("two" if scale.signed else "one"), BAR)
    words(high + ", by logarithm" * scale.log)
    for there, fill, meaning in (
        (scale.hidden, canvas.paint("hatched"), hidden),
        (scale.zero, canvas.paint("hatched"), "0"),
        (scale.strange, ODD, "NaN or ∞"),
    ):
        if there:
            x += GAP
            swatch(fill, BAR_HEIGHT + 4)
            words(meaning)
    canvas.y += BAR_HEIGHT + 8


LABEL, DIGITS = 10.0, 10.0
"""Sizes of fonts."""

LONGEST = 16
"""Characters of a label; the middle of a longer token is left out, and its title has all of it."""

ROW_STEP, COLUMN_STEP = 11, 15
"""Pixels from one label to the next, at least: columns' are slanted."""

WITH_NUMBERS, ALL_NUMBERS = 400, 3000
"""Cells of a panel, and of a plot, that have their numbers in them, at most."""

NUMBER_COLUMNS = 16
CELL_HEIGHT, CELL_WIDTH = 24.0, 26.0
"""Of cells with numbers in them, at least."""

PANEL_SIDE, THUMB_SIDE, LARGEST_CELL, THINNEST = 272, 72, 18, 40
"""Pixels of a panel without numbers, of a thumbnail, of a cell, of a panel with few rows or columns."""

Texts = list[list[list[str]]]


class Axis(NamedTuple):
    """The labels along one side of a panel: every `every`-th, `cell` pixels apiece."""

    labels: Sequence[str]
    cell: float
    every: int

    @property
    def length(self) -> float:
        return self.cell * len(self.labels)

    def ticks(self) -> list[tuple[float, str]]:
        return [
            ((at + 0.5) * self.cell, self.labels[at])
            for at in range(0, len(self.labels), self.every)
            if self.labels[at]
        ]

    @property
    def widest(self) -> float:
        return max((text_width(cut(text, LONGEST), LABEL) for _, text in self.ticks()), default=0.0)

    @property
    def flat(self) -> bool:
        return self.widest <= self.cell * self.every - 3


def numbers_of(plot: Plot) -> Texts:
    """The digits in each cell of each panel, nothing where they would not fit."""
    cells = len(plot.rows) * len(plot.columns)
    too_many = cells > WITH_NUMBERS or cells * len(plot.panels) > ALL_NUMBERS
    if plot.beside or too_many or len(plot.columns) > NUMBER_COLUMNS:
        return []
    return [
        [[digits(value, plot.precision) for value in row] for row in np.asarray(panel.values).tolist()]
        for panel in plot.panels
    ]


def digits(value: float, precision: int) -> str:
    """A number in a cell; nothing for what is hidden."""
    if value == -np.inf:
        return ""
    if abs(value) >= 10_000:
        return f"{value:.2g}"
    text = f"{float(value):.{precision}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def plot_axes(plot: Plot, texts: Texts) -> tuple[Axis, Axis]:
    """The size of cells, and the labels beside them: down and across."""
    rows, columns = ([""] * len(labels) if plot.beside else labels for labels in (plot.rows, plot.columns))
    if texts:
        widest = max(
            (text_width(text, DIGITS) for panel in texts for row in panel for text in row), default=0.0
        )
        return Axis(rows, CELL_HEIGHT, 1), Axis(columns, max(CELL_WIDTH, round(widest + 7)), 1)
    most = max(len(rows), len(columns), 1)
    few = 1.5 if len(plot.panels) <= 2 else 1.0
    room = THUMB_SIDE if plot.beside else int(PANEL_SIDE * few)
    cell = min(LARGEST_CELL, max(1, room // most))

    def axis(labels: Sequence[str], apart: int) -> Axis:
        size = max(cell, min(LARGEST_CELL, THINNEST // max(1, len(labels))))
        return Axis(labels, float(size), max(1, -(-apart // size)))

    return axis(rows, ROW_STEP), axis(columns, COLUMN_STEP)
