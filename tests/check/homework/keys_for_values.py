import numpy as np

rng = np.random.default_rng(83)
n, d = 6, 8
x = rng.normal(size=(n, d))
packed = rng.normal(size=(d, 3 * d)) / 3
q, k, v = np.split(x @ packed, 3, axis=-1)
scores = q @ k.T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
p = e / e.sum(-1, keepdims=True)
print((p @ k).round(3))  # wrong: projection-mixed-up
