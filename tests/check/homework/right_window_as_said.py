# options: --causal --window 3
"""Local attention: a token sees itself and the WINDOW - 1 tokens before."""

import numpy as np

rng = np.random.default_rng(78)
WINDOW = 3
n, d = 8, 6
q, k, v = rng.normal(size=(3, n, d))
back = np.arange(n)[:, None] - np.arange(n)
near = (back >= 0) & (back < WINDOW)
scores = np.where(near, q @ k.T / np.sqrt(d), -np.inf)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
