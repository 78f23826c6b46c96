"""A part that a process was to write: kept where it is complete, gone on from where it is not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from corpora import written

from attnctl.verbs.corpus import run as room
from attnctl.verbs.corpus.run import Work, measure_into, open_work


def test_a_complete_part_is_kept_and_any_other_made_again(run, tmp_path):
    written(tmp_path / "c.txt")
    part = tmp_path / "part.json"
    args = ("run", "c.txt", "--shard", "1/2", "-o", "part.json")
    run(*args)
    whole = part.read_bytes()
    stamp = part.stat().st_mtime_ns
    assert run(*args) == (0, "", "attnctl: part.json: is complete, and kept\n")
    assert part.stat().st_mtime_ns == stamp
    for other in (whole[:-40], b"", b"other", whole.replace(b'"first": 1', b'"first": 2')):
        part.write_bytes(other)
        assert run(*args) == (0, "", "")
        assert part.read_bytes() == whole


STALLED = """
import sys, time
from attnctl.verbs.corpus import run
run.SAVE_EVERY = 0
take = run.Work.take
def stall(work, number, data):
    if number == 20:
        print("at work", flush=True)
        time.sleep(600)
    take(work, number, data)
run.Work.take = stall
from attnctl.cli.program import program
sys.exit(program(sys.argv[1:]))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_one_shard_killed_and_resumed(run, tmp_path, end, code):
    """What is there is whole as far as it goes; it is no shard yet, and the next process completes it."""
    written(tmp_path / "c.txt")
    for number in (1, 3):
        run("run", "c.txt", "--shard", f"{number}/3", "-o", f"{number}.json")
    args = ["run", "c.txt", "--shard", "2/3", "-o", "2.json"]
    with subprocess.Popen(
        [sys.executable, "-c", STALLED, "corpus", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"at work\n"
        process.send_signal(end)
        assert process.wait(60) == code
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1.json", "2.json", "3.json", "c.txt"]
    assert "lines 20 to 26: in none of the parts" in run("merge", "3.json", "2.json", "1.json")[2]
    assert run(*args) == (0, "", "attnctl: the part goes on after line 19\n")
    merged = run("merge", "3.json", "1.json", "2.json", "--json")
    assert merged == run("run", "c.txt", "--json")


class Killed(BaseException):
    """What no code catches."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trained", [False, True])
def test_ended_anywhere_any_number_of_times(tmp_path, monkeypatch, model, seed, trained):
    """Whatever was saved when, and with bad lines, the result has the bytes of an uninterrupted run."""
    drawn = random.Random(seed)
    path, part = written(tmp_path / "c.txt"), tmp_path / "part.json"
    path.write_bytes(path.read_bytes() + b"\xff\n\xff\na b\n")
    job = partial(open_work, str(path), model if trained else None, skip_bad=True)
    whole = measure_into(job(), []).to_bytes()
    real = Work.take

    def take(self, number, data):
        monkeypatch.setattr(room, "SAVE_EVERY", 0 if drawn.random() < 0.2 else 1e9)
        if drawn.random() < 0.1:
            raise Killed
        real(self, number, data)

    monkeypatch.setattr(Work, "take", take)
    ends = 0
    for _ in range(200):
        try:
            found = measure_into(job(), [str(part)])
            break
        except Killed:
            ends += 1
    assert ends
    assert found.to_bytes() == part.read_bytes() == whole


@pytest.mark.slow
def test_a_process_that_is_killed_at_random(tmp_path):
    path, part = written(tmp_path / "c.txt", 3000), tmp_path / "part.json"
    whole = measure_into(open_work(str(path)), []).to_bytes()
    code = (
        "import sys; from attnctl.verbs.corpus import run; run.SAVE_EVERY = 0.05;"
        "from attnctl.cli.program import program; sys.exit(program(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "corpus", "run", str(path), "-o", str(part)]
    began = time.perf_counter()
    subprocess.run([*command[:-1], str(tmp_path / "unhindered.json")], check=True)
    took = time.perf_counter() - began
    drawn, killed = random.Random(0), 0
    while True:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            time.sleep(took * drawn.uniform(0.4, 0.9))
            process.kill()
        killed += process.returncode != 0
        if process.returncode == 0:
            break
    assert killed
    assert part.read_bytes() == whole


@pytest.fixture
def begun(tmp_path, run):
    """The first part of three of a corpus, with bad lines left out."""
    written(tmp_path / "c.txt")
    (tmp_path / "c.txt").write_bytes(b"\xff\n" + (tmp_path / "c.txt").read_bytes())
    (tmp_path / "x.yaml").write_text("heads: 2\n")
    assert run("run", "c.txt", "--shard", "1/3", "--skip-bad", "-o", "part.json")[0] == 0


CHANGED = {
    "corpus": ([], "another corpus"),
    "model": (["-c", "x.yaml"], "another model"),
    "pairs": (["--pairs"], "another choice of --pairs"),
    "shard": (["--shard", "2/3"], "lines 1 to 13 where lines 14 to 27 are asked for"),
    "fewer": (["--shard", "1/4"], "lines 1 to 13 where lines 1 to 10 are asked for"),
    "bad lines": (None, "lines left out by --skip-bad"),
}


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("name", CHANGED)
def test_a_part_of_something_else_is_refused_and_stays(run, tmp_path, name):
    more, said = CHANGED[name]
    if name == "corpus":
        (tmp_path / "c.txt").write_text("a b\n" * 41)
    before = (tmp_path / "part.json").read_bytes()
    args = ["run", "c.txt", "-o", "part.json", *(["--skip-bad", *more] if more is not None else [])]
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err == (
        f"attnctl: part.json: it holds a part with {said}; remove it, or write to another file\n"
    )
    assert (tmp_path / "part.json").read_bytes() == before


@pytest.mark.usefixtures("begun")
def test_a_finished_shard_grows_into_the_whole(run, tmp_path):
    args = ("run", "c.txt", "--skip-bad", "-o", "part.json", "-o", "heads.csv")
    code, out, err = run(*args)
    assert (code, out) == (0, "")
    assert "the part goes on after line 13" in err
    assert (tmp_path / "part.json").read_text() == run("run", "c.txt", "--skip-bad", "--json")[1]
    assert (tmp_path / "heads.csv").exists()


def test_what_was_measured_before_a_bad_line_is_kept(run, tmp_path, monkeypatch):
    """A run that ends at a bad line need not begin again to leave it out."""
    monkeypatch.setattr(room, "SAVE_EVERY", 0)
    (tmp_path / "c.txt").write_bytes(b"a b\nc\n\xff\nd\n")
    assert run("run", "c.txt", "-o", "part.json")[0] == 2
    part = json.loads((tmp_path / "part.json").read_bytes())
    assert part["lines"] == {"first": 1, "count": 2}
    assert "goes on after line 2" in run("run", "c.txt", "-o", "part.json", "--skip-bad")[2]
    assert (tmp_path / "part.json").read_text() == run("run", "c.txt", "--skip-bad", "--json")[1]
