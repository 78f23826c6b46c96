import numpy as np

rng = np.random.default_rng(34)
n, d = 6, 8
wq, wk, wv = rng.normal(size=(3, d, d)) / d**0.5
x = rng.normal(size=(n, d))


def turn(rows):
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
    left, right = rows[:, : d // 2], rows[:, d // 2 :]
    return np.concatenate(
        [left * np.cos(angles) - right * np.sin(angles), right * np.cos(angles) + left * np.sin(angles)], -1
    )


q, k, v = (turn(x @ w) for w in (wq, wk, wv))  # wrong: rotary-on-values
s = q @ k.T / d**0.5
e = np.exp(s - s.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
