import numpy as np

rng = np.random.default_rng(7)
x = rng.normal(size=(6, 8))
wq, wk, wv, wo = rng.normal(size=(4, 8, 8)) / 8**0.5
table = rng.normal(size=(2, 11))
apart = np.arange(6) - np.arange(6)[:, None] + 5


def heads(y):
    return np.stack(np.split(y, 2, axis=-1))


s = heads(x @ wq) @ heads(x @ wk).swapaxes(1, 2) + table[:, apart]
w = np.exp(s - s.max(-1, keepdims=True))
w /= w.sum(-1, keepdims=True)
print((np.concatenate(list(w @ heads(x @ wv)), axis=-1) @ wo).shape)
