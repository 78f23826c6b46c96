"""A test of one's own may do anything: each kernel is judged in time, and nothing is left running."""

import os
import time
from pathlib import Path

import pytest

from attnctl import AttnError
from attnctl.verbs.mutants import tested
from attnctl.verbs.mutants.tested import FOLDER, RESULTS, OwnTest, score_test

WRONG = "case $1 in *right.py) exit 0;; esac; "

FAILING = {
    "it hangs": f"{WRONG}exec sleep 600",
    "it hangs, and ignores signals": f"{WRONG}trap '' TERM INT HUP; while :; do sleep 1; done",
    "it prints without end": f"{WRONG}yes",
    "it prints gigabytes": f"{WRONG}head -c 2000000000 /dev/zero; exit 1",
    "it dies of a signal": f"{WRONG}kill -SEGV $$",
    "it leaves another that holds its streams": f"{WRONG}sleep 600 & echo $! >> left; exit 1",
    "it asks": f"{WRONG}read answer; exit 1",
    "it says no text": f"{WRONG}head -c 100000 /dev/urandom; exit 1",
}

PASSING = {
    "it leaves another that holds its streams": "sleep 600 & echo $! >> left; exit 0",
    "it leaves a session of another": "exec 3>/dev/null; exit 0",
    "it removes the kernel": 'rm -f "$1"',
    "it writes over the results": f'echo "[[[" > {FOLDER}/{RESULTS}',
    "it prints gigabytes": "head -c 100000000 /dev/zero",
}

KEPT = {
    "half a file": '{"a": tr',
    "lists without end": "[" * 100_000,
    "a list": "[1]",
    "a number": "1",
    "nothing": "",
    "another program's": '{"x": {"y": null}}',
    "bytes": b"\xff\xfe\0",
}


@pytest.fixture
def score(tmp_path, monkeypatch):
    """Score a shell script as a test, on a few kernels: the names of those that it lets pass."""
    monkeypatch.chdir(tmp_path)
    every = tested.mutants_for
    monkeypatch.setattr(tested, "mutants_for", lambda test: every(test)[:3])

    def run(text, timeout=1.0):
        Path("own.sh").write_text(text)
        begun = time.monotonic()
        scored = score_test(OwnTest(("sh", "own.sh", "{kernel}"), timeout=timeout, jobs=3))
        assert time.monotonic() - begun < 30
        return len(scored.mutants), len(scored.survivors)

    return run


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def nothing_is_left():
    begun = Path("left").read_text().split() if Path("left").exists() else []
    end = time.monotonic() + 10
    while any(map(is_running, begun)):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", FAILING.values(), ids=FAILING)
def test_what_fails_kills_a_kernel_in_time(score, text):
    assert score(text) == (3, 0)
    nothing_is_left()


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", PASSING.values(), ids=PASSING)
def test_what_passes_lets_a_kernel_pass(score, text):
    count, survivors = score(text, timeout=30)
    assert count == survivors > 0
    nothing_is_left()


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_results_that_are_none_of_ours_are_left_out(score, kept):
    Path(FOLDER).mkdir()
    Path(FOLDER, RESULTS).write_bytes(kept if isinstance(kept, bytes) else kept.encode())
    assert score(f"{WRONG}exit 1") == (3, 0)


def test_results_that_are_a_pipe_are_not_waited_for(score):
    Path(FOLDER).mkdir()
    os.mkfifo(Path(FOLDER, RESULTS))
    with pytest.raises(AttnError, match="it is a pipe or a device"):
        score(f"{WRONG}exit 1")
