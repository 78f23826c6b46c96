import numpy as np

rng = np.random.default_rng(36)
d, most = 6, 10
wq, wk, wv = rng.normal(size=(3, d, d)) / d**0.5
keys, values = np.zeros((2, most, d))
x = rng.normal(size=(7, d))
for t in range(7):
    keys[t] = x[t] @ wk
    values[t + 1] = x[t] @ wv  # wrong: -
    s = keys[: t + 1] @ (x[t] @ wq) / d**0.5
    e = np.exp(s - s.max())
    print((e / e.sum() @ values[: t + 1]).round(3))
