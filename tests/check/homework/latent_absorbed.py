import numpy as np

rng = np.random.default_rng(70)
n, width, heads, d, rank = 6, 12, 3, 4, 5
x = rng.normal(size=(n, width))
to_query = rng.normal(size=(heads, width, d)) / 3
down = rng.normal(size=(width, rank)) / 3
up_key = rng.normal(size=(heads, rank, d)) / 2
latent = x @ down
query = np.einsum("tw,hwd->htd", x, to_query)
absorbed = np.einsum("htd,hrd->htr", query, up_key)
scores = absorbed @ latent.T / np.sqrt(d)
scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
print((weights @ latent).round(5))
