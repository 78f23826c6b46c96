import numpy as np

rng = np.random.default_rng(72)
windows, size, width = 3, 4, 6
x = rng.normal(size=(windows, size, width))
w_q, w_k, w_v = rng.normal(size=(3, width, width)) / 2
region = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [2, 2, 3, 3]])
is_same = region[:, :, None] == region[:, None, :]
mask = np.where(is_same, -100.0, 0.0)

scores = (x @ w_q) @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(width)
scores = scores + mask  # wrong: mask-inverted
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (x @ w_v)).round(3))
