import numpy as np

rng = np.random.default_rng(85)
n, d = 6, 8
x = rng.normal(size=(n, d))
w_qk, w_v = rng.normal(size=(2, d, d)) / 3
qk = x @ w_qk  # Reformer's: one matrix for both
v = x @ w_v
scores = qk @ qk.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
