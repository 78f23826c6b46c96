import numpy as np

rng = np.random.default_rng(4)
w_q, w_k, w_v = rng.normal(size=(3, 6, 6))
keys, values = np.zeros((10, 6)), np.zeros((10, 6))
for t, word in enumerate(rng.normal(size=(7, 6))):
    keys[t], values[t] = word @ w_k, word @ w_v
    z = keys @ (word @ w_q) / 6**0.5  # wrong: mask-ignored
    a = np.exp(z - z.max())
    print((a / a.sum() @ values).round(3))
