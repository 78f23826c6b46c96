import numpy as np

rng = np.random.default_rng(5)
Wq, Wk, Wv, Wo = rng.normal(size=(4, 6, 6)) / 6**0.5
keys, values = [], []


def step(word):
    q = (word @ Wq).reshape(2, 3)
    keys.append((word @ Wk).reshape(2, 3))
    values.append((word @ Wv).reshape(2, 3))
    k, v = np.stack(keys, 1), np.stack(values, 1)
    s = np.einsum("hd,htd->ht", q, k) / 3**0.5
    e = np.exp(s - s.max(1)[:, None])
    a = e / e.sum(1)[:, None]
    return (a[:, :, None] * v).sum(axis=1).ravel() @ Wo


print(np.array([step(word) for word in rng.normal(size=(6, 6))]).shape)
