"""Progress: on a terminal, on stderr, after half a second, and nowhere else."""

import os
import pty
import subprocess
import sys

WAITING = (
    "import time; from attnctl.cli.output import progress\n"
    "with progress('attending') as moved:\n"
    "    moved(1, 2); time.sleep({seconds}); moved(2, 2); time.sleep(0.2)\n"
)


def on_a_terminal(seconds):
    """What a piece of work that takes so long writes on a terminal's stderr."""
    ours, theirs = pty.openpty()
    code = WAITING.format(seconds=seconds)
    done = subprocess.run([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # Linux says EIO where the other side is closed
        pass
    os.close(ours)
    assert done.stdout == b""
    return shown


def test_long_work_shows_a_bar():
    assert b"attending" in on_a_terminal(3.0)  # time enough to import Rich on a busy machine


def test_short_work_shows_nothing():
    assert on_a_terminal(0.0) == b""


def test_a_pipe_sees_nothing():
    code = WAITING.format(seconds=1.0)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
