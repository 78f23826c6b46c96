import numpy as np

rng = np.random.default_rng(71)
n, d, far = 7, 6, 2
x = rng.normal(size=(n, d))
w_q, w_k, w_v = rng.normal(size=(3, d, d)) / np.sqrt(d)
by_distance, told = rng.normal(size=(2, 2 * far + 1, d))
q, k, v = x @ w_q, x @ w_k, x @ w_v
distance = np.clip(np.arange(n) - np.arange(n)[:, None], -far, far) + far
logits = q @ k.T + np.einsum("id,ijd->ij", q, by_distance[distance])
logits = logits / np.sqrt(d)
weights = np.exp(logits - logits.max(1, keepdims=True))
weights /= weights.sum(1, keepdims=True)
print((weights @ v + np.einsum("ij,ijd->id", weights, told[distance])).round(5))
