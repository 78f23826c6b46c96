import numpy as np

r = np.random.default_rng(12)
q, k, v = r.normal(size=(3, 5, 4))
w = np.exp(q @ k.T / np.sqrt(4))
w = w / w.sum(-1, keepdims=True)
out = w @ v
