"""The backward pass as lines: begun, named, written down, explained and recomputed like any others."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_strategies import instances
from test_forms import says_what_it_makes

import attnctl
from attnctl.base.errors import AttnError
from attnctl.math import names
from attnctl.math.derivation import Variant
from attnctl.math.engine import carry_out
from attnctl.math.ops import Given
from attnctl.math.rules import RULES


@pytest.mark.slow
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


def test_the_logarithm_of_what_softmax_divides_by():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 7, 4)) for name in "QKV"}
    arrays["mask"] = rng.uniform(size=(7, 7)) < 0.7
    arrays["mask"][3] = False
    trace = attnctl.attend(arrays, logsumexp=True)
    sums = np.exp(trace["masked_scores"]).sum(axis=-1)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(trace["logsumexp"], np.log(sums), rtol=0, atol=1e-14)
    assert (trace["logsumexp"][:, 3] == -np.inf).all()
    large = attnctl.attend({**arrays, "Q": 1e4 * arrays["Q"]}, logsumexp=True)
    assert np.isfinite(large["logsumexp"][:, :3]).all()


@pytest.mark.parametrize("keep", [["logsumexp"], ["logsumexp", "head_outputs"]])
def test_it_is_the_same_where_no_scores_are_kept(keep):
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 1100, 4)) for name in "QKV"}
    whole = attnctl.attend(arrays, causal=True, logsumexp=True)
    lean = attnctl.attend(arrays, causal=True, logsumexp=True, keep=keep)
    assert list(lean) == keep
    for name in keep:
        np.testing.assert_allclose(lean[name], whole[name], rtol=0, atol=1e-12)


def test_a_loss_of_the_log_sum_exp_too():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 5, 4)) for name in "QKV"}
    d = {"d_head_outputs": rng.standard_normal((2, 5, 4)), "d_logsumexp": rng.standard_normal((2, 5))}
    trace = attnctl.attend({**arrays, **d}, backward=True, causal=True)

    def loss(q):
        run = attnctl.attend({**arrays, "Q": q}, causal=True, logsumexp=True)
        return (run["head_outputs"] * d["d_head_outputs"]).sum() + (
            run["logsumexp"] * d["d_logsumexp"]
        ).sum()

    step = 1e-6 * rng.standard_normal(arrays["Q"].shape)
    slope = (loss(arrays["Q"] + step) - loss(arrays["Q"] - step)) / 2
    assert slope == pytest.approx((trace["d_Q"] * step).sum(), rel=1e-6)
    assert "d_masked_scores_through_logsumexp" in trace


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [{"causal": True, "softcap": 2.0}, {"window": (30, 5), "positions": "rope"}, {"positions": "alibi"}],
    ids=str,
)
def test_gradients_are_the_same_where_no_scores_are_kept(options):
    rng = np.random.RandomState(0)
    arrays = {"Q": rng.standard_normal((2, 740, 4)), "d_output": rng.standard_normal((2, 740, 4))}
    arrays |= {name: rng.standard_normal((1, 740, 4)) for name in "KV"}
    keep = ["d_V", "d_Q", "d_K"]
    lean = attnctl.attend(arrays, backward=True, keep=keep, **options)
    whole = attnctl.attend(arrays, backward=True, **options)
    assert set(lean) == set(keep)
    for name in keep:
        np.testing.assert_allclose(lean[name], whole[name], rtol=0, atol=1e-12)


def test_what_gradients_take_is_said_before():
    """Where a gradient has no tiles (a sink's), all that is by query and key counts."""
    arrays = {name: np.zeros((1, 50, 4)) for name in "QKV"}
    lean = attnctl.cost(arrays, keep=["d_Q"], backward=True)
    whole = attnctl.cost({**arrays, "sink": np.zeros(1)}, keep=["d_sink"], backward=True)
    assert [each.name for each in lean if each.kept] == ["d_Q"]
    assert all(each.kept for each in whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", RULES.values(), ids=RULES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_gradients_through_every_rule_are_slopes(kind, data):
    rule = data.draw(instances(kind))
    rng = np.random.RandomState(0)
    given = {name: rng.standard_normal((2, 2, 5, 4)) for name in "QKV"}
    d = rng.standard_normal((2, 2, 5, 4))
    kind = Variant(given=dict.fromkeys(given, "given"), d_k=4, rules=(rule,), batch=True, backward=True)
    trace = carry_out(kind.derivation, {**given, "d_head_outputs": d}).values
    for name, array in given.items():
        step = 1e-5 * rng.standard_normal(array.shape)
        ahead, back = (
            carry_out(kind.derivation, {**given, "d_head_outputs": d, name: moved}, keep=["head_outputs"])
            for moved in (array + step, array - step)
        )
        slope = ((ahead.values["head_outputs"] - back.values["head_outputs"]) / 2 * d).sum()
        assert (trace[f"d_{name}"] * step).sum() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_sides_of_unequal_length_where_no_scores_are_kept():
    rng = np.random.RandomState(0)
    arrays = {"Q": rng.standard_normal((1, 700, 3)), "d_output": rng.standard_normal((1, 700, 3))}
    arrays |= {name: rng.standard_normal((1, 1600, 3)) for name in "KV"}
    keep = ["d_Q", "d_K", "d_V"]
    lean, whole = (attnctl.attend(arrays, backward=True, keep=each) for each in (keep, None))
    for name in keep:
        np.testing.assert_allclose(lean[name], whole[name], rtol=0, atol=1e-12)


def test_the_operations_of_products_are_counted():
    arrays = {"Q": np.zeros((2, 3, 4)), "K": np.zeros((2, 5, 4)), "V": np.zeros((2, 5, 6))}
    flops = {each.name: each.flops for each in attnctl.cost(arrays, backward=True)}
    assert flops["d_Q"] == flops["d_K"] == 2 * 2 * 3 * 5 * 4
    assert flops["d_V"] == flops["d_attention_weights"] == 2 * 2 * 3 * 5 * 6
    assert flops["delta"] == 2 * 2 * 3 * 6
