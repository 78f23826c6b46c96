# options: --causal
import numpy as np

rng = np.random.default_rng(12)
d = 6
Wq, Wk, Wv, Wo = rng.normal(size=(4, d, d)) / d**0.5
keys, values, buffer = [], [], np.empty(d)


def step(x):
    keys.append(x @ Wk)
    np.matmul(x, Wv, out=buffer)
    values.append(buffer)  # wrong: one-row-again
    K, V = np.stack(keys), np.stack(values)
    s = K @ (x @ Wq) / np.sqrt(d)
    e = np.exp(s - s.max())
    return e / e.sum() @ V @ Wo


for token in rng.normal(size=(4, d)):
    print(step(token))
