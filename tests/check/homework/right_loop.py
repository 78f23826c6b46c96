import numpy as np

rng = np.random.default_rng(9)
x = rng.normal(size=(4, 6))
Wq, Wk, Wv = rng.normal(size=(3, 6, 6))
heads = []
for i in range(2):
    cols = slice(3 * i, 3 * i + 3)
    q, k, v = x @ Wq[:, cols], x @ Wk[:, cols], x @ Wv[:, cols]
    scores = q @ k.T / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    heads.append(weights @ v)
output = np.concatenate(heads, axis=1)
