"""Programs under capture: in a process of its own, or in this one where that is not the point."""

import atexit
import io
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnctl.base.descriptors import OwnDescriptor
from attnctl.verbs.capture import run as runner

PROGRAMS = Path(__file__).parent / "programs"
STANDINS = Path(__file__).parent / "standins"
IMPORTED = {path.stem for folder in (PROGRAMS, STANDINS) for path in folder.iterdir()}
"""What a program imports anew."""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def capture(programs):
    """Run `attnctl capture` in a folder of programs."""

    def run(*args, stdin=""):
        words = [sys.executable, "-m", "attnctl", "capture", *map(str, args)]
        return subprocess.run(words, input=stdin, check=False, capture_output=True, text=True, timeout=600)

    return run


@pytest.fixture
def anew(programs, monkeypatch):
    """What a program does to this process is undone; it finds stand-ins for libraries."""

    @contextmanager
    def undone():
        own = dict(sys.modules)
        for name in [name for name in own if name.partition(".")[0] in IMPORTED]:
            del sys.modules[name]
        with monkeypatch.context() as patch, redirect_stdout(io.StringIO()) as out:
            patch.setattr(sys, "path", ["", str(STANDINS), *sys.path])
            patch.setattr(sys, "meta_path", [*sys.meta_path])
            patch.setattr(sys, "argv", sys.argv)
            patch.setattr(sys, "excepthook", sys.excepthook)
            patch.setitem(os.environ, "TORCHDYNAMO_DISABLE", "")
            yield out
        for name in [name for name in sys.modules if name not in own]:
            del sys.modules[name]
        sys.modules.update(own)

    return undone


@pytest.fixture
def captured(call, anew, monkeypatch):
    """Run `attnctl capture` there in this process."""

    def carry_out(words, **_):
        ends, code = [], 0
        monkeypatch.setattr(atexit, "register", lambda *end: ends.append(end))
        with anew() as out, Path("stderr").open("w+b") as err:
            try:
                runner.main(*words[2:])
            except SystemExit as ending:
                code = ending.code
            for finish, recorder, process, stderr in ends:
                stderr.close()
                finish(recorder, process, OwnDescriptor(os.dup(err.fileno())))
            err.seek(0)
            return SimpleNamespace(stdout=out.getvalue(), stderr=err.read().decode(), returncode=code)

    monkeypatch.setattr("attnctl.cli.capture.subprocess.run", carry_out)
    return lambda *args: call("capture", *args)
