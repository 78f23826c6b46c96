import numpy as np

text_of = np.repeat([0, 1, 2], [5, 3, 6])
n, d = len(text_of), 8
rng = np.random.default_rng(31)
q, k, v = rng.normal(size=(3, n, d))

same_text = text_of[:, None] == text_of[None, :]
not_later = np.arange(n)[:, None] >= np.arange(n)[None, :]
scores = np.where(same_text & not_later, q @ k.T / d**0.5, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights = weights / weights.sum(-1, keepdims=True)
print(weights @ v)
