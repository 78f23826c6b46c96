import numpy as np

rng = np.random.default_rng(79)
heads, n, d = 2, 7, 8
q, k, v = rng.normal(size=(3, heads, n, d))


def turn(x):
    half = d // 2
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(half) / half)
    c, s = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c - a * s], axis=-1)  # wrong: -


scores = turn(q) @ turn(k).swapaxes(-1, -2) / np.sqrt(d)
scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).round(3))
