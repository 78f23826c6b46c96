import numpy as np

rng = np.random.default_rng(82)
n, heads, d = 5, 3, 4
x = rng.normal(size=(n, heads * d))
w_q, w_k, w_v = (rng.normal(size=(heads * d, heads * d)) / 3 for _ in range(3))
q, k, v = x @ w_q, x @ w_k, x @ w_v
first_k = k[:, :d]
mixed = []
for h in range(heads):
    own = slice(h * d, h * d + d)
    s = q[:, own] @ first_k.T / np.sqrt(d)  # wrong: -
    a = np.exp(s - s.max(1, keepdims=True))
    mixed.append(a / a.sum(1, keepdims=True) @ v[:, own])
print(np.hstack(mixed).round(5))
