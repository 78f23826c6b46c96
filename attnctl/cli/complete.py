"""How a word on the command line may go on: choices, steps, configs, cells of a dump."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError

if TYPE_CHECKING:
    from attnctl.base.trace import Trace


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
            return cells(given, incomplete)
    if metavar and metavar.startswith("<"):
        return begun(metavar[1:-1].split("|"), incomplete)
    return None


def begun(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin so; none that a terminal would act on when a shell lists it."""
    return [word for word in words if word.startswith(incomplete) and word.isprintable()]


def one_more(names: Iterable[str], incomplete: str) -> list[str]:
    """The names, behind those of a list with commas that are written already."""
    before = incomplete[: incomplete.rfind(",") + 1]
    return begun([f"{before}{name}" for name in names if name not in before.split(",")], incomplete)


def step_names(given: Mapping[str, Any]) -> list[str]:
    from attnctl.math.names import TABLE

    trace = dump_in(given)
    return list(TABLE if trace is None else trace)


def example_names() -> list[str]:
    """The examples as --config takes them."""
    from attnctl.inputs.config.examples import EXAMPLE, names

    return [f"{EXAMPLE}{name}" for name in names()]


def files(incomplete: str, *suffixes: str) -> list[str]:
    """The files that begin so, with one of these suffixes, and the folders they may be in."""
    found = sorted(glob(f"{escape(incomplete)}*"))  # noqa: PTH207  pathlib would rewrite ./x
    folders = [f"{path}/" for path in found if os.path.isdir(path)]  # noqa: PTH112
    return [path for path in found if path.endswith(suffixes)] + folders


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
    """The steps of the dump, or the places along the axis that comes next in the brackets.

    Where just one is left it goes on to the next axis: a shell puts a space behind what is whole.
    """
    trace = dump_in(given)
    if trace is None:
        return []
    found = [f"{name}[" for name in trace] if "[" not in incomplete else places(trace, incomplete)
    found = begun(found, incomplete)
    while len(found) == 1 and not found[0].endswith("]"):
        found = places(trace, found[0])
    return found


def places(trace: Trace, incomplete: str) -> list[str]:
    """An address up to its last comma or bracket, with each place along the axis that comes next."""
    from attnctl.base.cells import spellings

    step, _, written = incomplete.partition("[")
    axis = written.count(",")
    if step not in trace or axis >= trace[step].ndim:
        return []
    tokens = trace.tokens_along(step, axis)
    labels = trace.labels(step, axis) if tokens is None else spellings(tokens)
    before = incomplete[: max(incomplete.rfind(","), incomplete.find("[")) + 1]
    end = "]" if axis == trace[step].ndim - 1 else ","
    return [f"{before}{label}{end}" for label in labels]
