# options: --positions rope
import numpy as np

rng = np.random.default_rng(17)
n, d = 6, 8


def angles():
    frequencies = 10000.0 ** (-np.arange(0, d, 2) / d)
    return np.repeat(np.outer(np.arange(n), frequencies), 2, axis=-1)  # wrong: rotary-angles-mixed


def turn(x):
    halves = np.concatenate([-x[:, d // 2 :], x[:, : d // 2]], axis=-1)
    return x * np.cos(angles()) + halves * np.sin(angles())


x = rng.normal(size=(n, d))
Wq, Wk, Wv = rng.normal(size=(3, d, d)) / d**0.5
s = turn(x @ Wq) @ turn(x @ Wk).T / np.sqrt(d)
e = np.exp(s - s.max(-1, keepdims=True))
print(e / e.sum(-1, keepdims=True) @ (x @ Wv))
