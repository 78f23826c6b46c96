import numpy as np

rng = np.random.default_rng(4)
b, n, h, d = 2, 6, 2, 4
x = rng.normal(size=(b, n, h * d))
w_q, w_k, w_v, w_o = rng.normal(size=(4, h * d, h * d)) / (h * d) ** 0.5

q = np.einsum("bnc,cd->bnd", x, w_q).reshape(b, n, h, d).swapaxes(1, 2)
k = np.einsum("bnc,cd->bnd", x, w_k).reshape(b, n, h, d).swapaxes(1, 2)
v = np.einsum("bnc,cd->bnd", x, w_v).reshape(b, n, h, d).swapaxes(1, 2)
sim = np.einsum("bhid,bhjd->bhij", q, k) / d**0.5
causal = np.tril(np.ones((n, n), dtype=bool), k=1)  # wrong: causal-offset
sim[:, :, ~causal] = -np.inf
attn = np.exp(sim - sim.max(-1, keepdims=True))
attn /= attn.sum(-1, keepdims=True)
out = np.einsum("bhij,bhjd->bhid", attn, v).swapaxes(1, 2).reshape(b, n, h * d)
y = out @ w_o
