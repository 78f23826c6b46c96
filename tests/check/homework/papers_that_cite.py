import numpy as np

rng = np.random.default_rng(72)
earlier = {0: [], 1: [0], 2: [0, 1], 3: [1], 4: [2, 3], 5: [0, 4]}
cites = np.eye(6, dtype=bool)
for paper, others in earlier.items():
    for other in others:
        cites[paper, other] = True
texts = rng.normal(size=(6, 5))
Q, K, V = (texts @ rng.normal(size=(5, 4)) for _ in range(3))
S = Q @ K.T / 2
S[~cites] = -np.inf
P = np.exp(S - S.max(axis=1, keepdims=True))
P = P / P.sum(axis=1, keepdims=True)
print((P @ V).round(5))
