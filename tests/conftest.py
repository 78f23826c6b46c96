"""What the tests share; its presence also makes this folder importable: `import oracle`."""

import gc
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

# Workers share the cores already: their own threads, waiting for each other, take a third of all the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is compiled is kept: by two workers that import every test, and by each process that tests begin.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import command_line
import generated
import kept_scatters
import pytest
import warm
from command_line import working_in
from hypothesis import settings

from attnctl.cli.program import program

sys.dont_write_bytecode = False
generated.write()  # before anything reads it; .ci/run sees that what is written is what is checked in

ROOT = Path(__file__).parent.parent
SHIPPED = ("configs", "samples")

# A shell starts what runs in the background deaf to interrupts, nohup to hang-ups; children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")

FEW_EXAMPLES = 6
"""Of a property in the README's test command, the same each time; `-m slow` draws all that it asks for."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of large tables and of properties a sample is a fast test; `-m slow` has the rest or a part of it."""
    slow_cases = {item for item in items if item.get_closest_marker("slow")}
    whole_cases = {item for item in items if item.get_closest_marker("whole")}
    others = [item for item in items if item not in slow_cases and item not in whole_cases]
    slow_cases |= {*left_out(others, "sample", checksum)}
    whole_cases |= {*left_out([item for item in items if item in slow_cases], "thinned", random_number)}
    for item in slow_cases:
        if item in whole_cases:
            item.own_markers = [marker for marker in item.own_markers if marker.name != "slow"]
            item.add_marker(pytest.mark.whole)
        else:
            item.add_marker(pytest.mark.slow)
    slow = config.option.markexpr == "slow"
    for item in items:
        drawn = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if drawn and item not in slow_cases and drawn.max_examples > FEW_EXAMPLES:
            if slow:
                item.add_marker(pytest.mark.slow)
            else:
                test = getattr(item.obj, "__func__", item.obj)
                few = settings(drawn, max_examples=FEW_EXAMPLES, derandomize=True)
                test._hypothesis_internal_use_settings = few


def pytest_collection_finish():
    """What is imported and collected stays: no garbage collection need look at it, and few come."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def left_out(items, marker, order):
    """The cases of tables marked sample(n), or thinned(n), but for one in n: always the same, at least one.

    sample(n, axis) draws along one axis: one in n for each entry of the others.
    """
    tables = {}
    for item in items:
        drawn = item.get_closest_marker(marker)
        if drawn and hasattr(item, "callspec"):
            n, *axes = drawn.args
            others = (repr(x) for name, x in item.callspec.params.items() if axes and name not in axes)
            table = (item.nodeid.partition("[")[0], *others), n
            tables.setdefault(table, []).append(item)
    for (_, n), cases in tables.items():
        cases.sort(key=lambda item: order(item.nodeid))
        yield from cases[-(-len(cases) // n) :]


def checksum(name):
    return zlib.crc32(name.encode())


def random_number(name):
    """A number for a name, always the same; checksums of names that differ in one word are alike."""
    return random.Random(name).random()


def text_stream(data=b""):
    return io.TextIOWrapper(
        io.BytesIO(data), encoding="utf-8", errors="surrogateescape", write_through=True
    )


@dataclass(frozen=True)
class Workplace:
    """A folder with what is shipped in it, and the environment of a plain shell.

    `run` is a command line in this process, `shell` a script whose `attnctl` is a fork of a warm process in
    the fast tests, `process` the real executable. `real()` gives a workplace where all are.
    """

    folder: Path
    environ: dict
    warm: bool = True

    def real(self):
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        return replace(self, environ={**self.environ, "PATH": path}, warm=False)

    def run(self, *args, stdin=b"", **more):
        """Bytes in, bytes out, as a process of its own would."""
        if not self.warm:
            return self.process(*args, stdin=stdin, **more)
        streams = text_stream(stdin), text_stream(), text_stream()
        with working_in(self.folder), mock.patch.dict(os.environ, {**self.environ, **more}, clear=True):
            try:
                code = program([os.fsdecode(arg) for arg in args], *streams)
            except SystemExit as end:  # completion
                code = end.code or 0
        return subprocess.CompletedProcess(
            args, int(code), *(stream.buffer.getvalue() for stream in streams[1:])
        )

    def process(self, *args, stdin=b"", **more):
        return subprocess.run(
            [warm.REAL, *args],
            cwd=self.folder,
            env={**self.environ, **more},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=600,
        )

    def shell(self, script, **more):
        """Run a bash script."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.environ, **more},
            capture_output=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory):
    """A data folder for what attnctl keeps of a user, the same for all tests."""
    folder = str(tmp_path_factory.mktemp("data"))
    with mock.patch.dict(os.environ, {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}):
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _kept_scatters():
    with kept_scatters.keep():
        yield


@pytest.fixture(scope="session")
def warm_commands(tmp_path_factory):
    """A folder whose `attnctl` is warm."""
    folder = tmp_path_factory.mktemp("warm")
    process = warm.start(folder)
    yield folder
    process.kill()
    process.communicate()


@pytest.fixture
def _unexplained(monkeypatch):
    """What is wrong of a target is not searched for, which takes longest where nothing has a name."""
    from attnctl.verbs.conform import causes, held

    monkeypatch.setattr(causes, "diagnose", lambda *_: held.NOTHING)


@pytest.fixture
def workplace(tmp_path, request):
    for name in SHIPPED:
        shutil.copytree(ROOT / name, tmp_path / name)
    own = ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_STATE_HOME")
    keep = {name: os.environ[name] for name in own if name in os.environ}
    place = Workplace(tmp_path, {**keep, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}).real()
    if any(map(request.node.get_closest_marker, ("slow", "whole"))):
        return place
    path = os.pathsep.join([str(request.getfixturevalue("warm_commands")), place.environ["PATH"]])
    return replace(place, environ={**place.environ, "PATH": path}, warm=True)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a command line in this process, in an empty folder; answers its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("ATTNCTL_FORMAT", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*args, stdin=b"", **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        done = command_line.call(*args, stdin=stdin)
        for name in environ:
            monkeypatch.delenv(name)
        return done

    return run
