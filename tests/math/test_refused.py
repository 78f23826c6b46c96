"""Arrays and options that cannot be attended with: what is said of each."""

from __future__ import annotations

import numpy as np
import pytest

import attnctl
from attnctl.inputs.plan import Plan
from attnctl.math.derivation import Rotary, Variant

QKV = {"Q": np.ones((2, 3, 4)), "K": np.ones((2, 5, 4)), "V": np.ones((2, 5, 4))}
FROM_X = {"X": np.ones((3, 4)), **{f"W_{name}": np.ones((4, 4)) for name in "QKV"}}


def holed(name, value, *cells):
    array = QKV[name].copy()
    for cell in cells:
        array[cell] = value
    return {name: array}


REFUSED = {
    "a NaN": (holed("K", np.nan, (1, 2, 3)), {}, "K: nan at [1, 2, 3]; every number must be finite"),
    "several": (holed("Q", np.inf, (0, 0, 1), (1, 0, 0)), {}, "Q: inf at [0, 0, 1] (and 1 more)"),
    "minus infinity": (holed("V", -np.inf, (0, 4, 0)), {}, "V: -inf at [0, 4, 0]"),
    "too large for the type": (holed("Q", 7e4, (0, 1, 0)), {"dtype": "float16"}, "within ±65504 (float16)"),
    "a NaN in a mask": ({"mask": np.array([[0, np.nan, 0, 0, 0]])}, {}, "mask: nan at [0, 1]"),
    "plus infinity in a bias": ({"bias": np.array([[0, np.inf, 0, 0, 0]])}, {}, "bias: inf at [0, 1]"),
    "whole numbers to add": ({"mask": np.array([[0, -9, 0, 0, 0]])}, {}, "mask: -9 at [0, 1]; write 0"),
    "booleans": ({"Q": np.ones((2, 3, 4), bool)}, {}, "Q: numbers of type bool, expected floats"),
    "complex numbers": ({"Q": np.ones((2, 3, 4), complex)}, {}, "Q: numbers of type complex128"),
    "words": ({"Q": [["a"]]}, {}, "Q: numbers of type <U1, expected floats"),
    "ragged rows": ({"Q": [[1.0], [1.0, 2.0]]}, {}, "Q: its rows are of different lengths"),
    "no queries": ({"Q": np.ones((2, 0, 4))}, {}, "Q: 2 × 0 × 4, nothing to attend with"),
    "d_k of one only": ({"Q": np.ones((2, 3, 6))}, {}, "Q has d_k 6 but K has 4"),
    "keys without values": ({"V": np.ones((2, 6, 4))}, {}, "K is 2 × 5 × 4 but V is 2 × 6 × 4"),
    "heads that do not divide": ({"Q": np.ones((3, 3, 4))}, {}, "2 kv heads do not divide 3 heads"),
    "a batch of one only": ({"Q": np.ones((1, 2, 3, 4))}, {}, "give all with the same axes"),
    "batches of their own": (
        {name: np.stack([array] * (2 + (name == "Q"))) for name, array in QKV.items()},
        {},
        "Q has a batch of 3 but K of 2",
    ),
    "five axes": ({"Q": np.ones((1, 1, 1, 1, 1))}, {}, "Q: 1 × 1 × 1 × 1 × 1, expected (n, d)"),
    "columns heads do not divide": ({}, {"heads": 3}, "Q: 2 × 3 × 4, but 3 heads do not divide 4 columns"),
    "other heads": (
        {name: array[None] for name, array in QKV.items()},
        {"heads": 4},
        "heads: 4, but the arrays have 2",
    ),
    "another d_k": ({}, {"d_k": 8}, "d_k: 8, but the arrays have 4"),
    "a mask that does not fit": (
        {"mask": np.ones((4, 5), bool)},
        {},
        "mask: 4 × 5 does not fit scores of 2 × 3 × 5",
    ),
    "a long mask": ({"mask": np.ones((3, 6), bool)}, {}, "mask: 3 × 6 does not fit"),
    "a mask of one number": ({"mask": np.array(True)}, {}, "mask: one number does not fit"),
    "two that are added": (
        {"mask": np.zeros((3, 5)), "bias": np.zeros((3, 5))},
        {},
        "give their sum as bias",
    ),
    "another mask": (
        {"mask": np.ones((3, 5), bool)},
        {"mask": [[1, 0, 1, 1, 1]]},
        "the arrays hold another mask",
    ),
    "half a cache": ({"past_key": np.ones((2, 1, 4))}, {}, "past_key and past_value go together"),
    "a cache of other heads": (
        {"past_key": np.ones((1, 1, 4)), "past_value": np.ones((2, 1, 4))},
        {},
        "past_key: 1 × 1 × 4 does not continue in 2 × 5 × 4",
    ),
    "a lame cache": (
        {"past_key": np.ones((2, 1, 4)), "past_value": np.ones((2, 2, 4))},
        {},
        "past_key and past_value hold different numbers of keys: [1, 2]",
    ),
    "too long": (
        {"key_lengths": np.array([6])},
        {},
        "key_lengths: [6], expected 1 × a whole number from 0 to 5",
    ),
    "half a key": ({"key_lengths": np.array([2.5])}, {}, "key_lengths: [2.5], expected"),
    "fewer than none": ({"key_lengths": np.array([-1])}, {}, "key_lengths: -1 at [0]"),
    "lengths of another batch": (
        {"key_lengths": np.array([1, 2])},
        {},
        "key_lengths: [1, 2], expected 1 ×",
    ),
    "no V": ({"V": None}, {}, "no V in the arrays"),
    "X without W_V": ({**FROM_X, "W_V": None}, {}, "no W_V in the arrays; attention needs"),
    "b_O alone": ({"b_O": np.ones(4)}, {}, "b_O is added to concat W_O; give W_O too"),
    "W_O of other rows": ({**FROM_X, "W_O": np.ones((5, 4))}, {}, "W_O: 5 × 4, expected 4 rows"),
    "b_O of other columns": (
        {**FROM_X, "W_O": np.ones((4, 2)), "b_O": np.ones(4)},
        {},
        "b_O: 4, expected 2 (the columns of W_O)",
    ),
    "sinusoids without X": ({}, {"positions": "sinusoidal"}, "are added to X; give X, W_Q, W_K and W_V"),
    "a short table": (FROM_X, {"positions": [[0.0] * 4] * 2}, "expected at least 3 rows of d_model 4"),
    "memory in a batch": ({**FROM_X, "memory": np.ones((1, 3, 4))}, {}, "X is 3 × 4, memory 1 × 3 × 4"),
    "W_Q of other rows": ({**FROM_X, "W_Q": np.ones((5, 4))}, {}, "W_Q: 5 rows, but X has 4 columns"),
    "a flat X": ({**FROM_X, "X": np.ones(4)}, {}, "X: 4, expected (n, d_model)"),
    "a bias of other columns": ({**FROM_X, "b_Q": np.ones(3)}, {}, "b_Q: 1 × 3, expected 1 × 4"),
    "W_Q of other rows in a batch": (
        {**FROM_X, "X": np.ones((2, 3, 4)), "W_Q": np.ones((5, 4))},
        {},
        "W_Q: 5 rows, but X has 4 columns",
    ),
    "W_K of another d_k": ({**FROM_X, "W_K": np.ones((4, 6))}, {}, "W_Q has d_k 4 but W_K has 6"),
    "W_V of other heads": (
        {**FROM_X, "W_K": np.ones((1, 4, 4)), "W_V": np.ones((2, 4, 2))},
        {},
        "W_K is 1 × 4 × 4 but W_V is 2 × 4 × 2; they must agree in all but d_k and d_v",
    ),
    "W_K of the rows of X": (
        {**FROM_X, "memory": np.ones((3, 5)), "W_V": np.ones((5, 4))},
        {},
        "W_K: 4 rows, but memory has 5 columns",
    ),
    "a cache of other columns beside X": (
        {**FROM_X, "past_key": np.ones((1, 2, 3)), "past_value": np.ones((1, 2, 4))},
        {},
        "past_key: 1 × 2 × 3 does not continue in 1 × 3 × 4; all but the key axis must agree",
    ),
    "a flat W_O": ({**FROM_X, "W_O": np.ones(4)}, {}, "W_O: 4, expected 4 rows (heads·d_v)"),
    "another d_model": (FROM_X, {"d_model": 8}, "d_model: 8, but the arrays have 4"),
    "too many rotary columns": ({}, {"positions": Rotary(dims=6)}, "rotating 6 of d_k 4 columns"),
    "odd columns": (
        {name: array[..., :3] for name, array in QKV.items()},
        {"positions": Rotary()},
        "rotating 3 of d_k 3 columns; they turn in pairs",
    ),
}


