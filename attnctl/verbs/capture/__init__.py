"""Recording each call of attention of a program that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError
from attnctl.store.files import temporary_folder

if TYPE_CHECKING:
    from attnctl.record import Trace
    from attnctl.verbs.capture.recorder import CallRecorder

RUNNER = str(Path(__file__).with_name("run.py"))  # the script that carries a program out


def read_range(text: str) -> tuple[int | None, int | None]:
    """'-64:' -> (-64, None). Raises AttnError for what is no range."""
    found = re.fullmatch(r"(-?\d{1,18})?:(-?\d{1,18})?", text)
    if not found:
        raise AttnError(f"--query: {text!r} is no range of queries; write it like 0:64 or -64:")
    first, last = (None if end is None else int(end) for end in found.groups())
    return first, last


class Calls(Sequence[Any]):
    """The calls that were recorded so far, as traces in the order in which they returned."""

    def __init__(self, recorder: CallRecorder, make: Callable[[Trace], Trace]) -> None:
        self.recorder, self.make = recorder, make
        self.read: Sequence[Trace] = []

    def __len__(self) -> int:
        return self.recorder.kept

    def __getitem__(self, at: Any) -> Any:
        if len(self.read) < self.recorder.kept:
            self.look()
        return list(map(self.make, self.read[at])) if isinstance(at, slice) else self.make(self.read[at])

    def look(self) -> None:
        """Read which calls there are by now; what is read stays there when the file is gone."""
        from attnctl.store.source import read

        self.read = read(self.recorder.file.path) if self.recorder.kept else []


@contextmanager
def recording(make: Callable[[Trace], Trace], path: str | None, **chosen: Any) -> Iterator[Calls]:
    """Record the calls that this process makes in the block, in this file or in one that does not stay."""
    from attnctl.verbs.capture.recorder import CallRecorder, Finder

    with temporary_folder() as folder:
        recorder = CallRecorder(path=path or str(Path(folder, "calls.npz")), **chosen)
        calls = Calls(recorder, make)
        with Finder(recorder):
            yield calls
        calls.look()
