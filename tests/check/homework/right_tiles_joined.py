import numpy as np

BLOCK = 4
rng = np.random.default_rng(18)
n, d = 12, 6
q, k, v = rng.normal(size=(3, n, d)) * 1.5
out = np.empty((n, d))

for top in range(0, n, BLOCK):
    rows = slice(top, top + BLOCK)
    largest = np.full((BLOCK, 1), -1e30)
    total = np.zeros((BLOCK, 1))
    mixed = np.zeros((BLOCK, d))
    for left in range(0, top + BLOCK, BLOCK):
        columns = slice(left, left + BLOCK)
        s = q[rows] @ k[columns].T * d**-0.5
        s = np.where(np.arange(n)[columns][None] <= np.arange(n)[rows][:, None], s, -1e30)
        now = np.maximum(largest, s.max(1, keepdims=True))
        p = np.exp(s - now)
        shrink = np.exp(largest - now)
        total = total * shrink + p.sum(1, keepdims=True)
        mixed = mixed * shrink + p @ v[columns]
        largest = now
    out[rows] = mixed / total
print(out.round(3))
