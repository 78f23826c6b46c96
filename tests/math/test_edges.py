"""Where attention goes wrong in other people's code: numbers typed in by hand."""

from __future__ import annotations

import numpy as np
import pytest

import attnctl
from attnctl.math.derivation import Rotary
from attnctl.math.rules import alibi_slopes

INF = np.inf
V = np.array([[1.0], [2.0], [4.0], [8.0]])


def attend(scores, v=V, **options):
    """Attention whose scores are these: Q holds them, K is the identity, nothing is scaled."""
    scores = np.array(scores, dtype=float)
    arrays = {"Q": scores, "K": np.eye(scores.shape[-1]), "V": v[: scores.shape[-1]]}
    arrays |= {name: options.pop(name) for name in ("mask", "bias", "key_lengths") if name in options}
    return attnctl.attend(arrays, **{"scale": 1.0, **options})


def visible(trace):
    """Who sees whom in the first head, a string of 0 and 1 a query."""
    return ["".join("01"[int(w > 0)] for w in row) for row in trace["attention_weights"][0]]


def test_the_row_maximum_is_subtracted():
    trace = attend([[1e300, 1e300, 0, 0], [-1e300, -1e300, -1e300, -1e300], [800.0, 801.0, 0, 0]])
    expected = [[0.5, 0.5, 0, 0], [0.25] * 4, [0.2689414213699951, 0.7310585786300049, 0, 0]]
    np.testing.assert_allclose(trace["attention_weights"][0], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("mask", [np.ones((1, 3), bool), np.zeros((1, 3)), np.ones(3, bool), np.zeros(3)])
def test_a_short_mask_hides_the_rest(mask):
    assert visible(attend([[0, 0, 0, 0], [0, 0, 0, 9]], mask=mask)) == ["1110", "1110"]


@pytest.mark.parametrize("mask", [[[True], [False]], [[1], [0]]], ids=["booleans", "0 and 1"])
def test_a_mask_of_one_column_is_that_column_for_all(mask):
    assert visible(attend([[0, 0, 0], [0, 0, 0]], mask=np.array(mask))) == ["111", "000"]


def test_softcap_keeps_the_raw_scores():
    trace = attend([[4.0, -4.0, 0.0]], softcap=2.0, scale=0.5)
    assert trace["scores"].tolist() == [[[4.0, -4.0, 0.0]]]
    assert trace["scaled_scores"].tolist() == [[[2.0, -2.0, 0.0]]]
    capped = 1.5231883119115297  # 2 · tanh(1)
    np.testing.assert_allclose(trace["softcapped_scores"], [[[capped, -capped, 0.0]]], rtol=1e-15)


def test_softcap_comes_before_the_mask():
    """After it, a hidden score would be −cap and get weight."""
    for mask in (np.array([[True, True, False]]), np.array([[0.0, 0.0, -INF]])):
        trace = attend([[0.0, 0.0, 0.0]], softcap=0.5, mask=mask)
        assert trace["attention_weights"].tolist() == [[[0.5, 0.5, 0.0]]]


def test_softcap_comes_before_the_bias():
    trace = attend([[0.0, 0.0]], softcap=0.5, bias=np.array([[30.0, 0.0]]))
    assert trace["biased_scores"].tolist() == [[[30.0, 0.0]]]


@pytest.mark.parametrize(
    "options",
    [
        {"mask": np.array([[True, True], [False, False]])},
        {"mask": np.array([[0.0, 0.0], [-INF, -INF]])},
        {"causal": True, "mask": np.array([[True, True], [False, False]])},
        {"window": (0, 0), "mask": np.array([[True, True], [True, False]])},
        {"window": (None, 0), "mask": np.array([[True, False], [False, False]]), "softcap": 1.0},
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_row_that_sees_nothing_is_zero(options, dtype):
    trace = attend([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, **options)
    assert trace["attention_weights"][0, 1].tolist() == [0.0, 0.0]
    assert trace["head_outputs"][0, 1].tolist() == [0.0]
    assert trace["head_outputs"][0, 0] > 0
    assert trace.header["empty_rows"] == [[0, 1]]


def test_rows_that_all_see_something_are_not_flagged():
    assert "empty_rows" not in attend([[1.0, 2.0]], mask=np.array([[True, False]])).header


def test_lengths_of_zero_leave_every_row_empty():
    trace = attend([[1.0, 2.0], [3.0, 4.0]], key_lengths=np.array(0))
    assert not trace["head_outputs"].any()
    assert trace.header["empty_rows"] == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"window": (1, 0)}, ["10000", "11000", "01100", "00110"]),
        ({"window": (0, 0)}, ["10000", "01000", "00100", "00010"]),
        ({"window": (1, 2)}, ["11100", "11110", "01111", "00111"]),
        ({"window": (None, 1)}, ["11000", "11100", "11110", "11111"]),
        ({"window": (1, None)}, ["11111", "11111", "01111", "00111"]),
        ({"window": (1, 1), "causal": True}, ["10000", "11000", "01100", "00110"]),
        # A model's sliding_window of 3: each token sees 3 keys, itself among them.
        ({"window": (2, 2), "causal": True}, ["10000", "11000", "11100", "01110"]),
        ({"causal": True}, ["10000", "11000", "11100", "11110"]),
        ({"causal": True, "causal_offset": 1}, ["11000", "11100", "11110", "11111"]),
        ({"causal": True, "causal_offset": -1}, ["00000", "10000", "11000", "11100"]),
        ({"causal": True, "key_lengths": np.array([5])}, ["11000", "11100", "11110", "11111"]),
        ({"causal": True, "key_lengths": np.array([4])}, ["10000", "11000", "11100", "11110"]),
        ({"causal": True, "key_lengths": np.array([2])}, ["00000", "00000", "10000", "11000"]),
        (
            {"causal": True, "key_lengths": np.array([3]), "causal_offset": 0},
            ["10000", "11000", "11100", "11100"],
        ),
        ({"key_lengths": np.array([3])}, ["11100"] * 4),
        ({"window": (1, 0), "key_lengths": np.array([5])}, ["11000", "01100", "00110", "00011"]),
    ],
)
def test_who_sees_whom(options, expected):
    trace = attend(np.zeros((4, 5)), v=np.ones((5, 1)), **options)
    assert visible(trace) == expected


