"""YAML as plain data, safely: mappings, lists and text.

A scalar stays text here. What was written without quotes is `Plain`, and the place that wants a
number, a truth value or nothing reads it as one; the places that want words (tokens, keys,
sentences) get back what was written: ``no``, ``1.0`` and ``12:30`` are words there.

The events of the parser (libyaml's where PyYAML has it) are read directly: that is faster than any
loader, builds no objects, and bounds depth and aliases before anything grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from attnctl.base.errors import AttnError
from attnctl.base.values import Path, Plain, json_path, short
from attnctl.inputs.config.syntax import syntax_error

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 64
MAX_VALUES = 4_000_000
"""How many values a text may hold: 64 MiB of numbers in full digits, not 64 MiB of `[],[],`."""
MAX_ALIASED = 1_000_000
"""How many values aliases may stand for in all: a few large matrices named twice, not a bomb."""

MAX_REPEATED = 100
"""How many keys given twice are noted: nobody reads more."""

SEPARATORS = ",\n\r\x85\u2028\u2029"
"""One of these stands between any two values that are not nested."""

CORE = "tag:yaml.org,2002:"
SCALAR_TAGS = {CORE + name for name in ("int", "float", "bool", "null")}
TEXT_TAGS = {CORE + "str", "!"}
TAG_DIRECTIVE = re.compile(r"(?:\A|[\r\n\x85\u2028\u2029])(%TAG)")
"""Refused before parsing: libyaml takes quadratic time over many of them."""

INSTEAD = "keep large matrices in a .npz file and write {file: weights.npz, name: W_Q} in their place"

NextEvent = Callable[[], Any]


def decode(raw: bytes, name: str) -> str:
    """The text of a file: UTF-8, a byte order mark dropped."""
    if len(raw) > MAX_BYTES:
        raise AttnError(f"{name}: more than {MAX_BYTES // 2**20} MiB; {INSTEAD}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + raw.count(b"\n", 0, error.start)
        raise AttnError(
            f"{name}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def read(text: str, name: str) -> tuple[Any, list[tuple[int, str]]]:
    """The data of a YAML text, and the keys that were given twice: a line and a problem for each.

    Raises AttnError where the text cannot be read at all.
    """
    if "%TAG" in text and (found := TAG_DIRECTIVE.search(text)):
        line = 1 + text.count("\n", 0, found.start(1))
        raise AttnError(f"{name}:{line}: %TAG has no meaning in a config; remove the line")
    if sum(map(text.count, SEPARATORS)) > MAX_VALUES:
        raise AttnError(f"{name}: more than {MAX_VALUES:,} values; {INSTEAD}")
    try:
        reader = YamlBuilder(name, events(text))
        return reader.document(), reader.repeated
    except yaml.YAMLError as error:
        raise AttnError(syntax_error(error, text, name)) from None


def events(text: str) -> NextEvent:
    """A function that gives the next event of the text at each call, and None after the last."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader(str(text)).get_event  # libyaml takes no text of another class, like a scalar's


