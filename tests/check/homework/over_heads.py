import numpy as np

rng = np.random.default_rng(70)
batch, tokens, heads, d_head = 2, 6, 3, 4
width = heads * d_head
x = rng.normal(size=(batch, tokens, width))
w_q, w_k, w_v = rng.normal(size=(3, width, width)) / width**0.5

split = [(x @ w).reshape(batch, tokens, heads, d_head) for w in (w_q, w_k, w_v)]
q, k, v = split
scores = q @ k.swapaxes(-1, -2) / d_head**0.5  # wrong: attention-over-heads
e = np.exp(scores - scores.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ v).reshape(batch, tokens, width).round(3))
