import numpy as np

ROWS, COLUMNS = 4, 3
rng = np.random.default_rng(5)
n, d = 14, 8
q, k, v = rng.normal(size=(3, n, d))
out = np.zeros((n, d))

for top in range(0, n, ROWS):
    rows = np.arange(top, min(top + ROWS, n))
    largest = np.full((len(rows), 1), -np.inf)
    total = np.zeros((len(rows), 1))
    mixed = np.zeros((len(rows), d))
    for left in range(0, rows[-1] + 1, COLUMNS):
        columns = np.arange(left, min(left + COLUMNS, n))
        s = q[rows[0] : rows[-1] + 1] @ k[columns[0] : columns[-1] + 1].T / np.sqrt(d)
        s[columns[None] > rows[:, None]] = -np.inf
        now = np.maximum(largest, s.max(1, keepdims=True))
        p = np.exp(s - now)
        shrink = np.exp(largest - now)
        total = total * shrink + p.sum(1, keepdims=True)
        mixed = mixed * shrink + p @ v[columns[0] : columns[-1] + 1]
        largest = now
    out[rows] = mixed / total
print(out.round(3))
