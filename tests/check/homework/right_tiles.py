import numpy as np

rng = np.random.default_rng(3)
Q, K, V = (rng.normal(size=(n, 5)) for n in (7, 11, 11))


def flash(q, k, v, block):
    top = np.full((len(q), 1), -np.inf)
    total = np.zeros((len(q), 1))
    mixed = np.zeros((len(q), v.shape[1]))
    for j in range(0, len(k), block):
        scores = q @ k[j : j + block].T / np.sqrt(q.shape[1])
        new = np.maximum(top, scores.max(1, keepdims=True))
        powers = np.exp(scores - new)
        less = np.exp(top - new)
        total = total * less + powers.sum(1, keepdims=True)
        mixed = mixed * less + powers @ v[j : j + block]
        top = new
    return mixed / total


for block in (1, 4, 11):
    print(flash(Q, K, V, block).sum())
