# options: --causal
import numpy as np

rng = np.random.default_rng(14)
n, d, heads = 5, 6, 2
sinks = rng.normal(size=heads)
q, k, v = rng.normal(size=(3, heads, n, d))
s = q @ k.swapaxes(1, 2) / np.sqrt(d) + np.triu(np.full((n, n), -np.inf), 1)
s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (heads, n, 1))], axis=-1)
e = np.exp(s - s.max(-1, keepdims=True))
w = e / e.sum(-1, keepdims=True)
w = w[..., 1:]  # wrong: -
print(w @ v)
