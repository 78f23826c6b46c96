import numpy as np

rng = np.random.default_rng(77)
n, d = 7, 8
words = rng.normal(size=(n, d))
angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
x = words + np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)  # as tensor2tensor has them

w_q, w_k, w_v = rng.normal(size=(3, d, d)) / 3
scores = (x @ w_q) @ (x @ w_k).T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (x @ w_v)).round(3))
