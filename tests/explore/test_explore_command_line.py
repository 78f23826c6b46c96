"""attnctl explore from the shell: what it refuses and what it names instead, and that it ends well."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from importlib import util

import pytest

from attnctl.verbs.explore import OfFile, OfModel, OfSentence

pytest.importorskip("textual")


def test_no_terminal_is_exit_2_and_names_what_to_use(call):
    done = call("explore", "I love AI")
    assert done[:2] == (2, "")
    assert "explore needs a terminal, and standard input is none" in done.err
    assert "attnctl run SENTENCE shows every step" in done.err


def test_without_textual_the_extra_is_named(call, monkeypatch):
    monkeypatch.setattr("attnctl.cli.explore.find_spec", lambda name: None)
    done = call("explore", "I love AI")
    assert done[:2] == (2, "")
    assert "pip install 'attnctl[tui]'" in done.err
    assert util.find_spec("textual")


@pytest.fixture
def started(call, monkeypatch):
    """A command line on what it takes for a terminal: its code, what it says, what it would explore."""
    found = []
    monkeypatch.setattr("attnctl.cli.explore.require_terminal", lambda _: None)
    monkeypatch.setattr("attnctl.cli.explore.walked", lambda source, *_, **__: found.append(source))

    def run(*args):
        done = call("explore", *args)
        return (done.code, done.err, found[-1] if found else None)

    return run


def test_what_is_explored(started, tmp_path, call):
    code, _, source = started("I love AI", "--heads", "2", "--edit", "V=0")
    assert (code, type(source), source.sentence) == (0, OfSentence, "I love AI")
    assert (source.settings.heads, source.settings.edits) == (2, ("V=0",))
    call("run", "I love AI", "we", "-o", "s.jsonl")
    assert type(started("s.jsonl")[2]) is OfFile
    assert len(started("s.jsonl")[2].traces) == 2
    assert started("s.jsonl", "--trace", "1")[2].words == ("s.jsonl[1]",)
    source = started("--model", "there", "--ids", "1,2", "--layer", "0,1", "--edit", "V=0")[2]
    assert (type(source), source.layers, source.input.ids) == (OfModel, "0,1", (1, 2))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["s.json", "--seed", "1"], "--seed: only a sentence has that, and this is a dump"),
        (["s.json", "--edit", "V=0"], "--edit: only a sentence has that, and this is a dump"),
        (["s.json", "--causal"], "this dump says itself how each number came about"),
        (["I love AI", "--trace", "1"], "--trace: only a dump has that"),
        (["I love AI", "--layer", "1"], "--layer: only a dump has that"),
        (["I love AI", "--heads", "0"], "--heads"),
        (["--model", "there", "--heads", "2", "--ids", "1"], "--heads: means nothing with --model"),
        (["missing.json"], "missing.json"),
        (["x", "-c", "-"], "standard input is where the keys come from"),
    ],
)
def test_what_is_refused(started, call, args, said, monkeypatch):
    from attnctl.verbs.explore import explored

    call("run", "I love AI", "-o", "s.json")
    monkeypatch.setattr("attnctl.cli.explore.walked", lambda source, *_, **__: explored(source) and None)
    code, err, _ = started(*args)
    assert code == 2
    assert said in err


def in_a_terminal(tmp_path, *args, act):
    """Run the executable in a pseudo-terminal: what it wrote, and how it ended."""
    main, side = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    before = subprocess.run(["stty", "-a"], stdin=side, capture_output=True, check=True).stdout
    command = [sys.executable, "-m", "attnctl", *args]
    process = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, cwd=tmp_path, env=environ, start_new_session=True
    )
    written, acted, end = b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([main], [], [], 0.1)[0]:
            written += os.read(main, 65536)
        elif process.poll() is not None:
            break
        if not acted and b"quit" in written:
            acted = True
            act(process, main)
    process.kill()
    after = subprocess.run(["stty", "-a"], stdin=side, capture_output=True, check=True).stdout
    os.close(main)
    os.close(side)
    assert after == before
    return written, process.wait()


ENDS = {
    "q": (lambda process, main: os.write(main, b"q"), 0),
    "ctrl-c": (lambda process, main: os.write(main, b"\x03"), 130),
    "SIGTERM": (lambda process, main: process.send_signal(signal.SIGTERM), -signal.SIGTERM),
    "SIGHUP": (lambda process, main: process.send_signal(signal.SIGHUP), -signal.SIGHUP),
    "SIGINT": (lambda process, main: process.send_signal(signal.SIGINT), 130),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_terminal_is_left_as_it_was(tmp_path, end):
    act, code = ENDS[end]
    written, found = in_a_terminal(tmp_path, "explore", "I love AI", act=act)
    assert found == code
    for on, off in [
        (b"\x1b[?1049h", b"\x1b[?1049l"),
        (b"\x1b[?1000h", b"\x1b[?1000l"),
        (b"\x1b[?25l", b"\x1b[?25h"),
    ]:
        assert written.rindex(off) > written.rindex(on)


@pytest.mark.slow
def test_commands_are_printed_at_the_end(tmp_path):
    written, code = in_a_terminal(
        tmp_path, "explore", "I love AI", "--heads", "2", act=lambda _, main: os.write(main, b"wxq")
    )
    assert code == 0
    assert (
        b"attnctl run 'I love AI' --heads 2 --step attention_weights --head 0"
        in written.rpartition(b"\x1b[?1049l")[2]
    )
