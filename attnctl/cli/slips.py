"""What word processors, notes and habit make of a command line, and the command that was meant.

To a shell a curly quotation mark is a letter, a long dash begins a word, and the name of an example
is a sentence: each would run as something else, or be refused in words that lead away.
"""

from __future__ import annotations

import re

from attnctl import VERBS
from attnctl.base.errors import AttnError
from attnctl.cli.command import find_command
from attnctl.drawing.screen.text import shell_line

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
OPENING, CLOSING = "\u201c\u201e\u201f\u00ab\u2018\u201a", "\u201d\u201c\u00bb\u2019\u2018"
OPTION = rf"(?s)([{DASHES}]+-?|-)(\w[\w-]+)(=.*)?"
EXAMPLE = r"(?:examples:|examples?/)?(\w[\w-]*)"

Slip = tuple[str, list[str]]  # what is wrong, and the words that were meant


def refuse_slips(args: list[str]) -> None:
    """Raise AttnError with the command that was meant; what follows "--" is taken as it is."""
    words = args[: args.index("--")] if "--" in args else args
    if not words or words[0] not in VERBS:
        return
    for find in (curly_quotes, dashes, example_name):
        if slip := find(words):
            wrong, meant = slip
            raise AttnError(f"{wrong}; type: {shell_line(['attnctl', *meant, *args[len(words) :]])}")


def curly_quotes(words: list[str]) -> Slip | None:
    """The words between quotation marks that are letters to the shell, as the one that they should be."""
    bare = [at for at, word in enumerate(words) if not re.search(r"\s", word)]
    first = next((at for at in bare if words[at][:1] in tuple(OPENING)), len(words))
    last = next((at for at in bare if at >= first and words[at][1:].endswith(tuple(CLOSING))), None)
    if last is None:
        return None
    sentence = " ".join(words[first : last + 1])
    wrong = f'the shell knows no {sentence[0]} and {sentence[-1]}, only "straight" quotes'
    return wrong, [*words[:first], sentence[1:-1], *words[last + 1 :]]


def dashes(words: list[str]) -> Slip | None:
    """Options that begin with a single dash, or a long one."""
    found = {at: option for at, word in enumerate(words) if (option := re.fullmatch(OPTION, word))}
    known = options_of(words) if found else set()
    slips = {at: option for at, option in found.items() if f"--{option[2]}" in known}
    if not slips:
        return None
    dash, name, _ = next(iter(slips.values())).groups()
    wrong = f"{dash}{name}: an option begins with two short dashes"
    meant = {at: f"--{option[2]}{option[3] or ''}" for at, option in slips.items()}
    return wrong, [meant.get(at, word) for at, word in enumerate(words)]


def options_of(words: list[str]) -> set[str]:
    """The options of a command, or of the one of its group."""
    called = find_command(words)
    return {"--help", *(called.command.by_flag() if called else ())}


def example_name(words: list[str]) -> Slip | None:
    """The name of an installed example alone, or after examples:, where a SOURCE begins."""
    if len(words) < 2 or words[0] in {"examples", "learn"}:
        return None
    from attnctl.inputs.config.examples import example_names

    found = re.fullmatch(EXAMPLE, words[1])
    if found is None or found[1] not in example_names():
        return None
    return f"{found[1]} is an example", [words[0], f"example:{found[1]}", *words[2:]]
