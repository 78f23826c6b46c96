"""Attention of a padded batch, and of a layer whose model is handed the positions of its tokens."""

import sys

import numpy as np

POSITIONS = np.array([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])


def rotate(x, positions):
    half = x.shape[-1] // 2
    angle = positions[..., None] * 10_000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def attend(q, k, v, **_):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores)
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def attend_at(q, k, v, positions):
    at = positions[:, None] if sys.argv[1] == "right" else np.arange(q.shape[-2])
    return attend(rotate(q, at), rotate(k, at), v)


def layer(x, **kwargs):
    return attend(x, x, x)


def model(x, position_ids):
    return layer(x, position_ids=position_ids)


if __name__ == "__main__":
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 2, 6, 8))
    if sys.argv[1] == "model":
        model(q, POSITIONS)
        model(q, "of no array")
        model(q, np.arange(5))
    else:
        attend_at(q, k, v, POSITIONS)
