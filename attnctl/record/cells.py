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
        meant = (name for name, step in trace.steps.items() if step.symbol == self.step)
        return Address(next(meant, self.step), self.parts)

    def resolve(self, trace: Trace) -> tuple[Place, ...]:
        """The full index into ``trace[step]``: a number or a slice for each axis.

        The head (or batch) may be left out where there is only one and the first place named is a
        token. Raises AttnError for a place that cannot be found.
        """
        named = bool(self.parts) and isinstance(self.parts[0], Token)
        return self.places(trace, allow_fewer=named)

    def cell(self, trace: Trace) -> Cell:
        """The index of the one cell meant; a lone head or batch needs no place. Raises AttnError."""
        places = self.places(trace, allow_fewer=True)
        array = trace[self.step]
        if any(isinstance(place, slice) for place in places):
            size = prod(n for n, place in zip(array.shape, places, strict=True) if isinstance(place, slice))
            example = spell_cell(trace, self.step, (0,) * array.ndim) if array.size else self.step
            raise AttnError(
                f"{self.step}: {size} cells, expected one; name a place along each of "
                f"({', '.join(trace.steps[self.step].axes)}), like {example}"
            )
        return tuple(place for place in places if isinstance(place, int))

    def places(self, trace: Trace, *, allow_fewer: bool) -> tuple[Place, ...]:
        """A place for each axis; leading axes of size 1 may be left out where `allow_fewer`."""
        if self.step not in trace:
            raise AttnError(unknown_step(self.step, trace))
        axes, shape = trace.steps[self.step].axes, trace[self.step].shape
        count = len(self.parts)
        missing = len(shape) - count
        if missing < 0:
            raise AttnError(f"{self.step}: {count} places named, but it has the axes ({', '.join(axes)})")
        single = [at for at, axis in enumerate(axes) if axis in {"batch", "head"} and shape[at] == 1]
        skipped = single[:missing] if allow_fewer else []
        named = [axis for axis in range(len(shape)) if axis not in skipped]
        found: dict[int, Place] = dict.fromkeys(skipped, 0)
        for part, axis in zip(self.parts, named, strict=False):
            found[axis] = place_of(part, trace, self.step, axis)
        return tuple(found.get(axis, slice(None)) for axis in range(len(shape)))


# --- reading ---


def parse_address(text: str) -> Address:
    address, rest = parse_start(text)
    if rest.strip():
        raise AttnError(f"{quote(text)}: {quote(rest.strip())} after the cell; {LIKE}")
    return address


def parse_start(text: str) -> tuple[Address, str]:
    """The address that a text begins with, and the rest. Raises AttnError where it begins with none."""
    step = STEP.match(text, len(text) - len(text.lstrip()))
    if not step:
        raise AttnError(f"{quote(text)}: no step to begin with; {LIKE}")
    at = step.end()
    if text[at : at + 1] != "[":
        return Address(step[0]), text[at:]
    parts: list[Part] = []
    while text[at : at + 1] in {"[", ","}:
        part, at = parse_part(text, at + 1)
        parts.append(part)
    return Address(step[0], tuple(parts)), text[at + 1 :]


def parse_part(text: str, at: int) -> tuple[Part, int]:
    """The place that begins here, and where the comma or bracket after it stands."""
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at : at + 1] == '"':
        found = QUOTED.match(text, at)
        if not found:
            raise AttnError(f'{quote(text)}: a quoted token must end in " and then , or ]; {LIKE}')
        return Token(unquote(found[1], text), None if found[2] is None else int(found[2])), found.end()
    bare = BARE.match(text, at)
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
    axis_name, size = trace.steps[step].axes[axis], trace[step].shape[axis]
    match part:
        case None:
            return slice(None)
        case int(number):
            if not -size <= number < size:
                there = f"use 0 to {size - 1}" if size else "it is empty"
                raise AttnError(f"{step}: no {axis_name} {number}; there are {size}: {there}")
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
    found = [at for at, token in enumerate(tokens) if token == text]
    if not found:
        written = text if nth is None else f"{text}#{nth}"
        raise AttnError(f"{place}: no token {quote(written)}; {nearest_or_all(written, spellings(tokens))}")
    if nth is None and len(found) == 1:
        return found[0]
    choices = [spellings(tokens)[at] for at in found]
    if nth is None or not 1 <= nth <= len(found):
        times = "once" if len(found) == 1 else f"{len(found)} times"
        raise AttnError(f"{place}: {quote(text)} stands there {times}; write {one_of(choices)}")
    return found[nth - 1]


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
        words = [self.words(step, axis) for axis in range(len(cell))]
        places = [str(at) if along is None else along[at] for along, at in zip(words, cell, strict=True)]
        return f"{step}[{','.join(places)}]" if places else step


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
