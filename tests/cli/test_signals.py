"""A signal that ends a command ends what it began, leaves nothing behind, and says no word of Python's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnctl.sources.program import record

GUEST = """
import os, sys, time
def stay(*_):
    open("begun-%d" % os.getpid(), "w").close()
    time.sleep(600)
"""

COMMANDS = {
    "check FILE": ("stay()", ["check", "guest.py"]),
    "check FILE that began another": (
        "import subprocess; subprocess.Popen(['sleep', '600']); stay()",
        ["check", "guest.py"],
    ),
    "exercise grade": ("stay()", ["exercise", "grade", "guest.py"]),
    "conform, a function": ("def f(q, k, v): stay()", ["conform", "guest.py:f", "--quick"]),
    "conform, a function that is imported": ("stay()\ndef f(): 0", ["conform", "guest.py:f", "--quick"]),
    "conform, a function that forked": (
        "def f(q, k, v):\n    os.fork(); stay()",
        ["conform", "guest.py:f", "--quick"],
    ),
    "conform, a command": (
        "stay()",
        ["conform", "--quick", "--", sys.executable, "guest.py", "{in}", "{out}"],
    ),
    "mutants, the right kernel": ("stay()", ["mutants", "--", sys.executable, "guest.py", "{kernel}"]),
    "mutants, a wrong one": (
        "if 'right' not in sys.argv[1]: stay()",
        ["mutants", "--jobs", "2", "--", sys.executable, "guest.py", "{kernel}"],
    ),
}

SIGNALS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(process):
    """True for one that runs; a zombie waits for whoever began it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def begin(tmp_path):
    """Begin a command in a folder of its own, with its own folder of temporary files."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "in").mkdir()

    def run(text, words):
        (tmp_path / "in" / "guest.py").write_text(GUEST + text)
        environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        return subprocess.Popen(
            [sys.executable, "-m", "attnctl", *words],
            cwd=tmp_path / "in",
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return run


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what runs is read from /proc")
@pytest.mark.sample(9)
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(("text", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_signal_ends_all_that_a_command_began(begin, tmp_path, text, words, name):
    process = begin(text, words)
    wait_for(lambda: [*tmp_path.glob("in/begun-*")] or process.poll() is not None)
    time.sleep(0.2)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=30)
    assert process.returncode == SIGNALS[name], err
    assert b"Traceback" not in out + err
    begun = [int(path.name.partition("-")[2]) for path in tmp_path.glob("in/begun-*")]
    assert begun
    wait_for(lambda: not any(map(is_running, begun)))
    assert [*tmp_path.glob("tmp/*")] == []


OF_ATTRIBUTES = {
    "an array": "class A(np.ndarray):\n    def __getattribute__(self, name): raise SystemExit(0)\n",
    "the shape of an array": (
        "class A(np.ndarray):\n    shape = property(lambda self: exit(0))\n"
        "    def sum(self, *a, **k): return np.asarray(self).sum(*a, **k)\n"
    ),
    "an exception of its own": (
        "class Own(BaseException): pass\n"
        "class A(np.ndarray):\n    def ndim(self): raise Own\n    ndim = property(ndim)\n"
    ),
}

WRONG = """
q = np.eye(4) * 3; k = v = np.arange(16.0).reshape(4, 4) / 9
odd = v.view(A)
scores = q @ k.T  # not scaled
e = np.exp(scores - scores.max(-1, keepdims=True))
output = e / e.sum(-1, keepdims=True) @ v
"""


@pytest.mark.parametrize("text", OF_ATTRIBUTES.values(), ids=OF_ATTRIBUTES)
def test_what_asks_an_object_does_not_end_its_program(tmp_path, monkeypatch, call, text):
    """It would be asked for nothing without us; with us the rest of the program is judged as well."""
    monkeypatch.chdir(tmp_path)
    Path("h.py").write_text(f"import numpy as np\n{text}{WRONG}")
    done = call("check", "h.py")
    assert done.code == 1, done.out + done.err
    assert "ended early" not in done.out
    assert "scale" in done.out


HANDLERS = {
    "a function": "def heard(number, frame): raise SystemExit(3)\nsignal.signal(signal.SIGUSR1, heard)",
    "a method": (
        "class H:\n    def heard(self, *_): raise SystemExit(3)\nsignal.signal(signal.SIGUSR1, H().heard)"
    ),
    "an object": (
        "class H:\n    def __call__(self, *_): raise SystemExit(3)\nsignal.signal(signal.SIGUSR1, H())"
    ),
    "a part": (
        "from functools import partial\n"
        "def heard(more, number, frame): raise SystemExit(3)\n"
        "signal.signal(signal.SIGUSR1, partial(heard, 1))"
    ),
}


@pytest.mark.parametrize("text", HANDLERS.values(), ids=HANDLERS)
def test_what_a_handler_of_a_program_raises_is_its_own(text):
    """Also where the signal came while something was being recorded."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        exec(text, {"signal": signal})
        recorder = record.Recorder([], {})
        with pytest.raises(SystemExit):
            recorder.guarded(lambda: os.kill(os.getpid(), signal.SIGUSR1) or time.sleep(1))
        recorder.guarded(sys.exit, 3)  # of an object that was asked
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert recorder.lost == 1
