"""The command line as a function, in a folder of its own."""

import io
from typing import NamedTuple

import pytest

from attnctl.cli.program import program


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a command line in this process, in an empty folder; answers its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("ATTNCTL_FORMAT", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*args, stdin=b"", **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        streams = io.TextIOWrapper(io.BytesIO(stdin)), io.StringIO(), io.StringIO()
        code = program(args, *streams)
        for name in environ:
            monkeypatch.delenv(name)
        return Done(int(code), streams[1].getvalue(), streams[2].getvalue())

    return run


@pytest.fixture
def three(call):
    """A file of three traces: I love AI, we, I love AI too."""
    (call("run", "I love AI", "we", "I love AI too", "--heads", "2", "-o", "s.jsonl"))
    return call
