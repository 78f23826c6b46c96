import numpy as np

rng = np.random.default_rng(31)


def layer():
    return {name: rng.normal(size=(6, 6)) / 6**0.5 for name in ("query", "key", "value", "out")}


def attend(x, wq, wk, wv, wo):
    s = (x @ wq) @ (x @ wk).T / 6**0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ (x @ wv) @ wo


first, last = layer(), layer()
x = rng.normal(size=(5, 6))
x = x + attend(x, first["query"], first["key"], first["value"], first["out"])
x = x + attend(x, last["query"], first["key"], last["value"], last["out"])  # wrong: weights-of-another-layer
print(x.round(3))
