"""What is not kept changes nothing: large numbers, many keys, several threads, memory."""

import threading
import tracemalloc

import numpy as np
import pytest

import attnctl
from attnctl.config.settings import Settings
from attnctl.engine import blas
from attnctl.engine.cost import peak
from attnctl.engine.execute import carry_out
from attnctl.engine.tiles import SCRATCH_BYTES
from attnctl.plan import operator


@pytest.mark.parametrize(("dtype", "value"), [("float16", 100), ("float32", 1e36), ("float64", 1e306)])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_large_values_do_not_overflow(dtype, value, sign):
    keys = 1025
    arrays = {
        "Q": np.zeros((1, 5, 2)),
        "K": np.zeros((1, keys, 2)),
        "V": np.full((1, keys, 1), sign * value),
    }
    run = operator.prepare(arrays, Settings(dtype=dtype), {})
    tiled = carry_out(run.derivation, run.given, dtype, keep=["head_outputs"], tile=(2, 100))
    whole = carry_out(run.derivation, run.given, dtype)
    eps = float(np.finfo(dtype).eps)
    for outcome in (tiled, whole):
        np.testing.assert_allclose(outcome.values["head_outputs"] / value, sign, rtol=64 * eps)


def test_half_precision_sums_more_equal_keys_than_it_can_count():
    keys = 70_000
    arrays = {"Q": np.zeros((1, 1, 2)), "K": np.zeros((1, keys, 2)), "V": np.ones((1, keys, 1))}
    trace = attnctl.attend(arrays, dtype="float16")
    assert "empty_rows" not in trace.header
    assert abs(float(trace["head_outputs"].item()) - 1) < 0.01
    np.testing.assert_allclose(trace["attention_weights"], 1 / keys, rtol=0.01)


@pytest.mark.parametrize("cap", [1e-9, 1e-3, 3.0])
def test_a_small_soft_cap_in_half_precision(cap):
    wide, half = (attnctl.run("I love AI", softcap=cap, dtype=dtype) for dtype in ("float64", "float16"))
    np.testing.assert_allclose(half["softcapped_scores"], wide["softcapped_scores"], rtol=4e-3, atol=1e-7)


def test_a_trace_does_not_change_with_the_array_it_was_made_from():
    arrays = {name: np.ones((2, 3)) for name in "QKV"}
    trace = attnctl.attend(arrays)
    before = trace["Q"].copy()
    arrays["Q"][:] = 7
    np.testing.assert_array_equal(trace["Q"], before)


def test_several_threads_leave_blas_as_it_was(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    def threads():
        return [
            each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"
        ]

    before, inside = threads(), threading.Barrier(2)

    def overlap(last):
        with blas.alone():
            inside.wait()
            if last:
                other.join()

    other = threading.Thread(target=overlap, args=(False,))
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        limited = threads()
        other.start()
        overlap(last=True)
        assert threads() == limited
    assert threads() == before


@pytest.mark.parametrize("options", [{}, {"positions": "alibi"}, {"causal": True, "softcap": 3.0}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_run_takes_no_more_memory_than_it_says(options, dtype):
    rng = np.random.RandomState(0)
    arrays = {name: rng.randn(2, 700, 8).astype(dtype) for name in "QKV"}
    run = operator.prepare(arrays, attnctl.api.chosen(None, {"dtype": dtype, **options}), {})
    said = peak(run.costs(), SCRATCH_BYTES)
    tracemalloc.start()
    try:
        carry_out(run.derivation, run.given, dtype)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= 1.1 * said + 2**20
