"""Where verbs are found: each in `verb.py` of its room, a folder of `attnctl/verbs/`, or in a plug-in.

Help, completion, the command line, the formats of findings, the views of their values, the names of
`attnctl` in Python and the laws of the tests iterate these.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

from attnctl.base.namedtuple import NamedTuple

if TYPE_CHECKING:
    from attnctl.base.verb import Formats, Verb

ROOMS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "verbs")  # noqa: PTH118, PTH120  (pathlib is slow)


def is_own(name: str) -> bool:
    """Whether there is a room of this name that has a verb."""
    return name.isidentifier() and os.path.exists(os.path.join(ROOMS, name, "verb.py"))  # noqa: PTH110, PTH118


def module_of_commands(name: str) -> str | None:
    """The module with the COMMANDS of this verb; None where there is no such verb."""
    if is_own(name):
        return f"attnctl.cli.{name}"
    verb = find_verb(name)
    return verb and verb.module


def find_verb(name: str) -> Verb | None:
    """The verb of this name; nothing of its room but `verb.py` is imported."""
    if is_own(name):
        return load_verb(name)

    from attnctl.base.plugins import named_in

    return plugged_verbs().get(name) if name in named_in("verbs") else None


@cache
def plugged_verbs() -> dict[str, Verb]:
    from attnctl.base.plugins import added
    from attnctl.base.verb import Verb

    own = [name for name in os.listdir(ROOMS) if is_own(name)]  # noqa: PTH208
    return added("verbs", Verb, taken=own)


@cache
def load_verb(name: str) -> Verb:
    """The VERB of a room.

    To import `attnctl.verbs.stats.verb` in the usual way imports `attnctl.verbs.stats` before it, and with
    that NumPy. Help, and completion at each press of a key, are not to wait for what they do not use.
    """
    module = f"attnctl.verbs.{name}.verb"
    if module not in sys.modules:
        from importlib.machinery import SourceFileLoader
        from types import ModuleType

        room = ModuleType(module)
        SourceFileLoader(module, os.path.join(ROOMS, name, "verb.py")).exec_module(room)  # noqa: PTH118
        sys.modules[module] = room
    found: Verb = sys.modules[module].VERB
    return found


@cache
def all_verbs() -> dict[str, Verb]:
    """Every verb by its name, in the order in which a newcomer meets them."""
    own = [load_verb(name) for name in sorted(os.listdir(ROOMS)) if is_own(name)]  # noqa: PTH208
    verbs = [*own, *plugged_verbs().values()]
    return {verb.name: verb for verb in sorted(verbs, key=order)}


class VerbPlace(NamedTuple):
    """Where a verb stands in the help: sections that nobody knows come last, by their names."""

    number: int
    section: str
    place: int


def order(verb: Verb) -> VerbPlace:
    from attnctl.base.verb import SECTIONS

    is_known = verb.section in SECTIONS
    number = SECTIONS.index(verb.section) if is_known else len(SECTIONS)
    return VerbPlace(number, verb.section, verb.place)


def formats_of(command: str) -> Formats:
    """The formats of what a command finds, like those of "stats" or of "exercise make"."""
    verb = find_verb(command.partition(" ")[0])
    assert verb is not None
    return verb.formats.get(command, ())


def view_of(kind: str) -> str | None:
    """The ``module:function`` that draws a finding of this class, where one does."""
    return next((verb.views[kind] for verb in all_verbs().values() if kind in verb.views), None)


def options_used_daily(command: str) -> list[str]:
    verb = find_verb(command.partition(" ")[0])
    return [] if verb is None else verb.daily.get(command, "").split()
