"""YAML as plain data, safely: mappings, lists and text.

A scalar stays text here. What was written without quotes is `Plain`, and the place that wants a
number, a truth value or nothing reads it as one; the places that want words (tokens, keys,
sentences) get back what was written: ``no``, ``1.0`` and ``12:30`` are words there.

The events of the parser (libyaml's where PyYAML has it) are read directly: that is faster than any
loader, builds no objects, and bounds depth and aliases before anything grows.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from dataclasses import field
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
from yaml.reader import Reader

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.values import Path, Plain, json_path, short

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 64
MAX_VALUES = 4_000_000
"""How many values a text may hold: 64 MiB of numbers in full digits, not 64 MiB of `[],[],`."""
MAX_ALIASED = 1_000_000
"""How many values aliases may stand for in all: a few large matrices named twice, not a bomb."""

CORE = "tag:yaml.org,2002:"
SCALAR_TAGS = {CORE + name for name in ("int", "float", "bool", "null")}
TAGS: dict[type[Event], set[str | None]] = {
    ScalarEvent: {None, "!", CORE + "str", *SCALAR_TAGS},
    SequenceStartEvent: {None, CORE + "seq"},
    MappingStartEvent: {None, CORE + "map"},
}
"""The tags that say what YAML would have thought anyway."""

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
        byte = raw[error.start]
        raise AttnError(f"{name}:{line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8") from None


def read(text: str, name: str) -> tuple[Any, list[tuple[int, str]]]:
    """The data of a YAML text, and a line and a problem for each key given twice. Raises AttnError."""
    if "%TAG" in text and (found := TAG_DIRECTIVE.search(text)):
        line = 1 + text.count("\n", 0, found.start(1))
        raise AttnError(f"{name}:{line}: %TAG has no meaning in a config; remove the line")
    # One of these stands between any two values that are not nested.
    if sum(map(text.count, ",\n\r\x85\u2028\u2029")) > MAX_VALUES:
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
    """Builds data from events, one document's worth, and remembers the line of every part of it."""

    name: str
    next_event: NextEvent
    repeated: list[tuple[int, str]] = field(default_factory=list)
    anchored: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """What each anchor names, and how many values that is with all its aliases written out."""
    values: int = 0
    aliased: int = 0
    lines: dict[int, array[int] | dict[str, int]] = field(default_factory=dict)
    """By the id of each list and mapping: the line of each item, of each key."""

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
        if isinstance(event, AliasEvent):
            return self.alias(event)
        if event.tag not in TAGS[type(event)]:
            shown = short(event.tag.replace(CORE, "!!", 1))
            raise self.error_at(event, f"the tag {shown!a} has no meaning in a config; remove it")
        before = self.values
        made: Any
        if isinstance(event, ScalarEvent):
            is_plain = event.implicit[0] if event.tag is None else event.tag in SCALAR_TAGS
            made = Plain(event.value) if is_plain else str(event.value)
        elif len(path) >= MAX_DEPTH:
            raise self.error_at(event, f"nested more than {MAX_DEPTH} deep; a config needs four levels")
        else:
            made = self.sequence(path) if isinstance(event, SequenceStartEvent) else self.mapping(path)
            self.values += len(made)

        if event.anchor is not None:
            self.anchored[event.anchor] = made, 1 + self.values - before
        return made

    def sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        lines = self.lines[id(items)] = array("L")
        for event in iter(self.next_event, None):
            if type(event) is SequenceEndEvent:
                break
            lines.append(line_of(event))
            if type(event) is ScalarEvent and event.implicit[0] and event.anchor is None:
                items.append(Plain(event.value))  # almost every value there is: no call for it
            else:
                items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Path) -> dict[str, Any]:
        """The entries up to the end of this mapping; of a key that is repeated, the first."""
        made: dict[str, Any] = {}
        lines = self.lines[id(made)] = dict[str, int]()
        for event in iter(self.next_event, None):
            if isinstance(event, MappingEndEvent):
                break
            if not isinstance(event, ScalarEvent):
                raise self.error_at(event, "a key must be a plain word, not a list, a mapping or an alias")
            key = str(self.value(event, path))
            line = line_of(event)
            place = (*path, key)
            if key in lines and len(self.repeated) < 100:  # nobody reads more
                what = f"given twice, first on line {lines[key]}; keep one of them"
                self.repeated.append((line, f"{self.name}:{line} {json_path(place)}: {what}"))
            lines.setdefault(key, line)
            made.setdefault(key, self.value(self.next_event(), place))
        return made

    def alias(self, event: Any) -> Any:
        """The object that the alias names, counted as if it were written out."""
        if event.anchor not in self.anchored:
            name = short(event.anchor)
            raise self.error_at(event, f"*{name} is used before or within what &{name} names")
        made, size = self.anchored[event.anchor]
        self.values += size - 1
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            raise self.error_at(event, f"aliases stand for more than {MAX_ALIASED:,} values; write less")
        return made

    def line(self, data: Any, path: Path) -> int:
        """The line of a path in the data; of the nearest path above it where it stands nowhere."""
        line = 1
        for part in path:
            lines = self.lines.get(id(data), {})
            if part not in (lines if isinstance(lines, dict) else range(len(lines))):
                break
            line = lines[part]  # type: ignore[index]
            data = data[part]
        return line


