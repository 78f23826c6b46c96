import numpy as np

rng = np.random.default_rng(17)
heads, n, d = 3, 6, 4
q, k, v = rng.normal(size=(3, heads, n, d))
sinks = rng.normal(size=heads)

scores = q @ k.swapaxes(1, 2) / d**0.5
logits = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (heads, n, 1))], axis=-1)
e = np.exp(logits - logits.max(-1, keepdims=True))[..., :-1]  # wrong: sink-missing
weights = e / e.sum(-1, keepdims=True)
print(weights @ v)
