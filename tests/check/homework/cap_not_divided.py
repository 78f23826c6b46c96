# options: --softcap 5
import numpy as np

rng = np.random.default_rng(86)
n, d, cap = 6, 8, 5.0
q, k, v = rng.normal(size=(3, n, d)) * 2
scores = q @ k.T / np.sqrt(d)
scores = cap * np.tanh(scores)  # wrong: softcap-half
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
