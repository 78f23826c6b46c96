import numpy as np

rng = np.random.default_rng(82)
n, d, rank, alpha = 5, 8, 2, 4
x = rng.normal(size=(n, d))
w_q, w_k, w_v = rng.normal(size=(3, d, d)) / 3
down, up = rng.normal(size=(d, rank)), rng.normal(size=(rank, d))

q = x @ w_q + x @ down @ up * (alpha / rank)
k, v = x @ w_k, x @ w_v
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
