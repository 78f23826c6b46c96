"""Carries a program out in this process and records its arrays; a script, for a process of its own.

python child.py homework.py into.npz
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import CodeType
from typing import Any

from attnctl.base.programs import run_as_main
from attnctl.sources.program.eager import EAGER, replace_vmap
from attnctl.sources.program.instrument import NAME, Site, instrument
from attnctl.sources.program.record import Recorder
from attnctl.sources.program.text import NOTEBOOK, text_of

DEEPEST = 10_000
"""Calls that rewriting a program may take inside each other."""

MOST_QUESTIONS = 50
"""Calls of input() that are answered."""


class Guest:
    """A program that is carried out here, and the modules beside it."""

    def __init__(self, path: str, texts: Mapping[str, str]) -> None:
        self.path = path
        self.texts = texts
        """What is carried out in place of what these files hold."""
        self.folder = Path(path).resolve().parent
        self.sites: list[Site] = []
        self.files: dict[str, str] = {}
        self.recorder = Recorder(self.sites, self.files)
        self.forks = 0
        self.questions = 0
        self.process = os.getpid()

    def instrument_modules(self) -> None:
        """Instrument the modules that lie beside the program, too, as they are imported."""
        guest = self

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType | None:
                path = self.get_filename(fullname)
                try:
                    text = guest.text_of(path)
                    tree = instrument(text, path, guest.sites)
                except (OSError, SyntaxError, ValueError, RecursionError):
                    return super().get_code(fullname)  # which says what is wrong with it
                guest.files[path] = text
                return compile(tree, path, "exec", dont_inherit=True)

        hook = importlib.machinery.FileFinder.path_hook((Loader, [".py"]))

        def beside(place: str) -> Any:
            if Path(place or ".").resolve() != self.folder:
                raise ImportError(place)
            return hook(place)

        sys.path_hooks.insert(0, beside)

    def text_of(self, path: str) -> str:
        if path in self.texts:
            return self.texts[path]
        return text_of(path)

    def variables(self) -> dict[str, int]:
        """The arrays that the program's own names stand for at its end, by their events."""
        names = vars(sys.modules["__main__"])
        return self.recorder.name_events(
            {name: names[name] for name in [*names] if not name.startswith("_")}
        )

    def run(self) -> str:
        """Carry it out; the exception that ended it, as `LINE: NAME: words`, or nothing."""
        self.files[self.path] = self.text_of(self.path)
        tree = self.instrumented()
        setattr(builtins, NAME, self.recorder)
        ask = builtins.input
        builtins.input = self.answer(ask)
        os.register_at_fork(after_in_parent=self.count_fork)
        try:
            of_notebook = {}
            if self.path.endswith(NOTEBOOK):
                of_notebook = {"display": print}
            run_as_main(self.path, tree, [self.path], of_notebook)
        except SystemExit as end:
            if os.getpid() != self.process:
                raise  # of a process that it forked, which ends as it would
            if end.code:
                return f"{self.last_line(end)}: SystemExit: {end.code}"
        except BaseException as error:
            if os.getpid() != self.process:
                raise
            sys.excepthook(type(error), error, error.__traceback__)
            return f"{self.last_line(error)}: {type(error).__name__}: {error}"
        finally:
            builtins.input = ask
        return ""

    def answer(self, ask: Callable[..., str]) -> Callable[..., str]:
        """input(), which gives an empty line where nobody is there to write one."""

        @wraps(ask)
        def answered(*words: object) -> str:
            try:
                return ask(*words)
            except EOFError:
                self.questions += 1
                if self.questions > MOST_QUESTIONS:  # it asks until it likes the answer
                    raise
                return ""

        return answered

    def instrumented(self) -> ast.Module:
        """Its tree, however deep: what is written here takes a few calls for each level."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(DEEPEST)
        try:
            tree = instrument(self.files[self.path], self.path, self.sites)
        finally:
            sys.setrecursionlimit(limit)
        try:
            compile(tree, self.path, "exec", dont_inherit=True)
        except RecursionError:  # it runs as it is, and nothing of it is seen
            self.sites.clear()
            return ast.parse(self.files[self.path], self.path)
        return tree

    def count_fork(self) -> None:
        self.forks += 1

    def last_line(self, error: BaseException) -> int:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == self.path]
        if lines:
            return lines[-1]
        return 0


def end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(path: str, into: str, changed: str = "") -> None:
    """Carry out the file, with the texts of a JSON file if any; what it computes goes into an .npz."""
    process = os.getpid()
    texts = {}
    if changed:
        texts = json.loads(Path(changed).read_text("utf-8"))
    guest = Guest(path, texts)
    if EAGER in os.environ:
        replace_vmap()
    guest.instrument_modules()
    ending = guest.run()
    if os.getpid() == process:  # a process that it forked comes here, too
        more = {"processes": guest.forks, "questions": guest.questions, "variables": guest.variables()}
        guest.recorder.write(into, ending=ending, **more)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    main(*sys.argv[1:])
