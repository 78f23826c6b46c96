"""The backward pass as lines: begun, named, written down, explained and recomputed like any others."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import given, settings
from test_forms import says_what_it_makes

import attnctl
from attnctl.base.errors import AttnError
from attnctl.math import names
from attnctl.math.ops import Given


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_every_cell_of_every_gradient_is_its_arithmetic(case):
    trace = attnctl.attend(case.arrays, backward=True, **case.options)
    for name, step in trace.steps.items():
        row = names.TABLE[name]
        if row.gradient and not isinstance(step.op, Given):
            says_what_it_makes(step.op, [trace[each] for each in step.inputs], trace[name])
        if row.gradient and not name.startswith("delta"):
            assert trace[name].shape == trace[name.removeprefix("d_").partition("_through_")[0]].shape


def test_a_sentence_goes_back_to_its_embeddings():
    trace = attnctl.run("I love AI", heads=2, backward=True)
    assert list(trace)[-1] == "d_embeddings"
    through = [trace[f"d_X_through_{name}"] for name in "VKQ"]
    np.testing.assert_array_equal(trace["d_X"], sum(through[1:], through[0]))
    again = attnctl.run("I love AI", heads=2, seed=0, backward=True)
    np.testing.assert_array_equal(trace["d_output"], again["d_output"])
    assert trace.config["backward"] is True


def test_a_batch_has_one_gradient_by_what_it_shares():
    rng = np.random.RandomState(0)
    arrays = {"X": rng.standard_normal((3, 4, 5)), **{f"W_{n}": rng.standard_normal((5, 5)) for n in "QKV"}}
    d = rng.standard_normal((3, 4, 5))
    whole = attnctl.attend({**arrays, "d_output": d}, backward=True)
    alone = [
        attnctl.attend({**arrays, "X": x, "d_output": one}, backward=True)
        for x, one in zip(arrays["X"], d, strict=True)
    ]
    np.testing.assert_allclose(whole["d_W_K"], sum(each["d_W_K"] for each in alone), rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole["d_X"][1], alone[1]["d_X"], rtol=0, atol=1e-12)
    sentences = attnctl.run_many(["I love AI", "AI"], backward=True)
    np.testing.assert_array_equal(
        sentences[0]["d_X"], attnctl.run("I love AI", vocab=["I", "love", "AI"], backward=True)["d_X"]
    )


def test_a_row_that_sees_nothing_changes_nothing():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((4, 3)) for name in "QKV"} | {"mask": np.eye(4, dtype=bool)}
    arrays["mask"][2] = False
    trace = attnctl.attend(arrays, backward=True)
    assert not trace["d_Q"][0, 2].any()
    assert not trace["d_V"][0, 2].any()
    assert all(np.isfinite(trace[name]).all() for name in trace if name.startswith("d_"))


def test_a_gradient_of_another_shape_is_refused():
    arrays = {name: np.ones((3, 2)) for name in "QKV"}
    with pytest.raises(AttnError, match="d_head_outputs"):
        attnctl.attend({**arrays, "d_output": np.ones((4, 2))}, backward=True)
