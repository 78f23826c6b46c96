"""Single values, read strictly: words, numbers, truth values.

A value comes from a YAML file or a flag (a `Plain` text), from JSON, or from Python. A reader
returns what it means, or raises BadValueError with every problem in it. A reader and the JSON
Schema of what it takes stand together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from math import inf, isfinite
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.words import escape, one_of

Json = dict[str, Any]
Path = tuple[str | int, ...]
Problem = tuple[Path, str]

NUMBER = r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
WHOLE = r"[-+]?(0|[1-9][0-9]*)"
NOT_FINITE = r"(?i)[-+]?\.?(inf|infinity|nan)"
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
UNLIMITED = (".inf", ".Inf", ".INF", "inf", "Infinity", "", "~", "null", "Null", "NULL")
MAX_PROBLEMS = 50
"""How many problems are listed: nobody reads more."""

ENOUGH = MAX_PROBLEMS + 1
"""How many problems of one value are looked for: the ones to list, and whether there are more."""

MOST = 2**31 - 1
"""The largest size there is, far above any that fits into memory."""

MOST_DIGITS = 4000
"""Python refuses to convert longer texts to an integer."""


class Plain(str):
    """A text without quotes: it may be read as a number where one is wanted."""

    __slots__ = ()


class BadValueError(ValueError):
    """A value is wrong: a problem, or several, each with its path within the value."""

    def __init__(self, *problems: str | Problem) -> None:
        self.problems: list[Problem] = [
            ((), problem) if isinstance(problem, str) else problem for problem in problems
        ]
        super().__init__(problems)


@dataclass(eq=False)
class Reader:
    """A way to read a value, the JSON Schema of what it takes, and its name in a flag's help."""

    read: Callable[[Any], Any]
    schema: Json
    metavar: str = "TEXT"
    forms: tuple[Reader, ...] = ()
    """What reads the parts of a value that has any."""

    def __call__(self, value: Any) -> Any:
        return self.read(value)


def short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def json_path(path: Path) -> str:
    """("weights", "W_Q", 2) -> "$.weights.W_Q[2]"; a key that is no identifier is quoted."""
    names = (short(part) if isinstance(part, str) else part for part in path)
    return "$" + "".join(
        f".{part}" if isinstance(part, str) and part.isascii() and part.isidentifier() else f"[{part!r}]"
        for part in names
    )


def short_value(value: Any) -> str:
    """A value as a message shows it: short, on one line, nothing a terminal would act on."""
    match value:
        case Plain() if not value:
            return "nothing"
        case str():
            return short(value if isinstance(value, Plain) and value.isprintable() else quote(value))
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() if abs(value) >= 10**40:
            return "a number of more than 40 digits"
        case _:
            return short(str(value))


def unfit(value: Any, what: str) -> BadValueError:
    """The error of a value: the value, what it is not, and what to write."""
    return BadValueError(f"{short_value(value)} {what}")


def quote(text: str) -> str:
    """The text in double quotes, with escapes for quotes, backslashes and what cannot be printed."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(named.get(c) or (c if c.isprintable() else escape(c)) for c in text) + '"'


def read_word(value: Any) -> str:
    """Text, however it is spelled: `no`, `1.0` and `null` are words."""
    if not isinstance(value, str):
        raise unfit(value, "is not text; put it in quotes if it is meant as a word")
    if isinstance(value, Plain) and value == "":
        raise BadValueError('nothing is written here; write a word (an empty text is "")')
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise unfit(value, "holds half of a character; write the whole")
    return str(value)


def read_file_name(value: Any) -> str:
    text = read_word(value)
    if not text or "\0" in text:
        raise unfit(text, "is not the name of a file; write one like weights.npz")
    return text


def read_switch(value: Any) -> bool:
    """A truth value: true or false, and no other word for them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value in (*TRUE, *FALSE):
        return value in TRUE
    raise unfit(value, "is not a truth value; write true or false")


def read_real(value: Any) -> float:
    number = value
    if isinstance(value, Plain) and re.fullmatch(NUMBER, value):
        number = float(value)
    if isinstance(value, Plain) and re.fullmatch(NOT_FINITE, value):
        number = inf
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise unfit(value, f"is not a number{why_no_number(value)}; write one like 0.5")
    try:
        number = float(number)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise unfit(value, "is not a finite number; write one like 0.5")
    return number


def real_number(holds: Callable[[float], bool], otherwise: str, **more: float) -> Reader:

    def read(value: Any) -> float:
        number = read_real(value)
        if not holds(number):
            raise unfit(value, otherwise)
        return number

    return Reader(read, {"type": "number", **more}, "X")


def why_no_number(value: Any) -> str:
    if isinstance(value, bool) or (isinstance(value, Plain) and value in (*TRUE, *FALSE)):
        return " but a truth value"
    if not isinstance(value, str):
        return ""
    if not isinstance(value, Plain):
        return " but text, because of its quotes" if re.fullmatch(NUMBER, value) else " but text"
    return ""


def whole_number(least: int, most: int = MOST) -> Reader:

    def read(value: Any) -> int:
        number = value
        if isinstance(value, Plain) and re.fullmatch(WHOLE, value):
            number = int(value[:MOST_DIGITS])  # what is longer is too large, cut or not
        if not isinstance(number, int) or isinstance(number, bool):
            raise unfit(value, f"is not a whole number{why_no_number(value)}; write one like 4")
        if number < least:
            raise unfit(value, f"is too small; write {least} or more")
        if number > most:
            raise unfit(value, f"is too large; write {most} or less")
        return number

    return Reader(read, {"type": "integer", "minimum": least, "maximum": most}, "N")


