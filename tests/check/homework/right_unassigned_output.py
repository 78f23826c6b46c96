import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(6, 8))
wq, wk, wv, wo = rng.normal(size=(4, 8, 8)) / 8**0.5


def split(a):
    return a.reshape(6, 2, 4).swapaxes(0, 1)


q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
s = q @ k.swapaxes(-1, -2) / 4**0.5
a = np.exp(s - s.max(-1, keepdims=True)); a /= a.sum(-1, keepdims=True)
z = (a @ v).swapaxes(0, 1).reshape(6, 8)
print(z @ wo)
