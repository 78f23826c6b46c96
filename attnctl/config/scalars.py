"""Single values of a config, read strictly: words, numbers, truth values.

A reader takes what stands in the file (a `Plain` word, quoted text, or a Python value from a dump)
and returns the value it means, or raises BadValueError with every problem in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf, isfinite
from typing import Any

from attnctl.config.settings import Path
from attnctl.config.yaml import Plain, short

Problem = tuple[Path, str]

NUMBER = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,4000})")
NOT_FINITE = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
NULLS = ("", "~", "null", "Null", "NULL")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
MINUS_INFINITY = ("-.inf", "-.Inf", "-.INF", "-inf", "-Infinity")
OPEN = (".inf", ".Inf", ".INF", "inf", "Infinity", *NULLS)
MAX_PROBLEMS = 50
"""How many problems are listed: nobody reads more."""

MOST = 2**31 - 1
"""The largest size there is, far above any that fits into memory."""


class BadValueError(ValueError):
    """What is wrong with a value: a problem, or several, each with its path within the value."""

    def __init__(self, *problems: str | Problem) -> None:
        self.problems: list[Problem] = [((), each) if isinstance(each, str) else each for each in problems]
        super().__init__(problems)


def shown(value: Any) -> str:
    """A value as a message shows it: short, on one line, nothing a terminal would act on."""
    match value:
        case Plain() if not value:
            return "nothing"
        case str():
            return short(value if isinstance(value, Plain) and value.isprintable() else quoted(value))
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() if abs(value) >= 10**40:
            return "a number of more than 40 digits"
        case _:
            return str(value)


def quoted(text: str) -> str:
    """The text in double quotes, with escapes for quotes, backslashes and what cannot be printed."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else escaped(c) for c in text) + '"'


def escaped(character: str) -> str:
    r"""A character as a double-quoted YAML scalar writes it: \n, \", \x1b, \u202e."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(character)
    numbered = (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
    return named.get(character, numbered)


def word(value: Any) -> str:
    """Text, however it is spelled: `no`, `1.0` and `null` are words."""
    if not isinstance(value, str):
        raise BadValueError(f"{shown(value)} is not text; put it in quotes if it is meant as a word")
    if isinstance(value, Plain) and value == "":
        raise BadValueError('nothing is written here; write a word (an empty text is "")')
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise BadValueError(f"{shown(value)} holds half of a character; write the whole")
    return str(value)


def file_name(value: Any) -> str:
    """A path as text."""
    text = word(value)
    if not text or "\0" in text:
        raise BadValueError(f"{shown(text)} is not the name of a file; write one like weights.npz")
    return text


def one_of(*words: str) -> Callable[[Any], str]:
    """A reader of one of these words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise BadValueError(f"{shown(value)} is not one of the choices; write {listed(words)}")
        return str(value)

    return read


def listed(words: tuple[str, ...]) -> str:
    """("a", "b", "c") -> "a, b or c"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def flag(value: Any) -> bool:
    """A truth value: true or false, and no other word for them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value in (*TRUE, *FALSE):
        return value in TRUE
    raise BadValueError(f"{shown(value)} is not a truth value; write true or false")


def whole(least: int, most: int) -> Callable[[Any], int]:
    """A reader of whole numbers within these bounds."""

    def read(value: Any) -> int:
        number = value
        if isinstance(value, Plain) and WHOLE.fullmatch(value):
            number = int(value)
        if not isinstance(number, int) or isinstance(number, bool):
            raise BadValueError(f"{shown(value)} is not a whole number{why(value)}; write one like 4")
        if number < least:
            raise BadValueError(f"{shown(value)} is too small; write {least} or more")
        if number > most:
            raise BadValueError(f"{shown(value)} is too large; write {most} or less")
        return number

    return read


def real(value: Any) -> float:
    """A finite number."""
    number = value
    if isinstance(value, Plain) and NUMBER.fullmatch(value):
        number = float(value)
    if isinstance(value, Plain) and NOT_FINITE.fullmatch(value):
        number = inf
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise BadValueError(f"{shown(value)} is not a number{why(value)}; write one like 0.5")
    try:
        number = float(number)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise BadValueError(f"{shown(value)} is not a finite number; write one like 0.5")
    return number


def above_zero(value: Any) -> float:
    """A finite number greater than 0."""
    number = real(value)
    if number <= 0:
        raise BadValueError(f"{shown(value)} is not above 0; write a number like 1.5")
    return number


def why(value: Any) -> str:
    """Why a value that looks like a number, or is often taken for one, is none."""
    if isinstance(value, bool) or (isinstance(value, Plain) and value in (*TRUE, *FALSE)):
        return " but a truth value"
    if not isinstance(value, str):
        return ""
    if not isinstance(value, Plain):
        return " but text, because of its quotes" if NUMBER.fullmatch(value) else " but text"
    if re.fullmatch(r"[-+]?0[0-9]+(\.[0-9]*)?", value):
        return " (some read its leading 0 as octal)"
    if re.fullmatch(r"[-+]?0[obxOBX][0-9a-fA-F_]+|[-+]?[0-9][0-9_]*_[0-9_.]*", value):
        return " (decimal digits only)"
    return ""


def may_attend(value: Any) -> int:
    """A cell of a mask: 1 or true may attend, 0 or false may not."""
    if isinstance(value, bool) or (isinstance(value, Plain) and value in (*TRUE, *FALSE)):
        return int(flag(value))
    try:
        number = real(value)
    except BadValueError:
        number = inf
    if number not in (0, 1):
        raise BadValueError(
            f"{shown(value)} is neither 0 nor 1; 1 (or true) may attend, 0 (or false) may not"
        )
    return int(number)


def added(value: Any) -> float:
    """A cell of a bias: a finite number, or -inf, which hides."""
    if value == -inf or (isinstance(value, str) and value in MINUS_INFINITY):
        return -inf
    return real(value)


def pairs(value: Any) -> int:
    """An even number of dimensions, 2 or more."""
    number = whole(2, MOST - 1)(value)
    if number % 2:
        raise BadValueError(
            f"{number} is odd; dimensions turn in pairs, so write {number - 1} or {number + 1}"
        )
    return number


def side(value: Any) -> int | None:
    """How far a window reaches: a whole number, or None without limit."""
    if value is None or value == inf or (isinstance(value, str) and value in OPEN):
        return None
    return distance(value)


distance = whole(0, MOST)
