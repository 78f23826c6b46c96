import numpy as np

rng = np.random.default_rng(80)
n, d, heads, d_k = 6, 12, 3, 4
x = rng.normal(size=(n, d))
w_q, w_k = rng.normal(size=(2, heads, d, d_k)) / d**0.5
both = w_q @ w_k.swapaxes(1, 2) / np.sqrt(d_k)  # W_Q W_K^T of each head
out = np.zeros_like(x)
for one in both:
    scores = x @ one @ x.T + np.where(np.tri(n), 0.0, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    out += e / e.sum(-1, keepdims=True) @ x
print(out.round(3))