@pytest.mark.parametrize(("arrays", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(arrays, options, message):
    others = {} if "X" in arrays else QKV
    given = {name: array for name, array in {**others, **arrays}.items() if array is not None}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(given, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: attnctl.attend(QKV, softcap=0), "softcap: 0 is not above 0"),
        (lambda: attnctl.attend(QKV, softcap=np.inf), "softcap: inf"),
        (lambda: attnctl.attend(QKV, window=(-1, 0)), "-1 is too small; write 0 or more"),
        (lambda: Rotary(theta=0.0), "theta: 0.0 is not a positive finite number"),
        (lambda: Rotary(dims=3), "rotary dims: 3 columns do not make pairs"),
    ],
)
def test_values_that_mean_nothing(make, message):
    with pytest.raises(attnctl.AttnError, match=message.replace("(", r"\(")):
        make()


def test_every_problem_at_once():
    arrays = {**QKV, **holed("Q", np.nan, (0, 0, 0)), **holed("V", np.inf, (1, 1, 1))}
    with pytest.raises(attnctl.AttnError) as caught:
        attnctl.attend(arrays)
    assert len(caught.value.problems) == 2


def test_what_several_lines_lack_is_said_once():
    given = {name: QKV[name] for name in "QK"}
    plan = Plan(Variant(dict.fromkeys(given, "given"), d_k=4, backward=True), given, {}, "float64")
    with pytest.raises(attnctl.AttnError) as refused:
        plan.run()
    assert [problem.partition(",")[0] for problem in refused.value.problems] == ["head_outputs reads V"]


def test_without_keys_there_are_as_many_as_queries():
    q = {"Q": QKV["Q"], "Q_rotated": QKV["Q"]}
    assert not attnctl.check(q | {"key_lengths": np.array([3])}, positions="rope").agrees
    with pytest.raises(attnctl.AttnError, match=r"key_lengths: \[4\], .* from 0 to 3"):
        attnctl.check(q | {"key_lengths": np.array([4])}, positions="rope")


@pytest.mark.parametrize("norm", [None, {"kind": "rms", "after_rotation": True}])
def test_steps_of_past_keys_and_new_ones_are_read(norm):
    past = {f"past_{name}": np.ones((2, 3, 4)) for name in ("key", "value")}
    options = {"positions": "rope", "cache_unrotated": True, "qk_norm": norm}
    trace = attnctl.attend(QKV | past, **options)
    found = {name: np.array(trace[name]) for name in trace}
    assert found["K_normed" if norm else "K_rotated"].shape == (2, 8, 4)
    assert attnctl.check(found, **options).agrees
