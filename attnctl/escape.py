"""Text that cannot harm a terminal: what would steer it is written out instead."""

from __future__ import annotations

import unicodedata

STEERING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Controls, formats (bidi overrides, zero widths), surrogates, private use, line and paragraph ends."""

JOINERS = {"\u200d", "\ufe0f", "\ufe0e"}
"""What emoji are joined with: harmless, and part of how they look."""


def visible(text: str) -> str:
    """The text with every control and format character escaped (ESC becomes backslash x1b)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(shown, text))


def shown(character: str) -> str:
    """One character, or its escape."""
    if character in JOINERS or unicodedata.category(character) not in STEERING:
        return character
    return character.encode("unicode_escape").decode("ascii")
