"""A command as it is declared, and the words after it as the texts of its options: all without Typer.

To import Typer takes a third of a start. It is asked where a person is told something: for help, for
completion, and for words that are no command line, which it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_origin

from attnctl.base.namedtuple import NamedTuple
from attnctl.base.rooms import module_of_commands

if TYPE_CHECKING:
    from attnctl.base.setting import Given
    from attnctl.base.values import Reader
    from attnctl.formats import Format

LEFT_OUT = {"--backward": "its own"}
"""The options whose value may be left out, and what it then is."""


class OptionTerm(NamedTuple):
    """What an option goes with: the options that are wrong beside it, and what is said of each."""

    wrong: Callable[[Given], Iterable[str]]
    """Their names, "" for the option itself; of everything that the command was given, by name."""

    words: str
    """What stands behind `--flag: `, or a whole message, which begins with a flag; {name} is a value."""


class Declared(NamedTuple):
    """What is said of an option where it is declared, or of an argument, which has no flags."""

    help: str
    flags: Sequence[str] = ()
    metavar: str | None = None
    section: str | None = None
    readers: Sequence[Reader] = ()
    terms: Sequence[OptionTerm] = ()
    writes: Sequence[Format] | bool = False
    usual: Any = None
    is_argument: bool = False


class Option(NamedTuple):
    """An option of a command; its type is that of its text, or bool where it is on or off."""

    name: str
    kind: Any
    declared: Declared
    default: Any
    read: Callable[[Any], Any]

    @property
    def flag(self) -> str:
        """The flag that messages use: --d-model, or its shortest name: -o; of an argument what help has."""
        if self.declared.is_argument:
            return self.declared.metavar or self.name.upper()
        return min(self.declared.flags, key=len)

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def takes_many(self) -> bool:
        """True where it may be given more than once, or is all words that are no options."""
        return any(get_origin(kind) is list for kind in (self.kind, *get_args(self.kind)))

    @property
    def width(self) -> int:
        """How many words follow its flag: as many as its type has parts."""
        if self.is_switch:
            return 0
        pairs = [kind for kind in (self.kind, *get_args(self.kind)) if get_origin(kind) is tuple]
        return len(get_args(pairs[0])) if pairs else 1

    @property
    def is_required(self) -> bool:
        return self.default is ...


class Registered(NamedTuple):
    """A command: what carries it out, given the text of each option, its options, examples for its help."""

    run: Callable[..., int]
    options: Sequence[Option]
    examples: Sequence[str]
    of_program: bool
    """Whether what follows its first argument are another program's words, and no options."""

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def arguments(self) -> list[Option]:
        return [option for option in self.options if option.declared.is_argument]

    def by_flag(self) -> dict[str, Option]:
        return {flag: option for option in self.options for flag in option.declared.flags}

    def texts_of(self, words: Sequence[str]) -> dict[str, Any] | None:
        """The text of each option, by name; None where Typer has to be asked."""
        texts = {option.name: option.default for option in self.options}
        known = self.by_flag()
        positional: list[str] = []
        coming = with_values(words, [flag for flag, option in known.items() if not option.is_switch])

        while coming:
            word = coming.pop(0)
            if word == "--":
                positional += coming
                break
            if word == "-" or not word.startswith("-"):
                positional.append(word)
                if self.of_program:
                    positional += coming
                    break
                continue

            flag, equals, text = word.partition("=")
            option = known.get(flag)
            is_short = not flag.startswith("--")
            if option is None or (equals and (is_short or option.is_switch)):
                return None
            if equals:
                coming.insert(0, text)
            if len(coming) < option.width:
                return None
            values = tuple(coming[: option.width])  # whatever they begin with
            del coming[: option.width]
            if option.is_switch:
                texts[option.name] = True
            elif option.takes_many:
                texts[option.name] = [*(texts[option.name] or ()), *values]
            else:
                texts[option.name] = values if len(values) > 1 else values[0]

        return texts if self.place(positional, texts) else None

    def place(self, words: list[str], texts: dict[str, Any]) -> bool:
        """Add the words of the arguments, in order; false where some are too many or missing."""
        for argument in self.arguments:
            if argument.takes_many and words:
                texts[argument.name] = words
                words = []
            elif words:
                texts[argument.name] = words[0]
                words = words[1:]
            elif argument.is_required:
                return False
        return not words


def with_values(words: Sequence[str], taking: Collection[str]) -> list[str]:
    """The words, with a value after each option that stands without the one it may have (`taking`)."""
    out = []
    for number, word in enumerate(words):
        out.append(word)
        if word == "--":
            return [*out, *words[number + 1 :]]
        following = words[number + 1 : number + 2]
        if word in LEFT_OUT and word in taking and (not following or following[0].startswith("-")):
            out.append(LEFT_OUT[word])
    return out


class Called(NamedTuple):
    command: Registered
    words: Sequence[str]
    """What stands behind its name."""


def find_command(words: Sequence[str]) -> Called | None:
    """The command that the words begin with, of a group that of its second one."""
    found = module_of_commands(words[0]) if words else None
    if found is None:
        return None
    name, *others = words
    module = import_module(found)
    commands: Mapping[str, Registered] = module.COMMANDS
    if not hasattr(module, "GROUP"):
        return Called(commands[name], others)
    if not others or others[0] not in commands:
        return None
    return Called(commands[others[0]], others[1:])
