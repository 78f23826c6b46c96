import numpy as np

rng = np.random.default_rng(14)
d, most = 6, 12
w_q, w_k, w_v = rng.normal(size=(3, d, d)) / d**0.5
keys, values = np.zeros((2, most, d))


def attend(x, slots):
    keys[slots] = x @ w_k  # wrong: -
    values[slots] = x @ w_v
    seen = np.arange(most)[None] <= slots[:, None]
    scores = np.where(seen, x @ w_q @ keys.T / d**0.5, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ values


prompt = rng.normal(size=(5, d))
attend(prompt, np.arange(5))
new = rng.normal(size=(1, d))
print(attend(new, np.array([4])))
