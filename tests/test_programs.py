"""Programs of a person end with what began them, whatever they do, and little of what they say is kept."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnctl.base import programs
from attnctl.base.programs import MOST_SAID, Said, begin, kill
from attnctl.verbs import learn as program
from attnctl.verbs.conform.call import TargetCall
from attnctl.verbs.conform.target import Program

CHILD = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {code!r}]{more})\n"
SLEEP = "import time; time.sleep(60)"
PROGRAMS = {
    "writes without end": "while True: print('x' * 10**6)",
    "says nothing for good": SLEEP,
    "leaves a child that holds its output": CHILD.format(code=SLEEP, more=""),
    "leaves a child that writes without end": CHILD.format(code="while True: print('x' * 10**6)", more=""),
    "leaves a child in a session of its own": CHILD.format(code=SLEEP, more=", start_new_session=True"),
}
LIMIT, SOON = 1.0, 15.0
"""Seconds that a program is given here; in which all of it has ended, on any machine."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_ends_and_little_of_what_it_says_is_kept(code):
    out, err = Said(), Said()
    start = time.monotonic()
    process = begin([sys.executable, "-c", code], out, err, stdin=subprocess.DEVNULL)
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill(process)
    assert len(out.end() + err.end()) <= 2 * MOST_SAID
    assert time.monotonic() - start < SOON


def test_the_end_of_what_it_says_is_what_is_kept():
    said = Said()
    process = begin([sys.executable, "-c", "print('x' * 10**6 + 'the end')"], said, said)
    assert process.wait() == 0
    assert said.end().endswith(b"xthe end\n")


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", ["writes without end", "leaves a child that holds its output"])
def test_so_does_one_that_is_watched_or_held_to_a_suite(call, what, monkeypatch):
    Path("mine.py").write_text(PROGRAMS[what])
    monkeypatch.setattr(program, "SECONDS", LIMIT)
    start = time.monotonic()
    assert call("learn", "--watch", "mine.py").code == 1
    target = Program([sys.executable, "mine.py", "{in}", "{out}"], limit=LIMIT)
    answer = target.call(TargetCall((np.ones((1, 1, 2, 2)),) * 3, {}))
    assert answer.error in {"hang", "unreadable"}
    assert time.monotonic() - start < 2 * SOON


BEGIN = {"subprocess.Popen", "subprocess.run", "subprocess.check_output", "Popen", "os.system", "os.fork"}


def test_programs_are_begun_in_one_place():
    package = Path(programs.__file__).parents[1]
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(name in path.read_text() for name in BEGIN)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in BEGIN
    }
    # A program whose calls are captured is the person's own: it goes on as long as it likes.
    assert found == {"base/programs.py", "cli/capture.py"}
