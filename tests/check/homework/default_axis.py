import numpy as np

rng = np.random.default_rng(15)


def softmax(s, axis=0):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


X = rng.normal(size=(6, 8))
Wq, Wk, Wv = rng.normal(size=(3, 8, 8)) / 8**0.5
weights = softmax((X @ Wq) @ (X @ Wk).T / np.sqrt(8))  # wrong: softmax-over-queries
print(weights @ (X @ Wv))
