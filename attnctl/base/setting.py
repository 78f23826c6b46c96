"""Settings, said once for config, schema, flag and keyword, and forms: mappings of them, lists of values.

A form reads plain data and raises BadValueError with every problem in it, each at its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.values import (
    MAX_PROBLEMS,
    SWITCH,
    BadValueError,
    Json,
    Plain,
    Problem,
    Reader,
    every,
    problems_at,
    unfit,
)
from attnctl.base.words import nearest, one_of

Given = dict[str, Any]
"""The settings that are given by flags, by keyword."""

ATTENTION, SENTENCE, ARRAYS, EDIT = "Attention", "Sentence", "Arrays", "What if"
GRADIENTS = "Log-sum-exp and gradients"
"""Groups of flags, as sections of a help: the commands that take one of a group take them all."""


@dataclass(eq=False)
class Flag:
    """A setting's flag: all that the shell has beside the setting itself."""

    name: str
    """With its dashes: --d-model."""
    group: str = ATTENTION
    metavar: str = ""
    """What the help calls its value; left out, what the reader calls it."""
    more: str = ""
    """Help that only the shell needs, behind that of the setting."""
    parts: Callable[[str], Any] = Plain
    """From the flag's text to what the reader takes."""
    repeated: bool = False
    """Whether it may be given more than once, for a list."""
    reader: Reader | None = None
    """What reads its text, where it may say more than a config does."""


@dataclass(eq=False)
class Setting:
    """Something a person can set: its name in a config, how it is read, what it is for."""

    name: str
    reader: Reader
    help: str
    """One line for the config's comment, the schema and the flag."""
    example: Any = None
    flag: Flag | None = None
    words: Callable[[Any], str] | None = None
    """What the line above a run says of a value, as a config has it; left out, name and value."""

    @property
    def switch(self) -> bool:
        """True if it is on or off, and so a flag without a value."""
        return self.reader is SWITCH

    @property
    def schema(self) -> Json:
        examples = {} if self.example is None else {"examples": [self.example]}
        return {**self.reader.schema, "description": self.help, **examples}

    @property
    def keyword(self) -> str:
        """The flag as a Python keyword: --kv-heads -> kv_heads."""
        return self.flag.name.lstrip("-").replace("-", "_") if self.flag else self.name

    @property
    def flag_name(self) -> str:
        return self.flag.name if self.flag else f"--{self.name.replace('_', '-')}"

    @property
    def in_config(self) -> Any:
        """The setting in a list of a config: causal, {window: [3, 0]}."""
        return self.name if self.switch else {self.name: self.example}

    @property
    def at_example(self) -> Any:
        """The value that its example means; True of a switch."""
        return True if self.switch else self.reader(self.example)

    def describe(self, value: Any) -> str:
        """A value in a few words, as a config has it: cache unrotated, sharpen 0.5."""
        if self.words is not None:
            return self.words(value)
        name = self.name.replace("_", " ")
        if self.switch:
            return name
        numbers = value if isinstance(value, (list, tuple)) else [value]
        return f"{name} {', '.join(map(str, numbers))}"

    def flags(self, value: Any) -> list[str]:
        """The words of a command line that give this value: --window 3,inf; none where none do."""
        if self.flag is None or value is None:
            return []
        if self.switch:
            return [self.flag.name] if value else []

        words = []
        for text in value if self.flag.repeated else [value]:
            words += [self.flag.name, flag_text(text)]
        return words

    def read_flag(self, given: Any) -> Any:
        """Read what its flag was given: a text, several, or on and off. Raises BadValueError."""
        assert self.flag is not None
        if self.switch:
            return given
        parts = self.flag.parts
        read = self.flag.reader or self.reader
        if self.flag.repeated:
            return read([parts(text) for text in given])
        return read(parts(given))


def flag_text(value: Any) -> str:
    """A value as the text of a flag: 3,inf for the ends of a window, 0:4,4:6 for ranges."""
    if not isinstance(value, (list, tuple)):
        return "inf" if value is None else str(value)
    if any(isinstance(part, tuple) for part in value):
        return ",".join(":".join(map(str, ends)) for ends in value)
    return ",".join(map(flag_text, value))


ENOUGH = 4 * MAX_PROBLEMS
"""The most problems of a mapping that are put in words: more than are listed, those of the first lines."""


