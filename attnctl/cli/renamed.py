"""Commands that go by another name than they did: the old words go on working, and say the new ones."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.base.errors import AttnError
from attnctl.drawing.screen.text import shell_line

FILE = "--file"
ONLY_A_CORPUS = ("--shard", "--on", "--pairs", "--skip-bad")
WITH_VALUE = ("-o", "--output", "--format", "--precision")
"""The options of a merge that are followed by a word."""


def in_new_words(args: list[str]) -> list[str]:
    """The command line as it is written now.

    `stats --file CORPUS` is `corpus run CORPUS`, and `stats merge PART…` is `corpus merge PART…`.
    """
    end = args.index("--") if "--" in args else len(args)
    words = args[1:end]
    rest = args[end:]
    if any(word.partition("=")[0] == FILE for word in words):
        new = ["corpus", "run", *without_flag(words, FILE), *rest]
    elif (first := first_argument(words)) is not None and words[first] == "merge":
        new = ["corpus", "merge", *words[:first], *words[first + 1 :], *rest]
    else:
        for flag in ONLY_A_CORPUS:
            if any(word.partition("=")[0] == flag for word in words):
                raise AttnError(f"{flag}: only a corpus has that; write attnctl corpus run CORPUS {flag} …")
        return args

    return new


def note_of(new: list[str]) -> str:
    return f"note: the new spelling is: {shell_line(['attnctl', *new])}"


def without_flag(words: Sequence[str], flag: str) -> list[str]:
    """The words with the flag's value where the flag was."""
    plain = []
    for word in words:
        name, equals, value = word.partition("=")
        if name != flag:
            plain.append(word)
        elif equals:
            plain.append(value)
    return plain


def first_argument(words: Sequence[str]) -> int | None:
    """Where the first word stands that is no option, and no option's value."""
    is_value = False
    for number, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            return number
        is_value = not is_value and word in WITH_VALUE
    return None
