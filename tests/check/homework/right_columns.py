# options: --heads 2
import numpy as np

rng = np.random.default_rng(71)
d, n = 6, 5
tokens = rng.normal(size=(d, n))  # a token a column
bias = rng.normal(size=(3, 1))


def over_columns(m):
    m = np.exp(m - m.max(axis=0))
    return m / m.sum(axis=0)


def head(x, w_q, w_k, w_v):
    q, k, v = w_q @ x + bias, w_k @ x, w_v @ x
    return v @ over_columns(k.T @ q / np.sqrt(len(q)))


weights = rng.normal(size=(2, 3, 3, d))
merged = np.vstack([head(tokens, *each) for each in weights])
print((rng.normal(size=(d, d)) @ merged).round(3))