def words(*choices: str) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise unfit(value, f"is not one of the choices; write {one_of(choices)}")
        return str(value)

    return Reader(read, {"enum": list(choices)}, f"<{'|'.join(choices)}>")


def read_heads(text: str, most: int = 9999) -> tuple[int, ...]:
    """'0,2' -> (0, 2); '0-3' -> (0, 1, 2, 3); `most` is the highest, and how many are named at once."""
    heads: list[int] = []
    for part in text.split(","):
        ends = [Plain(end.strip()) for end in part.strip().split("-")]
        if len(ends) != 2 or not all(ends):  # -1 and 0- are no ranges
            ends = [Plain(part.strip())]
        first, last = (whole_number(0, most)(end) for end in (ends[0], ends[-1]))
        if first > last:
            raise BadValueError(f"{first}-{last} runs backwards; write {last}-{first}")
        heads += range(first, last + 1)
        if len(heads) > most + 1:
            raise BadValueError(f"more than {most + 1} numbers; leave it out to have all")
    return tuple(dict.fromkeys(heads))


# Other readers of YAML take the words `1`, `no` and `null` for something else, an editor among them.
WORD = Reader(read_word, {"type": ["string", "number", "boolean", "null"]})
FILE_NAME = Reader(read_file_name, {"type": "string", "minLength": 1}, "FILE")
SWITCH = Reader(read_switch, {"type": "boolean"})
REAL = Reader(read_real, {"type": "number"}, "X")
POSITIVE = real_number(lambda x: x > 0, "is not above 0; write a number like 1.5", exclusiveMinimum=0)
TOLERANCE = real_number(lambda x: x >= 0, "is not a tolerance; write a number from 0, like 1e-6", minimum=0)
SIZE = whole_number(1)
SEED = whole_number(0, 2**32 - 1)
MOST_SEEDS = 1000


def read_seeds(text: str) -> int | tuple[int, ...]:
    """'3' -> 3; '1-5' and '0,2,7' -> each of them, which is a run each."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = map(str.strip, part.strip().partition("-"))
        if not (first and dash):  # -1 is no range
            seeds.append(SEED(Plain(part.strip())))
            continue
        start = SEED(Plain(first))
        stop = SEED(Plain(last))
        if start > stop:
            raise BadValueError(f"{start}-{stop} runs backwards; write {stop}-{start}")
        if stop - start >= MOST_SEEDS:
            raise BadValueError(f"more than {MOST_SEEDS} seeds; write fewer")
        seeds += range(start, stop + 1)
    each = tuple(dict.fromkeys(seeds))
    if len(each) > MOST_SEEDS:
        raise BadValueError(f"more than {MOST_SEEDS} seeds; write fewer")
    return each[0] if len(each) == 1 else each


SEEDS = Reader(read_seeds, {}, "N,…")
HEADS = Reader(read_heads, {}, "N,…")
CALLS = Reader(partial(read_heads, most=999_999), {}, "N,…")


def read_four_sizes(text: str) -> tuple[int, ...]:
    """'2,8,256,64': batch, heads, tokens and columns."""
    sizes = tuple(SIZE(Plain(size.strip())) for size in text.split(","))
    if len(sizes) != len("bhnd"):
        raise BadValueError(
            f"{text} is not four sizes; write batch, heads, tokens, columns, like 2,8,256,64"
        )
    return sizes


FOUR_SIZES = Reader(read_four_sizes, {}, "B,H,N,D")


def is_unlimited(value: Any) -> bool:
    """True if the value says that there is no limit: infinity, null or nothing."""
    return value is None or value == inf or (isinstance(value, str) and value in UNLIMITED)


def each(cells: list[Any], read: Callable[[Any], Any]) -> list[Any]:
    """Every cell read on its own, or every cell's problem."""
    if not cells:
        raise BadValueError("an empty list; write at least one number")
    return every(enumerate(cells), read)


def every(values: Iterable[tuple[Any, Any]], read: Callable[[Any], Any]) -> list[Any]:
    """Every (place, value) read, or every one's problem at its place."""
    out: list[Any] = []
    problems: list[Problem] = []
    for place, value in values:
        try:
            out.append(read(value))
        except BadValueError as wrong:
            problems += problems_at(place, wrong)
            if len(problems) >= ENOUGH:
                break
    refuse(problems)
    return out


def problems_at(place: Any, wrong: BadValueError) -> list[Problem]:
    return [((place, *path), text) for path, text in wrong.problems]


def refuse(problems: Iterable[Problem]) -> None:
    """Raise BadValueError with these problems (the first of many), or return where there is none."""
    found = list(islice(problems, ENOUGH))
    if found:
        raise BadValueError(*found)


# --- values written again ---

UNQUOTED = r"[^\W\d_][\w'’-]*( [\w'’-]+)*"
"""Words that need no quotes in YAML, of those that help and messages show."""


def flow(value: Any) -> str:
    """An example in one line of YAML."""
    match value:
        case str():
            return value if re.fullmatch(UNQUOTED, value) else quote(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "inf"  # the open side of a window: nothing else in a config is None
        case Mapping():
            return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return repr(value)


def to_tuples(value: Any) -> Any:
    """Lists, and lists in them, as tuples."""
    return tuple(to_tuples(part) for part in value) if isinstance(value, list) else value
