import numpy as np

rng = np.random.default_rng(12)
x = 3 * rng.normal(size=(2, 6, 8))
words = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
wq, wk, wv = rng.normal(size=(3, 8, 8)) / 8**0.5
scores = (x @ wq) @ (x @ wk).swapaxes(1, 2) / 8**0.5
scores = scores + (1.0 - words[:, None, :]) * -10000.0
p = np.exp(scores - scores.max(-1, keepdims=True))
print((p / p.sum(-1, keepdims=True) @ (x @ wv)).shape)
