import numpy as np

rng = np.random.default_rng(87)
n, d, hot = 6, 8, 4.0
q, k, v = rng.normal(size=(3, n, d))
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores / hot - (scores / hot).max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
