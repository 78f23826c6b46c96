"""Gemma 2: scores are divided by the root of a number of the model's own, and capped."""

import numpy as np

rng = np.random.default_rng(41)
n, d = 6, 8
wq, wk, wv = rng.normal(size=(3, d, d)) / d**0.5
x = rng.normal(size=(n, d))
scores = (x @ wq) @ (x @ wk).T * 13**-0.5
scores = 5.0 * np.tanh(scores / 5.0)
scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (x @ wv)).round(3))
