"""What packages that are installed add to attnctl: the entry points of their distributions, by group.

`pyproject.toml` of such a package says, say

    [project.entry-points."attnctl.rules"]
    strided = "my_package.strided:Strided"

and each registry takes in its own group where it is imported. Most starts find none, and should not wait to
learn that: importing `importlib.metadata` takes a tenth of a toy run, so the files are read here. What lies
in the folder that a person stands in adds nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from functools import cache
from typing import Any

PREFIX = "attnctl."
GROUPS = ("verbs", "sources", "formats", "rules", "ops", "families", "mistakes", "targets")
ENTRY_POINTS = "entry_points.txt"
STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120  (pathlib is slow)
"""Nothing is installed there; packages stand beside it, or below it in a folder of their own."""

PIECE = 1 << 14
"""Bytes read at once. Nearly every file is smaller; a larger buffer takes longer to get than to fill."""


@cache
def named_in(group: str) -> dict[str, str]:
    """The entry points of a group: what each is called -> ``module:name``."""
    found: dict[str, str] = {}
    for section, name, value in entry_points():
        if section == f"{PREFIX}{group}":
            found.setdefault(name, value)  # as with imports, the first on the path
    return found


@cache
def entry_points() -> list[tuple[str, str, str]]:
    """Section, name and value of each entry point of a distribution that has some of ours."""
    found = []
    here = os.getcwd() if os.path.exists(os.curdir) else ""  # noqa: PTH109, PTH110  (it may have been removed)
    for folder in sys.path:
        if folder in {"", here} or (
            folder.startswith(STANDARD_LIBRARY) and not folder.endswith("-packages")
        ):
            continue
        try:
            entries = os.listdir(folder)  # noqa: PTH208
        except OSError:  # an archive, or nothing
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                found += read_entry_points(f"{folder}/{entry}/{ENTRY_POINTS}")
    return found


def read_entry_points(path: str) -> list[tuple[str, str, str]]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # most distributions have none
        return []
    data = b""
    try:
        while piece := os.read(descriptor, PIECE):
            data += piece
            if len(piece) < PIECE:
                break
    finally:
        os.close(descriptor)
    if f"[{PREFIX}".encode() not in data:
        return []

    found = []
    section = ""
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            section = text.strip("[]").strip()
        elif "=" in text:
            name, _, value = text.partition("=")
            found.append((section, name.strip(), value.partition("[")[0].strip()))
    return found


def added(group: str, kind: Any, taken: Container[str] = (), *, named: bool = True) -> dict[str, Any]:
    """What plug-ins add to a group, by name: instances of `kind`, or classes that build on it.

    Where they are `named` they call themselves as their entry points do. One that cannot be imported, is
    something else, or is called as one of `taken` is left out, and said on stderr: all else goes on.
    """
    found = {}
    for name, value in named_in(group).items():
        thing = load(group, name, value, kind)
        if thing is None:
            continue
        own_name = getattr(thing, "name", name)
        if named and own_name != name:
            leave_out(group, name, value, f"it calls itself {own_name!r}")
        elif name in taken:
            leave_out(group, name, value, "attnctl has one of this name")
        else:
            found[name] = thing
    return found


@cache
def load(group: str, name: str, value: str, kind: Any) -> Any:
    """The value of an entry point; None where it is left out."""
    from attnctl.base.format import function

    try:
        thing = function(value)
    except Exception as error:  # noqa: BLE001  (whatever the code of others raises)
        leave_out(group, name, value, f"{type(error).__name__}: {error}")
        return None
    if isinstance(thing, kind) or (isinstance(thing, type) and issubclass(thing, kind)):
        return thing
    leave_out(group, name, value, f"it is no {kind.__name__}")
    return None


@cache
def leave_out(group: str, name: str, value: str, why: str) -> None:
    """Say once that a plug-in is left out, and why, in characters that steer no terminal."""
    text = f"plug-in {name} ({PREFIX}{group}: {value}) is left out: {why}"
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    sys.stderr.write(f"attnctl: {shown}\n")
