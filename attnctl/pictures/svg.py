"""SVG as text: elements, attributes and characters that every reader takes, byte for byte the same."""

from __future__ import annotations

from unicodedata import east_asian_width

FAMILY = "DejaVu Sans, Verdana, sans-serif"

ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})

WIDE, NARROW = 1.0, 0.62
"""The width of a character in parts of the size of its font: of ideographs, and of most others."""


def escape_xml(text: str) -> str:
    """Characters that mean something in XML as entities; those that it does not allow as U+FFFD."""
    return "".join(char if allowed(char) else "\ufffd" for char in text).translate(ENTITIES)


def allowed(char: str) -> bool:
    """Whether XML 1.0 allows a character (section 2.2)."""
    code = ord(char)
    return char in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def number(value: float) -> str:
    """A coordinate: at most two decimals, no zeros at the end."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def attributes(given: dict[str, object]) -> str:
    """Attributes in the order given; text_anchor is text-anchor, and None is left out."""
    out = []
    for name, value in given.items():
        if value is not None:
            text = number(value) if isinstance(value, float) else escape_xml(str(value))
            out.append(f' {name.replace("_", "-")}="{text}"')
    return "".join(out)


def element(tag: str, content: str = "", **given: object) -> str:
    """An element; its content is SVG already."""
    if not content:
        return f"<{tag}{attributes(given)}/>"
    return f"<{tag}{attributes(given)}>{content}</{tag}>"


def text_width(text: str, size: float) -> float:
    """About how wide a text is."""
    return size * sum(WIDE if east_asian_width(char) in "WF" else NARROW for char in text)


def cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
