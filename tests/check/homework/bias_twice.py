import numpy as np

rng = np.random.default_rng(32)
heads, n, width = 2, 6, 5
q, k, v = rng.normal(size=(3, heads, n, width))
table = rng.normal(size=(heads, 2 * n - 1))
distance = np.arange(n)[:, None] - np.arange(n) + n - 1
bias = table[:, distance]

scores = q @ k.swapaxes(-1, -2)
scores = scores + bias
weights = np.exp(scores + bias)  # wrong: score-bias-wrong
weights /= weights.sum(-1, keepdims=True)
print((weights @ v).round(3))
