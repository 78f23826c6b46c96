"""What is not kept changes nothing: large numbers, many keys, several threads, memory."""

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.api import choose_settings
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.engine import carry_out, steps_needed
from attnctl.math.engine.cost import peak
from attnctl.math.engine.tiles import blas_alone
from attnctl.math.rules import Causal


@pytest.mark.parametrize(("dtype", "value"), [("float16", 100), ("float32", 1e36), ("float64", 1e306)])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_large_values_do_not_overflow(dtype, value, sign):
    keys = 1025
    arrays = {
        "Q": np.zeros((1, 5, 2)),
        "K": np.zeros((1, keys, 2)),
        "V": np.full((1, keys, 1), sign * value),
    }
    run = plan_arrays(arrays, Settings(dtype=dtype), {})
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
        with blas_alone():
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
    run = plan_arrays(arrays, attnctl.api.choose_settings(None, {"dtype": dtype, **options}), {})
    said = peak(run.costs())
    tracemalloc.start()
    try:
        carry_out(run.derivation, run.given, dtype)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= 1.1 * said + 2**20


QUERIES, KEYS = 5, 7
LARGEST = {"float16": 4, "float32": 38, "float64": 308}
"""The power of ten of the largest number of each type."""

OPTIONS = [
    {},
    {"causal": True},
    {"causal": True, "causal_offset": -2, "positions": "alibi"},
    {"softcap": 3.0, "window": (2, 1)},
    {"scale": 1e-4},
    {"scale": 300.0, "causal": True},
]
EXTRAS = [
    {},
    {"mask": np.arange(KEYS) % 3 > 0},
    {"mask": np.where(np.arange(KEYS) < 5, 0.0, -np.inf)},
    {"bias": np.linspace(-6e4, 6e4, KEYS)},
]


@st.composite
def runs(draw):
    """A run in some type, with numbers of any size, some of whose steps are shown."""
    dtype = draw(st.sampled_from(list(LARGEST)))
    rng = np.random.RandomState(draw(st.integers(0, 99)))
    top = LARGEST[dtype]
    # Products of two queries and keys far below, about at (in float16), and beyond what the type holds.
    power = draw(st.sampled_from([-top // 4, 0, top // 2 - 1, top // 2 + 1, top - 1]))
    size = dict.fromkeys("QK", 10.0**power) | {"V": 10.0 ** draw(st.sampled_from([0, top - 1]))}
    shape = {"Q": (2, QUERIES, 4), "K": (2, KEYS, 4), "V": (2, KEYS, 3)}
    arrays = {name: rng.uniform(-1, 1, shape[name]) * size[name] for name in shape}
    if dtype != "float16":  # ∞ − ∞ within one product is NaN or ∞, as BLAS adds it up
        arrays |= {"Q": np.abs(arrays["Q"]), "K": np.abs(arrays["K"]) * rng.choice([-1, 1], (2, KEYS, 1))}
    extra = draw(st.sampled_from(EXTRAS))
    options = {"dtype": dtype, **draw(st.sampled_from(OPTIONS))}
    ready = plan_arrays({**arrays, **extra}, choose_settings(None, options), {})
    names = [step.name for step in ready.derivation]
    keep = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return ready, dtype, keep, draw(st.sampled_from([None, (1, 1), (2, 3), (5, 7)]))


def same(found, expected, off):
    """Two arrays are alike where they are finite, up to so much, and the same where they are not."""
    finite = np.isfinite(expected)
    strange = np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    return strange and bool((np.abs(found[finite] / 2 - expected[finite] / 2) <= off / 2).all())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(runs())
def test_the_answer_does_not_depend_on_what_is_shown(run):
    """Nor does what is said of it: rows that see nothing, numbers too large for the type."""
    agree(*run)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(runs())
def test_many_answers_do_not_depend_on_what_is_shown(run):
    agree(*run)


@pytest.mark.parametrize("keep", ["attention_weights", "head_outputs"])
def test_what_is_hidden_is_computed_where_numbers_grow_too_large(keep):
    """exp(∞ − ∞) makes NaN of a row, its hidden weights, too; 0 · ∞ of a value that nobody sees."""
    arrays = {name: np.full((1, 3, 4), 200.0) for name in "QK"} | {"V": np.ones((1, 3, 1))}
    ready = plan_arrays(arrays, Settings(dtype="float16", rules=(Causal(),)), {})
    part = carry_out(ready.derivation, ready.given, "float16", keep=[keep], tile=(1, 1))
    assert np.isnan(part.values[keep]).all()
    assert part.overflow == ("scores", [0, 0, 0])
    ready.given["Q"] *= 0
    ready.given["V"][0, 2] = np.inf
    part = carry_out(ready.derivation, ready.given, "float16", keep=["head_outputs"], tile=(1, 1))
    assert np.isnan(part.values["head_outputs"][0, :2]).all()


def agree(ready, dtype, keep, tile):
    """Hold the steps that are kept to those of a run that keeps all."""
    whole = carry_out(ready.derivation, ready.given, dtype)
    part = carry_out(ready.derivation, ready.given, dtype, keep=keep, tile=tile)
    eps = float(np.finfo(dtype).eps)
    scores = np.abs(whole.values["scaled_scores"].astype(float))
    blur = 8 * eps * (1 + scores.max(where=np.isfinite(scores), initial=0))
    if dtype == "float16":  # each product is summed alike, whatever is beside it
        blur = 8 * eps
    for name in keep:
        found, expected = (outcome.values[name].astype(float) for outcome in (part, whole))
        size = np.abs(expected).max(where=np.isfinite(expected), initial=0)
        assert same(found, expected, blur * size if blur < 1 else np.inf), name
    seen = {step.name for step in steps_needed(ready.derivation, keep)}
    first = whole.overflow
    assert part.overflow == (first if first and first[0] in seen else None)
    if "attention_weights" in seen:
        assert part.empty_rows == whole.empty_rows
