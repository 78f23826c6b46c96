"""Every figure of the worked examples, typed in from their sources."""

from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.load import load

CONFIGS = Path(__file__).parent.parent / "configs"

FIGURES = [
    ("india-is-great", "X", 0, [0.1, 1.3, 0.4, 1.5]),
    ("india-is-great", "X", 1, [1.041, 0.640, 0.60999, 1.2999]),
    ("india-is-great", "X", 2, [1.309, -0.116, 0.92, 1.0998]),
    ("india-is-great", "Q", (0, 0), [0.95, 0.27, 0.53, 0.89]),
    ("india-is-great", "scores", (0, 0), [1.415, 1.49427205, 1.33825]),
    ("india-is-great", "attention_weights", (0, 0), [0.33302429, 0.34648913, 0.32048658]),
    ("india-is-great", "head_outputs", (0, 0), [0.47819624, 0.460618, 0.83409842, 0.74305882]),
    ("india-is-great-2-heads", "output", 0, [2.31513935, 1.7957773, 3.62141732, 3.34509988]),
    ("india-is-great-2-heads", "output", 2, [2.34870176, 1.80751799, 3.66099707, 3.38815117]),
    (
        "i-love-machine-learning",
        "attention_weights",
        (0, 0),
        [0.38745562, 0.23500371, 0.23500371, 0.14253696],
    ),
    (
        "i-love-machine-learning",
        "head_outputs",
        (0, 0),
        [0.62245933, 0.61254438, 0.62245933, 0.37754067],
    ),
    ("i-love-machine-learning-2-heads", "output", 0, [0.66976155, 0.66511923, 0.66976155, 0.33023845]),
]


WHOLE = {
    "d_masked_scores": [[[0, 0, 0], [2, -2, 0], [0, 2, -2]], [[0, 0, 0], [2, -2, 0], [0, -4, 4]]],
    "d_Q": [[[0, 0], [1, -1], [3, 0]], [[0, 0], [1, -1], [-6, 0]]],
    "d_K": [[[3, 3], [-3, -6], [0, 3]]],
    "d_V": [[[0, 6], [0, 4], [0, 2]]],
    "d_W_K": [[[0, -3], [3, 3], [3, -3], [-6, -6]]],
    "d_X": [[-9, 3, 3, -9], [-10, -7, -2, -15], [-1, 3, -6, -1]],
}
"""Worked out with a pencil."""


def trace_of(name):
    return attnctl.run(settings=load(CONFIGS / f"{name}.yaml"))


@pytest.mark.parametrize(("config", "step", "at", "expected"), FIGURES)
def test_figure(config, step, at, expected):
    np.testing.assert_allclose(trace_of(config)[step][at], expected, rtol=0, atol=1e-8)


def test_gradients_by_hand_are_whole_numbers():
    trace = trace_of("gradients-by-hand")
    for name, expected in WHOLE.items():
        assert trace[name].tolist() == expected
    for name in trace:
        if name.startswith("d_"):
            np.testing.assert_array_equal(2 * trace[name], np.round(2 * trace[name]), err_msg=name)


EVERY_STEP = [
    "embeddings", "X", "W_Q", "W_K", "W_V", "Q", "K", "V", "scores", "scaled_scores",
    "attention_weights", "head_outputs", "concat", "output",
]  # fmt: skip


def test_i_love_ai_goes_from_tokens_to_concat():
    trace = trace_of("i-love-ai")
    assert trace.tokens == ["I", "love", "AI"]
    assert trace.ids == [0, 1, 2]
    assert list(trace) == EVERY_STEP
    assert trace["W_Q"].shape == (2, 4, 2)
    assert trace["concat"].shape == (3, 4)


def test_one_matrix_serves_queries_keys_and_values():
    trace = trace_of("one-matrix")
    assert len(trace.tokens) == 5
    assert trace["W_Q"].tolist() == trace["W_K"].tolist() == trace["W_V"].tolist()
    np.testing.assert_allclose(trace["scores"][0], trace["scores"][0].T, atol=1e-15)


def test_cats_chase_mice_has_punctuation_positions_and_a_causal_mask():
    trace = trace_of("cats-chase-mice")
    assert trace.tokens == ["cats", "chase", "mice", ",", "mice", "flee", "."]
    # sin and cos of position 1, of frequencies 1 and 1/10, typed in.
    expected = [0.8414709848, 0.5403023059, 0.0998334166, 0.9950041653]
    np.testing.assert_allclose(trace["positions"][1, :4], expected, atol=1e-10)
    future = np.triu(np.ones((7, 7), dtype=bool), 1)
    assert (trace["attention_weights"][:, future] == 0).all()
    assert np.isneginf(trace["masked_scores"][:, future]).all()


def test_it_looks_at_the_animal_because_a_pronoun_asks_for_a_being():
    trace = trace_of("it-was-tired")
    it, animal, street = map(trace.tokens.index, ["it", "animal", "street"])
    row = trace["attention_weights"][0, it]
    # 7/√2, 1/√2 and seven zeros: e^4.949747 = 141.139, e^0.707107 = 2.028115, typed in
    np.testing.assert_allclose(row[[animal, street]], [0.939880, 0.013506], atol=1e-6)
    assert trace["attention_weights"][1, trace.tokens.index("tired")].argmax() == it


def test_the_base_transformer_has_its_sizes():
    trace = trace_of("base-transformer")
    assert len(trace.tokens) == 10
    assert trace["W_Q"].shape == (8, 512, 64)
    assert trace["output"].shape == (10, 512)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_runs(path):
    trace = attnctl.run(settings=load(path))
    np.testing.assert_allclose(trace["attention_weights"].sum(-1), 1, atol=1e-12)
