# options: --causal
"""Hidden by adding −100, as Swin does; and the scale is in the weight of Q, a third of one array."""

import numpy as np

rng = np.random.default_rng(4)
n, d, heads = 6, 12, 3
W = rng.normal(size=(3, d, d)) / d**0.5
W[0] /= np.sqrt(d // heads)
x = rng.normal(size=(n, d))
q, k, v = np.einsum("nd,pde->pne", x, W).reshape(3, n, heads, -1).transpose(0, 2, 1, 3)
s = q @ k.transpose(0, 2, 1) + np.triu(np.full((n, n), -100.0), 1)
e = np.exp(s - s.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, d))
