"""Pieces of byte-level vocabularies, like GPT-2's: each letter of `Ġlove` stands for a byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

SPACE = "Ġ"
"""How these vocabularies write a space."""

NEWLINE = "Ċ"

SHOWN = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))
"""Bytes that stand for themselves; the others, in their order, are letters from U+0100 on."""


@cache
def byte_of_letter() -> dict[str, int]:
    alphabet = {}
    hidden = 0
    for byte in range(256):
        if any(byte in span for span in SHOWN):
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(0x100 + hidden)] = byte
            hidden += 1
    return alphabet


def bytes_of_piece(piece: str) -> bytes | None:
    """The bytes that a piece stands for; None where a letter of it stands for none."""
    alphabet = byte_of_letter()
    if any(letter not in alphabet for letter in piece):
        return None
    return bytes(alphabet[letter] for letter in piece)


def text_of_piece(piece: str) -> str:
    """What a piece reads, a part of a character as `<0xF0><0x9F>`; the piece itself where it is none."""
    found = bytes_of_piece(piece)
    if found is None:
        return piece
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in found)


def are_pieces(tokens: Sequence[str]) -> bool:
    """True of tokens that together are a text in bytes, with spaces or line ends that only pieces write so.

    `Ġ` is a letter of Maltese, too: a word that has others beside it stands for no UTF-8, or has a space
    of its own in the list.
    """
    marked = any(token.startswith((SPACE, NEWLINE)) for token in tokens)
    if not marked:
        return False

    parts = [bytes_of_piece(token) for token in tokens if not is_special(token)]
    try:
        text = b"".join(part for part in parts if part is not None).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return None not in parts and all(char.isprintable() or char in "\t\n\r" for char in text)


def is_special(token: str) -> bool:
    """<|endoftext|>, <s>: names, in which no letter stands for a byte."""
    return token.startswith("<") and token.endswith(">")


def read_pieces(tokens: list[str]) -> list[str]:
    """Tokens as people read them: without the space before a word, as a model's own run names them."""
    if not are_pieces(tokens):
        return tokens
    read = [token if is_special(token) else text_of_piece(token) for token in tokens]
    return [text.strip() or text for text in read]
