import numpy as np

rng = np.random.default_rng(2)
lengths = np.array([5, 3, 4])
x = rng.normal(size=(3, 5, 4))
keep = np.arange(5) < lengths[:, None]
x[~keep] = 0
wq, wk, wv = rng.normal(size=(3, 4, 4))
z = (x @ wq) @ (x @ wk).swapaxes(1, 2) / 2
z = z + np.where(keep[:, :, None], 0, -1e9)  # wrong: mask-transposed
z = np.exp(z - z.max(-1, keepdims=True))
print((z / z.sum(-1, keepdims=True) @ (x @ wv)).shape)
