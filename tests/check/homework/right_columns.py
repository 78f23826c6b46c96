import numpy as np

rng = np.random.default_rng(3)
X = rng.normal(size=(9, 6))  # each column is a token
Wq, Wk, Wv = rng.normal(size=(4, 9)), rng.normal(size=(4, 9)), rng.normal(size=(5, 9))
one = np.ones((1, 6))
Q = Wq @ X + rng.normal(size=(4, 1)) @ one
K = Wk @ X + rng.normal(size=(4, 1)) @ one
V = Wv @ X
S = K.T @ Q / np.sqrt(4)
A = np.zeros((6, 6))
for j in range(6):
    e = np.exp(S[:, j] - S[:, j].max())
    A[:, j] = e / e.sum()
print((V @ A).shape)
