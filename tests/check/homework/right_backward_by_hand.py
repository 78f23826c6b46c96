"""A head and its gradients, written out."""

import numpy as np

rng = np.random.default_rng(51)
n, d = 6, 8
wq, wk, wv = rng.normal(size=(3, d, d)) / d**0.5
x = rng.normal(size=(n, d))
q, k, v = x @ wq, x @ wk, x @ wv
s = np.where(np.tri(n, dtype=bool), q @ k.T / d**0.5, -np.inf)
a = np.exp(s - s.max(-1, keepdims=True))
a /= a.sum(-1, keepdims=True)
y = a @ v

dy = rng.normal(size=y.shape)
da = dy @ v.T
dv = a.T @ dy
ds = a * (da - (da * a).sum(-1, keepdims=True)) / d**0.5
dq, dk = ds @ k, ds.T @ q
print((x.T @ dq).round(3), (x.T @ dk).round(3), (x.T @ dv).round(3))
