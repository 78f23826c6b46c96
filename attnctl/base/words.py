"""Words that messages are made of: sizes, choices, quotations, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite, isnan

MOST_NAMED = 12
"""How many choices a message names."""

LONGEST_QUOTE = 60


def dims(shape: Iterable[object]) -> str:
    """(4, 8) -> '4 × 8'; () -> 'one number'."""
    return " × ".join(map(str, shape)) or "one number"


def one_of(choices: Iterable[object], last_word: str = "or", most: int = MOST_NAMED) -> str:
    """['a', 'b', 'c'] -> 'a, b or c'; of more than `most` choices the first few."""
    named = list(map(str, choices))
    if len(named) > most:
        return f"{', '.join(named[:most])}, …"
    *others, last = named or [""]
    return f"{', '.join(others)} {last_word} {last}" if others else last


def all_of(items: Iterable[object]) -> str:
    """['a', 'b', 'c'] -> 'a, b and c'."""
    return one_of(items, "and")


def nearest(word: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """The known words that look most like this one in any case, best first, or that it is part of."""
    from difflib import get_close_matches

    by_lower = {other.lower(): other for other in reversed(list(known))}
    lower = word.lower()
    like = get_close_matches(lower, by_lower, n=most, cutoff=cutoff)
    parts = [other for other in by_lower if f"_{lower}" in other or f"{lower}_" in other]
    return [by_lower[match] for match in like or parts[:most]]


def did_you_mean(word: str, known: Sequence[str], otherwise: str) -> str:
    """'did you mean a or b?', or `otherwise` where no known word is near."""
    near = nearest(word, known)
    return f"did you mean {one_of(near)}?" if near else otherwise


def suggest(word: str, known: Sequence[str]) -> str:
    """'did you mean a?', or 'there are a, b, c' where no known word is near."""
    near = nearest(word, known, most=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def quote(text: str) -> str:
    """A text for a message: in quotes, escaped as Python escapes it, and short."""
    return repr(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…")


def escape(char: str) -> str:
    r"""One character as Python would write it: \x1b, \u202e, \U000e0001."""
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number_repeats(tokens: Iterable[str]) -> list[str]:
    """The tokens, a repeated one with its number: the, cat, the -> the#1, cat, the#2."""
    tokens = list(tokens)
    total = Counter(tokens)
    seen = Counter[str]()
    out = list[str]()
    for token in tokens:
        seen[token] += 1
        out.append(f"{token}#{seen[token]}" if total[token] > 1 else token)
    return out


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_text(value: float) -> str:
    """The shortest digits that read back as this float; NaN, Infinity or -Infinity where it has none."""
    if isfinite(value):
        return repr(float(value))
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
