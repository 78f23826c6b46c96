# options: --causal
"""Keys, queries and values packed in that order, and a cache that is read in pieces."""

import numpy as np

rng = np.random.default_rng(9)
d = 8
packed, W_o = rng.normal(size=(d, 3 * d)) / d**0.5, rng.normal(size=(d, d)) / d**0.5
x = rng.normal(size=(7, d))
past = None
for begin, end in ((0, 3), (3, 4), (4, 7)):
    k, q, v = np.split(x[begin:end] @ packed, 3, axis=-1)
    if past is not None:
        k, v = np.concatenate([past[0], k]), np.concatenate([past[1], v])
    past = k, v
    s = q @ k.T / np.sqrt(d)
    s = np.where(np.triu(np.ones(s.shape, bool), begin + 1), -1e30, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    print(e / e.sum(-1, keepdims=True) @ v @ W_o)
