"""A capture is bounded, and whole up to where it ended."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.store.source import read

WORDS = [sys.executable, "-m", "attnctl", "capture", "-o", "c.npz", "--function", "kernels:attend"]


def killed_after(seconds):
    """Begin a program that calls attention without end; kill it so long after its first call, of 20 KB."""
    process = subprocess.Popen([*WORDS, "many.py", "1000000"], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not Path("c.npz").exists() or Path("c.npz").stat().st_size < 20_000:
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return read("c.npz")


@pytest.mark.parametrize(
    "trial", [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in range(1, 20))]
)
def test_what_was_written_reads(capture, trial):
    traces = killed_after(random.Random(trial).uniform(0.1, 0.6))
    numbers = [trace.header["call"]["number"] for trace in traces]
    assert numbers == list(range(len(traces)))
    assert attnctl.check(traces[-1]).agrees


def test_a_file_that_is_cut_anywhere_reads(captured):
    captured(*WORDS[4:], "many.py", "4")
    data = Path("c.npz").read_bytes()
    for cut in (1, 30, 200, 5000, 9000):
        Path("c.npz").write_bytes(data[:-cut])
        whole = read("c.npz")
        assert 2 <= len(whole) <= 4
        assert all(trace.keys() >= {"Q", "K", "V", "output"} for trace in whole)


def test_what_is_no_capture_and_cut_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", Q=np.ones((50, 50)), K=np.ones((50, 50)))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-100])
    with pytest.raises(attnctl.AttnError, match=r"not a sound \.npz"):
        read(tmp_path / "a.npz")


@pytest.mark.slow
def test_many_calls_take_little_memory(capture):
    def peak(*words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True)
        return int(done.stdout)

    alone = peak(sys.executable, "many.py", "10000")
    assert peak(*WORDS, "many.py", "10000") < alone + 200
    assert Path("c.npz").stat().st_size > 10_000 * 4 * 4096


@pytest.mark.slow
def test_nothing_kept_costs_next_to_nothing(capture):
    """A call that is not kept costs a microsecond, of one that takes ten at the least."""
    code = (
        "import time, numpy as np; from attnctl.verbs.capture.recorder import CallRecorder\n"
        "from attnctl.verbs.capture.functions import OWN\n"
        "def f(q, k, v): return q\n"
        "g = CallRecorder(path='c.npz', calls=()).watch(f, 'f', OWN)\n"
        "def best(h): return min(timed(h) for _ in range(20))\n"
        "def timed(h):\n"
        "    begun = time.perf_counter()\n"
        "    for _ in range(1000): h(1, 2, 3)\n"
        "    return time.perf_counter() - begun\n"
        "print(int(1e9 * (best(g) - best(f)) / 1000))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 3000  # nanoseconds
