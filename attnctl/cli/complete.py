"""Completion of words on the command line: choices, steps, configs, cells of a dump."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import EXAMPLE
from attnctl.math.names import TABLE
from attnctl.sources import CONFIG, DUMP, OF_SIGN, open_source
from attnctl.sources.sentence import Arguments

if TYPE_CHECKING:
    from attnctl.record import Trace

BEHIND_COLON = "_ATTNCTL_BEHIND_COLON"


def completions_for(name: str, metavar: str | None, given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The words for this parameter that begin so, beside what is `given`; none where any text may stand."""
    match name:
        case "step" | "blank":
            trace = trace_in(given)
            return next_in_list(TABLE if trace is None else trace, incomplete)
        case "config":
            return complete_word([*example_names(), *files(incomplete, CONFIG)], incomplete)
        case "source" | "a" | "b":
            return complete_word([*example_names(), "last", *files(incomplete, CONFIG, DUMP)], incomplete)
        case "name" if metavar == "NAME":
            return complete_word([name.removeprefix("example:") for name in example_names()], incomplete)
        case "cell":
            return cell_words(given, incomplete)
        case "lesson":
            from attnctl.verbs.learn import lessons

            return next_in_list((lesson.name for lesson in lessons()), incomplete)
        case "about":
            from attnctl.mistakes import CATALOGUE

            return complete_word((mistake.name for mistake in CATALOGUE), incomplete)
    if metavar and metavar.startswith("<"):
        return complete_word(metavar[1:-1].split("|"), incomplete)
    return []


def join_at_colons(environ: MutableMapping[str, str]) -> None:
    """Put together what bash hands over as three words: example : india-is-great.

    It ends a word at each colon, and completes only what stands behind it.
    """
    line, at = environ.get("COMP_WORDS", ""), int(environ.get("COMP_CWORD") or 0)
    joined = re.sub(r"(?<!\S)example\s:(?:\s(?=\S))?", EXAMPLE, line)
    if joined != line:
        environ["COMP_WORDS"] = joined
        environ["COMP_CWORD"] = str(at - len(line.split()) + len(joined.split()))
        environ[BEHIND_COLON] = EXAMPLE


def complete_word(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin so; none that a terminal would act on when a shell lists it."""
    before = os.environ.get(BEHIND_COLON, "")
    found = dict.fromkeys(word for word in words if word.startswith(incomplete) and word.isprintable())
    return [word.removeprefix(before) for word in found]


def next_in_list(names: Iterable[str], incomplete: str) -> list[str]:
    """The names, behind those of a list with commas that are written already."""
    before = incomplete[: incomplete.rfind(",") + 1]
    return complete_word([f"{before}{name}" for name in names if name not in before.split(",")], incomplete)


def example_names() -> list[str]:
    from attnctl.inputs.config.load import example_names

    return [f"{EXAMPLE}{name}" for name in example_names()]


def files(incomplete: str, *kinds: str) -> list[str]:
    """The files that begin so, with a suffix of these kinds, and the folders they may be in."""
    found = sorted(glob(f"{escape(incomplete)}*"))  # noqa: PTH207  pathlib would rewrite ./x
    folders = [f"{path}/" for path in found if os.path.isdir(path)]  # noqa: PTH112
    suffixes = tuple(sign for sign, kind in OF_SIGN.items() if sign[:1] == "." and kind.kind in kinds)
    return [path for path in found if path.endswith(suffixes)] + folders


def trace_in(given: Mapping[str, Any]) -> Any:
    """The first trace that the command line names, where it can be had: stdin is left alone."""
    named = given.get("source") or given.get("a")
    text = " ".join(named) if isinstance(named, (list, tuple)) else named
    if text == "-" or (text is None and given.get("config") is None):
        return None
    from attnctl.inputs.config.fields import KEYWORDS, is_given

    try:
        known = {name: KEYWORDS[name] for name in given if name in KEYWORDS and is_given(given[name])}
        flags = {name: setting.read_flag(given[name]) for name, setting in known.items() if setting.flag}
        return open_source(text, Arguments(given.get("config"), flags)).traces()[0]
    except AttnError:
        return None


def cell_words(given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The steps of the dump, or the places along the axis that comes next in the brackets.

    Where just one is left it goes on to the next axis: a shell puts a space behind what is whole.
    """
    trace = trace_in(given)
    if trace is None:
        return []
    found = [f"{name}[" for name in trace] if "[" not in incomplete else next_places(trace, incomplete)
    found = complete_word(found, incomplete)
    while len(found) == 1 and not found[0].endswith("]"):
        found = next_places(trace, found[0])
    return found


def next_places(trace: Trace, incomplete: str) -> list[str]:
    """An address up to its last comma or bracket, with each place along the axis that comes next."""
    from attnctl.record.cells import Address, spellings

    step, _, written = incomplete.partition("[")
    step = Address(step).spell_out(trace).step
    axis = written.count(",")
    if step not in trace or axis >= trace[step].ndim:
        return []
    tokens = trace.tokens_along(step, axis)
    labels = trace.labels(step, axis) if tokens is None else spellings(tokens)
    before = incomplete[: max(incomplete.rfind(","), incomplete.find("[")) + 1]
    return [before + label + ("]" if axis == trace[step].ndim - 1 else ",") for label in labels]
