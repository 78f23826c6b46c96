import numpy as np

rng = np.random.default_rng(84)
n, d = 6, 8
x = rng.normal(size=(n, d))
w_q, w_k, w_v = (rng.normal(size=(d, d)) / 3 for _ in range(3))
q = x @ w_q
k = x @ w_k
v = x @ w_v
scores = k @ k.T / np.sqrt(d)  # wrong: projection-mixed-up
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
