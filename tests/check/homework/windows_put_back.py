import numpy as np

rng = np.random.default_rng(84)
grid, side, width = 4, 2, 5
picture = rng.normal(size=(grid, grid, width))
w_q, w_k, w_v = (rng.normal(size=(width, width)) / np.sqrt(width) for _ in range(3))
cut = picture.reshape(grid // side, side, grid // side, side, width).transpose(0, 2, 1, 3, 4)
x = cut.reshape(-1, side * side, width)
q, k, v = x @ w_q, x @ w_k, x @ w_v
s = q @ k.swapaxes(1, 2) / np.sqrt(width)
p = np.exp(s - s.max(-1, keepdims=True))
out = p / p.sum(-1, keepdims=True) @ v
back = out.reshape(grid // side, grid // side, side, side, width).transpose(0, 2, 1, 3, 4)
print(back.reshape(grid, grid, width).round(5))
