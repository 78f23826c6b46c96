"""Targets in processes of their own: crashes, hangs and exits are results, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.verbs.conform.call import CALLS, TargetCall, chance_missed, read_last_words
from attnctl.verbs.conform.invoke import Framework
from attnctl.verbs.conform.process import Worker
from attnctl.verbs.conform.target import Program

KERNELS = Path(__file__).parent / "kernels_here.py"


@pytest.fixture
def worker():
    """Starts workers on kernels, and ends them."""
    made = []

    def start(name, limit=30.0):
        made.append(Worker(f"{KERNELS}:{name}", Framework(), limit))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.close()


def call(d=8, **more):
    draw = np.random.RandomState(0)
    inputs = tuple(draw.standard_normal((1, 2, 5, d)) for _ in range(3))
    return TargetCall(inputs, {}, dtype="float64", **more)


def gone(pid):
    """Whether there is no such process, or only what is left of a dead one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" in status.read_text()


def test_one_process_answers_many_calls(worker):
    one = worker("good")
    pid = one.process.pid
    answers = [one.call(call()) for _ in range(3)]
    assert one.process.pid == pid
    assert [each.error for each in answers] == ["", "", ""]
    assert answers[0].outputs[0].shape == (1, 2, 5, 8)
    assert [each.name for each in one.parameters] == ["q", "k", "v", "causal", "scale"]
    one.close()
    assert gone(pid)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "limit", "error", "words"),
    [
        ("crashes", 30.0, "crash", "SIGABRT"),
        ("leaves", 30.0, "exit", "exit code 1: that is enough"),
        ("hangs", 1.0, "hang", "no answer within 1 s"),
    ],
)
def test_how_a_process_ends_is_an_answer_and_the_next_call_is_answered(worker, name, limit, error, words):
    one = worker(name, limit)
    pid = one.process.pid
    answer = one.call(call(64))
    assert (answer.error, answer.outputs) == (error, ())
    assert words in answer.message
    assert gone(pid)
    one.limit = 30.0
    assert one.call(call(8)).error == ""


def test_a_target_that_is_killed_whenever_it_is_called_is_not_called_for_long():
    found = attnctl.conform(f"{KERNELS}:killed", quick=True)
    assert [(each.feature, each.failure.mistake) for each in found.features] == [("attention", "crash")]


def test_what_a_target_prints_goes_nowhere(worker):
    assert worker("talks").call(call()).error == ""


def test_what_a_target_raises_is_an_answer(worker):
    answer = worker("good").call(TargetCall((np.zeros((1, 1, 2, 3)),) * 3, {"scale": "x"}))
    assert answer.error in {"UFuncTypeError", "_UFuncNoLoopError", "TypeError"}
    one = worker("interrupts")
    pid = one.process.pid
    assert [one.call(call(times=times)).error for times in (1, 3)] == ["KeyboardInterrupt"] * 2
    assert (one.process.pid, one.lost) == (pid, 0)


def test_threads_that_wait_for_work_leave_the_processor(worker, monkeypatch):
    """Unless the person says otherwise."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert "PASSIVE" in worker("says_how_threads_wait").call(call()).message
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert "ACTIVE" in worker("says_how_threads_wait").call(call()).message


def test_numbers_reach_it_in_their_type(worker):
    answer = worker("good").call(TargetCall(call().inputs, {}, dtype="float16"))
    assert answer.dtype == "float16"


def test_memory_that_is_never_written_is_nan(worker):
    """Blocks of malloc and NumPy's own small ones."""
    one = worker("unwritten")
    for d in (8, 64):
        output = one.call(call(d, numbers=10 * d)).outputs[0]
        assert np.isnan(output[..., 0]).all()
        assert not np.isnan(output[..., 1:]).any()


def test_a_call_is_made_again_until_a_race_would_show(worker):
    one = worker("good")
    answer = one.call(call(times=CALLS, seconds=30.0))
    assert (answer.calls, answer.same) == (228, True)
    assert chance_missed(228) < 0.01 < chance_missed(227)
    assert one.call(call(times=CALLS, seconds=0.0)).calls == 1
    answer = worker("forgetful").call(call(times=20, seconds=30.0))
    assert answer.others == 19
    assert 0 < answer.apart < 1e-12


def test_a_call_that_fails_now_and_then_fails(worker):
    answer = worker("fails_in_call_12").call(call(times=CALLS, seconds=30.0))
    assert answer.failed == "RuntimeError: out of resources"
    assert not answer.same


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("no_such_module_here:f", "ModuleNotFoundError", marks=pytest.mark.slow),
        (f"{KERNELS}:no_such_function", "no attribute 'no_such_function'"),
        ("nowhere.py:f", "nowhere.py: no such file"),
        ("kernel", "not a target"),
    ],
)
def test_what_cannot_be_loaded_is_refused(target, words):
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.conform(target)
    assert words in str(caught.value)


