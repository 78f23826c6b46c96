"""What explore prints when one leaves: lines that a shell reads, and that no terminal acts on."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from driven import of_sentence

from attnctl.drawing.screen.text import safe, shell_line, shell_word
from attnctl.verbs.explore.remake import commands

HOSTILE = "\x1b]0;pwned\x07 \x1b[2J \u009b31m \u2066love\u202e it's \\n \ud7ff"
ACTED_ON = re.compile("[\u009b\u2066\u202e]|\x1b\\]0;|pwned\x07")


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "two words",
        "it's",
        "",
        "$HOME `ls`",
        "é 猫",
        HOSTILE,
        "a\nb\tc",
        "\x1bf00",
        "\u200b'\\",
        "-x",
    ],
    ids=ascii,
)
def test_a_shell_reads_back_the_word_to_the_byte(word):
    spelled = shell_word(word)
    assert spelled == safe(spelled)
    done = subprocess.run(["bash", "-c", f"printf %s {spelled}"], capture_output=True, check=True)
    assert done.stdout == word.encode()


def test_only_what_cannot_be_seen_is_spelled_in_bytes():
    assert shell_line(["attnctl", "run", "I love"]) == "attnctl run 'I love'"
    assert shell_word("a\x1b'b\\") == r"$'a\x1b\'b\\'"
    assert shell_word("\u009b") == r"$'\xc2\x9b'"


def test_a_sentence_that_no_word_can_hold_stands_in_the_config():
    first, second = commands(of_sentence("a\0b c", seed=3))
    assert first.startswith("attnctl run -c - --step ")
    assert "\\u0000" in first
    assert "\0" not in first + second


def read_until(terminal, wanted, seen=b"", seconds=20):
    """What the terminal got, up to what is wanted."""
    end = time.monotonic() + seconds
    while wanted not in seen:
        assert time.monotonic() < end, seen[-500:]
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the other end has gone
                return seen
    return seen


@pytest.mark.slow
def test_a_hostile_dump_tells_the_terminal_nothing(tmp_path):
    environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
    start = [sys.executable, "-m", "attnctl"]
    subprocess.run([*start, "run", HOSTILE, "-o", "d.json"], cwd=tmp_path, env=environ, check=True)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*start, "explore", "d.json"], cwd=tmp_path, env=environ,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        seen = read_until(ours, b"scores")
        for keys, shown in (
            (b"s", b"seed"),
            (b"1\r", b"\\x1b"),
            (b"w", b"printed when you leave"),
            (b"\x1b", b""),
        ):
            os.write(ours, keys)
            time.sleep(0.5)
            seen += read_until(ours, shown)
        os.write(ours, b"q")
        seen += read_until(ours, b"\x00never")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = seen.decode("utf-8", "replace")
    assert not ACTED_ON.search(text)
    left = text.rpartition("\x1b[?1049l")[2]
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]", left.partition("attnctl run")[2])
    (spelled,) = re.findall(r"attnctl run (.*) -c - --step", left.splitlines()[0])
    done = subprocess.run(["bash", "-c", f"printf %s {spelled}"], capture_output=True, check=True)
    assert done.stdout == HOSTILE.encode()
