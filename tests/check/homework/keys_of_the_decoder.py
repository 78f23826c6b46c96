import numpy as np

rng = np.random.default_rng(37)
d = 6
own = rng.normal(size=(3, d, d)) / d**0.5
across = rng.normal(size=(3, d, d)) / d**0.5


def attend(weights, query, key, value):
    wq, wk, wv = weights
    s = (query @ wq) @ (key @ wk).T / d**0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ (value @ wv)


source, target = rng.normal(size=(2, 5, d))
target = target + attend(own, target, target, target)
target = target + attend(across, target, target, source)  # wrong: -
print(target.round(3))
