import numpy as np

rng = np.random.default_rng(33)
heads, n, width = 4, 6, 5
q, k, v = rng.normal(size=(3, heads, n, width))
slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
towards = -slopes[:, None, None] * np.arange(n)  # wrong: alibi-slopes

scores = q @ k.swapaxes(-1, -2) / width**0.5
scores = scores + towards
scores[:, np.arange(n)[:, None] < np.arange(n)] = -np.inf
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
