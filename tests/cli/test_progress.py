"""Progress: on a terminal, on stderr, after half a second, and nowhere else."""

import os
import pty
import select
import subprocess
import sys

WAITING = (
    "import sys, time; from attnctl.cli.output import progress\n"
    "with progress('attending') as moved:\n"
    "    moved(1, 2); time.sleep({seconds}); sys.stdin.read(); moved(2, 2); time.sleep(0.2)\n"
)
"""Work that takes so long, and until its stdin is closed."""


def on_a_terminal(awaited, seconds):
    """What a piece of work writes on a terminal's stderr, which goes on until it writes this."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", WAITING.format(seconds=0.0)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    shown = b""
    while awaited not in shown and select.select([ours], [], [], seconds)[0]:
        shown += os.read(ours, 4096)
    assert process.communicate() == (b"", None)
    while select.select([ours], [], [], 0)[0]:
        shown += os.read(ours, 4096)
    os.close(theirs)
    os.close(ours)
    return shown


def test_long_work_shows_a_bar():
    assert b"attending" in on_a_terminal(b"attending", 60)


def test_short_work_shows_nothing():
    assert on_a_terminal(b"", 0) == b""


def test_a_pipe_sees_nothing():
    words = [sys.executable, "-c", WAITING.format(seconds=0.7)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
