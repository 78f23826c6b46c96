import numpy as np

rng = np.random.default_rng(76)
n, d = 7, 8
words = rng.normal(size=(n, d))
place = np.arange(n)[:, None]
waves = 10000.0 ** (-2 * np.arange(0, d, 2) / d)  # wrong: sinusoid-waves-wrong
table = np.zeros((n, d))
table[:, 0::2] = np.sin(place * waves)
table[:, 1::2] = np.cos(place * waves)
x = words + table

w_q, w_k, w_v = rng.normal(size=(3, d, d)) / 3
scores = (x @ w_q) @ (x @ w_k).T / np.sqrt(d)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (x @ w_v)).round(3))
