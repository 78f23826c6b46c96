"""Whatever fails while a file is written, the old one stays whole and nothing else is left."""

import errno
import io
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from store_examples import carried_out, of_arrays, typed

from attnctl.base.errors import AttnError
from attnctl.base.format import Format
from attnctl.formats import FORMATS, write
from attnctl.store.source import read_one

SUFFIXES = ["json", "jsonl", "npz", "safetensors", "csv", "md"]
OLD = b"what was there before"


class Failing:
    """A stream that takes so many writes, then fails."""

    def __init__(self, inside, left, error):
        self.inside, self.left, self.error = inside, left, error

    def write(self, data):
        if not self.left:
            raise self.error
        self.left -= 1
        return self.inside.write(data)

    def __getattr__(self, name):
        return getattr(self.inside, name)


def format_of(suffix):
    return next(each for each in FORMATS if each.suffix == f".{suffix}")


def writes_of(suffix):
    """How many writes a whole file takes."""
    counted = Failing(io.BytesIO(), 10**9, None)
    format_of(suffix).write([carried_out(heads=1)], counted)
    return 10**9 - counted.left


@pytest.mark.sample(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()], ids=["full", "^C"]
)
def test_a_failure_at_any_write_leaves_the_old_file_whole(suffix, error, tmp_path, monkeypatch):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(OLD)
    writer, count = Format.write, writes_of(suffix)
    points = sorted({round(n * count / 40) for n in range(40)})
    assert len(points) > 10
    for point in points:

        def failing(self, traces, stream, point=point):
            writer(self, traces, Failing(stream, point, error))

        monkeypatch.setattr(Format, "write", failing)
        with pytest.raises(AttnError if isinstance(error, OSError) else KeyboardInterrupt):
            write([carried_out(heads=1)], path)
        assert path.read_bytes() == OLD
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["rename", "chmod"])
def test_a_failure_of_the_system_after_the_writing(call, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a.json").write_bytes(OLD)
    target = {"rename": (Path, "replace"), "chmod": (Path, "chmod")}[call]
    monkeypatch.setattr(*target, fail)
    with pytest.raises(AttnError, match=r"a\.json: cannot be written: Input/output error"):
        write([typed()], tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


SLOWLY = """
import os, sys, time
from attnctl import formats
from attnctl.store import json_file
from attnctl.store.source import read_one
trace = read_one(sys.argv[1])
texts = json_file.texts
def slowly(*args):
    for at, piece in enumerate(texts(*args)):
        yield piece
        print(at, flush=True)
        time.sleep(0.005)
json_file.texts = slowly
formats.write([trace], sys.argv[2])
print("done", flush=True)
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("after", [0, 20, 60])
def test_a_process_that_is_ended_leaves_the_old_file_whole(number, after, tmp_path):
    write([carried_out()], tmp_path / "source.npz")
    path = tmp_path / "a.json"
    path.write_bytes(OLD)
    command = [sys.executable, "-c", SLOWLY, tmp_path / "source.npz", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert any(line.strip() == str(after) for line in process.stdout)
        process.send_signal(number)
        process.communicate(timeout=600)
    assert path.read_bytes() == OLD
    if number == signal.SIGKILL:  # nothing can tidy up after that
        assert process.returncode == -signal.SIGKILL
    else:
        assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "source.npz"]
        assert process.returncode == (-number if number == signal.SIGINT else 128 + number)


def test_the_handlers_of_signals_are_as_they_were(tmp_path):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    write([typed()], tmp_path / "a.json")
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == before


def test_writing_works_from_any_thread(tmp_path):
    thread = threading.Thread(target=write, args=([typed()], tmp_path / "a.json"))
    thread.start()
    thread.join()
    assert read_one(tmp_path / "a.json").tokens


def test_many_writers_at_once_leave_one_whole_file(tmp_path):
    threads = [
        threading.Thread(target=write, args=([of_arrays(x=np.full(5000, float(n)))], tmp_path / "a.json"))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        if (tmp_path / "a.json").exists():
            assert len({*read_one(tmp_path / "a.json")["x"]}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
