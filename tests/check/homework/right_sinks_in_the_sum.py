import numpy as np

rng = np.random.default_rng(40)
heads, n, width = 3, 6, 4
q, k, v = rng.normal(size=(3, heads, n, width))
sinks = rng.normal(size=heads)[:, None, None]
scores = q @ k.swapaxes(-1, -2) / width**0.5
top = np.maximum(scores.max(-1, keepdims=True), sinks)
e = np.exp(scores - top)
weights = e / (e.sum(-1, keepdims=True) + np.exp(sinks - top))
print((weights @ v).round(3))
