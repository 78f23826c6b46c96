"""A student's file may leave anything where its recording should be: it is read in time, or refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnctl.sources.program import record
from attnctl.sources.program.instrument import Site
from attnctl.sources.program.run import read_recording
from attnctl.store.sent import read_sent

INTO = """
import os, signal, sys
import numpy as np
f = sys._getframe()
while "into" not in f.f_locals: f = f.f_back
into = f.f_locals["into"]
def table(text, **arrays):
    np.savez(into, table=np.array(text), **arrays)
"""


def left(events, sites, value=None):
    """What writes a recording of these rows where ours should be, and ends the program."""
    rows = {"ending": '""', "files": "{}", "lost": 0, "processes": 0, "questions": 0, "variables": "{}"}
    rows |= {"events": f"[{events}]", "sites": f"[{sites}]"}
    text = ", ".join(f'"{name}": {row}' for name, row in rows.items())
    arrays = "{}" if value is None else f'{{"1": {value}}}'
    return f"table('{{{text}}}', **{arrays}); os._exit(0)"


SITE = '["h.py", 1, 0, 1, 1, "@", [], [], ""]'
EVENT = '[1, 0, [], [], "", {}, [], {}, []]'
LEFT = {
    "a pipe": "os.mkfifo(into); os._exit(0)",
    "garbage": 'open(into, "w").write("x"); os._exit(0)',
    "a folder": "os.mkdir(into); os._exit(0)",
    "a link to a device": 'os.symlink("/dev/zero", into); os._exit(0)',
    "a link to nothing": 'os.symlink("nowhere", into); os._exit(0)',
    "objects": left(EVENT, SITE, value="np.array([object()], object)"),
    "texts": left(EVENT, SITE, value="np.array(['x'])"),
    "no table": "np.savez(into, x=np.ones(3)); os._exit(0)",
    "a table of nothing": "table('[[1]]'); os._exit(0)",
    "a table that is none": "table('{'); os._exit(0)",
    "a table without end": "table('[' * 100000); os._exit(0)",
    "an event of no expression": left(EVENT, ""),
    "an event before the first expression": left(EVENT.replace("1, 0", "1, -1"), SITE),
    "an event made of itself": left(EVENT.replace("[]", "[1]", 1), SITE),
    "an event made of a text": left(EVENT.replace("[]", '["x"]', 1), SITE),
    "an event of half a row": left("[1, 0]", SITE),
    "an argument of lists": left(EVENT.replace("{}, []]", '{"query": [[1]]}, []]'), SITE),
    "an expression that is its own operand of nowhere": left(EVENT, SITE.replace("[]", "[7]", 1)),
    "a number without end": left(EVENT.replace("1, 0", "1e999, 0"), SITE),
    "half a file": (
        left(EVENT, SITE, value="np.ones((50, 50))").replace(
            "os._exit", 'data = open(into, "rb").read(); open(into, "wb").write(data[:700]); os._exit'
        )
    ),
    "a bomb": "np.savez_compressed(into, table=np.array('{}'), n=np.zeros(2**28)); os._exit(0)",
    "nothing": "os._exit(0)",
    "a signal": "os.kill(os.getpid(), signal.SIGSEGV)",
}


SLOW = {"a bomb"}  # 2 GiB of zeros, written before they are refused


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, text in LEFT.items()
    ],
)
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
    assert time.monotonic() - begun < 120  # however much else is running: nothing hangs


def test_a_program_that_dies_of_a_signal_is_said_to(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    Path("h.py").write_text("import os\nos.abort()\n")
    assert (
        call("check", "h.py").err == "attnctl: h.py: it was ended by SIGABRT, and its variables with it\n"
    )


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


def test_a_recording_of_our_own_is_read(tmp_path, monkeypatch, call):
    """The rows above are refused for what is wrong in them, not for their form."""
    monkeypatch.chdir(tmp_path)
    Path("h.py").write_text(INTO + left(EVENT, SITE, value="np.ones((2, 2))"))
    done = call("check", "h.py")
    assert done.err.startswith("attnctl: h.py: no attention found")


@pytest.mark.parametrize("most", [3, 5, 40])
def test_a_recording_of_as_many_arrays_as_there_may_be_is_read(tmp_path, monkeypatch, most):
    """The recorder keeps as many arrays as are read back, and counts the others."""
    monkeypatch.setattr(record, "MOST_ARRAYS", most)
    sites = [Site("h.py", 1, 0, 1, 1, "@", (), (), "")]
    recorder = record.Recorder(sites, {"h.py": ""})
    arrays = [np.full(2, number) for number in range(20)]
    for array in arrays:
        recorder.add(0, array, [], "")
    into = tmp_path / "r.npz"
    recorder.write(into, ending="", processes=0, questions=0, variables={})

    read = read_recording("h.py", read_sent(into, "h.py", most + 1), "")
    kept = [event.value.tolist() for event in read.events.values() if event.value is not None]
    assert kept == [array.tolist() for array in arrays[:most]]
    assert (len(read.events), read.lost) == (20, max(0, 20 - most))
