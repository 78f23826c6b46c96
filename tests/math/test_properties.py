"""What must be true of any attention, whatever its numbers are."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.math.derivation import Rotary

VARIANTS = {
    "plain": {},
    "rope": {"positions": Rotary()},
    "rope, neighbours, partial": {"positions": Rotary(100.0, 2, interleaved=True)},
    "alibi": {"positions": "alibi"},
    "window": {"window": (1, 0)},
    "softcap": {"softcap": 1.5},
    "all": {"positions": "alibi", "window": (2, 0), "softcap": 1.5, "scale": 0.3},
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def qkv(seed, *, heads=4, kv_heads=2, n=5, lead=()):
    rng = np.random.RandomState(seed)
    return {
        "Q": rng.standard_normal((*lead, heads, n, 4)),
        "K": rng.standard_normal((*lead, kv_heads, n, 4)),
        "V": rng.standard_normal((*lead, kv_heads, n, 3)),
    }


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_rows_of_weights_sum_to_one_or_are_zero(case):
    trace = attnctl.attend(case.arrays, **case.options)
    weights = trace["attention_weights"]
    sums = weights.sum(axis=-1)
    empty = [tuple(row) for row in trace.header.get("empty_rows", [])]
    for row in np.ndindex(sums.shape):
        share = trace["sink_weights"][row] if "sink" in trace else float(row in empty)
        assert abs(sums[row] + share - 1) < 1e-12
    assert ((weights >= 0) & (weights <= 1)).all()
    assert all(np.isfinite(trace[name]).all() for name in ("attention_weights", "head_outputs", "concat"))
    assert not any(trace["head_outputs"][row].any() for row in empty)


@variants
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), token=st.integers(1, 4))
def test_future_keys_cannot_change_the_past(options, seed, token):
    before = qkv(seed)
    after = {name: array.copy() for name, array in before.items()}
    for name in ("K", "V"):
        after[name][..., token, :] = 1e3
    a, b = (attnctl.attend(each, causal=True, **options)["head_outputs"] for each in (before, after))
    assert (a[:, :token] == b[:, :token]).all()
    assert (a[:, token] != b[:, token]).any()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(5)))
def test_permuting_tokens_permutes_the_output(seed, order):
    rng = np.random.RandomState(seed)
    weights = {f"W_{name}": rng.standard_normal((6, 8)) for name in "QKV"}
    x = rng.standard_normal((5, 6))
    straight = attnctl.attend({"X": x, **weights}, heads=2)["concat"]
    shuffled = attnctl.attend({"X": x[order], **weights}, heads=2)["concat"]
    np.testing.assert_allclose(shuffled, straight[order], rtol=0, atol=1e-12)


@pytest.mark.sample(3)
@variants
@pytest.mark.parametrize("lead", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_decoding_a_token_at_a_time_is_the_full_causal_pass(options, lead, kv_heads):
    whole = qkv(7, kv_heads=kv_heads, lead=lead)
    full = attnctl.attend(whole, causal=True, **options)
    past = {
        "past_key": np.zeros((*lead, kv_heads, 0, 4)),
        "past_value": np.zeros((*lead, kv_heads, 0, 3)),
    }
    for token in range(5):
        new = {name: array[..., token : token + 1, :] for name, array in whole.items()}
        step = attnctl.attend({**new, **past}, causal=True, **options)
        past = {"past_key": step["present_key"], "past_value": step["present_value"]}
        for name, size in (("attention_weights", token + 1), ("head_outputs", None)):
            rows = full[name][..., token : token + 1, :size]
            np.testing.assert_allclose(step[name], rows, rtol=0, atol=1e-12)
    assert step.config["causal_offset"] == 4


@variants
def test_decoding_from_a_static_cache_is_the_same_again(options):
    whole = qkv(8, lead=(2,))
    full = attnctl.attend(whole, causal=True, **options)["head_outputs"]
    lengths = np.array([3, 5])
    queries = np.stack(
        [whole["Q"][member, :, length - 2 : length] for member, length in enumerate(lengths)]
    )
    cached = {**whole, "Q": queries, "key_lengths": lengths}
    rows = attnctl.attend(cached, causal=True, **options)["head_outputs"]
    for member, length in enumerate(lengths):
        np.testing.assert_allclose(rows[member], full[member, :, length - 2 : length], rtol=0, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-1e4, 1e4))
def test_a_constant_on_every_score_leaves_the_weights(seed, shift):
    arrays = qkv(seed)
    straight = attnctl.attend(arrays, causal=True)["attention_weights"]
    shifted = attnctl.attend({**arrays, "bias": np.full((5, 5), shift)}, causal=True)["attention_weights"]
    np.testing.assert_allclose(shifted, straight, rtol=0, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), start=st.integers(0, 1000))
def test_rotary_scores_depend_on_distance_alone(seed, start):
    arrays = qkv(seed)
    at_zero = attnctl.attend(arrays, positions=Rotary())["scores"]
    none = np.zeros((2, start, 4)), np.zeros((2, start, 3))
    later = attnctl.attend({**arrays, "past_key": none[0], "past_value": none[1]}, positions=Rotary())
    np.testing.assert_allclose(later["scores"][..., start:], at_zero, rtol=0, atol=1e-10)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_a_batch_is_its_members_one_by_one(case):
    assume(case.batched and case.options.get("layout") != "bnhd")  # there is no layout of its members
    together = attnctl.attend(case.arrays, **case.options)
    layout = {"layout": "nd"} if "layout" in case.options else {}
    shared = tuple(name for name in case.arrays if name.startswith(("W_", "b_", "sink")) or "norm" in name)
    for number in range(len(case.kinds)):
        alone = {
            name: array
            if name in shared or (name in {"mask", "bias"} and np.ndim(array) < 4)
            else array[min(number, len(array) - 1)]
            for name, array in case.arrays.items()
        }
        trace = attnctl.attend(alone, **case.options | layout)
        np.testing.assert_allclose(trace["concat"], together["concat"][number], rtol=0, atol=1e-12)
