"""Anyone's text, made safe for a screen: what cannot be seen is escaped, what is seen is measured.

Nothing here knows Rich's markup, so `[red]` and `:smile:` are just words.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.base.words import escape

NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

UNSEEN = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)).union(
    range(0x180B, 0x1810), range(0xE0100, 0xE01F0)
)
"""Characters that Unicode calls printable and nobody can see (Default_Ignorable_Code_Point)."""

JOINED = frozenset("\ufe0e\ufe0f")  # variation selectors: they belong to the emoji before them

JOINER = "\u200d"

PLAINER = {
    "ᵀ": "^T",
    "√": "sqrt ",
    "·": "*",
    "−": "-",
    "∞": "inf",
    "×": "x",
    "…": "...",
    "–": "-",
    "→": "->",
    "′": "'",
    "θ": "theta",
    "Δ": "d",
    "ℓ": "l",
    "␣": "\\x20",
}
"""Our own symbols for a stream that has no such characters."""

NARROW = str.maketrans(dict.fromkeys("ᵀ√·−∞×…–→′θΔℓ␣Σ∘σδ²αεβγ✓✗─│╭╮╰╯├┤┬┴┼└░▒▓█▀▄", "x"))
"""Our own symbols are a cell each: text of these and ASCII needs no table of widths."""


def visible(text: str, *, joined: bool = False) -> str:
    r"""The text with every character seen: controls, overrides and zero-width ones escaped.

    A combining mark with nothing before it gets a dotted circle to sit on. Spaces stay. What joins two
    emoji stays where it is `joined`, in pictures: terminals do not agree on how many cells those take.
    """
    if text.isascii() and text.isprintable():
        return text
    seen: list[str] = []
    for place, char in enumerate(text):
        if joined and char == JOINER and joins_emoji(text, place):
            seen.append(char)
        elif char in NAMED:
            seen.append(NAMED[char])
        elif not char.isprintable() or ord(char) in UNSEEN:
            seen.append(escape(char))
        elif cells(char) == 0 and (not seen or len(seen[-1]) > 1):
            seen.append(escape(char) if char in JOINED else f"◌{char}")
        else:
            seen.append(char)
    return "".join(seen)


def joins_emoji(text: str, place: int) -> bool:
    from unicodedata import category

    before = text[:place].rstrip("\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")[-1:]
    after = text[place + 1 : place + 2]
    return bool(before and after) and category(before) == category(after) == "So"


def safe(line: str, *, joined: bool = False) -> str:
    """The line as it is, unless a terminal would act on something in it: then all of it made visible.

    Views make what they say visible themselves; this stands where things are printed.
    """
    return line if line.isprintable() else visible(line, joined=joined)


def shell_line(words: Iterable[str]) -> str:
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    r"""One word: its bytes in $'…' where some of it cannot be seen, else as `shlex` quotes it."""
    if word == visible(word):
        from shlex import quote

        return quote(word)
    chars = []
    for char in word:  # within $'…', which bash, zsh and POSIX 2024 know
        codes = "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
        chars.append(f"\\{char}" if char in "\\'" else char if char == visible(char) else codes)
    return f"$'{''.join(chars)}'"


def encodable(text: str, encoding: str) -> str:
    """The text with what this encoding lacks spelled out: our symbols in words, others as escapes."""
    if text.isascii() or encoding.lower().startswith("utf"):
        return text
    return "".join(
        char if char.encode(encoding, "ignore") else PLAINER.get(char) or escape(char) for char in text
    )


def token_text(token: str, encoding: str = "utf-8", *, joined: bool = False) -> str:
    """A token as a label: nothing in it invisible, not even a space or its being empty."""
    return encodable(visible(token, joined=joined).replace(" ", "␣"), encoding) if token else '""'


def cells(text: str) -> int:
    if text.translate(NARROW).isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """The text in at most `width` cells, its middle left out where it is longer."""
    if cells(text) <= width:
        return text
    room = width - len(ellipsis)
    tail = room // 3
    head = take(text, room - tail)
    return head + ellipsis + take(text[::-1], tail)[::-1] if room >= 0 else take(text, width)


def take(text: str, width: int) -> str:
    """As much of the beginning as fits into `width` cells."""
    kept = text[: max(0, width)]
    while kept and cells(kept) > width:
        kept = kept[:-1]
    return kept


def fold_text(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces if there are any; a wider character is alone."""
    lines: list[str] = []
    rest = text
    while len(rest) > 1 and cells(rest) > width:
        line = take(rest, width) or rest[0]
        at = line.rfind(" ") if rest[len(line)] != " " else len(line)
        line = line[:at] if at > 0 else line
        lines.append(line)
        rest = rest[len(line) :].removeprefix(" ")
    return [*lines, rest]


def pad_left(text: str, width: int) -> str:
    return " " * (width - cells(text)) + text


def pad_right(text: str, width: int) -> str:
    return text + " " * (width - cells(text))