def test_each_member_of_a_batch_has_its_own_offset():
    arrays = {"Q": np.zeros((2, 1, 2, 1)), "K": np.zeros((2, 1, 4, 1)), "V": np.ones((2, 1, 4, 1))}
    trace = attnctl.attend({**arrays, "key_lengths": np.array([2, 4])}, causal=True)
    assert (trace["attention_weights"] > 0).astype(int).tolist() == [
        [[[1, 0, 0, 0], [1, 1, 0, 0]]],
        [[[1, 1, 1, 0], [1, 1, 1, 1]]],
    ]
    assert trace.config["causal_offset"] == [0, 2]
    assert trace.config["key_lengths"] == [2, 4]


def test_a_cache_stands_before_query_0():
    past = {"past_key": np.zeros((1, 3, 1)), "past_value": np.ones((1, 3, 1))}
    arrays = {"Q": np.zeros((2, 1)), "K": np.zeros((2, 1)), "V": np.ones((2, 1))}
    trace = attnctl.attend({**arrays, **past}, causal=True)
    assert visible(trace) == ["11110", "11111"]
    assert trace.config["causal_offset"] == 3


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
        (12, [*(2.0**-i for i in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_slopes_of_alibi(heads, slopes):
    assert alibi_slopes(heads).tolist() == slopes


def test_alibi_takes_slope_times_distance():
    zeros = np.zeros((2, 2, 3, 1))
    trace = attnctl.attend({"Q": zeros[0], "K": zeros[0], "V": zeros[0]}, positions="alibi")
    near, far = -0.0625, -0.00390625
    assert trace["biased_scores"].tolist() == [
        [[0, s, 2 * s], [s, 0, s], [2 * s, s, 0]] for s in (near, far)
    ]


@pytest.mark.parametrize(("sign", "weight"), [(1, np.nan), (-1, 0.0)])
def test_overflow_is_told_and_not_warned_about(sign, weight):
    """200 · 200 · 4 is more than a float16 holds: what follows is as wrong as in any kernel."""
    arrays = {"Q": np.full((2, 4), 200.0), "K": np.full((1, 4), sign * 200.0), "V": np.ones((1, 1))}
    arrays["Q"][0] = 0
    trace = attnctl.attend(arrays, dtype="float16")
    assert trace["scores"].tolist() == [[[0.0], [sign * INF]]]
    np.testing.assert_equal(trace["attention_weights"], [[[1.0], [weight]]])
    assert trace.header["overflow"] == {"step": "scores", "at": [0, 1, 0]}
    assert "overflow" not in attnctl.attend(arrays, dtype="float32").header


def test_what_hides_is_not_overflow():
    trace = attend([[1.0, 2.0]], dtype="float16", causal=True, bias=np.array([[-1e9, 0.0]]))
    assert trace["bias"].tolist() == [[-INF, 0.0]]
    assert "overflow" not in trace.header


def test_attention_from_x_goes_through_weights_and_biases():
    arrays = {
        "X": np.array([[1.0, 0.0], [0.0, 2.0]]),
        "W_Q": np.zeros((2, 1)),
        "W_K": np.ones((2, 1)),
        "W_V": np.array([[1.0], [10.0]]),
        "b_V": np.array([0.5]),
        "W_O": np.array([[2.0, -1.0]]),
        "b_O": np.array([0.0, 100.0]),
    }
    trace = attnctl.attend(arrays)
    assert trace["V"].tolist() == [[[1.5], [20.5]]]
    assert trace["concat"].tolist() == [[11.0], [11.0]]
    assert trace["output"].tolist() == [[22.0, 89.0], [22.0, 89.0]]


def test_kv_heads_are_repeated_side_by_side():
    arrays = {"Q": np.zeros((4, 1, 1)), "K": np.zeros((2, 1, 1)), "V": np.array([[[1.0]], [[2.0]]])}
    assert attnctl.attend(arrays)["concat"].tolist() == [[1.0, 1.0, 2.0, 2.0]]


def test_rotary_turns_pairs_by_their_angle():
    x = np.ones((2, 4))
    trace = attnctl.attend({"Q": x, "K": x, "V": x}, positions=Rotary())
    cos, sin = 0.5403023058681398, 0.8414709848078965  # of 1, at position 1
    small_cos, small_sin = 0.9999500004166653, 0.009999833334166664  # of 0.01
    expected = [cos - sin, small_cos - small_sin, cos + sin, small_cos + small_sin]
    np.testing.assert_allclose(trace["Q_rotated"][0], [[1, 1, 1, 1], expected], rtol=1e-15)
    trace = attnctl.attend({"Q": x, "K": x, "V": x}, positions=Rotary(interleaved=True))
    expected = [cos - sin, cos + sin, small_cos - small_sin, small_cos + small_sin]
    np.testing.assert_allclose(trace["K_rotated"][0], [[1, 1, 1, 1], expected], rtol=1e-15)
