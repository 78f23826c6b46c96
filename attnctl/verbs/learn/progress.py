"""The lessons a person has done, in a file of their data folder."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.files import open_own, refuse_os_errors
from attnctl.store import write_text
from attnctl.store.files import data_folder, json_text

SCHEMA = "attnctl/progress/1"
MOST_BYTES = 2**20
OWN = "attnctl"
"""What the lessons that are shipped are called; others by their folder."""


@dataclass
class Progress:
    """The lessons of each set that are done, with how many answers each took."""

    path: Path
    done: dict[str, dict[str, int]] = field(default_factory=dict)
    problem: str = ""
    """Why the file could not be read: it is then left as it is."""

    def of(self, lessons: str) -> dict[str, int]:
        return self.done.get(lessons, {})

    def add(self, lessons: str, name: str, tries: int) -> None:
        """Note that a lesson is done, and write it down. Raises AttnError where that cannot be."""
        self.done.setdefault(lessons, {})[name] = tries
        self.save()

    def reset(self, lessons: str) -> None:
        """Forget one set of lessons; a file that is broken is written anew."""
        self.done.pop(lessons, None)
        self.problem = ""
        if self.done or self.path.exists():
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all; a broken one stays until it is reset."""
        if self.problem:
            return
        with refuse_os_errors(f"{self.path.parent}: cannot be made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(json_text({"schema": SCHEMA, "done": self.done}, indent=1) + "\n", self.path)


def read_progress(path: Path | None = None) -> Progress:
    """The progress of this user; a `problem` in it where the file is broken."""
    path = data_folder() / "progress.json" if path is None else path
    try:
        with open_own(path) as stream:
            data = json.loads(stream.read(MOST_BYTES))
        return Progress(path, done_in(data))
    except FileNotFoundError:
        return Progress(path)
    except (OSError, ValueError, RecursionError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is broken"
        problem = f"{path}: cannot be read: {why}; nothing is noted until attnctl learn --reset"
        return Progress(path, problem=problem)


def done_in(data: Any) -> dict[str, dict[str, int]]:
    """Read the lessons done from a file. Raises ValueError where it is not ours."""
    sets = data.get("done") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(sets, dict):
        raise ValueError(SCHEMA)  # noqa: TRY004  (what is read, not what was passed)
    for done in sets.values():
        if not isinstance(done, dict) or not all(type(tries) is int for tries in done.values()):
            raise ValueError(SCHEMA)
    return sets
