"""Prints what was planted against what was named."""

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from attnctl.sources.program import child
from attnctl.sources.program.run import texts_beside

TABLE = pytest.StashKey[dict]()


@pytest.fixture
def planted_table(request):
    """mistake -> what `check` said, a word a case."""
    return request.config.stash.setdefault(TABLE, {})


@pytest.fixture
def in_process(monkeypatch):
    """Programs are carried out in this process, where the one of their own is not the point."""

    def run_here(path, into, _seconds, surroundings):
        with monkeypatch.context() as patch, redirect_stdout(StringIO()) as out:
            for name in ("argv", "path", "path_hooks"):
                patch.setattr(sys, name, [*getattr(sys, name)])
            patch.setitem(sys.modules, "__main__", None)
            for name, value in surroundings.environment.items():
                patch.setenv(name, value)
            child.main(str(Path(path).resolve()), str(into), *texts_beside(into, surroundings))
            return out.getvalue()

    monkeypatch.setattr("attnctl.sources.program.run.run_isolated", run_here)


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash.get(TABLE, {})
    if not table:
        return
    terminalreporter.section("planted against named")
    width = max(map(len, table))
    for planted, named in table.items():
        counts = {name: named.count(name) for name in dict.fromkeys(named)}
        said = ", ".join(f"{name} {count} of {len(named)}" for name, count in counts.items())
        terminalreporter.line(f"{planted:{width}}  {said}")
