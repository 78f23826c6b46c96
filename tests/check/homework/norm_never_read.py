import numpy as np

rng = np.random.default_rng(81)
n, d = 5, 6
x = rng.normal(size=(n, d)) * 2 + 1
w_q, w_k, w_v = rng.normal(size=(3, d, d)) / 2


def layer_norm(rows):
    centred = rows - rows.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


h = layer_norm(x)  # wrong: norm-never-read
q, k, v = x @ w_q, x @ w_k, x @ w_v
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
x = x + e / e.sum(-1, keepdims=True) @ v
print(x.round(3))
