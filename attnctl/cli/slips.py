"""What word processors, notes and habit make of a command line, and the command that was meant.

To a shell a curly quotation mark is a letter, a long dash begins a word, and the name of an example
is a sentence: each would run as something else, or be refused in words that lead away.
"""

from __future__ import annotations

import re

from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.rooms import module_of_commands
from attnctl.cli.command import find_command
from attnctl.drawing.screen.text import shell_line

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
OPENING, CLOSING = "\u201c\u201e\u201f\u00ab\u2018\u201a", "\u201d\u201c\u00bb\u2019\u2018"
OPTION = rf"(?s)([{DASHES}]+-?|-)(\w[\w-]+)(=.*)?"
EXAMPLE = r"(?:examples:|examples?/)?(\w[\w-]*)"


class Slip(NamedTuple):
    """What is wrong with a command line, and the words that were meant."""

    wrong: str
    meant: list[str]


def refuse_slips(args: list[str]) -> None:
    """Raise AttnError with the command that was meant; what follows "--" is taken as it is."""
    words = args[: args.index("--")] if "--" in args else args
    if not words or module_of_commands(words[0]) is None:
        return

    for find in (curly_quotes, dashes, example_name):
        slip = find(words)
        if slip:
            as_it_is = args[len(words) :]
            command = shell_line(["attnctl", *slip.meant, *as_it_is])
            raise AttnError(f"{slip.wrong}; type: {command}")


def curly_quotes(words: list[str]) -> Slip | None:
    """The words between quotation marks that are letters to the shell, as the one that they should be."""
    first: int | None = None
    for number, word in enumerate(words):
        if re.search(r"\s", word):
            continue  # the shell has seen quotes around it
        if first is None and word[:1] in tuple(OPENING):
            first = number
        if first is not None and word[1:].endswith(tuple(CLOSING)):
            sentence = " ".join(words[first : number + 1])
            wrong = f'the shell knows no {sentence[0]} and {sentence[-1]}, only "straight" quotes'
            return Slip(wrong, [*words[:first], sentence[1:-1], *words[number + 1 :]])
    return None


def dashes(words: list[str]) -> Slip | None:
    """Options that begin with a single dash, or a long one."""
    misspelled = {
        number: option for number, word in enumerate(words) if (option := re.fullmatch(OPTION, word))
    }
    if not misspelled:
        return None

    known = options_of(words)
    slips = {number: option for number, option in misspelled.items() if f"--{option[2]}" in known}
    if not slips:
        return None

    dash, name, _ = next(iter(slips.values())).groups()
    meant = list(words)
    for number, option in slips.items():
        meant[number] = f"--{option[2]}{option[3] or ''}"
    return Slip(f"{dash}{name}: an option begins with two short dashes", meant)


def options_of(words: list[str]) -> set[str]:
    """The options of a command, or of the one of its group."""
    called = find_command(words)
    return {"--help", *(called.command.by_flag() if called else ())}


def example_name(words: list[str]) -> Slip | None:
    """The name of an installed example alone, or after examples:, where a SOURCE begins."""
    if len(words) < 2 or words[0] in {"examples", "learn"}:
        return None

    from attnctl.inputs.config.examples import example_names

    named = re.fullmatch(EXAMPLE, words[1])
    if named is None or named[1] not in example_names():
        return None
    return Slip(f"{named[1]} is an example", [words[0], f"example:{named[1]}", *words[2:]])
