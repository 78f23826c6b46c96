r"""Addresses of cells: ``attention_weights[0,love,AI]``, by index or by token.

A step's name, then in brackets a place along each axis: a whole number is an index (negative ones
count from the end), `:` is the whole axis, anything else is a token. A token that stands there
several times is told apart by its number, ``the#2``. A token in double quotes is always a token,
whatever it looks like (``"7"``, ``"a, b"``, ``"C#2"``, ``"\""``; escapes are those of JSON).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import MOST_NAMED, did_you_mean, number_repeats, one_of, quote
from attnctl.math import Cell
from attnctl.record import Trace

STEP = re.compile(r'[^\[\]=,"\s]+')
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(?:#([0-9]{1,9}))?\s*(?=[,\]])', re.DOTALL)
BARE = re.compile(r'((?:\[[^\[\],"]*\]|[^\[\],"])+)(?=[,\]])')
NUMBERED = re.compile(r"(.+)#([0-9]{1,9})", re.DOTALL)
WHOLE_NUMBER = re.compile(r"-?[0-9]+")
MOST_DIGITS = 18

LIKE = "write it like attention_weights[0,love,AI]"


@dataclass(frozen=True)
class Token:
    """A place along an axis by its token: the `nth` of its kind, None where there is but one."""

    text: str
    nth: int | None = None


Part = int | Token | None
"""A place along an axis: by number, negative ones from the end; by token; None is all of it."""

Place = int | slice


@dataclass(frozen=True)
class Address:
    """A step, and a place along each of its axes; axes left out at the end are meant whole."""

    step: str
    parts: tuple[Part, ...] = ()

    def spell_out(self, trace: Trace) -> Address:
        """Write the name of the step in place of a symbol, A, S, Z or Y: of the first step that has it."""
        if self.step in trace:
            return self
        for name, step in trace.steps.items():
            if step.symbol == self.step:
                return Address(name, self.parts)
        return self

    def resolve(self, trace: Trace) -> tuple[Place, ...]:
        """The full index into ``trace[step]``: a number or a slice for each axis.

        The head (or batch) may be left out where there is only one and the first place named is a
        token. Raises AttnError for a place that cannot be found.
        """
        begins_with_token = bool(self.parts) and isinstance(self.parts[0], Token)
        return self.places(trace, allow_fewer=begins_with_token)

    def cell(self, trace: Trace) -> Cell:
        """The index of the one cell meant; a lone head or batch needs no place. Raises AttnError."""
        places = self.places(trace, allow_fewer=True)
        array = trace[self.step]
        whole_axes = [axis for axis, place in enumerate(places) if isinstance(place, slice)]
        if whole_axes:
            size = prod(array.shape[axis] for axis in whole_axes)
            example = spell_cell(trace, self.step, (0,) * array.ndim) if array.size else self.step
            axes = ", ".join(trace.steps[self.step].axes)
            missing = f"name a place along each of ({axes}), like {example}"
            raise AttnError(f"{self.step}: {size} cells, expected one; {missing}")
        return tuple(place for place in places if isinstance(place, int))

    def places(self, trace: Trace, *, allow_fewer: bool) -> tuple[Place, ...]:
        """A place for each axis; leading axes of size 1 may be left out where `allow_fewer`."""
        if self.step not in trace:
            raise AttnError(unknown_step(self.step, trace))

        axes = trace.steps[self.step].axes
        shape = trace[self.step].shape
        count = len(self.parts)
        missing = len(shape) - count
        if missing < 0:
            raise AttnError(f"{self.step}: {count} places named, but it has the axes ({', '.join(axes)})")

        skipped: list[int] = []
        if allow_fewer:
            single = [n for n, axis in enumerate(axes) if axis in {"batch", "head"} and shape[n] == 1]
            skipped = single[:missing]

        named = [axis for axis in range(len(shape)) if axis not in skipped]
        places: dict[int, Place] = dict.fromkeys(skipped, 0)
        for part, axis in zip(self.parts, named, strict=False):
            places[axis] = place_of(part, trace, self.step, axis)
        return tuple(places.get(axis, slice(None)) for axis in range(len(shape)))


# --- reading ---


def parse_address(text: str) -> Address:
    address, rest = parse_start(text)
    if rest.strip():
        raise AttnError(f"{quote(text)}: {quote(rest.strip())} after the cell; {LIKE}")
    return address


def parse_start(text: str) -> tuple[Address, str]:
    """The address that a text begins with, and the rest. Raises AttnError where it begins with none."""
    step = STEP.match(text, blanks_from(text, 0))
    if not step:
        raise AttnError(f"{quote(text)}: no step to begin with; {LIKE}")

    end = step.end()
    if text[end : end + 1] != "[":
        return Address(step[0]), text[end:]

    parts: list[Part] = []
    while text[end : end + 1] in {"[", ","}:
        part, end = parse_part(text, end + 1)
        parts.append(part)
    return Address(step[0], tuple(parts)), text[end + 1 :]


def blanks_from(text: str, start: int) -> int:
    """Where the blanks that stand here end."""
    return len(text) - len(text[start:].lstrip())


def parse_part(text: str, start: int) -> tuple[Part, int]:
    """The place that begins here, and where the comma or bracket after it stands."""
    start = blanks_from(text, start)
    if text[start : start + 1] == '"':
        quoted = QUOTED.match(text, start)
        if not quoted:
            raise AttnError(f'{quote(text)}: a quoted token must end in " and then , or ]; {LIKE}')
        nth = None if quoted[2] is None else int(quoted[2])
        return Token(unquote(quoted[1], text), nth), quoted.end()

    bare = BARE.match(text, start)
    if not bare:
        raise AttnError(
            f"{quote(text)}: a place is missing, or its bracket is not closed; {LIKE} "
            '(a token with , [ ] or " in it goes in double quotes)'
        )
    return part_of(bare[1].strip(), text), bare.end()


def part_of(word: str, text: str) -> Part:
    if word == ":":
        return None
    if WHOLE_NUMBER.fullmatch(word):
        if len(word) > MOST_DIGITS:
            raise AttnError(f"{quote(text)}: {word[:MOST_DIGITS]}… is too large for an index")
        return int(word)
    numbered = NUMBERED.fullmatch(word)
    if numbered:
        return Token(numbered[1], int(numbered[2]))
    if not word:
        raise AttnError(f"{quote(text)}: a place is missing; {LIKE}")
    return Token(word)


def unquote(inside: str, text: str) -> str:
    import json

    try:
        token: str = json.loads(f'"{inside}"', strict=False)
    except ValueError:
        raise AttnError(f"{quote(text)}: a \\ in quotes that means nothing; write \\\\ for it") from None
    return token


# --- finding ---


def place_of(part: Part, trace: Trace, step: str, axis: int) -> Place:
    axis_name = trace.steps[step].axes[axis]
    size = trace[step].shape[axis]

    match part:
        case None:
            return slice(None)
        case int(number):
            if not -size <= number < size:
                range_text = f"use 0 to {size - 1}" if size else "it is empty"
                raise AttnError(f"{step}: no {axis_name} {number}; there are {size}: {range_text}")
            return number % size
        case Token(text, nth):
            tokens = trace.tokens_along(step, axis)
            if tokens is None:
                raise AttnError(
                    f"{step}: {axis_name} has no tokens, so {quote(text)} is not on it; use an index from 0"
                )
            return place_of_token(text, nth, tokens, f"{step}: {axis_name}")


def place_of_token(text: str, nth: int | None, tokens: Sequence[str], place: str) -> int:
    """The index of a token. Raises AttnError where it is not there, or there several times."""
    places = [number for number, token in enumerate(tokens) if token == text]
    if not places:
        written = text if nth is None else f"{text}#{nth}"
        raise AttnError(f"{place}: no token {quote(written)}; {nearest_or_all(written, spellings(tokens))}")

    if nth is None and len(places) == 1:
        return places[0]
    if nth is not None and 1 <= nth <= len(places):
        return places[nth - 1]

    spelled = spellings(tokens)
    choices = one_of(spelled[number] for number in places)
    times = "once" if len(places) == 1 else f"{len(places)} times"
    raise AttnError(f"{place}: {quote(text)} stands there {times}; write {choices}")


def unknown_step(name: str, trace: Trace) -> str:
    return f"no step {quote(name)} in this dump; {nearest_or_all(name, list(trace.steps))}"


def nearest_or_all(word: str, known: Sequence[str]) -> str:
    """The words to suggest for an unknown one: the nearest known, or the first few there are."""
    more = ", …" if len(known) > MOST_NAMED else ""
    return did_you_mean(word, known, f"it has {', '.join(known[:MOST_NAMED])}{more}")


# --- spelling ---


class Speller:
    """Spells the cells of a trace; keeps the spelling of its tokens for the next cell."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.known: dict[str, list[str] | None] = {}

    def words(self, step: str, axis: int) -> list[str] | None:
        """The spelling of each place along an axis, where it has tokens and its step was kept."""
        if step not in self.trace:
            return None
        name = f"{self.trace.steps[step].axes[axis]} {self.trace[step].shape[axis]}"
        if name not in self.known:
            tokens = self.trace.tokens_along(step, axis)
            self.known[name] = None if tokens is None else spellings(tokens)
        return self.known[name]

    def __call__(self, step: str, cell: Cell) -> str:
        """``scores[0,love,AI]``."""
        if not cell:
            return step

        places = []
        for axis, index in enumerate(cell):
            words = self.words(step, axis)
            places.append(str(index) if words is None else words[index])
        return f"{step}[{','.join(places)}]"


def spell_cell(trace: Trace, step: str, cell: Cell) -> str:
    return Speller(trace)(step, cell)


def spellings(tokens: Sequence[str]) -> list[str]:
    """The way to write each of these tokens: quoted where it must be, numbered where it is repeated."""
    return number_repeats([spelling(token) for token in tokens])


def spelling(token: str) -> str:
    """The token as an address names it: bare where that reads back as the same, else as JSON quotes it."""
    try:
        if token.isprintable() and parse_part(f"{token}]", 0) == (Token(token), len(token)):
            return token
    except AttnError:
        pass
    import json

    return json.dumps(token, ensure_ascii=not token.isprintable())
