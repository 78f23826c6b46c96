"""A suite whose cases workers carry out: verdicts and causes are those of one process."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import attnctl
from attnctl.base import workers
from attnctl.base.errors import AttnError
from attnctl.verbs.conform import workers as room
from attnctl.verbs.conform.suite import Suite
from attnctl.verbs.conform.workers import carry_out_cases

KERNELS = Path(__file__).parent / "kernels_here.py"

FEW = {"features": ["lengths", "causal"], "quick": True, "dtypes": ["float32"]}
"""What takes a second."""


class LosesTheFirst(ThreadPoolExecutor):
    """Workers of whom the first is lost with what it was told."""

    lost = 0

    def submit(self, call, /, *args, **named):
        if LosesTheFirst.lost:
            return super().submit(call, *args, **named)
        LosesTheFirst.lost += 1
        future = Future()
        future.set_exception(BrokenExecutor("lost"))
        return future


@pytest.fixture
def threads(monkeypatch):
    """Workers that are threads of this process, and are told of few cases at once."""

    @contextmanager
    def opened(engine):
        with LosesTheFirst(1) as pool:
            yield pool

    LosesTheFirst.lost = 0
    monkeypatch.setattr(workers, "open_executor", opened)
    monkeypatch.setattr(room, "AT_ONCE", 12)


def found_by(name, **more):
    return attnctl.conform(f"{KERNELS}:{name}", **{**FEW, **more}).to_dict()


@pytest.mark.slow
def test_workers_find_what_one_process_finds(threads, monkeypatch):
    name = "bad"
    called_here = []
    carry_out = Suite.carry_out
    alone = found_by(name)
    assert alone["cases"] > 5

    monkeypatch.setattr(room, "carry_out_cases", lambda task: in_its_place(task, called_here))
    monkeypatch.setattr(Suite, "carry_out", lambda *a, **b: called_here.append(a) or carry_out(*a, **b))
    assert found_by(name, on="processes=1") == alone
    assert LosesTheFirst.lost
    assert len(called_here) < alone["cases"]  # what is found out first


def in_its_place(task, called_here):
    """What a worker does is done elsewhere."""
    before = [*called_here]
    done = carry_out_cases(task)
    called_here[:] = before
    return done


def test_a_target_is_found_from_another_folder(threads, monkeypatch):
    monkeypatch.chdir(KERNELS.parent)
    names = room.at_its_path(room.TargetNames(["kernels_here.py:good"], "kernels_here.py:back"))
    assert names == room.TargetNames([f"{KERNELS}:good"], f"{KERNELS}:back")
    assert room.at_its_path(room.TargetNames(["numpy:dot"])) == room.TargetNames(["numpy:dot"])


def test_a_function_has_no_name_for_workers():
    with pytest.raises(AttnError, match="workers call a target by its name"):
        attnctl.conform(lambda q, k, v: v, on="processes=2")


@pytest.mark.parametrize("option", [["--merge"], ["--replay", "x.npz"]])
def test_what_takes_no_workers_is_said(call, option):
    code, _, said = call("conform", f"{KERNELS}:good", *option, "--on", "processes=2")
    assert (code, said) == (2, f"attnctl: {option[0]}: it takes no workers; leave --on out\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bad", []),
        ("crashes", []),
        ("killed", []),
        ("everything", []),
        ("not_float64", []),
        ("with_wrong_sum", ["--returns", "output,logsumexp"]),
        # What is known of a library goes to another process, too.
        ("good", ["--like", "sdpa"]),
        ("good", ["--like", "onnx"]),
    ],
)
def test_processes_find_what_one_process_finds(call, name, options):
    words = ["conform", f"{KERNELS}:{name}", "--quick", "--json", *options]
    alone = call(*words)
    assert call(*words, "--on", "processes=2") == alone
