import numpy as np

rng = np.random.default_rng(35)
heads, n, d = 2, 5, 8
wq, wk, wv = rng.normal(size=(3, d, d)) / d**0.5
x = rng.normal(size=(n, d))


def split(rows):
    return rows.reshape(n, heads, d // heads).swapaxes(0, 1)


def norm(rows, axis):
    centred = rows - rows.mean(axis=axis, keepdims=True)
    return centred / np.sqrt(rows.var(axis=axis, keepdims=True) + 1e-6)  # wrong: -


q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
q, k = norm(q, 1), norm(k, 1)
s = q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5
e = np.exp(s - s.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