@dataclass
class YamlBuilder:
    """Builds data from events, one document's worth."""

    name: str
    next_event: NextEvent
    repeated: list[tuple[int, str]] = field(default_factory=list)
    anchored: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """What each anchor names, and how many values that is with all its aliases written out."""
    values: int = 0
    aliased: int = 0

    def document(self) -> Any:
        """The one document of the stream; nothing at all is an empty mapping."""
        self.next_event()  # the stream begins
        if isinstance(self.next_event(), StreamEndEvent):
            return {}
        data = self.value(self.next_event(), ())
        self.next_event()  # the document ends
        after = self.next_event()
        if not isinstance(after, StreamEndEvent):
            raise self.error_at(after, "a second document begins (---); a config is one document")
        return {} if data == "" and isinstance(data, Plain) else data

    def error_at(self, event: Event, what: str) -> AttnError:
        return AttnError(f"{self.name}:{line_of(event)}: {what}")

    def value(self, event: Any, path: Path) -> Any:
        """The value that begins with this event."""
        if isinstance(event, AliasEvent):
            return self.alias(event)
        before = self.values
        if isinstance(event, ScalarEvent):
            made: Any = self.scalar(event)
        elif len(path) >= MAX_DEPTH:
            raise self.error_at(event, f"nested more than {MAX_DEPTH} deep; a config needs four levels")
        elif isinstance(event, SequenceStartEvent):
            self.refuse_tag(event, CORE + "seq")
            made = self.sequence(path)
        else:
            self.refuse_tag(event, CORE + "map")
            made = self.mapping(path)
        self.values += len(made) if isinstance(made, (list, dict)) else 0
        if event.anchor is not None:
            self.anchored[event.anchor] = made, 1 + self.values - before
        return made

    def scalar(self, event: ScalarEvent) -> str:
        """Text, Plain where quotes or a tag do not say otherwise."""
        if event.tag in SCALAR_TAGS or (event.tag is None and event.implicit[0]):
            return Plain(event.value)
        self.refuse_tag(event, *TEXT_TAGS)
        return str(event.value)

    def refuse_tag(self, event: Any, *allowed: str) -> None:
        """Refuse any tag but the ones that say what YAML would have thought anyway."""
        if event.tag is not None and event.tag not in allowed:
            shown = short(event.tag.replace(CORE, "!!", 1))
            raise self.error_at(event, f"the tag {shown!a} has no meaning in a config; remove it")

    def sequence(self, path: Path) -> list[Any]:
        """The items up to the end of this sequence."""
        items: list[Any] = []
        for event in iter(self.next_event, None):
            if type(event) is ScalarEvent and event.implicit[0] and event.anchor is None:
                items.append(Plain(event.value))  # almost every value there is: no call for it
            elif type(event) is SequenceEndEvent:
                break
            else:
                items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Path) -> dict[str, Any]:
        """The entries up to the end of this mapping; a repeated key is noted."""
        made: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for event in iter(self.next_event, None):
            if isinstance(event, MappingEndEvent):
                break
            if not isinstance(event, ScalarEvent):
                raise self.error_at(event, "a key must be a plain word, not a list, a mapping or an alias")
            key, line = str(self.scalar(event)), line_of(event)
            place = (*path, key)
            if key in lines and len(self.repeated) < MAX_REPEATED:
                what = f"given twice, first on line {lines[key]}; keep one of them"
                self.repeated.append((line, f"{self.name}:{line} {json_path(place)}: {what}"))
            lines.setdefault(key, line)
            made.setdefault(key, self.value(self.next_event(), place))
        return made

    def alias(self, event: Any) -> Any:
        """What the alias names: the same object, counted as if it were written out."""
        if event.anchor not in self.anchored:
            name = short(event.anchor)
            raise self.error_at(event, f"*{name} is used before or within what &{name} names")
        made, size = self.anchored[event.anchor]
        self.values += size - 1
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            raise self.error_at(event, f"aliases stand for more than {MAX_ALIASED:,} values; write less")
        return made


def line_of(event: Any) -> int:
    """The line an event begins on, from 1."""
    return 1 + event.start_mark.line


def places(text: str) -> Iterator[tuple[Path, int]]:
    """Every path of a text that reads well, with the line it stands on, in order."""
    next_event = events(text)
    next_event()  # the stream begins
    if not isinstance(next_event(), StreamEndEvent):
        yield from places_below(next_event, next_event(), ())


def places_below(next_event: NextEvent, event: Event, path: Path) -> Iterator[tuple[Path, int]]:
    """The place of one value, and those of all within it."""
    yield path, line_of(event)
    if isinstance(event, SequenceStartEvent):
        for i in count():
            item = next_event()
            if isinstance(item, SequenceEndEvent):
                return
            yield from places_below(next_event, item, (*path, i))
    elif isinstance(event, MappingStartEvent):
        while not isinstance(key := next_event(), MappingEndEvent):
            place = (*path, key.value)
            yield place, line_of(key)
            yield from places_below(next_event, next_event(), place)


def lines(text: str, wanted: Iterable[Path]) -> dict[Path, int]:
    """The line of each of these paths; of the nearest path above it where it stands nowhere."""
    paths = list(wanted)
    above = {path[:n] for path in paths for n in range(len(path) + 1)}
    found: dict[Path, int] = {}
    missing = set(paths)
    for path, line in places(text):
        if path in above:
            found.setdefault(path, line)
            missing.discard(path)
            if not missing:
                break
    return {
        path: next((found[path[:n]] for n in range(len(path), 0, -1) if path[:n] in found), 1)
        for path in paths
    }
