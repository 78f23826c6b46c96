import numpy as np

rng = np.random.default_rng(79)
n, d = 5, 6


def layer():
    return {"w": rng.normal(size=(d, d)) / np.sqrt(d), "b": rng.normal(size=d)}


layers = {name: layer() for name in ("ask", "known", "told")}
x = rng.normal(size=(n, d))
Q = x @ layers["ask"]["w"] + layers["ask"]["b"]
K = x @ layers["known"]["w"] + layers["ask"]["b"]  # wrong: bias-wrong
V = x @ layers["told"]["w"] + layers["told"]["b"]
S = Q @ K.T / np.sqrt(d)
A = np.exp(S - S.max(1, keepdims=True))
print((A / A.sum(1, keepdims=True) @ V).round(5))