class Form(Reader):
    """A mapping of known keys, each of which may be left out.

    `make` makes the value of the keys that are given. With `just_one`, one key must be. `elsewhere` says
    of a key that is not known, and its value, what to write instead; `misfits` are those of the keys that
    could be read, in a mapping with problems, that do not go together.
    """

    def __init__(  # noqa: PLR0913  (all that a form says)
        self,
        name: str,
        about: str,
        keys: Iterable[Setting],
        make: Callable[[Json], Any] = dict,
        *,
        just_one: bool = False,
        required: Sequence[str] = (),
        elsewhere: Callable[[str, Any], str | None] = lambda *_: None,
        misfits: Callable[[Json], Iterable[Problem]] = lambda _: (),
    ) -> None:
        self.name = name
        self.about = about
        self.make = make
        self.elsewhere = elsewhere
        self.misfits = misfits
        self.keys = {key.name: key for key in keys}
        forms = tuple(key.reader for key in self.keys.values())
        super().__init__(self.read_mapping, {"$ref": f"#/$defs/{name}"}, forms=forms)
        self.just_one = just_one
        self.required = required

    def read_mapping(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise unfit(value, f"is not a mapping; write keys and values, like {next(iter(self.keys))}: …")
        given: Json = {}
        problems: list[Problem] = []
        for name, key in self.keys.items():
            if name not in value:
                continue
            try:
                given[name] = key.reader(value[name])
            except BadValueError as wrong:
                problems += problems_at(name, wrong)

        unknown = (self.explain_unknown(key, value[key]) for key in value if key not in self.keys)
        problems += islice(unknown, ENOUGH)
        if problems:
            raise BadValueError(*problems[:ENOUGH], *self.misfits(given))
        if self.just_one and len(given) != 1:
            raise BadValueError(f"{len(given)} keys in one; write just one of {one_of(self.keys)} here")
        return self.make(given)

    def explain_unknown(self, key: Any, value: Any) -> Problem:
        place = () if isinstance(key, str) else (key,)
        # Half of a pair of UTF-16 cannot be written out.
        if place or any("\ud800" <= character < "\ue000" for character in key):
            return place, "a key that is no text; write a word"
        if elsewhere := self.elsewhere(key, value):
            return (key,), f"not a key of its own; write {elsewhere}"
        near = nearest(key, self.keys, most=1)
        instead = f"did you mean {near[0]}?" if near else f"use {one_of(self.keys, most=len(self.keys))}"
        return (key,), f"unknown key; {instead}"

    @property
    def definition(self) -> Json:
        counts = {"minProperties": 1, "maxProperties": 1} if self.just_one else {}
        required = {"required": list(self.required)} if self.required else {}
        return {
            "title": self.name,
            "description": self.about,
            "type": "object",
            "properties": {name: key.schema for name, key in self.keys.items()},
            "additionalProperties": False,
            **counts,
            **required,
        }


def choice(pick: Callable[[Any], Reader | None], forms: Sequence[Reader], expected: str = "") -> Reader:
    """One of several forms, picked by what the value is: only that one's problems are reported."""

    def read(value: Any) -> Any:
        form = pick(value)
        if form is None:
            raise unfit(value, f"is not {expected}")
        return form(value)

    return Reader(read, {"oneOf": [form.schema for form in forms]}, forms=tuple(forms))


def word_or_form(known: Sequence[str], word: Reader, form: Form, expected: str) -> Reader:

    def pick(value: Any) -> Reader | None:
        if isinstance(value, dict):
            return form
        return word if isinstance(value, str) and value in known else None

    return choice(pick, [word, form], expected)


def list_of(item: Reader, check: Callable[[list[Any]], None] | None = None, least: int = 0) -> Reader:
    """A list of values of one kind, of `least` or more; `check` refuses those that do not go together."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise unfit(value, "is not a list; write one like [a, b], or lines that begin with -")
        if len(value) < least:
            raise unfit(value, f"of {len(value)}; write {least} or more")
        items = every(enumerate(value), item)
        if check is not None:
            check(items)
        return tuple(items)

    schema = {"type": "array", "items": item.schema} | ({"minItems": least} if least else {})
    return Reader(read, schema, forms=(item,))


def definitions(reader: Reader) -> Iterator[tuple[str, Json]]:
    """The JSON Schema of every form that this reads, by name."""
    if isinstance(reader, Form):
        yield reader.name, reader.definition
    for form in reader.forms:
        yield from definitions(form)
