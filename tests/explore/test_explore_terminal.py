"""`attnctl explore` on a terminal of its own, as a process."""

import os
import signal
import subprocess
import sys

import pytest

pty = pytest.importorskip("pty")


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_it():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "attnctl", "explore", "I love AI"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,  # nobody sends it a signal
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    while b"scores" not in seen:
        seen += os.read(ours, 65536)
    os.close(ours)
    try:
        assert process.wait(30) == -signal.SIGHUP
    finally:
        process.kill()
