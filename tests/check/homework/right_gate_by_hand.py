import numpy as np

rng = np.random.default_rng(53)
n, d = 5, 6
wq, wk, wv, wg, wo = rng.normal(size=(5, d, d)) / d**0.5
x = rng.normal(size=(n, d))
s = (x @ wq) @ (x @ wk).T / d**0.5
e = np.exp(s - s.max(-1, keepdims=True))
heads = e / e.sum(-1, keepdims=True) @ (x @ wv)
gated = heads / (1 + np.exp(-(x @ wg)))
print((gated @ wo).round(3))
