"""The last run of this terminal, in the user's state folder: what the word `last` names.

The run of a sentence is kept as what it was, and carried out again; of arrays and models the numbers
are kept, where they are few. ATTNCTL_LAST=off keeps nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnctl.base import __version__
from attnctl.base.errors import AttnError
from attnctl.base.files import open_own
from attnctl.record import SCHEMA

if TYPE_CHECKING:
    from attnctl.record import Trace
    from attnctl.sources.sentence import Sentence

VARIABLE = "ATTNCTL_LAST"
OFF = {"off", "0", "no", "false"}
MOST_BYTES = 2**23
"""More numbers than this are not kept."""

MOST_TERMINALS = 32
AGAIN = ("sentence", "tokens", "ids", "context", "key_tokens", "key_ids", "config")
FOLDER = "folder"
"""Where the run was: files that its config names are looked for there."""


def path_of_last() -> Path:
    from attnctl.store.files import own_folder

    session = os.getsid(0) if hasattr(os, "getsid") else os.getppid()
    return own_folder("XDG_STATE_HOME", "state") / f"last-{session}.json"


def is_off() -> bool:
    return os.environ.get(VARIABLE, "").lower() in OFF


def keep(traces: Sequence[Trace]) -> str:
    """Keep these as the last run, if it can be written; returns a note where the run before stays."""
    if is_off():
        return ""
    path = None
    try:
        path = path_of_last()
        replace_last(path, runs_as_json(traces))
    except (OSError, AttnError) as error:
        if path is not None and not forget(path):
            why = getattr(error, "strerror", None) or error
            return f"note: last is still the run before: {path} cannot be written: {why}"
    return ""


def replace_last(path: Path, text: str) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
    if not path.exists():
        with suppress(OSError):  # others may forget the same ones
            kept = sorted(path.parent.glob("last-*"), key=lambda last: last.stat().st_mtime)
            for oldest in kept[: max(0, len(kept) + 1 - MOST_TERMINALS)]:
                oldest.unlink()
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        own = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # nobody else reads it
        with open(own, "w", encoding="utf-8") as stream:  # noqa: PTH123  (a descriptor)
            stream.write(text)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def forget(path: Path) -> bool:
    """Remove the last run, or empty its file; False where it stays."""
    for away in (os.unlink, lambda path: os.truncate(path, 0)):
        with suppress(OSError):
            away(path)
            return True
    return not os.path.exists(path)  # noqa: PTH110  (it never raises)


def runs_as_json(traces: Sequence[Trace]) -> str:
    """The runs as JSON: without their numbers where they can be carried out again."""
    runs = []
    for trace in traces:
        patched = any("@" in str(edit) for edit in trace.config.get("edits", ()))
        if trace.config.get("vocab") and "model" not in trace.header and not patched:
            said = {name: trace.header[name] for name in AGAIN if name in trace.header}
            here = {FOLDER: os.getcwd()}  # noqa: PTH109
            runs.append({"schema": SCHEMA, "attnctl": __version__, **said, **here, "steps": {}})
    try:
        if len(runs) == len(traces):
            return json.dumps(runs, allow_nan=False)
    except ValueError:  # a bias of −∞, which strict JSON has in other words
        pass
    if sum(trace[name].nbytes for trace in traces for name in trace) > MOST_BYTES:
        return "[]"
    from io import StringIO

    from attnctl.store.json_file import write_json

    text = StringIO()
    write_json(traces, text)
    return text.getvalue()


def read_last(word: str, which: str | None) -> Sequence[Trace]:
    """The traces of the last run, or the one that `last[1]` or `which` names. Raises AttnError for none."""
    from attnctl.store.source import choose_trace, read

    path = path_of_last()
    try:
        with open_own(path) as stream:
            raw = b"" if is_off() else stream.read()
    except OSError:
        raw = b""
    if not raw:
        why = f"{VARIABLE} is off" if is_off() else "no run in this terminal yet"
        raise AttnError(f"last: {why}; attnctl run SENTENCE -o FILE keeps one under a name")
    try:
        found = json.loads(raw)
        runs = found if isinstance(found, list) else [found]
        again = [None if run["steps"] else what_ran(run) for run in runs]
    except (ValueError, LookupError, TypeError, RecursionError, AttnError):
        raise AttnError(f"last: {path} is broken; attnctl run SENTENCE writes it anew") from None
    if not runs:
        raise AttnError("last: that run was too large to keep; write it with -o FILE")
    traces: Sequence[Trace] = [
        run_again(run, source) for run, source in zip(runs, again, strict=True) if source
    ]
    traces = traces if len(traces) == len(runs) else read(path)
    selected = word.removeprefix("last")[1:-1] if which is None else which
    return [choose_trace(traces, selected, "last")] if selected else traces


def what_ran(run: dict[str, Any]) -> Sentence:
    """The sentence of a run kept without numbers. Raises ValueError or AttnError for any other."""
    from attnctl.inputs.config.form import settings_of
    from attnctl.sources.sentence import Sentence
    from attnctl.store.header import FIELDS, decode

    for name in {*AGAIN, FOLDER} & run.keys():
        decode(FIELDS.get(name, str), run[name], name)
    settings = settings_of(run.get("config"), decode(str, run.get(FOLDER), FOLDER))
    return Sentence(decode(str, run.get("sentence"), "sentence"), settings=settings)


def run_again(run: dict[str, Any], source: Sentence) -> Trace:
    trace = source.trace()
    said = {name: run[name] for name in AGAIN if name in run}  # ids may be those of a batch
    return replace(trace, header={**trace.header, **said})
