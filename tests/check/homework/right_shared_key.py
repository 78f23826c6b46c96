import numpy as np

HEADS, WIDTH, D = 4, 5, 20
rng = np.random.default_rng(12)
w_q = rng.normal(size=(D, HEADS * WIDTH)) / D**0.5
w_kv = rng.normal(size=(D, 2 * WIDTH)) / D**0.5
x = rng.normal(size=(3, 7, D))

q = (x @ w_q).reshape(3, 7, HEADS, WIDTH).swapaxes(1, 2)
kv = x @ w_kv
k, v = kv[..., :WIDTH], kv[..., WIDTH:]
scores = q @ k.swapaxes(1, 2)[:, None] / WIDTH**0.5
e = np.exp(scores - scores.max(-1, keepdims=True))
mixed = e / e.sum(-1, keepdims=True) @ v[:, None]
print(mixed.shape)
