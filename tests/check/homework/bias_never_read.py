import numpy as np

rng = np.random.default_rng(73)
n, d = 5, 6
x = rng.normal(size=(n, d))
w_q, w_k, w_v = rng.normal(size=(3, d, d)) / 2
b_q, b_k, b_v = rng.normal(size=(3, d))


def linear(rows, weight, bias=0.0):
    return rows @ weight + bias


q = linear(x, w_q, b_q)
k = linear(x, w_k, b_k)
v = linear(x, w_v)  # wrong: bias-missing
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
