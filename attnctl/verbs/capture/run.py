"""Carries a program out with its calls of attention recorded; a script, for a process of its own."""

from __future__ import annotations

import ast
import atexit
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import getpid  # as it is now: a program may put another in its place
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attnctl.base.programs import run_as_main
from attnctl.base.words import plural

if TYPE_CHECKING:
    from attnctl.base.descriptors import OwnDescriptor
    from attnctl.verbs.capture.recorder import CallRecorder

MARK = "__attnctl_capture__"  # the name, in a program, of what records a function of its own


def main(chosen: str, how: str, *words: str) -> None:
    """Carry out a script, or a module where that is `how`, with its words; its end is the program's own."""
    from attnctl.base import descriptors
    from attnctl.verbs.capture.functions import OWN
    from attnctl.verbs.capture.recorder import CallRecorder, Finder

    recorder = CallRecorder(**json.loads(chosen))
    sys.meta_path.insert(0, Finder(recorder))
    sys.addaudithook(guarded(recorder.file.notice))
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # what is compiled calls no function
    # The program may close its own stderr, or turn it.
    atexit.register(finish, recorder, os.getpid(), descriptors.OwnDescriptor(os.dup(2)))
    sys.argv = list(words)
    if how == "-m":
        sys.path[0] = os.getcwd()  # noqa: PTH109
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        return
    path = words[0]
    tree = ast.parse(Path(path).read_bytes(), path)
    for text in recorder.functions:
        module, _, name = text.partition(":")
        if module in {"__main__", Path(path).stem} and mark(tree, name.split(".")):
            recorder.lacking.discard(text)
    sys.excepthook = lambda kind, error, trace: sys.__excepthook__(
        kind, error.with_traceback(frames_of(path, trace)), None
    )
    watch = {MARK: lambda function: recorder.watch(function, function.__name__, OWN)}
    run_as_main(path, tree, words, watch if recorder.functions else {})


def guarded(notice: Callable[[str, tuple[Any, ...]], None]) -> Callable[[str, tuple[Any, ...]], None]:
    """A hook of which the program never notices: what an audit hook raises, it would be told."""

    def hear(event: str, given: tuple[Any, ...]) -> None:
        with suppress(Exception):
            notice(event, given)

    return hear


def frames_of(path: str, trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins with the program's own file; all of it where none does."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename != path:
        inner = inner.tb_next
    return inner or trace


def mark(tree: Any, names: list[str]) -> bool:
    """Decorate the function of this name, before it is defined; False where there is none."""
    found = [part for part in tree.body if getattr(part, "name", "") == names[0]]
    for part in found[-1:]:
        if names[1:]:
            return mark(part, names[1:])
        part.decorator_list.append(ast.Name(MARK, ast.Load()))
        ast.fix_missing_locations(part)
    return bool(found)


def finish(recorder: CallRecorder, process: int, stderr: OwnDescriptor) -> None:
    """Say what the file holds, and what it does not; once, whatever processes the program has forked."""
    if getpid() != process:
        return
    recorder.close()
    lines = [f"{plural(count, 'call')} left out: {why}" for why, count in recorder.unread.items()]
    lines += [f"--function {name}: the program has none of this name" for name in sorted(recorder.lacking)]

    with suppress(Exception):
        lines += recorder.written.say()

    # What we go by may no longer be there at the end of a program; then what is known is said.
    with recorder.failing():
        lines += told_of_file(recorder)
    # Where the program closed it there is nobody to tell.
    with suppress(Exception):
        stderr.write("".join(f"attnctl: {line}\n" for line in lines).encode(errors="replace"))


def told_of_file(recorder: CallRecorder) -> Iterator[str]:
    """What the file holds, and where it is."""
    asked, made, file = recorder.near(recorder.path), next(recorder.numbers), recorder.file
    if recorder.kept and file.is_lost:
        yield f"{asked}: the program removed it, and {plural(recorder.kept, 'call')} with it"
    elif recorder.kept:
        path = recorder.near(file.path) if file.is_elsewhere else asked
        if file.is_elsewhere:
            yield f"{asked}: left as it is, as the program opened or wrote it; the calls are in {path}"
        judges = f"attnctl check {path} judges {'it' if recorder.kept == 1 else 'them'}"
        yield f"{path}: {plural(recorder.kept, 'call')}; {judges}"
    elif made:
        yield f"none of {plural(made, 'call')} of attention was kept"
    else:
        hint = "--function MODULE:NAME names one of yours"
        yield f"no call of attention was recorded, and no file written; {hint}"


if __name__ == "__main__":
    main(*sys.argv[1:])
