"""How a word on the command line may go on: choices, steps, configs, cells of a dump."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from glob import escape, glob
from typing import Any

from attnctl.errors import AttnError


def words(name: str, metavar: str | None, given: Mapping[str, Any], incomplete: str) -> list[str] | None:
    """The words for this parameter that begin so, by its name; None where any text may stand.

    `given` are the parameters that the command line has already, by name.
    """
    match name:
        case "step":
            return one_more(step_names(given), incomplete)
        case "config":
            return begun([*example_names(), *files(incomplete, ".yaml", ".yml")], incomplete)
        case "name" if metavar == "NAME":
            return begun([each.removeprefix("example:") for each in example_names()], incomplete)
        case "cell":
            return begun(cells(given, incomplete), incomplete)
    if metavar and metavar.startswith("<"):
        return begun(metavar[1:-1].split("|"), incomplete)
    return None


def begun(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin so."""
    return [word for word in words if word.startswith(incomplete)]


def one_more(names: Iterable[str], incomplete: str) -> list[str]:
    """The names, behind those of a list with commas that are written already."""
    before = incomplete[: incomplete.rfind(",") + 1]
    return begun([f"{before}{name}" for name in names if name not in before.split(",")], incomplete)


def step_names(given: Mapping[str, Any]) -> list[str]:
    """The steps of the dump that is named, or every step there is."""
    from attnctl.names import TABLE

    trace = dump_in(given)
    return list(TABLE if trace is None else trace)


def example_names() -> list[str]:
    """The examples as --config takes them."""
    from attnctl.config.examples import EXAMPLE, names

    return [f"{EXAMPLE}{name}" for name in names()]


def files(incomplete: str, *suffixes: str) -> list[str]:
    """The files that begin so, with one of these suffixes."""
    found = glob(f"{escape(incomplete)}*")  # noqa: PTH207  pathlib would rewrite ./x
    return sorted(path for path in found if path.endswith(suffixes))


def dump_in(given: Mapping[str, Any]) -> Any:
    """The trace of the dump that the command line names, where it can be read: stdin is left alone."""
    source = given.get("dump") or given.get("a")
    if not isinstance(source, str) or source == "-":
        return None
    from attnctl.store import read

    try:
        return read(source)[0]
    except AttnError:
        return None


def cells(given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The steps of the dump, or the places along the axis that comes next in the brackets."""
    trace = dump_in(given)
    if trace is None:
        return []
    step, bracket, places = incomplete.partition("[")
    if not bracket:
        return [f"{name}[" for name in trace]
    if step not in trace:
        return []
    from attnctl.cells import spellings

    axis = places.count(",")
    last = trace[step].ndim - 1
    if axis > last:
        return []
    tokens = trace.tokens_along(step, axis)
    labels = trace.labels(step, axis) if tokens is None else spellings(tokens)
    before = incomplete[: max(incomplete.rfind(","), incomplete.find("[")) + 1]
    return [f"{before}{label}{',' if axis < last else ']'}" for label in labels]
