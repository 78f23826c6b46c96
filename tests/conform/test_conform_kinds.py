"""Attention that is none of softmax is called what it is, once, and softmax that is wrong is not."""

from __future__ import annotations

import numpy as np
import pytest

import attnctl


def scores(q, k):
    return q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def of_weights(weights):
    """A kernel with these weights of Q and K."""

    def attention(q, k, v, causal=False):
        wide = (x.astype(np.float64) for x in (q, k, v))
        return give(*wide, causal, weights).astype(q.dtype)

    return attention


def give(q, k, v, causal, weights):
    made = weights(q, k)
    hidden = ~np.tri(*made.shape[-2:], dtype=bool) if causal else np.zeros(made.shape[-2:], dtype=bool)
    return np.where(hidden, 0.0, made) @ v


def normalised(weights):
    def divided(q, k):
        made = weights(q, k)
        total = made.sum(axis=-1, keepdims=True)
        return made / np.where(total == 0, 1.0, total)

    return divided


def relu(x):
    return np.maximum(x, 0.0)


def sparsemax_row(row):
    """By its definition: the threshold above which what is left over sums to 1."""
    ordered = sorted(row, reverse=True)
    for count in range(len(row), 0, -1):
        threshold = (sum(ordered[:count]) - 1) / count
        if ordered[count - 1] > threshold:
            return np.maximum(row - threshold, 0.0)
    raise AssertionError


def entmax_row(row):
    """The same for squares of half the scores, whose threshold solves a quadratic equation."""
    half = np.sort(row / 2)[::-1]
    for count in range(len(row), 0, -1):
        mean = half[:count].mean()
        variance = np.square(half[:count]).mean() - mean**2
        left = 1 / count - variance
        threshold = mean - np.sqrt(left) if left >= 0 else np.inf
        if half[count - 1] >= threshold:
            return np.square(np.maximum(row / 2 - threshold, 0.0))
    raise AssertionError


def by_row(function):
    return lambda q, k: np.apply_along_axis(function, -1, scores(q, k))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def elu_plus_one(x):
    return np.where(x > 0, x + 1, np.exp(x))


KINDS = {
    "ReLU of the scores": lambda q, k: relu(scores(q, k)) / k.shape[-2],
    "squared ReLU of the scores": normalised(lambda q, k: relu(scores(q, k)) ** 2),
    "sigmoid less log n of the scores": lambda q, k: 1 / (1 + np.exp(np.log(k.shape[-2]) - scores(q, k))),
    "sparsemax of the scores": by_row(sparsemax_row),
    "1.5-entmax of the scores": by_row(entmax_row),
    "φ = ELU + 1": normalised(lambda q, k: elu_plus_one(q) @ elu_plus_one(k).swapaxes(-1, -2)),
    "φ = ReLU": normalised(lambda q, k: relu(q) @ relu(k).swapaxes(-1, -2)),
    "φ = x": lambda q, k: q @ k.swapaxes(-1, -2),
    "efficient attention": lambda q, k: softmax(q) @ softmax(k.swapaxes(-1, -2)),
    "softmax of 8 times the cosines": lambda q, k: softmax(8 * unit(q) @ unit(k).swapaxes(-1, -2)),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_named(kind):
    found = attnctl.conform(of_weights(KINDS[kind]), quick=True, dtypes=["float32"], features=["attention"])
    (attention,) = found.features
    assert attention.failure.mistake == "not-softmax", str(found)
    assert kind in attention.failure.explanation


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("kind", ["squared ReLU of the scores", "φ = ELU + 1", "sparsemax of the scores"])
def test_a_kind_is_named_in_every_type(kind, dtype):
    found = attnctl.conform(of_weights(KINDS[kind]), quick=True, dtypes=[dtype], features=["attention"])
    assert f"those of {kind}" in str(found) or kind in str(found)


@pytest.mark.slow
def test_it_is_said_once_for_all_features():
    kernel = of_weights(KINDS["squared ReLU of the scores"])
    found = attnctl.conform(kernel, quick=True, dtypes=["float32"])
    said = str(found)
    assert said.count("no softmax attention") == said.count("not-softmax: ") == 1
    assert "No known mistake" not in said


def with_temperature(q, k):
    return softmax(scores(q, k) / 3)


def with_sink(q, k):
    e = np.exp(scores(q, k))
    return e / (e.sum(axis=-1, keepdims=True) + 2.0)


def over_queries(q, k):
    e = np.exp(scores(q, k))
    return e / e.sum(axis=-2, keepdims=True)


@pytest.mark.parametrize("weights", [with_temperature, with_sink, over_queries])
def test_a_softmax_that_is_wrong_is_one(weights):
    found = attnctl.conform(of_weights(weights), quick=True, dtypes=["float32"], features=["attention"])
    assert found.agrees is False
    assert found.features[0].failure.mistake not in {None, "not-softmax"}, str(found)
