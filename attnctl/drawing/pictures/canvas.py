"""The sheet that a picture is drawn on, and the SVG document around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from unicodedata import east_asian_width

from attnctl.base.dataclass import dataclass
from attnctl.drawing.pictures.plot import BLUE, FAINT, HATCH, INK, PAPER, TWO_HUES
from attnctl.drawing.screen.text import safe

MARGIN, LINE, TEXT = 16.0, 17.0, 11.0
"""The border around everything, the height of a line and of its font."""

AT_NIGHT = (
    "@media (prefers-color-scheme: dark) { #own { fill: #e8ebee } #own .paper { fill: #14181d } "
    f"#own [fill='{FAINT}'] {{ fill: #a3adb8 }} }}"
)
"""Light letters on dark paper, where a reader wants that; shades are the same, with their own ink."""

RAMPS = {"one": BLUE, "two": TWO_HUES}
"""The gradients that a drawing may fill with; there is `hatched`, too."""


@dataclass
class Canvas:
    """The elements drawn so far, and how far down and to the right they reach."""

    own: str
    """What the ids of this picture begin with, so that several stand in one page."""
    parts: list[str] = field(default_factory=list)
    y: float = MARGIN
    right: float = 0.0

    def text(
        self,
        words: str,
        x: float,
        y: float,
        size: float | None = None,
        full: str = "",
        fill: str | None = None,
    ) -> None:
        """Words on the canvas; `full` is what a title says of words that were cut."""
        tip = element("title", escape_xml(full)) if full not in {"", words} else ""
        place = {"x": float(x), "y": float(y), "font_size": size, "fill": fill}
        self.parts.append(element("text", tip + escape_xml(words), **place))
        self.right = max(self.right, x + text_width(words, size or TEXT))

    def paint(self, name: str) -> str:
        return f"url(#{self.own}-{name})"

    def group(self, parts: Sequence[str], **given: object) -> None:
        if parts:
            self.parts.append(element("g", "".join(parts), **given))

    def line(self, words: str, size: float | None = None, **more: str) -> None:
        self.y += size or TEXT
        self.text(words, MARGIN, self.y, size, **more)
        self.y += LINE - TEXT


def document(own: str, title: str, said: str, body: str, size: tuple[int, int]) -> str:
    """The SVG around a body, of this width and height; its ids begin with `own`."""
    width, height = size
    hatching = element(
        "pattern",
        element("rect", width=5.0, height=5.0, fill=PAPER, class_="paper")
        + element("rect", width=1.2, height=5.0, fill=HATCH),
        id=f"{own}-hatched",
        width=5.0,
        height=5.0,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{own}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="{own}-title {own}-desc" '
        f'font-family="{FAMILY}" font-size="{coordinate(TEXT)}" fill="{INK}">'
    )
    parts = [
        head,
        element("title", escape_xml(title) or " ", id=f"{own}-title"),
        element("desc", escape_xml(said) or " ", id=f"{own}-desc"),
        element("style", AT_NIGHT.replace("#own", f"#{own}")),
        element(
            "defs", hatching + "".join(gradient(f"{own}-{name}", ramp) for name, ramp in RAMPS.items())
        ),
        element("rect", width=float(width), height=float(height), fill=PAPER, class_="paper"),
        body,
        "</svg>\n",
    ]
    return "\n".join(parts)


def gradient(name: str, anchors: tuple[str, ...]) -> str:
    stops = (
        element("stop", offset=coordinate(at / (len(anchors) - 1)), stop_color=colour)
        for at, colour in enumerate(anchors)
    )
    return element("linearGradient", "".join(stops), id=name)


FAMILY = "DejaVu Sans, Verdana, sans-serif"

ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})

WIDE, NARROW = 1.0, 0.62
"""The width of a character in parts of the size of its font: of ideographs, and of most others."""


def escape_xml(text: str) -> str:
    """Characters that mean something in XML as entities; what XML 1.0 does not allow shown escaped."""
    return safe(text).translate(ENTITIES)


def coordinate(value: float) -> str:
    """A coordinate: at most two decimals, no zeros at the end."""
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
