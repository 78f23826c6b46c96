"""A model of three layers, and what attention does in one of them is not what it does in the others."""

import numpy as np

rng = np.random.default_rng(0)


def attend(q, k, v, layer):
    scores = q @ k.swapaxes(-1, -2) / (np.sqrt(16) if layer == 1 else np.sqrt(4))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


x = rng.normal(size=(5, 16))
for layer in range(3):
    q, k, v = (x @ rng.normal(size=(4, 16, 4)) / 4 for _ in range(3))  # (head, n, d_k)
    out = attend(q, k, v, layer)
    x = x + out.swapaxes(0, 1).reshape(5, 16)
