"""What is measured of each head, against plain loops over scalars and numbers typed in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import attnctl
from attnctl.base.errors import AttnError
from attnctl.math.derivation import Step
from attnctl.math.ops import Unstated
from attnctl.record import Trace
from attnctl.verbs.stats import tally
from attnctl.verbs.stats.tally import MEASURES, measure_heads


def a_trace(weights, **header):
    weights = np.asarray(weights)
    axes = ("batch", "head", "query", "key")[-weights.ndim :]
    step = Step("attention_weights", Unstated(), (), axes, "", "A")
    return Trace({step.name: step}, {step.name: weights}, header)


def bits(row):
    return -sum(p * math.log2(p) for p in row if p > 0)


def oracle(weights, tokens=None, offset=0):
    """The means of one head, (query, key), row by row; None where no row has the measure."""
    found = {name: [] for name in MEASURES}
    for q, row in enumerate(weights):
        total = sum(row)
        if not total:
            continue
        p, at = [value / total for value in row], q + offset
        found["entropy"].append(bits(p))
        found["effective_keys"].append(2 ** bits(p))
        found["distance"].append(sum(value * abs(at - k) for k, value in enumerate(p)))
        found["first"].append(p[0])
        for name, key in (("previous", at - 1), ("self", at)):
            if 0 <= key < len(p):
                found[name].append(p[key])
        if tokens:
            same = [value for k, value in enumerate(p) if k != at and tokens[k] == tokens[q]]
            found["same_token"].append(sum(same))
    return {name: sum(rows) / len(rows) if rows else None for name, rows in found.items()}


def test_numbers_typed_in():
    head = measure_heads(
        a_trace([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]], tokens=["a", "b", "a"])
    ).heads[0]
    assert head.means == pytest.approx(
        {
            "entropy": (0 + 1 + 1.5) / 3,
            "effective_keys": (1 + 2 + 2**1.5) / 3,
            "distance": (0 + 0.5 + 0.75) / 3,
            "previous": (0.5 + 0.25) / 2,
            "first": (1 + 0.5 + 0.25) / 3,
            "self": (1 + 0.5 + 0.5) / 3,
            "same_token": (0 + 0 + 0.25) / 3,
        }
    )
    assert (head.largest.value, head.largest.at, head.largest.tokens) == (1, (0, 0), ("a", "a"))


square = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        arrays(float, (2, n, n), elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])),
        st.lists(st.sampled_from("abc"), min_size=n, max_size=n),
    )
)


@given(square)
def test_the_same_as_plain_loops(drawn):
    weights, tokens = drawn
    found = measure_heads(a_trace(weights, tokens=tokens))
    for head, own in zip(found.heads, weights, strict=True):
        assert head.means == pytest.approx(oracle(own, tokens), abs=1e-12)
        assert head.empty_rows == sum(not any(row) for row in own)
        top = own.max()
        assert (head.largest.value if head.largest else 0) == top
        if head.largest:
            assert own[head.largest.at] == top
            assert head.largest.tokens == tuple(tokens[at] for at in head.largest.at)


@given(square)
def test_how_far_two_heads_are_apart(drawn):
    weights, _ = drawn
    rows = []
    for a, b in zip(*weights, strict=True):
        if a.any() and b.any():
            p, q = (a / a.sum()).tolist(), (b / b.sum()).tolist()
            mixed = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
            rows.append(bits(mixed) - (bits(p) + bits(q)) / 2)
    tally = measure_heads(a_trace(weights)).pairs[0, 1]
    assert tally.rows == len(rows)
    assert tally.sum == pytest.approx(sum(rows), abs=1e-12)


def test_heads_that_do_the_same_and_heads_with_nothing_in_common():
    eye = np.eye(3)
    found = measure_heads(a_trace([eye, eye, eye[::-1], np.roll(eye, 1, axis=0)]))
    apart = {pair: tally.mean for pair, tally in found.pairs.items()}
    assert apart == {(0, 1): 0, (0, 2): 2 / 3, (0, 3): 1, (1, 2): 2 / 3, (1, 3): 1, (2, 3): 2 / 3}
    assert [found.nearest(head) for head in range(4)] == [(1, 0), (0, 0), (0, 2 / 3), (2, 2 / 3)]
    assert found.to_dict()["most_similar"] == {"heads": [0, 1], "divergence": 0}


def test_blocks_of_any_size_give_the_same(monkeypatch):
    weights = np.random.RandomState(0).dirichlet(np.ones(7), (2, 3, 7))
    whole = measure_heads(a_trace(weights))
    monkeypatch.setattr(tally, "BLOCK", 1)
    assert measure_heads(a_trace(weights)) == whole


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_arrays_of_others(axes):
    weights = np.full((1, 1, 4, 4), 0.25)[(0,) * (4 - axes)]
    (head,) = measure_heads(a_trace(weights)).heads
    assert head.means == {
        "entropy": 2, "effective_keys": 4, "distance": 1.25, "previous": 0.25, "first": 0.25, "self": 0.25,
        "same_token": None,
    }  # fmt: skip


def test_a_batch_is_more_rows_and_says_where_the_largest_is():
    weights = np.full((2, 1, 2, 2), 0.5)
    weights[1, 0, 0] = 0.1, 0.9
    (head,) = measure_heads(a_trace(weights)).heads
    assert head.tallies["entropy"].rows == 4
    assert head.largest.at == (1, 0, 1)


def test_in_cross_attention_places_mean_nothing_but_words_do():
    trace = attnctl.run("I love AI", context="AI cats I AI")
    (head,) = measure_heads(trace).heads
    assert [name for name, mean in head.means.items() if mean is None] == ["distance", "previous", "self"]
    rows = trace["attention_weights"][0]
    assert head.means["same_token"] == pytest.approx((rows[0, 2] + rows[2, 0] + rows[2, 3]) / 3)


def test_queries_after_a_cache_stand_at_its_end():
    rng = np.random.RandomState(1)
    new = {name: rng.uniform(-1, 1, (1, 2, 3)) for name in "QKV"}
    past = {name: rng.uniform(-1, 1, (1, 3, 3)) for name in ("past_key", "past_value")}
    trace = attnctl.attend({**new, **past}, causal=True)
    (head,) = measure_heads(trace).heads
    assert head.means == pytest.approx(
        {**oracle(trace["attention_weights"][0].tolist(), offset=3), "same_token": None}
    )


def test_queries_among_other_keys_have_no_place():
    rng = np.random.RandomState(1)
    arrays = {"Q": rng.uniform(size=(2, 3)), "K": rng.uniform(size=(4, 3)), "V": rng.uniform(size=(4, 3))}
    assert measure_heads(attnctl.attend(arrays)).heads[0].tallies["distance"] is None
    assert measure_heads(attnctl.attend(arrays, causal=True)).heads[0].tallies["distance"] is not None
    assert measure_heads(attnctl.attend(arrays, causal_offset=2)).heads[0].tallies["distance"] is not None


def test_rows_that_see_nothing_are_counted_and_left_out():
    trace = attnctl.run("I love AI", mask=[[0, 0, 0], [1, 0, 0], [0, 0, 1]])
    (head,) = measure_heads(trace).heads
    assert head.empty_rows == 1
    assert head.means["entropy"] == 0
    assert head.tallies["self"].rows == 2
    (blind,) = measure_heads(a_trace(np.zeros((2, 2)))).heads
    assert (blind.largest, blind.means["entropy"], blind.empty_rows) == (None, None, 2)


@pytest.mark.parametrize(
    ("dtype", "off", "uneven"),
    [
        ("float64", 1e-4, 0),
        ("float64", 1e-2, 1),
        ("float32", 1e-4, 0),
        ("float16", 4e-3, 0),
        ("float16", 0.1, 1),
    ],
)
def test_rows_that_do_not_sum_to_1_are_counted_and_taken_as_shares(dtype, off, uneven):
    weights = np.array([[0.5, 0.5], [0.5 + off, 0.5]], dtype=dtype)
    (head,) = measure_heads(a_trace(weights)).heads
    assert head.uneven_rows == uneven
    assert head.means["first"] == pytest.approx(
        (0.5 + float(weights[1, 0]) / float(weights[1].sum())) / 2, rel=1e-3
    )


@pytest.mark.parametrize("wrong", [-0.1, np.nan, np.inf])
def test_what_is_no_weight_is_refused_with_its_place(wrong):
    weights = np.full((2, 3, 3), 1 / 3)
    weights[1, 2, 0] = wrong
    with pytest.raises(AttnError, match=rf"attention_weights: {wrong} at \[1, 2, 0\]"):
        measure_heads(a_trace(weights))


def test_a_dump_without_weights_is_refused():
    with pytest.raises(AttnError, match="no attention_weights in this dump; it has scores"):
        measure_heads(attnctl.run("I love AI").select(["scores"]))


def test_tokens_that_do_not_fit_are_not_used():
    (head,) = measure_heads(a_trace(np.full((2, 2), 0.5), tokens=["one"])).heads
    assert head.tallies["same_token"] is None
    assert head.largest.tokens is None


@pytest.mark.parametrize(
    "config",
    [
        {"rules": 3},
        {"rules": [[1]]},
        {"causal_offset": "x"},
        {"causal_offset": [1, 2]},
        {"causal_offset": None},
    ],
)
def test_a_config_that_makes_no_sense_does_no_harm(config):
    assert measure_heads(a_trace(np.full((2, 2), 0.5), config=config)).heads[0].means["entropy"] == 1
