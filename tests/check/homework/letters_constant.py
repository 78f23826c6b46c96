import numpy as np
r = np.random.RandomState(7)
E = r.rand(4, 6)
A1, A2, A3 = r.rand(6, 6), r.rand(6, 6), r.rand(6, 6)
q, k, v = E @ A1, E @ A2, E @ A3
s = q @ k.T
s = s / 6  # wrong: scale-by-d_k
p = np.exp(s)
p = p / p.sum(1, keepdims=True)
z = p @ v
print(z)