def line_of(event: Any) -> int:
    """The line an event begins on, from 1."""
    return 1 + int(event.start_mark.line)


def line_numbers(text: str, wanted: Iterable[Path]) -> dict[Path, int]:
    """The line of each of these paths in a text that reads well; or of the nearest above it."""
    builder = YamlBuilder("", events(text))
    data = builder.document()
    return {path: builder.line(data, path) for path in wanted}


# --- texts that are not YAML ---

NOT_ALLOWED = Reader.NON_PRINTABLE
TABS = "a tab where YAML wants spaces; indent with spaces"
INDENTED = "indented unlike the lines before it; begin lines that belong together in the same column"
BEHIND = "text behind a value that has ended; put the whole value in double quotes"
COLON = 'a colon where no key may stand; put text with ": " in quotes, and begin keys that belong'
OTHERWISE = "put a text with signs in quotes, and write a list like [1, 2]"

SAID = (
    ("mapping values are not allowed", f"{COLON} together in the same column"),
    ("',' or ']'", "a comma or ] is missing; write a list like [1, 2]"),
    ("',' or '}'", "a comma or } is missing; write a mapping like {a: 1, b: 2}"),
    ("unexpected end of stream", "a quote is not closed; end the text with the quote that it begins with"),
    ("could not find expected ':'", "a key without its colon; write it like key: value"),
)
"""What libyaml or PyYAML says most often, in part, and what a person is told."""


def syntax_error(error: yaml.YAMLError, text: str, name: str) -> str:
    """``file:line: what; what to write instead`` for a text that is not YAML."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        match = NOT_ALLOWED.search(text)
        place = match.start() if match else 0
        line = 1 + text.count("\n", 0, place)
        code = ord(text[place])
        return f'{name}:{line}: U+{code:04X} may not stand in YAML; remove it, or write "\\u{code:04x}"'

    mark = error.problem_mark
    began = error.context_mark
    what = in_words(error, text)
    is_elsewhere = bool(error.context) and began is not None and began.line != mark.line
    if began is not None and is_elsewhere and what not in {TABS, BEHIND}:
        what += f" (in what begins on line {1 + began.line})"
    return f"{name}:{1 + mark.line}: {what}"


def in_words(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    problem = error.problem or ""
    assert mark is not None
    lines = text.split("\n")
    content = lines[mark.line] if mark.line < len(lines) else ""
    if content[mark.column : mark.column + 1] == "\t":
        return TABS

    for theirs, ours in SAID:
        if theirs in problem:
            return ours
    if "expected key" in problem or "<block end>" in problem:
        return BEHIND if content[: mark.column].strip() else INDENTED
    return f"not YAML: {problem or error.context}; {OTHERWISE}"
