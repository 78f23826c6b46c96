"""A corpus over Dask's scheduler: the bytes of one process, whatever happens to its workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
from corpora import written

from attnctl.base.errors import AttnError
from attnctl.cli.app import with_values
from attnctl.cli.program import program
from attnctl.verbs.corpus.part import read_part
from attnctl.verbs.corpus.run import Job, measure_shard


@pytest.mark.parametrize(
    ("args", "completed"),
    [
        (["--dask"], ["--dask", "local"]),
        (["--dask", "--json"], ["--dask", "local", "--json"]),
        (["--dask", "3", "--json"], ["--dask", "3", "--json"]),
        (["--dask", "tcp://host:1"], ["--dask", "tcp://host:1"]),
        (["--", "--dask"], ["--", "--dask"]),
        (["a", "--json"], ["a", "--json"]),
    ],
)
def test_the_value_of_an_option_that_may_stand_without(args, completed):
    assert with_values(args, ["--dask", "--json"]) == completed
    assert with_values(args, []) == args  # of a command where it takes none


def test_problems_stay_apart_from_one_process_to_another():
    import pickle

    found = pickle.loads(pickle.dumps(AttnError(["one", "two"])))
    assert found.problems == ("one", "two")


def test_without_dask_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = written(tmp_path / "c.txt", 4)
    assert program(["stats", "--file", str(path), "--dask"]) == 2
    assert "pip install 'attnctl[dask]'" in capsys.readouterr().err


@pytest.fixture
def cluster():
    """Three workers, each a process."""
    pytest.importorskip("distributed")
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=None, silence_logs=50, host="127.0.0.1"
    ) as found:
        yield found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what it leaves open is Dask's own
def test_three_workers_of_which_one_is_killed(tmp_path, cluster, capsys, monkeypatch):
    """The worker is killed when the first part has come; others do its shards."""
    from attnctl.verbs.corpus import cluster as room

    path = written(tmp_path / "c.txt", 300)
    whole = measure_shard(Job(str(path))).to_bytes()
    workers = [nanny.pid for nanny in cluster.workers.values()]
    real, killed = room.result_of, []

    def result_of(future):
        if not killed:
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)
        return real(future)

    monkeypatch.setattr(room, "result_of", result_of)
    out = tmp_path / "whole.json"
    args = ["stats", "--file", str(path), "--dask", cluster.scheduler_address, "-o", str(out)]
    assert program(args) == 0
    assert killed
    assert out.read_bytes() == whole
    (tmp_path / "bad.txt").write_bytes(b"a b\n\xff\nc\n\xff\n")
    assert program(["stats", "--file", str(tmp_path / "bad.txt"), *args[3:5]]) == 2
    *said, hint = capsys.readouterr().err.splitlines()
    assert [each.partition(": not UTF-8")[0].rpartition(":")[2] for each in said] == ["2", "4"]
    assert "--skip-bad" in hint
    assert program(["stats", "--file", str(tmp_path / "bad.txt"), *args[3:5], "--skip-bad"]) == 0
    assert "2 lines skipped: not UTF-8 (lines 2, 4)" in capsys.readouterr().err


KILLED = """
import sys, time
from attnctl.verbs.corpus import cluster
result, seen = cluster.result_of, []
def stall(future):
    seen.append(future)
    if len(seen) == 13:
        print("at work", flush=True)
        time.sleep(600)
    return result(future)
cluster.result_of = stall
from attnctl.cli.program import program
program(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as above
def test_a_killed_client_leaves_a_part_that_either_way_goes_on_from(tmp_path, cluster, capsys):
    path, part, other = written(tmp_path / "c.txt", 300), tmp_path / "part.json", tmp_path / "other.json"
    path.write_bytes(path.read_bytes() + b"\xff\n")
    args = ["stats", "--file", str(path), "--skip-bad", "-o"]
    on_cluster = ["--dask", cluster.scheduler_address]
    command = [sys.executable, "-c", KILLED, *args, str(part), *on_cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"at work\n"
        process.kill()
    begun = read_part(str(part))
    assert 0 < begun.stop < 301
    shutil.copy(part, other)
    for path, more in ((part, on_cluster), (other, [])):
        assert program([*args, str(path), *more]) == 0
        assert f"the part goes on after line {begun.stop}" in capsys.readouterr().err
    assert part.read_bytes() == other.read_bytes() == measure_shard(Job(args[2], skip_bad=True)).to_bytes()
    assert program([*args, str(part), *on_cluster]) == 0
    assert "is complete, and kept" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as above
def test_nobody_answers(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("attnctl.verbs.corpus.cluster.ANSWER", 1)
    path = written(tmp_path / "c.txt", 4)
    assert program(["stats", "--file", str(path), "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "--dask: no scheduler at tcp://127.0.0.1:9" in capsys.readouterr().err