@pytest.mark.slow
def test_an_interrupt_leaves_no_process_behind(tmp_path):
    script = "import sys; from attnctl.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "conform", f"{KERNELS}:hangs", "--feature", "head sizes"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 30
    found = ""
    while not found and time.monotonic() < until:
        found = children.read_text() if children.exists() else ""
        time.sleep(0.05)
    if not found:
        process.kill()
        process.communicate()
        pytest.skip("this system does not tell a process's children")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130
    assert all(gone(int(pid)) for pid in found.split())


SCRIPT = """
import sys
import numpy as np
q, k, v = (np.load(sys.argv[1])[name] for name in "QKV")
s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
e = np.exp(s - s.max(-1, keepdims=True))
np.savez(sys.argv[2], out=e / e.sum(-1, keepdims=True) @ v)
"""


def command(tmp_path, text=SCRIPT, limit=30.0):
    path = tmp_path / "kernel.py"
    path.write_text(text)
    made = Program([sys.executable, str(path), "{in}", "{out}"], limit=limit)
    made.start()
    return made


def test_a_command_reads_a_file_and_writes_one(tmp_path):
    given = call()
    answer = command(tmp_path).call(given)
    q, k, v = given.inputs
    s = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    e = np.exp(s)
    np.testing.assert_allclose(answer.outputs[0], e / e.sum(-1, keepdims=True) @ v, rtol=1e-12)
    assert answer.dtype == "float64"


UNWRITTEN = """
import sys
import numpy as np
q, k, v = (np.load(sys.argv[1])[name] for name in "QKV")
out = np.empty((1, 2, 40, 8))
out[..., 1:] = 0
np.savez(sys.argv[2], out=out)
"""


def test_the_memory_of_a_command_is_filled_and_it_is_run_again(tmp_path):
    inputs = tuple(np.zeros((1, 2, 40, 8)) for _ in range(3))
    answer = command(tmp_path, UNWRITTEN).call(TargetCall(inputs, {}, times=2, seconds=30.0))
    assert np.abs(answer.outputs[0][..., 0]).min() > 1e300
    assert (answer.calls, answer.same) == (2, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import numpy as np\n\nnp.reshape(np.zeros(3), 4)\n",
         "ValueError: cannot reshape array of size 3 into shape (4,) ({}/kernel.py, line 3)"),
        ("def f():\n    raise RuntimeError('n must be\\nodd')\n\nf()\n",
         "RuntimeError: n must be ({}/kernel.py, line 2)"),
        ("import sys\nsys.exit('no memory')\n", "no memory"),
    ],
)  # fmt: skip
def test_what_a_command_raises_comes_with_file_and_line(tmp_path, text, words):
    answer = command(tmp_path, text).call(call())
    assert answer.message == f"it ended with 1: {words.format(tmp_path)}"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("attention: a.c:31: main: Assertion `n == m' failed.\n",
         "attention: a.c:31: main: Assertion `n == m' failed."),
        ("reading\ncannot open it\n\n", "cannot open it"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_last_line_of_other_languages_is_quoted(said, words):
    assert read_last_words(said.encode()) == words


def test_an_exception_of_a_function_says_where_it_is_from(worker):
    answer = worker("fails_below").call(call())
    line = 1 + KERNELS.read_text().splitlines().index('    raise ValueError("from below")')
    assert (answer.message, answer.place.rpartition("/")[2]) == (
        "from below",
        f"kernels_here.py, line {line}",
    )


@pytest.mark.parametrize(
    ("text", "limit", "error", "words"),
    [
        ("import sys; sys.exit('no memory')", 30.0, "exit", "it ended with 1: no memory"),
        ("pass", 30.0, "unreadable", "it wrote no file"),
        ("import sys; open(sys.argv[2], 'w').write('x')", 30.0, "unreadable", "its output"),
        ("import time; time.sleep(60)", 0.5, "hang", "no end within 0.5 s"),
    ],
)
def test_how_a_command_fails_is_an_answer(tmp_path, text, limit, error, words):
    answer = command(tmp_path, text, limit=limit).call(call())
    assert answer.error == error
    assert words in answer.message


def test_a_command_needs_places_for_its_files():
    with pytest.raises(attnctl.AttnError, match=r"write \{in\} and \{out\}"):
        Program(["true", "{in}"]).start()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_safetensors_hold_every_type(tmp_path, dtype):
    """The command copies V; a bfloat16 is there by its bits."""
    from attnctl.verbs.conform.case import Case
    from attnctl.verbs.conform.options import make_problem
    from attnctl.verbs.conform.profile import TargetProfile

    path = tmp_path / "in.safetensors"
    problem = make_problem(Case(dtype=dtype, batch=1, heads=1, kv_heads=1), TargetProfile())
    arrays = {name: problem.arrays[name] for name in "QKV"}
    from attnctl.verbs.conform.invoke import in_type
    from attnctl.verbs.conform.target import write_arrays

    write_arrays(path, {name: in_type(each, dtype) for name, each in arrays.items()}, dtype)
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(path, "numpy") as file:
        if dtype != "bfloat16":
            assert file.get_tensor("V").dtype == dtype
        assert file.get_slice("V").get_dtype() == {
            "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"
        }[dtype]  # fmt: skip
    read = attnctl.load(path)
    for name in "QKV":
        np.testing.assert_array_equal(np.asarray(read[name], dtype=np.float64), arrays[name])
