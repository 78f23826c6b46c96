"""The command line in a folder of its own, with the notes of what is learned in it."""

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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def run(*args, stdin=b""):
        streams = io.TextIOWrapper(io.BytesIO(stdin)), io.StringIO(), io.StringIO()
        return Done(int(program(args, *streams)), streams[1].getvalue(), streams[2].getvalue())

    return run
