import numpy as np

rng = np.random.default_rng(2)
lengths = np.array([6, 4, 5])
x = rng.normal(size=(3, 6, 8))
Wq, Wk, Wv = rng.normal(size=(3, 8, 8)) / 8**0.5


def added(is_word):
    return is_word[:, None, :] * -10000.0  # wrong: mask-inverted


s = x @ Wq @ (x @ Wk).swapaxes(1, 2) / np.sqrt(8)
s = s + added(np.arange(6) < lengths[:, None])
e = np.exp(s - s.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (x @ Wv))[:, 0])
