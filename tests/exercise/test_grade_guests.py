"""A student's file may leave anything where its recording should be: it is read in time, or refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INTO = """
import os, signal, sys
import numpy as np
f = sys._getframe()
while "into" not in f.f_locals: f = f.f_back
into = f.f_locals["into"]
def table(text, **arrays):
    np.savez(into, table=np.array(text), **arrays)
"""

ROWS = '[["", "Q", 1]]'
LEFT = {
    "a pipe": "os.mkfifo(into); os._exit(0)",
    "garbage": 'open(into, "w").write("x"); os._exit(0)',
    "a folder": "os.mkdir(into); os._exit(0)",
    "a link to a device": 'os.symlink("/dev/zero", into); os._exit(0)',
    "a link to nothing": 'os.symlink("nowhere", into); os._exit(0)',
    "objects": f"table('{ROWS}', arr_0=np.array([object()], object)); os._exit(0)",
    "texts": f"table('{ROWS}', arr_0=np.array(['x'])); os._exit(0)",
    "no table": "np.savez(into, x=np.ones(3)); os._exit(0)",
    "a table of nothing": "table('[[1]]'); os._exit(0)",
    "a table that is none": "table('{'); os._exit(0)",
    "a table without end": "table('[' * 100000); os._exit(0)",
    "rows without arrays": f"table('{ROWS}'); os._exit(0)",
    "half a file": (
        f"table('{ROWS}', arr_0=np.ones((50, 50)))\n"
        'data = open(into, "rb").read(); open(into, "wb").write(data[:700]); os._exit(0)'
    ),
    "a bomb": (f"np.savez_compressed(into, table=np.array('{ROWS}'), arr_0=np.zeros(2**28)); os._exit(0)"),
    "nothing": "os._exit(0)",
    "a signal": "os.kill(os.getpid(), signal.SIGSEGV)",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_a_program_leaves_is_refused(tmp_path, monkeypatch, call, text):
    monkeypatch.chdir(tmp_path)
    Path("h.py").write_text(INTO + text)
    begun = time.monotonic()
    done = call("check", "h.py")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("attnctl: h.py: ")
    assert "report it" not in done.err
    graded = call("exercise", "grade", "h.py")
    assert graded.code == 2
    assert "1 unreadable" in graded.out
    assert time.monotonic() - begun < 30


def test_a_program_that_dies_of_a_signal_is_said_to(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    Path("h.py").write_text("import os\nos.abort()\n")
    assert call("check", "h.py").err == "attnctl: h.py: it died of SIGABRT\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_folder_behind(tmp_path, name):
    (tmp_path / "h.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "attnctl", "check", "h.py"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(words, cwd=tmp_path, env=environ, stderr=subprocess.PIPE)
    until = time.monotonic() + 30
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.05)
    number = getattr(signal, name)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "h.py"]
