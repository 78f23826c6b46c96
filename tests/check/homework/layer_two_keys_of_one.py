import numpy as np

rng = np.random.default_rng(9)
x = rng.normal(size=(5, 6))
first, second = rng.normal(size=(2, 3, 6, 6)) / 6**0.5


def soft(z):
    z = np.exp(z - z.max(-1, keepdims=True))
    return z / z.sum(-1, keepdims=True)


q1, k1, v1 = (x @ w for w in first)
y = x + soft(q1 @ k1.T / 6**0.5) @ v1
q2, k2, v2 = (y @ w for w in second)
z = y + soft(q2 @ k1.T / 6**0.5) @ v2  # wrong: -
print(z.shape)
