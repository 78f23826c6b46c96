import numpy as np

rng = np.random.default_rng(74)
n, d = 5, 6
source = rng.normal(size=(n, d))
w_q, w_k, w_v, w_o = rng.normal(size=(4, d, d)) / 2
q, k, v = source @ w_q, source @ w_k, source @ w_v
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
weights = e / e.sum(-1, keepdims=True)
print((source + weights @ source @ w_o).round(3))  # wrong: values-never-read
