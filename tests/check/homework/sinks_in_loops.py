import numpy as np

rng = np.random.default_rng(73)
heads, n, d = 2, 5, 4
q, k, v = rng.normal(size=(3, heads, n, d))
sinks = np.array([0.4, -0.9])
for h in range(heads):
    for t in range(n):
        s = q[h, t] @ k[h, : t + 1].T / np.sqrt(d)
        most = max(s.max(), sinks[h])
        e = np.exp(s - most)
        total = e.sum() + np.exp(sinks[h] - most)
        print((e / total @ v[h, : t + 1]).round(5))
