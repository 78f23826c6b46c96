"""Completion of words on the command line: choices, steps, configs, files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from glob import escape, glob

from attnctl.inputs.config.examples import example_names
from attnctl.inputs.config.settings import EXAMPLE
from attnctl.math.names import TABLE
from attnctl.sources import CONFIG, DUMP, OF_SIGN


def completions_for(name: str, metavar: str | None, incomplete: str) -> list[str]:
    """The words for this parameter that begin so; none where any text may stand."""
    match name:
        case "step" | "blank":
            return next_in_list(TABLE, incomplete)
        case "config":
            return complete_word([*example_words(), *files(incomplete, [CONFIG])], incomplete)
        case "source" | "a" | "b":
            there = files(incomplete, [CONFIG, DUMP])
            return complete_word([*example_words(), "last", *there], incomplete)
        case "name" if metavar == "NAME":
            return complete_word(example_names(), incomplete)
        case "lesson":
            from attnctl.verbs.learn import lessons

            return next_in_list((lesson.name for lesson in lessons()), incomplete)
        case "about":
            from attnctl.mistakes import CATALOGUE

            return complete_word((mistake.name for mistake in CATALOGUE), incomplete)

    if metavar and metavar.startswith("<"):
        choices = metavar[1:-1].split("|")
        return complete_word(choices, incomplete)
    return []


def example_words() -> list[str]:
    return [f"{EXAMPLE}{name}" for name in example_names()]


def complete_word(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin so; none that a terminal would act on when a shell lists it."""
    return [word for word in words if word.startswith(incomplete) and word.isprintable()]


def next_in_list(names: Iterable[str], incomplete: str) -> list[str]:
    """The names, behind those of a list with commas that are written already."""
    before = incomplete[: incomplete.rfind(",") + 1]
    written = before.split(",")
    lists = [f"{before}{name}" for name in names if name not in written]
    return complete_word(lists, incomplete)


def files(incomplete: str, kinds: Collection[str]) -> list[str]:
    """The files that begin so, with a suffix of these kinds, and the folders they may be in."""
    paths = sorted(glob(f"{escape(incomplete)}*"))  # noqa: PTH207  pathlib would rewrite ./x
    folders = [f"{path}/" for path in paths if os.path.isdir(path)]  # noqa: PTH112
    suffixes = tuple(sign for sign, kind in OF_SIGN.items() if sign[:1] == "." and kind.kind in kinds)
    return [path for path in paths if path.endswith(suffixes)] + folders
